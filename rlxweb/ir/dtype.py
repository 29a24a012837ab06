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

from rlxweb.bfloat16 import BFLOAT16, from_float32, is_bfloat16, to_float32
from rlxweb.errors import DTypeError


class DType(Enum):
    """One element type. The value is its label, as printed in shapes (`[4] f32`)."""

    BOOL = "bool"
    F16 = "f16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    U16 = "u16"
    BF16 = "bf16"

    @property
    def label(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self]

    @property
    def held(self) -> np.dtype[Any]:
        """The NumPy dtype that references compute in: of bfloat16 it is float32."""
        return _NUMPY[DType.F32 if self is DType.BF16 else self]

    @property
    def nbytes(self) -> int:
        """Bytes of one element in a NumPy array (a device may store bool wider)."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.BF16, DType.F16, DType.F32, DType.F64)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def is_unsigned(self) -> bool:
        """Integers from 0 on."""
        return self.numpy.kind == "u"

    @property
    def most(self) -> float:
        """The largest finite number of the type; its least is that of `least`."""
        if self is DType.BOOL:
            return 1
        if self is DType.BF16:
            return float(np.float32(3.3895314e38))
        if self.is_float:
            return float(np.finfo(self.numpy).max)
        return int(np.iinfo(self.numpy).max)

    @property
    def least(self) -> float:
        """The smallest finite number of the type."""
        if self.is_integer:
            return int(np.iinfo(self.numpy).min)
        return -self.most if self.is_float else 0

    def __str__(self) -> str:
        return self.value


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.I16: np.dtype(np.int16),
    DType.U16: np.dtype(np.uint16),
    DType.BF16: BFLOAT16,
    DType.F16: np.dtype(np.float16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I64: np.dtype(np.int64),
    DType.U64: np.dtype(np.uint64),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
NARROW = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.BF16})
"""Types that engines store and compute in wider ones (`compile/narrow_types.py`)."""
_BY_NUMPY = {v: k for k, v in _NUMPY.items()}
_BY_NAME = (
    {d.value: d for d in DType}
    | {d.numpy.name: d for d in DType}
    | {"half": DType.F16, "single": DType.F32, "double": DType.F64}
    | {"bfloat16": DType.BF16}
)
# RLX's types that rlxweb has none for, and what is said of each.
_RLX_ONLY = {"c64": "a pair of f32"}

DTypeLike = DType | str | np.dtype[Any] | type


def as_dtype(value: DTypeLike) -> DType:
    """The DType of a name, a NumPy dtype or scalar type, or a DType.

    A name is RLX's label ("f32", where 32 counts bits), NumPy's full name ("float32"),
    or half, single, double; case and outer space do not matter. NumPy's short codes
    count bytes where RLX counts bits: "i8" is an integer of 8 bits here, and codes that
    mean nothing in bits ("f8", "u4") are refused.

    Errors   DTypeError for anything rlxweb has no type for.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        found = _BY_NAME.get(value.strip().lower())
    else:
        found = _of_numpy(value)
    if found is None:
        raise DTypeError(
            "dtype",
            f"rlxweb has no element type for {_shown(value)}",
            "types are " + ", ".join(d.value for d in DType),
            _hint(value) or "cast the array first",
        )
    return found


def _of_numpy(value: Any) -> DType | None:
    """The type NumPy reads; in any byte order."""
    if value is not None:  # NumPy reads None as float64
        with suppress(TypeError, ValueError, SyntaxError):
            dtype = np.dtype(value).newbyteorder("=")
            return DType.BF16 if is_bfloat16(dtype) else _BY_NUMPY.get(dtype)
    return None


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 60 else type(value).__name__


def _hint(value: object) -> str:
    """What a name may have meant."""
    if not isinstance(value, str):
        return ""
    name = value.strip()
    said = []
    if name.lower() in _RLX_ONLY:
        what = _RLX_ONLY[name.lower()]
        said.append(f"RLX's {name.lower()} is {what}, which rlxweb does not have")
    meant = _of_numpy(name)
    if meant is not None:
        said.append(f"NumPy's {name!r} is '{meant.value}' here, counted in bits")
    return "; ".join(said)


def cast_whole(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The array in `dtype`; into integers and bool only if no value changes.

    Into floats values are rounded, and none becomes infinite by it.
    Errors   DTypeError with the first value the type cannot hold.
    """
    if is_bfloat16(array.dtype):
        array = to_float32(array)
    if array.dtype.kind not in "biuf":
        raise DTypeError("", f"{array.dtype} values are not {dtype} numbers")
    with np.errstate(all="ignore"):
        made = cast_to(array, dtype)
    if dtype is not DType.BF16 and np.can_cast(array.dtype, made.dtype):
        return made
    wide = to_float32(made) if dtype is DType.BF16 else made
    over = np.isinf(wide) & np.isfinite(array) if dtype.is_float else made != array
    lost = np.asarray(over)
    if lost.any():
        raise not_a_number_of(array[lost].reshape(-1)[0].item(), dtype)
    return made


def shown_dtype(dtype: Any) -> str:
    """A dtype of an array, in words."""
    is_numpy = isinstance(dtype, np.dtype)
    return "bfloat16" if is_numpy and is_bfloat16(dtype) else str(dtype)


def how_to_cast(dtype: DType) -> str:
    """What turns an array into one of the type, as a hint."""
    if dtype is DType.BF16:
        return "cast it: rlxweb.bfloat16.from_float32(array)"
    return f"cast it: array.astype('{dtype.numpy}')"


def cast_to(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """NumPy's `astype` between any two of our types, bfloat16 among them."""
    if is_bfloat16(array.dtype):
        array = to_float32(array)
    return from_float32(array) if dtype is DType.BF16 else array.astype(dtype.numpy)


def not_a_number_of(value: float, dtype: DType) -> DTypeError:
    """The error for one value that a type does not hold, with why."""
    least, most = dtype.least, dtype.most
    if dtype.is_float:
        most = float(f"{most:.6g}")
        least = -most
    why = "it is not integral"
    if value < least or value > most:
        why = f"it is out of range, {least} to {most}"
    return DTypeError(
        "",
        f"{value!r} is not a {dtype} number",
        why,
        "pass values its type can hold, or cast them first",
    )
