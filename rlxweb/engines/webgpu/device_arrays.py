"""Device arrays of the WebGPU engine: the buffers that hold them, and the copies from
and to these.

Each owns its buffer: what a run leaves is copied out of the program's buffers, on the
device and in the submission of the run. Knows no program.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.codegen.kernel_launch_records import element_nbytes
from rlxweb.compiler.plan import DemotedValue, Plan
from rlxweb.core.errors import DeviceLost, GraphError, SessionClosed
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.limits import Limits
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    Engine,
    as_bytes,
    require_own_buffer,
)
from rlxweb.engines.webgpu.buffers import (
    as_stored,
    checked_buffer_bytes,
    free_handles,
    stored_bytes,
)
from rlxweb.engines.webgpu.dtype_demotion import (
    DEMOTED_DTYPES,
    check_value_range,
    default_value_range,
    demote_array,
    demoted_dtype,
)
from rlxweb.engines.webgpu.input_bindings import BufferPlacement
from rlxweb.engines.webgpu.program import OutputLocation
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange, GpuPort
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import TensorType

if TYPE_CHECKING:
    from rlxweb.engines.webgpu.engine import WebGpuEngine


class WebGpuDeviceBuffer(DeviceBuffer):
    """Numbers in a storage buffer, in the dtype in which shaders store them.

    placement  where they lie
    owned_handles  the buffer, until it is freed
    value_range  between which values it lies, where shaders have not its type
    parent  what this is a part of, if it is one
    """

    __slots__ = ("owned_handles", "parent", "placement", "value_range")
    engine: WebGpuEngine

    def __init__(
        self,
        engine: WebGpuEngine,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        placement: BufferPlacement,
        owned_handles: list[int],
        parent: WebGpuDeviceBuffer | None = None,
        value_range: DemotedValue | None = None,
    ) -> None:
        super().__init__(engine, shape, dtype)
        self.value_range = value_range
        self.placement, self.owned_handles, self.parent = (
            placement,
            owned_handles,
            parent,
        )

    def is_usable_by(self, engine: Engine) -> bool:
        return getattr(engine, "port", None) is self.engine.port

    def free(self) -> None:
        if not self.engine.is_closed:
            self.engine.arrays.free(self)
            self.engine.free_dropped()

    def part(self, first: int, shape: tuple[int, ...]) -> WebGpuDeviceBuffer:
        return self.engine.arrays.part(self, first, shape)


def copies_into(
    targets: Sequence[WebGpuDeviceBuffer | None], sources: Sequence[BufferRange | None]
) -> list[BufferCopy]:
    """Return the commands that copy outputs into the buffers that stay."""
    return [
        BufferCopy(source, target.placement.span.handle)
        for source, target in zip(sources, targets, strict=True)
        if target is not None and source is not None
    ]


class WebGpuArrayStore:
    """Arrays that stay on one port, for one engine.

    limits   what the engine may take of the device
    dropped_handles  gets the buffers of those that nobody refers to any more
    """

    def __init__(
        self,
        engine: WebGpuEngine,
        port: GpuPort,
        limits: Limits,
        dropped_handles: deque[list[int]],
    ) -> None:
        self._engine, self._port = engine, port
        self._limits, self._dropped_handles = limits, dropped_handles
        self._lock = ForkSafeLock()

    @property
    def freeing_lock(self) -> AbstractContextManager[object]:
        """Lock against freeing: while it is held, no buffer is freed."""
        return self._lock

    def allocate(
        self, tensor_type: TensorType, value_range: DemotedValue | None = None
    ) -> WebGpuDeviceBuffer:
        """Allocate an array whose numbers are not there yet.

        value_range  between which they will lie, of a type that shaders have not
        Errors   OutOfMemory, LimitExceeded.
        """
        size = stored_bytes(tensor_type)
        buffer_size = checked_buffer_bytes(
            size, self._limits, f"an array of shape {[*tensor_type.shape]}"
        )
        handle = self._port.create_buffer(buffer_size, "storage")
        handles = [handle]
        placement = BufferPlacement(
            BufferRange(handle, 0, -(-size // 4) * 4), buffer_size
        )
        args = (
            self._engine,
            tensor_type.shape,
            tensor_type.dtype.numpy,
            placement,
            handles,
        )
        buffer = WebGpuDeviceBuffer(*args, value_range=value_range)
        weakref.finalize(buffer, self._dropped_handles.append, handles).atexit = False
        return buffer

    def put(self, array: Array) -> WebGpuDeviceBuffer:
        """Copy an array of the host to the device. Errors  DTypeError for values out of
        range.
        """
        tensor_type, value_range = TensorType(array.shape, as_dtype(array.dtype)), None
        if tensor_type.dtype in DEMOTED_DTYPES:
            context = f"put an array on {self._engine.name}"
            array, value_range = demote_array(
                context, array, default_value_range(tensor_type.dtype)
            )
        buffer = self.allocate(tensor_type, value_range)
        if array.size:
            self._port.write(
                buffer.placement.span.handle, 0, as_bytes(as_stored(array))
            )
        return buffer

    def require_usable(self, context: str, buffer: DeviceBuffer) -> WebGpuDeviceBuffer:
        """Return a buffer if it is on this device and can be used.

        Errors   DeviceLost, SessionClosed; GraphError for another engine's.
        """
        own_buffer = require_own_buffer(self._engine, WebGpuDeviceBuffer, buffer)
        if self._port.lost:
            raise DeviceLost(
                context,
                f"the array was lost with its device, {self._engine.name} "
                f"({self._port.lost})",
                "data on a device has no copy on the host",
                "upload the array again",
            )
        if not own_buffer.owned_handles:
            raise SessionClosed(context, "the array was closed")
        return own_buffer

    def input_placement(
        self, context: str, plan: Plan, name: str, buffer: DeviceBuffer
    ) -> BufferPlacement:
        """Return a buffer's place, checked for an input or param. Errors  those of
        `require_usable`, DTypeError.
        """
        own_buffer = self.require_usable(context, buffer)
        check_value_range(plan, name, own_buffer.value_range)
        return own_buffer.placement

    async def get(self, context: str, buffer: DeviceBuffer) -> Array:
        """Read a buffer's numbers back."""
        own_buffer = self.require_usable(context, buffer)
        tensor_type = TensorType(own_buffer.shape, as_dtype(own_buffer.dtype))
        if not tensor_type.numel:
            return np.empty(own_buffer.shape, own_buffer.dtype)
        size = stored_bytes(tensor_type)
        span = own_buffer.placement.span
        raw = await self._port.read(span.handle, span.offset, size)
        return OutputLocation(0, tensor_type).decode(raw)

    def copy_to_param(
        self, context: str, plan: Plan, name: str, buffer: DeviceBuffer, handle: int
    ) -> None:
        """Copy a buffer's numbers into the buffer of a param. Errors  those of
        `input_placement`.
        """
        with self._lock:
            source = self.input_placement(context, plan, name, buffer).span
            self._port.submit([BufferCopy(source, handle)] if source.nbytes else [])

    def free(self, buffer: WebGpuDeviceBuffer) -> None:
        """Free a buffer; commands that are submitted still complete."""
        if buffer.parent is None:
            with self._lock:
                free_handles(self._port, buffer.owned_handles)

    def part(
        self, buffer: WebGpuDeviceBuffer, first: int, shape: tuple[int, ...]
    ) -> WebGpuDeviceBuffer:
        """Return a part of a buffer's numbers in place. Errors  GraphError unless it
        begins at a whole word.
        """
        context = f"take a part of an array on {self._engine.name}"
        own_buffer = self.require_usable(context, buffer)
        width = element_nbytes(demoted_dtype(as_dtype(own_buffer.dtype)))
        if first * width % 4:
            raise GraphError(
                context, f"element {first} does not start at a multiple of 4 bytes"
            )
        size, (span, available_bytes) = (
            -(-prod(shape) * width // 4) * 4,
            own_buffer.placement,
        )
        span = BufferRange(span.handle, span.offset + first * width, size)
        placement = BufferPlacement(span, available_bytes - first * width)
        args = shape, own_buffer.dtype, placement, own_buffer.owned_handles
        return WebGpuDeviceBuffer(
            own_buffer.engine,
            *args,
            own_buffer.parent or own_buffer,
            own_buffer.value_range,
        )
