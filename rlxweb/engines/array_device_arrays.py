"""Device arrays of an engine over an array library: the library's own arrays, never
written to.

Half of `array.ArrayEngine`, which says what the attributes are; the runs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Protocol

import numpy as np

from rlxweb.core.bfloat16 import from_float32, is_bfloat16, widen_bfloat16
from rlxweb.core.errors import DTypeError
from rlxweb.engines.capabilities import ImportsDlpack
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    Engine,
    read_only_view,
    require_own_buffer,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType


class LibraryArray(Protocol):
    """Attributes that rlxweb reads from a library's array outside the library's
    namespace.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...


class LibraryDeviceBuffer(DeviceBuffer):
    """Device buffer that wraps a library's array, which nobody writes to."""

    __slots__ = ("value",)
    engine: LibraryArrayEngine

    def __init__(
        self,
        engine: LibraryArrayEngine,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        value: LibraryArray,
    ) -> None:
        super().__init__(engine, shape, dtype)
        self.value = read_only_view(value) if isinstance(value, np.ndarray) else value

    def is_usable_by(self, engine: Engine) -> bool:
        # Engines that differ in their kernels alone share the library's arrays.
        return (
            isinstance(engine, LibraryArrayEngine)
            and engine.identity == self.engine.identity
        )

    def part(self, first: int, shape: tuple[int, ...]) -> LibraryDeviceBuffer:
        engine = self.engine
        with engine.library_context():
            flat = engine.xp.reshape(self.value, (-1,))
            value = engine.xp.reshape(flat[first : first + prod(shape)], shape)
        return LibraryDeviceBuffer(engine, shape, self.dtype, value)

    def lend(self, copy: bool = False) -> object | None:
        if is_bfloat16(self.dtype):
            return None  # who borrows it would take it for what it is here, float32
        engine = self.engine
        with engine.library_context():
            exporter = engine.copy_array(self.value) if copy else self.value
            engine.finish_exchange()
        return exporter


def _dlpack_device(array: Any) -> tuple[int, int]:
    """Return DLPack's device type and device index; two devices of a type share no
    memory.
    """
    kind, index = array.__dlpack_device__()
    return int(kind), int(index)


def upload_array(
    to_device: Callable[[Array], LibraryArray], array: Array
) -> LibraryArray:
    """Copy an array to the device; bfloat16 is stored as float32 there."""
    return to_device(widen_bfloat16(array))


def restore_dtype(array: Array, dtype: DType) -> Array:
    """Convert an array from the device to its own type: bfloat16 is float32 there."""
    return from_float32(array) if dtype is DType.BF16 else array


def copy_if_shared(array: Array, others: Sequence[Array]) -> Array:
    """Return the array itself, or a copy if the caller may not write to its memory."""
    flags = array.flags
    is_plain = flags.c_contiguous and flags.writeable
    if is_plain and flags.owndata:  # whose only other holders are views of it
        is_shared = any(other is array or other.base is array for other in others)
    else:
        is_shared = is_plain and any(
            np.may_share_memory(array, other) for other in others
        )
    return array.copy(order="C") if is_shared or not is_plain else array


class LibraryArrayEngine(ImportsDlpack):
    """Base of engines whose device arrays are arrays of a library."""

    xp: Any
    _shares_host_memory: bool
    _to_device: Callable[[Array], LibraryArray]
    copy_to_host: Callable[[Any], Array]
    copy_array: Callable[[Any], LibraryArray]
    _from_dlpack: Callable[[object], LibraryArray] | None
    library_context: Callable[[], AbstractContextManager[Any]]

    def finish_exchange(self) -> None:
        """Wait until arrays that were taken or lent are safe to use in any stream."""

    def library_array(self, value: Array | DeviceBuffer) -> LibraryArray:
        """Return the library's array of a host array or of a device buffer."""
        if isinstance(value, DeviceBuffer):
            return require_own_buffer(self, LibraryDeviceBuffer, value).value
        return self._to_device(value)

    def _contiguous(self, value: LibraryArray) -> LibraryArray:
        """Return the value in row-major order where the host can see its memory."""
        if not self._shares_host_memory:
            return value
        host_array = self.copy_to_host(value)
        return (
            value
            if host_array.flags.c_contiguous
            else self._to_device(host_array.copy("C"))
        )

    def _device_buffer(
        self, tensor_type: TensorType, value: LibraryArray
    ) -> LibraryDeviceBuffer:
        return LibraryDeviceBuffer(
            self, tensor_type.shape, tensor_type.dtype.numpy, value
        )

    async def put(self, array: Array) -> LibraryDeviceBuffer:
        with self.library_context():
            value = self._to_device(np.array(array, order="C"))
        return LibraryDeviceBuffer(self, array.shape, array.dtype, value)

    async def take(self, array: object) -> LibraryDeviceBuffer | None:
        if self._from_dlpack is None:
            return None
        with self.library_context():
            probe = self._to_device(np.zeros(1, np.float32))
            if _dlpack_device(array) != _dlpack_device(probe):
                return None
            value = self.copy_array(self._from_dlpack(array))
            self.finish_exchange()
            shape, dtype = tuple(value.shape), self._numpy_dtype(value)
        return LibraryDeviceBuffer(self, shape, dtype, value)

    def _numpy_dtype(self, value: LibraryArray) -> np.dtype[Any]:
        accepted = self.target.array_dtypes
        for dtype in accepted - {DType.BF16}:
            if self._to_device(np.zeros(1, dtype.numpy)).dtype == value.dtype:
                return dtype.numpy
        raise DTypeError(
            f"put an array on {self.name}",
            f"the array has dtype {value.dtype}",
            f"expected {', '.join(sorted(d.label for d in accepted))}",
        )

    async def get(self, buffer: DeviceBuffer) -> Array:
        value = require_own_buffer(self, LibraryDeviceBuffer, buffer).value
        with self.library_context():
            array = self.copy_to_host(value)
        if is_bfloat16(buffer.dtype):
            return from_float32(array)
        return read_only_view(array) if self._shares_host_memory else array
