"""GPU port over wgpu-py, or over wgpudawn, which has the same interface.

Owns what they leave open: the deadline (their waits have none), the loss of a device
(it is only logged) and the mapping of their errors to those of `rlxweb.core.errors`.
Blocks inside its coroutines and never suspends. Knows buffers and commands, no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from rlxweb.core.errors import (
    DeviceError,
    DeviceLost,
    GpuTimeout,
    RlxError,
    ShaderRejected,
)
from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.core.limits import Limits
from rlxweb.gpu import adapter_selection as choice
from rlxweb.gpu import command_validation
from rlxweb.gpu.buffer_mapping import BufferMapper, ByteArray
from rlxweb.gpu.command_list_encoding import CommandBinder
from rlxweb.gpu.deadline_waits import DeadlineWaits
from rlxweb.gpu.driver_fork_guard import driver_fork_guard, leak_object
from rlxweb.gpu.port_base import HandleTable, PortBase
from rlxweb.gpu.port_protocol import (
    TIMESTAMP_FEATURE,
    AdapterRequest,
    BindingAccess,
    BufferUsage,
    Command,
    DeviceFacts,
)
from rlxweb.gpu.readback import BufferReader
from rlxweb.gpu.timestamps import time_lists_on_device
from rlxweb.gpu.unchecked_shaders import create_unchecked_module
from rlxweb.gpu.upload_staging import BufferUploader
from rlxweb.gpu.wgpu_error_translation import translate_error
from rlxweb.gpu.wgpu_ffi import FfiCommandBuffer, WgpuFfi, create_wgpu_ffi
from rlxweb.gpu.wgpu_libraries import WgpuLibrary, native_adapters, shader_compiler

MAPPED_WRITE_BYTES = 1 << 20
"""Size in bytes from which a write goes through mapped memory instead of the queue."""
MAPPABLE_FEATURE = "mappable-primary-buffers"
"""wgpu's feature for storage buffers that the host can map; Dawn has none."""
_USAGE_FLAGS: dict[BufferUsage, str] = {
    "storage": "STORAGE|COPY_SRC|COPY_DST",
    "uniform": "UNIFORM|COPY_DST",
    "readback": "MAP_READ|COPY_DST",
}


@cache
def _hung_adapters() -> list[Any]:
    """Return the OpenGL adapters of this process that hang; touching one again would
    abort it.
    """
    return []


class WgpuPort(PortBase):
    """GPU port over one wgpu device. Thread-safe: one lock around each method.

    `created` counts the driver objects made so far; `lost` says why the device is lost,
    and is empty while it is not. `library` is what serves it. `in_place` says whether
    large inputs are mapped and written where they lie, without a copy: only if asked
    for, and where the device computes in the host's memory and maps storage buffers.
    Other large writes go through staging buffers. Buffers made from then on follow a
    change of `in_place`, which an open port may undergo where `can_map_in_place` is
    true.
    """

    def __init__(
        self,
        deadline_s: float = 30.0,
        library: WgpuLibrary = "wgpu",
        in_place: bool = True,
    ) -> None:
        super().__init__(deadline_s, "buffers", "pipelines", "bind_groups")
        self.library = library
        self.in_place, self.can_map_in_place = in_place, False
        self._lock = ForkSafeLock()
        self._is_hung = False
        self._adapter: Any = None
        self._device: Any = None
        self._wgpu_ffi: WgpuFfi | None = None
        self._binder: Any = None
        self._reader: Any = None
        self._uploads: Any = None
        self._mapped_handles: set[int] = set()
        self._waits = DeadlineWaits(lambda: self.deadline_s)
        # The handles of the last submission while it may still run, and the handles
        # written since: writes go out with the next submission.
        self._running_handles = _NO_HANDLES
        self._written_handles: set[int] = set()
        register_child_callback(self, WgpuPort._after_fork_in_child)

    @property
    def compiler(self) -> str:
        """Name and version of the library's shader compiler."""
        return shader_compiler(self.library)

    @property
    def _max_commands_per_buffer(self) -> int | None:
        """Maximum number of commands per command buffer; None for all.

        A device works while the next are encoded, but OpenGL has no queue.
        """
        return None if self.facts.backend == "opengl" else COMMANDS_PER_BUFFER

    def _after_fork_in_child(self) -> None:
        """Mark the device as lost in a forked child, which lacks the driver's
        threads.
        """
        if self._device is not None and not self._closed:
            self.lost = driver_fork_guard.unusable_reason
            self._leak_native_objects()

    async def open(self, request: AdapterRequest) -> DeviceFacts:
        """Open the best adapter that matches the request and passes the self-test."""
        with self._lock:
            self._check_can_open(self._device)
            rejected: list[tuple[str, str]] = []
            loss: RlxError | None = None
            for facts, native, reason in choice.check_adapters(
                native_adapters(self.library), request
            ):
                if native in _hung_adapters():
                    reason = "it stopped responding earlier in this process"
                try:
                    if not reason:
                        return await self._open_adapter(facts, native, request)
                except RlxError as error:
                    reason = str(error)
                    loss = error if isinstance(error, DeviceLost | GpuTimeout) else loss
                    self._release()
                    self.lost, self._facts = "", None
                rejected.append((f"{facts.name} ({facts.backend})", reason))
            raise loss or choice.adapter_missing_error(request, rejected)

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        """Create a buffer, its size rounded up to a multiple of 4."""
        with self._lock:
            self._check_open("buffer")
            facts = command_validation.check_buffer(nbytes, usage, self.facts.limits)
            flags = _USAGE_FLAGS[usage]
            is_mapped = (
                is_host_written and facts.nbytes >= MAPPED_WRITE_BYTES and self.in_place
            )
            if is_mapped:
                flags += "|MAP_WRITE"
            with self._convert_errors(f"buffer of {nbytes} bytes ({usage})"):
                native = self._device.create_buffer(size=facts.nbytes, usage=flags)
            handle = self._new_handle("buffers")
            self._handle_table.buffers[handle] = native
            self._handle_table.buffer_facts[handle] = facts
            if is_mapped:
                self._mapped_handles.add(handle)
            return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """Copy host bytes to a buffer; large writes go through mapped memory."""
        with self._lock:
            self._check_open("write")
            flat, tail = command_validation.check_write(
                handle, offset, data, self._handle_table.buffer_facts
            )
            with self._convert_errors(f"write {data.nbytes} bytes to buffer {handle}"):
                if flat.nbytes >= MAPPED_WRITE_BYTES:
                    self._write_mapped(handle, offset, np.frombuffer(flat, np.uint8))
                elif flat.nbytes:
                    self._write_by_queue(handle, offset, flat)
                if tail:
                    self._write_by_queue(handle, offset + flat.nbytes, tail)

    async def create_pipeline(
        self,
        source: str,
        layout: Sequence[BindingAccess],
        constants: Mapping[str, float],
        *,
        needs_checks: bool = True,
    ) -> int:
        """Compile `main` of a WGSL module, without run-time checks if `needs_checks` is
        False.
        """
        with self._lock:
            self._check_open("pipeline")
            accesses = tuple(layout)
            command_validation.check_pipeline(
                source, accesses, constants, self.facts.limits
            )
            with self._convert_errors("compile a shader", ShaderRejected, source):
                module = (
                    None
                    if needs_checks
                    else create_unchecked_module(self._device, source)
                )
                if module is None:
                    module = self._device.create_shader_module(code=source)
                native = self._device.create_compute_pipeline(
                    layout=self._binder.create_pipeline_layout(accesses),
                    compute={
                        "module": module,
                        "entry_point": "main",
                        "constants": dict(constants),
                    },
                )
            handle = self._new_handle("pipelines")
            self._handle_table.pipelines[handle] = native
            self._handle_table.pipeline_layouts[handle] = accesses
            return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        """Queue the commands of all lists, in one or several command buffers."""
        with self._lock:
            self._check_open("submit")
            with self._convert_errors(f"submit {sum(map(len, lists))} commands"):
                limits = self.facts.limits
                command_buffers, handles = self._binder.command_buffers(
                    lists, limits, self._max_commands_per_buffer
                )
                for encoded in command_buffers:
                    self._queue_commands(encoded, handles)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """Wait for the queue and return a copy of exactly `nbytes` bytes."""
        with self._lock:
            self._check_open("read")
            facts = command_validation.check_read(
                handle, offset, nbytes, self._handle_table.buffer_facts
            )
            out = np.empty(nbytes, np.uint8)
            # A failed map means the device is gone or cannot be trusted any more.
            with self._convert_errors(
                f"read {nbytes} bytes of buffer {handle}", DeviceLost
            ):
                native = self._handle_table.buffers[handle]
                if nbytes == 0 or handle in self._written_handles:
                    self._drain()
                if nbytes and facts.usage == "readback":
                    self._reader.read_mappable(native, offset, out)
                    if handle in self._running_handles:
                        self._running_handles = _NO_HANDLES
                elif nbytes:
                    self._reader.read_through_staging(native, offset, out)
                    self._running_handles = _NO_HANDLES
            return out.data

    async def time_command_lists(
        self, lists: Sequence[Sequence[Command]]
    ) -> tuple[int, ...]:
        """Run the lists and return the nanoseconds of each by the device's clock."""
        with self._lock:
            self._check_open("timed")
            limits = self.facts.limits
            with self._convert_errors(
                f"time {len(lists)} lists of commands", DeviceLost
            ):
                if TIMESTAMP_FEATURE not in self.facts.features:
                    return await super().time_command_lists(lists)
                native_objects = (
                    self._device,
                    self._binder,
                    self._reader,
                    self._queue_commands,
                )
                durations_ns = time_lists_on_device(*native_objects, lists, limits)
                self._running_handles = _NO_HANDLES
                return durations_ns

    def destroy(self, handle: int) -> None:
        """Free a buffer or pipeline."""
        with self._lock:
            self._check_destroy(handle)
            if not self.lost:
                self._finish_waits("destroy")
            self._binder.forget_handle(handle)
            facts = self._handle_table.buffer_facts.get(handle)
            native = self._handle_table.remove(handle)
            if native is not None and not self.lost:
                native.destroy()
                self._mapped_handles.discard(handle)
                if facts is not None and facts.nbytes >= MAPPED_WRITE_BYTES:
                    self._free_staging_buffers()

    def _free_staging_buffers(self) -> None:
        """Free staging buffers once no large buffer is left."""
        if all(
            buffer.nbytes < MAPPED_WRITE_BYTES
            for buffer in self._handle_table.buffer_facts.values()
        ):
            self._uploads.free()
            self._reader.free()

    async def close(self) -> None:
        """Wait for the device and free everything; abandon a device that does not
        answer.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                # Freeing a busy device waits inside the driver, where no deadline
                # reaches; so wait here, and abandon a device that does not answer.
                if self._device is not None and not self.lost:
                    with self._convert_errors("close", DeviceLost):
                        self._waits.finish_interrupted()
                        self._drain()
            except (DeviceLost, GpuTimeout) as error:
                self.lost = self.lost or str(error)
            except BaseException:
                self._is_hung = True
                raise
            finally:
                self._release()

    async def _open_adapter(
        self, facts: DeviceFacts, native: Any, adapter_request: AdapterRequest
    ) -> DeviceFacts:
        """Open a device on an adapter and run the self-test."""
        self._adapter = native
        features = facts.features & frozenset(adapter_request.features)
        mappable = (
            {MAPPABLE_FEATURE} & facts.features
            if facts.has_shared_memory
            else set[str]()
        )
        self.can_map_in_place = bool(mappable)
        self.in_place = self.in_place and self.can_map_in_place
        limits = choice.limits_to_request(adapter_request.limits, facts.limits)

        def request() -> None:
            self._device = native.request_device_sync(
                required_features=sorted(features | mappable),
                required_limits={
                    f.name.replace("_", "-"): getattr(limits, f.name)
                    for f in fields(Limits)
                },
            )

        with self._convert_errors(f"open {facts.name} ({facts.backend})"):
            # Under the deadline too: wgpu polls every device of the process here, and
            # one of them may hang.
            self._waits.call_in_thread(request)
            granted = choice.limits_from_wgpu(self._device.limits)
        if self.library == "wgpu":
            self._wgpu_ffi = create_wgpu_ffi(self._device, self._waits)
        mapper = BufferMapper(self._waits, self.library == "wgpu")

        def submit(encoded: Any) -> None:
            self._queue_commands(encoded, _STAGING_HANDLES)

        self._reader = BufferReader(self._device, mapper, submit, self._wgpu_ffi)
        self._uploads = BufferUploader(self._device, mapper, submit)
        binder_arguments = self._handle_table, self.created_counts, self._wgpu_ffi
        self._binder = CommandBinder(self._device, *binder_arguments)
        return await self._verify_device(facts, features, granted, adapter_request)

    def _release(self) -> None:
        """Release every native object; leak those of a device that hangs."""
        if self._is_hung:
            self._leak_native_objects()
            if self._adapter.info["backend_type"].startswith("OpenGL"):
                _hung_adapters().append(self._adapter)
        elif not self.lost and self._device is not None:
            # Stops wgpu's poll thread and frees the memory at once; the device object
            # itself is in a reference cycle and goes with the next collection.
            self._device.destroy()
        self._adapter = self._device = self._binder = None
        self._reader = self._uploads = self._wgpu_ffi = None
        self._mapped_handles.clear()
        self._handle_table, self._waits = (
            HandleTable(),
            DeadlineWaits(lambda: self.deadline_s),
        )
        self._running_handles, self._is_hung = _NO_HANDLES, False
        self._written_handles.clear()

    def _leak_native_objects(self) -> None:
        """Keep all native objects alive for ever."""
        native_objects = [
            self._device,
            self._handle_table,
            self._binder,
            self._reader,
            self._waits,
        ]
        leak_object([*native_objects, self._uploads, self._wgpu_ffi, self._adapter])

    def _check_open(self, verb: str) -> None:
        """Raise an error if the port is unusable; finish interrupted waits."""
        self._check_usable(verb, self._device)
        self._finish_waits(verb)

    def _finish_waits(self, verb: str) -> None:
        """End waits that an exception interrupted."""
        with self._convert_errors(f"{verb} after an interrupt", DeviceLost):
            self._waits.finish_interrupted()

    def _write_by_queue(
        self, handle: int, offset: int, data: memoryview | bytes
    ) -> None:
        """Write bytes through the queue, which sends them with the next submission."""
        native = self._handle_table.buffers[handle]
        if self._wgpu_ffi is not None:
            self._wgpu_ffi.write(native, offset, data)
        else:
            self._device.queue.write_buffer(native, offset, data)
        self._written_handles.add(handle)

    def _write_mapped(self, handle: int, offset: int, data: ByteArray) -> None:
        """Write many whole words through mapped memory."""
        native = self._handle_table.buffers[handle]
        # What the queue has not sent yet must not come after this.
        if handle in self._mapped_handles and handle not in self._written_handles:
            self._uploads.write_in_place(native, offset, data)
        else:
            self._uploads.write_through_staging(native, offset, data)

    def _queue_commands(self, encoded: Any, handles: frozenset[int]) -> None:
        """Submit a command buffer, in another thread where the driver may block."""
        # An idle device takes a submission at once, except OpenGL, which runs it then
        # and there; a busy one may block until it is idle. Pieces of one list follow
        # on each other, on devices that have a queue of their own.
        accepts_at_once = (
            self._running_handles is _NO_HANDLES or self._running_handles is handles
        )
        self._running_handles = handles
        self._written_handles.clear()
        if accepts_at_once and self.facts.backend != "opengl":
            self._submit_now(encoded)
        else:
            self._waits.call_in_thread(lambda: self._submit_now(encoded))

    def _submit_now(self, encoded: Any) -> None:
        """Submit a command buffer to the device's queue."""
        if self._wgpu_ffi is not None and isinstance(encoded, FfiCommandBuffer):
            self._wgpu_ffi.submit(encoded)
        else:
            self._device.queue.submit([encoded])

    def _drain(self) -> None:
        """Wait until everything submitted is done."""
        self._reader.drain()
        self._running_handles = _NO_HANDLES

    @contextmanager
    def _convert_errors(
        self,
        context: str,
        default_error: type[DeviceError] = DeviceError,
        source: str = "",
    ) -> Iterator[None]:
        """Convert exceptions of wgpu to rlxweb errors and note a lost device."""
        try:
            yield
        except GpuTimeout:
            self._is_hung = True
            self.lost = f"it did not answer within {self.deadline_s:g} s"
            raise
        except RlxError:
            raise
        except Exception as error:
            converted = translate_error(error, context, default_error, source)
            if isinstance(converted, DeviceLost):
                self.lost = self.lost or converted.problem.splitlines()[-1].strip()
            raise converted from error


COMMANDS_PER_BUFFER = 24
"""Dispatches of a piece of a long list. On an H200 the 70 of MiniLM of 1 by 32 tokens
take 1.71 ms in one, 1.52 in pieces of 48, 1.32 in pieces of 24 or 16, 1.35 of 8.
"""
_NO_HANDLES = frozenset({0})
_STAGING_HANDLES: frozenset[int] = frozenset()
