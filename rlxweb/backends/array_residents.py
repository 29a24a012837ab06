"""What stays on an engine over arrays: the library's own arrays, never written into.

Half of `array.ArrayBackend`, which says what the attributes are; the runs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Protocol

import numpy as np

from rlxweb.backends.protocol import Array, Backend, Resident, own_resident, sealed
from rlxweb.bfloat16 import from_float32, held, is_bfloat16
from rlxweb.errors import DTypeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType


class OwnArray(Protocol):
    """What is asked of a library's array outside its own namespace."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...


class ArrayResident(Resident):
    """A library's array, which nobody writes into."""

    __slots__ = ("value",)

    def __init__(
        self,
        engine: Backend,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        value: OwnArray,
    ) -> None:
        super().__init__(engine, shape, dtype)
        self.value = sealed(value) if isinstance(value, np.ndarray) else value


def _place_of(array: Any) -> tuple[int, int]:
    """DLPack's kind of device and which one; two of a kind share no memory."""
    kind, which = array.__dlpack_device__()
    return int(kind), int(which)


def laid(to_device: Callable[[Array], OwnArray], array: Array) -> OwnArray:
    """An array on the device, where numbers of bfloat16 are float32."""
    return to_device(held(array))


def of_type(array: Array, dtype: DType) -> Array:
    """An array from the device as one of its own type: bfloat16 is float32 there."""
    return from_float32(array) if dtype is DType.BF16 else array


def unshared(array: Array, others: Sequence[Array]) -> Array:
    """The array itself, or a copy when its memory is not the caller's to write."""
    flags = array.flags
    plain = flags.c_contiguous and flags.writeable
    if plain and flags.owndata:  # whose only other holders are views of it
        shared = any(o is array or o.base is array for o in others)
    else:
        shared = plain and any(np.may_share_memory(array, o) for o in others)
    return array.copy(order="C") if shared or not plain else array


class KeepsArrays(Backend):
    """An engine whose residents are arrays of a library."""

    _xp: Any
    _lends: bool
    _to_device: Callable[[Array], OwnArray]
    _to_host: Callable[[Any], Array]
    _copied: Callable[[Any], OwnArray]
    _from_dlpack: Callable[[object], OwnArray] | None
    _around: Callable[[], AbstractContextManager[Any]]

    def _fed(self, one: Array | Resident) -> OwnArray:
        if isinstance(one, Resident):
            return own_resident(self, ArrayResident, one).value
        return self._to_device(one)

    def _dense(self, value: OwnArray) -> OwnArray:
        """The value row by row, as far as the host can see."""
        if not self._lends:
            return value
        here = self._to_host(value)
        return value if here.flags.c_contiguous else self._to_device(here.copy("C"))

    def _resident(self, kind: TensorType, value: OwnArray) -> ArrayResident:
        return ArrayResident(self, kind.shape, kind.dtype.numpy, value)

    async def put(self, array: Array) -> ArrayResident:
        with self._around():
            value = self._to_device(np.array(array, order="C"))
        return ArrayResident(self, array.shape, array.dtype, value)

    async def take(self, given: object) -> ArrayResident | None:
        if self._from_dlpack is None:
            return None
        with self._around():
            own = self._to_device(np.zeros(1, np.float32))
            if _place_of(given) != _place_of(own):
                return None
            value = self._copied(self._from_dlpack(given))
            shape, dtype = tuple(value.shape), self._numpy_dtype(value)
        return ArrayResident(self, shape, dtype, value)

    def _numpy_dtype(self, value: OwnArray) -> np.dtype[Any]:
        known = self.target.accepts
        for dtype in known - {DType.BF16}:
            if self._to_device(np.zeros(1, dtype.numpy)).dtype == value.dtype:
                return dtype.numpy
        raise DTypeError(
            f"put an array on {self.name}",
            f"it is of {value.dtype}",
            f"it takes {', '.join(sorted(d.label for d in known))}",
        )

    async def get(self, resident: Resident) -> Array:
        value = own_resident(self, ArrayResident, resident).value
        with self._around():
            array = self._to_host(value)
        if is_bfloat16(resident.dtype):
            return from_float32(array)
        return sealed(array) if self._lends else array

    async def part(
        self, resident: Resident, first: int, shape: tuple[int, ...]
    ) -> ArrayResident:
        value = own_resident(self, ArrayResident, resident).value
        with self._around():
            flat = self._xp.reshape(value, (-1,))
            value = self._xp.reshape(flat[first : first + prod(shape)], shape)
        return ArrayResident(self, shape, resident.dtype, value)

    def lend(self, resident: Resident, copy: bool = False) -> object | None:
        value = own_resident(self, ArrayResident, resident).value
        if is_bfloat16(resident.dtype):
            return None  # who borrows it would take it for what it is here, float32
        with self._around():
            return self._copied(value) if copy else value
