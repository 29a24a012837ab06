"""Direct calls of wgpu's C library without wgpu-py's wrappers, for short runs.

Of a run that takes the device some microseconds, wgpu-py's wrapping of a dozen calls
and the thread that waits for it take most. Here the library is called as wgpu-py 0.32
calls it, with what it says of errors looked at once for several calls, and a map is
polled for by the thread that wants it. Works on wgpu objects it is handed and never
imports wgpu; where the library is of another shape, there is none of this and wgpu-py
does it all. Used by `wgpu_port.py` and what moves bytes for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import numpy as np

from rlxweb.gpu.buffer_mapping import ByteArray
from rlxweb.gpu.deadline_waits import DeadlineWaits

SPIN_S = 2e-4
"""Seconds for which a thread polls itself; a longer wait can afford to wake another
thread.
"""
_ERROR_SCOPE = "rlxweb"
# A driver that computes on the CPU may want this core.
_yield_cpu: Callable[[], object] = getattr(os, "sched_yield", int)
_REQUIRED_SYMBOLS = (
    "wgpuDeviceCreateCommandEncoder",
    "wgpuCommandEncoderBeginComputePass",
    "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup",
    "wgpuComputePassEncoderDispatchWorkgroups",
    "wgpuComputePassEncoderEnd",
    "wgpuComputePassEncoderRelease",
    "wgpuCommandEncoderCopyBufferToBuffer",
    "wgpuCommandEncoderClearBuffer",
    "wgpuCommandEncoderFinish",
    "wgpuCommandEncoderRelease",
    "wgpuCommandBufferRelease",
    "wgpuQueueSubmit",
    "wgpuQueueWriteBuffer",
    "wgpuBufferMapAsync",
    "wgpuBufferGetConstMappedRange",
    "wgpuBufferUnmap",
    "wgpuDevicePoll",
    "WGPUCallbackMode_AllowProcessEvents",
    "WGPUMapAsyncStatus_Success",
    "WGPUMapMode_Read",
)


def create_wgpu_ffi(device: Any, waits: DeadlineWaits) -> WgpuFfi | None:
    """Return the C interface of an open device, or None if its library differs from
    wgpu-py 0.32.
    """
    # The library that made the device, whichever that is: nothing is imported here.
    module = sys.modules[type(device).__module__]
    lib = getattr(module, "lib", None)
    if lib is None or not all(hasattr(lib, name) for name in _REQUIRED_SYMBOLS):
        return None
    with suppress(Exception):  # a struct or a callback of another shape
        return WgpuFfi(module, device, waits)
    return None


class FfiCommandBuffer:
    """Finished command buffer for one submission."""

    def __init__(self, native: Any) -> None:
        self.native = native


class WgpuFfi:
    """C-level calls that a run consists of. The port's lock is held around each."""

    def __init__(self, module: Any, device: Any, waits: DeadlineWaits) -> None:
        self._lib, self._ffi = module.lib, module.ffi
        self._error_handler = module.error_handler
        helpers = sys.modules[f"{module.__package__}._helpers"]
        self._error_types: dict[str, type[Exception]] = helpers.ERROR_TYPES
        self._device = device._internal
        self._queue = device.queue._internal
        self._waits = waits
        new = self._ffi.new
        self._encoder_descriptor = new("WGPUCommandEncoderDescriptor *")
        self._pass_descriptor = new("WGPUComputePassDescriptor *")
        self._finish_descriptor = new("WGPUCommandBufferDescriptor *")
        self._command_buffer_array = new("WGPUCommandBuffer[1]")
        self._pending_map: _MapEvent | None = None
        callback_type = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
        # Held as long as this: the library calls it.
        self._map_callback = self._ffi.callback(callback_type, self._on_mapped)
        self._map_callback_info = new("WGPUBufferMapCallbackInfo *")
        self._map_callback_info.mode = self._lib.WGPUCallbackMode_AllowProcessEvents
        self._map_callback_info.callback = self._map_callback

    def _raise_captured_error(self) -> None:
        """Raise the error that the library reported since `capture`, if any."""
        captured = self._error_handler.release(_ERROR_SCOPE)
        if captured is not None:
            kind, text = captured
            raise self._error_types.get(kind, RuntimeError)(text)

    def encode(self, steps: Iterable[Any]) -> FfiCommandBuffer:
        """Encode the binder's steps into a command buffer. Raise wgpu's errors."""
        lib, null = self._lib, self._ffi.NULL
        self._error_handler.capture(_ERROR_SCOPE)
        encoder = lib.wgpuDeviceCreateCommandEncoder(
            self._device, self._encoder_descriptor
        )
        compute_pass = bound_pipeline = command_buffer = None
        try:
            for step in steps:
                if hasattr(step, "method"):
                    if compute_pass is not None:
                        self._end_pass(compute_pass)
                        compute_pass = bound_pipeline = None
                    self._encode_transfer(encoder, step)
                    continue
                if compute_pass is None:
                    compute_pass = lib.wgpuCommandEncoderBeginComputePass(
                        encoder, self._pass_descriptor
                    )
                if step.pipeline is not bound_pipeline:
                    bound_pipeline = step.pipeline
                    lib.wgpuComputePassEncoderSetPipeline(
                        compute_pass, bound_pipeline._internal
                    )
                for index, group in enumerate(step.groups):
                    lib.wgpuComputePassEncoderSetBindGroup(
                        compute_pass, index, group._internal, 0, null
                    )
                lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, *step.grid)
            if compute_pass is not None:
                self._end_pass(compute_pass)
                compute_pass = None
            command_buffer = lib.wgpuCommandEncoderFinish(
                encoder, self._finish_descriptor
            )
        finally:
            if compute_pass is not None:
                self._end_pass(compute_pass)
            lib.wgpuCommandEncoderRelease(encoder)
            self._raise_captured_error()
        return FfiCommandBuffer(command_buffer)

    def _end_pass(self, compute_pass: Any) -> None:
        """End and release a compute pass."""
        self._lib.wgpuComputePassEncoderEnd(compute_pass)
        self._lib.wgpuComputePassEncoderRelease(compute_pass)

    def _encode_transfer(self, encoder: Any, step: Any) -> None:
        """Encode a copy or a clear."""
        if step.method == "clear_buffer":
            native, offset, size = step.arguments
            self._lib.wgpuCommandEncoderClearBuffer(
                encoder, native._internal, offset, size
            )
            return
        source, offset, target, target_offset, size = step.arguments
        self._lib.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, source._internal, offset, target._internal, target_offset, size
        )

    def submit(self, encoded: FfiCommandBuffer) -> None:
        """Submit a command buffer. Raise wgpu's errors."""
        self._error_handler.capture(_ERROR_SCOPE)
        try:
            self._command_buffer_array[0] = encoded.native
            self._lib.wgpuQueueSubmit(self._queue, 1, self._command_buffer_array)
        finally:
            self._lib.wgpuCommandBufferRelease(encoded.native)
            self._raise_captured_error()

    def write(self, native: Any, offset: int, data: memoryview | bytes) -> None:
        """Write bytes that go out with the next submission. Raise wgpu's errors."""
        source = self._ffi.from_buffer(data)
        self._error_handler.capture(_ERROR_SCOPE)
        try:
            self._lib.wgpuQueueWriteBuffer(
                self._queue, native._internal, offset, source, len(source)
            )
        finally:
            # Garbage that holds a memory view and its export ends CPython.
            self._ffi.release(source)
            self._raise_captured_error()

    # --- reading ----------------------------------------------------------------------

    @contextmanager
    def map_buffer(self, native: Any, low: int, size: int) -> Iterator[ByteArray]:
        """Yield a buffer's bytes once all submitted work is done; valid inside the
        block.

        What breaks off in here is unmapped by `DeadlineWaits.finish`.
        Errors   GpuTimeout; RuntimeError where the device refuses.
        """
        map_event = self._pending_map = _MapEvent(
            self._poll, self._waits.start_in_thread
        )
        native_buffer, success = native._internal, self._lib.WGPUMapAsyncStatus_Success

        def undo() -> None:
            if map_event.status == success:
                self._lib.wgpuBufferUnmap(native_buffer)

        self._error_handler.capture(_ERROR_SCOPE)
        try:
            self._lib.wgpuBufferMapAsync(
                native_buffer,
                self._lib.WGPUMapMode_Read,
                low,
                size,
                self._map_callback_info[0],
            )
        finally:
            self._raise_captured_error()
        with self._waits.wait_around(map_event, undo):
            if map_event.status != success:
                raise RuntimeError(
                    f"the buffer cannot be mapped (status {map_event.status})"
                )
            address = self._lib.wgpuBufferGetConstMappedRange(native_buffer, low, size)
            if address == self._ffi.NULL:
                raise RuntimeError(f"0 of {size} bytes were mapped")
            yield np.frombuffer(self._ffi.buffer(address, size), np.uint8)
            self._lib.wgpuBufferUnmap(native_buffer)

    def _on_mapped(self, status: int, *_: Any) -> None:
        """Store the status of a finished map; the library's callback."""
        if self._pending_map is not None:
            self._pending_map.status = int(status)

    def _poll(self, is_blocking: bool) -> None:
        """Poll the device, waiting for it if blocking."""
        self._lib.wgpuDevicePoll(self._device, is_blocking, self._ffi.NULL)


class _MapEvent(threading.Event):
    """Event that is set once a map has ended; the waiting thread polls for it.

    status   how it ended, as the library says; 0 while it has not
    """

    def __init__(
        self,
        poll: Callable[[bool], None],
        run_in_thread: Callable[[Callable[[], object]], threading.Event],
    ) -> None:
        super().__init__()
        self.status = 0
        self._poll, self._run_in_thread = poll, run_in_thread
        self._blocking_wait: threading.Event | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Poll for a moment, then wait for a thread that may block."""
        if self._blocking_wait is None:
            end = perf_counter() + SPIN_S
            self._poll(False)
            while not self.status and perf_counter() < end:
                _yield_cpu()
                self._poll(False)
        if self.status:
            return True
        if self._blocking_wait is None:
            self._blocking_wait = self._run_in_thread(self._poll_until_mapped)
        return self._blocking_wait.wait(timeout) and self.status != 0

    def _poll_until_mapped(self) -> None:
        """Poll with blocking until the map has ended."""
        while not self.status:
            self._poll(True)
