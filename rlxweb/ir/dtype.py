"""The element types of rlxweb and what each one is in NumPy and in WGSL.

Owns names, sizes and parsing. Says nothing about which op takes which type (the op
does) or which device has it (the backend's target does).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import DTypeError


class DType(Enum):
    """One element type. The value is its label, as printed in shapes (`[4] f32`)."""

    BOOL = "bool"
    F16 = "f16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    F32 = "f32"
    F64 = "f64"

    @property
    def label(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self]

    @property
    def nbytes(self) -> int:
        """Bytes of one element in a NumPy array (a device may store bool wider)."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.F16, DType.F32, DType.F64)

    @property
    def is_integer(self) -> bool:
        return self in (DType.I32, DType.U32, DType.I64)

    def __str__(self) -> str:
        return self.value


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.F16: np.dtype(np.float16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I64: np.dtype(np.int64),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
_BY_NUMPY = {v: k for k, v in _NUMPY.items()}

DTypeLike = DType | str | np.dtype[Any] | type


def as_dtype(value: DTypeLike) -> DType:
    """The DType of a label (`"f32"`), a NumPy name, dtype or scalar type, or a DType.

    Errors   DTypeError for anything rlxweb has no type for.
    """
    if isinstance(value, DType):
        return value
    found = None
    if isinstance(value, str):
        # NumPy's short codes are not read: its "f4" and "i8" count bytes, ours bits.
        found = next((d for d in DType if value in (d.value, d.numpy.name)), None)
    elif value is not None:  # NumPy reads None as float64
        with suppress(TypeError):
            found = _BY_NUMPY.get(np.dtype(value).newbyteorder("="))
    if found is None:
        raise DTypeError(
            "dtype",
            f"rlxweb has no element type for {value!r}",
            "types are " + ", ".join(d.value for d in DType),
            "cast the array first",
        )
    return found


def cast_whole(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The array in `dtype`; into integers and bool only if no value changes.

    Errors   DTypeError with the first value the type cannot hold.
    """
    if array.dtype.kind not in "biuf":
        raise DTypeError("", f"{array.dtype} values are not {dtype} numbers")
    with np.errstate(all="ignore"):
        made = array.astype(dtype.numpy)
    if not dtype.is_float:
        lost = np.asarray(made != array)
        if lost.any():
            raise DTypeError(
                "",
                f"{array[lost].reshape(-1)[0]!r} is not a {dtype} number",
                hint="pass values its type can hold, or cast them first",
            )
    return made
