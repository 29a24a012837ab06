"""Short runs on a wgpu device: its library called without wgpu-py's proxies.

Of a run that takes the device some microseconds, wgpu-py's wrapping of a dozen calls
and the thread that waits for it take most. Here the library is called as wgpu-py 0.32
calls it, with what it says of errors looked at once for several calls, and a map is
polled for by the thread that wants it. Works on wgpu objects it is handed and never
imports wgpu; where the library is of another shape, there is none of this and wgpu-py
does it all. Used by `native.py` and what moves bytes for it.
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

from rlxweb.gpu.mapping import Bytes
from rlxweb.gpu.waiting import Waits

SPIN_S = 2e-4
"""So long the thread asks itself; what takes longer can bear the wake of another."""
_NAME = "rlxweb"
# A driver that computes on the CPU may want this core.
_let_others: Callable[[], object] = getattr(os, "sched_yield", int)
_NEEDED = (
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


def quick(device: Any, waits: Waits) -> Quick | None:
    """The library of an open device, or None where it is not called as it was."""
    # The library that made the device, whichever that is: nothing is imported here.
    module = sys.modules[type(device).__module__]
    lib = getattr(module, "lib", None)
    if lib is None or not all(hasattr(lib, name) for name in _NEEDED):
        return None
    with suppress(Exception):  # a struct or a callback of another shape
        return Quick(module, device, waits)
    return None


class Encoded:
    """A finished command buffer, for one submission."""

    def __init__(self, made: Any) -> None:
        self.made = made


class Quick:
    """The calls that a run is made of. The port's lock is held around each."""

    def __init__(self, module: Any, device: Any, waits: Waits) -> None:
        self._lib, self._ffi = module.lib, module.ffi
        self._handler = module.error_handler
        helpers = sys.modules[f"{module.__package__}._helpers"]
        self._kinds: dict[str, type[Exception]] = helpers.ERROR_TYPES
        self._device = device._internal
        self._queue = device.queue._internal
        self._waits = waits
        new = self._ffi.new
        self._encoder = new("WGPUCommandEncoderDescriptor *")
        self._pass = new("WGPUComputePassDescriptor *")
        self._finish = new("WGPUCommandBufferDescriptor *")
        self._one = new("WGPUCommandBuffer[1]")
        self._map: _Map | None = None
        shape = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
        # Held as long as this: the library calls it.
        self._told = self._ffi.callback(shape, self._is_mapped)
        self._info = new("WGPUBufferMapCallbackInfo *")
        self._info.mode = self._lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = self._told

    def _checked(self) -> None:
        """What the library said since `capture`. Errors  those of wgpu."""
        found = self._handler.release(_NAME)
        if found is not None:
            kind, text = found
            raise self._kinds.get(kind, RuntimeError)(text)

    def encode(self, steps: Iterable[Any]) -> Encoded:
        """Steps of the binder as a command buffer. Errors  those of wgpu."""
        lib, null = self._lib, self._ffi.NULL
        self._handler.capture(_NAME)
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, self._encoder)
        compute = bound = made = None
        try:
            for step in steps:
                if hasattr(step, "method"):
                    if compute is not None:
                        self._end(compute)
                        compute = bound = None
                    self._copy(encoder, step)
                    continue
                if compute is None:
                    compute = lib.wgpuCommandEncoderBeginComputePass(
                        encoder, self._pass
                    )
                if step.pipeline is not bound:
                    bound = step.pipeline
                    lib.wgpuComputePassEncoderSetPipeline(compute, bound._internal)
                for index, group in enumerate(step.groups):
                    lib.wgpuComputePassEncoderSetBindGroup(
                        compute, index, group._internal, 0, null
                    )
                lib.wgpuComputePassEncoderDispatchWorkgroups(compute, *step.grid)
            if compute is not None:
                self._end(compute)
                compute = None
            made = lib.wgpuCommandEncoderFinish(encoder, self._finish)
        finally:
            if compute is not None:
                self._end(compute)
            lib.wgpuCommandEncoderRelease(encoder)
            self._checked()
        return Encoded(made)

    def _end(self, compute: Any) -> None:
        self._lib.wgpuComputePassEncoderEnd(compute)
        self._lib.wgpuComputePassEncoderRelease(compute)

    def _copy(self, encoder: Any, step: Any) -> None:
        if step.method == "clear_buffer":
            native, offset, size = step.arguments
            self._lib.wgpuCommandEncoderClearBuffer(
                encoder, native._internal, offset, size
            )
            return
        source, offset, target, to, size = step.arguments
        self._lib.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, source._internal, offset, target._internal, to, size
        )

    def submit(self, encoded: Encoded) -> None:
        """Queue it. Errors  those of wgpu."""
        self._handler.capture(_NAME)
        try:
            self._one[0] = encoded.made
            self._lib.wgpuQueueSubmit(self._queue, 1, self._one)
        finally:
            self._lib.wgpuCommandBufferRelease(encoded.made)
            self._checked()

    def write(self, native: Any, offset: int, data: memoryview | bytes) -> None:
        """Bytes that go out with the next submission. Errors  those of wgpu."""
        given = self._ffi.from_buffer(data)
        self._handler.capture(_NAME)
        try:
            self._lib.wgpuQueueWriteBuffer(
                self._queue, native._internal, offset, given, len(given)
            )
        finally:
            # Garbage that holds a memory view and its export ends CPython.
            self._ffi.release(given)
            self._checked()

    # --- reading ----------------------------------------------------------------------

    @contextmanager
    def mapped(self, native: Any, low: int, size: int) -> Iterator[Bytes]:
        """A buffer's bytes, once all that was submitted is done; read in the block.

        What breaks off in here is unmapped by `Waits.finish`.
        Errors   GpuTimeout; RuntimeError where the device refuses.
        """
        asked = self._map = _Map(self._poll, self._waits.begin)
        inside, success = native._internal, self._lib.WGPUMapAsyncStatus_Success

        def undo() -> None:
            if asked.status == success:
                self._lib.wgpuBufferUnmap(inside)

        self._handler.capture(_NAME)
        try:
            self._lib.wgpuBufferMapAsync(
                inside, self._lib.WGPUMapMode_Read, low, size, self._info[0]
            )
        finally:
            self._checked()
        with self._waits.after(asked, undo):
            if asked.status != success:
                raise RuntimeError(f"could not map the buffer ({asked.status})")
            at = self._lib.wgpuBufferGetConstMappedRange(inside, low, size)
            if at == self._ffi.NULL:
                raise RuntimeError(f"mapped no bytes of {size}")
            yield np.frombuffer(self._ffi.buffer(at, size), np.uint8)
            self._lib.wgpuBufferUnmap(inside)

    def _is_mapped(self, status: int, *_: Any) -> None:
        if self._map is not None:
            self._map.status = int(status)

    def _poll(self, is_blocking: bool) -> None:
        self._lib.wgpuDevicePoll(self._device, is_blocking, self._ffi.NULL)


class _Map(threading.Event):
    """Set once a map has an end. Whoever waits for it polls.

    status   how it ended, as the library says; 0 while it has not
    """

    def __init__(
        self,
        poll: Callable[[bool], None],
        beside: Callable[[Callable[[], object]], threading.Event],
    ) -> None:
        super().__init__()
        self.status = 0
        self._poll, self._beside = poll, beside
        self._rest: threading.Event | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Ask for a moment, then leave it to the thread that may block."""
        if self._rest is None:
            end = perf_counter() + SPIN_S
            self._poll(False)
            while not self.status and perf_counter() < end:
                _let_others()
                self._poll(False)
        if self.status:
            return True
        if self._rest is None:
            self._rest = self._beside(self._block)
        return self._rest.wait(timeout) and self.status != 0

    def _block(self) -> None:
        while not self.status:
            self._poll(True)
