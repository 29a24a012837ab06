"""Element types of rlxweb and their counterparts in NumPy and WGSL.

Owns names, sizes and parsing. Says nothing about which op takes which type (the op
does) or which device has it (the engine's target does).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.bfloat16 import BFLOAT16, from_float32, is_bfloat16, to_float32
from rlxweb.core.errors import DTypeError


class DType(Enum):
    """An element type. The value is its label, as printed in shapes (`[4] f32`)."""

    # A member is one object; Enum would hash its name, in Python, at every look-up.
    __hash__ = object.__hash__

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
    def reference_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype in which references compute: float32 for bfloat16."""
        return _NUMPY[DType.F32 if self is DType.BF16 else self]

    @property
    def nbytes(self) -> int:
        """Size in bytes of one element in a NumPy array (a device may store bool
        wider).
        """
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.BF16, DType.F16, DType.F32, DType.F64)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def is_unsigned(self) -> bool:
        """True for unsigned integers."""
        return self.numpy.kind == "u"

    @property
    def max_value(self) -> float:
        """The largest finite number of the type."""
        if self is DType.BOOL:
            return 1
        if self is DType.BF16:
            return float(np.float32(3.3895314e38))
        if self.is_float:
            return float(np.finfo(self.numpy).max)
        return int(np.iinfo(self.numpy).max)

    @property
    def min_value(self) -> float:
        """The smallest finite number of the type."""
        if self.is_integer:
            return int(np.iinfo(self.numpy).min)
        return -self.max_value if self.is_float else 0

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
PACKED_DTYPES = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.BF16})
"""Types that engines store packed and compute in wider ones
(`compiler/storage_dtype_widening.py`).
"""
_BY_NUMPY = {v: k for k, v in _NUMPY.items()}
_BY_NAME = (
    {d.value: d for d in DType}
    | {d.numpy.name: d for d in DType}
    | {"half": DType.F16, "single": DType.F32, "double": DType.F64}
    | {"bfloat16": DType.BF16}
)
# RLX's types that rlxweb has none for, and what is said of each.
_UNSUPPORTED_RLX_TYPES = {"c64": "a pair of f32"}

DTypeLike = DType | str | np.dtype[Any] | type


def as_dtype(value: DTypeLike) -> DType:
    """Return the DType of a name, a NumPy dtype or scalar type, or a DType.

    A name is RLX's label ("f32", where 32 counts bits), NumPy's full name ("float32"),
    or half, single, double; case and outer space do not matter. NumPy's short codes
    count bytes where RLX counts bits: "i8" is an integer of 8 bits here, and codes that
    mean nothing in bits ("f8", "u4") are refused.

    Errors   DTypeError for anything rlxweb has no type for.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        dtype = _BY_NAME.get(value.strip().lower())
    else:
        dtype = _dtype_from_numpy(value)
    if dtype is None:
        raise DTypeError(
            "dtype",
            f"rlxweb has no dtype for {_short_repr(value)}",
            "supported dtypes: " + ", ".join(d.value for d in DType),
            _hint(value) or "pass a supported dtype, or cast the array to one",
        )
    return dtype


def _dtype_from_numpy(value: Any) -> DType | None:
    """Return the type that NumPy reads, in any byte order, or None."""
    if value is not None:  # NumPy reads None as float64
        with suppress(TypeError, ValueError, SyntaxError):
            dtype = np.dtype(value).newbyteorder("=")
            return DType.BF16 if is_bfloat16(dtype) else _BY_NUMPY.get(dtype)
    return None


def _short_repr(value: object) -> str:
    return repr(value) if len(repr(value)) <= 60 else type(value).__name__


def _hint(value: object) -> str:
    """Return a hint about the type that an unknown name may have meant."""
    if not isinstance(value, str):
        return ""
    name = value.strip()
    hints = []
    if name.lower() in _UNSUPPORTED_RLX_TYPES:
        description = _UNSUPPORTED_RLX_TYPES[name.lower()]
        hints.append(
            f"RLX's {name.lower()} is {description}, which rlxweb does not support"
        )
    numpy_dtype = _dtype_from_numpy(name)
    if numpy_dtype is not None:
        hints.append(f"NumPy's {name!r} is '{numpy_dtype.value}' in rlxweb")
    return "; ".join(hints)


def cast_exact(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Cast an array; into integers and bool only if no value changes.

    Into floats values are rounded, and none becomes infinite by it.
    Errors   DTypeError with the first value the type cannot hold.
    """
    if is_bfloat16(array.dtype):
        array = to_float32(array)
    if array.dtype.kind not in "biuf":
        raise DTypeError("", f"{array.dtype} values cannot be represented as {dtype}")
    with np.errstate(all="ignore"):
        result = cast_array(array, dtype)
    if dtype is not DType.BF16 and np.can_cast(array.dtype, result.dtype):
        return result
    widened = to_float32(result) if dtype is DType.BF16 else result
    changed = (
        np.isinf(widened) & np.isfinite(array) if dtype.is_float else result != array
    )
    mismatches = np.asarray(changed)
    if mismatches.any():
        raise unrepresentable_error(array[mismatches].reshape(-1)[0].item(), dtype)
    return result


def dtype_name(dtype: Any) -> str:
    """Return the name of an array's dtype for messages."""
    is_numpy = isinstance(dtype, np.dtype)
    return "bfloat16" if is_numpy and is_bfloat16(dtype) else str(dtype)


def cast_hint(dtype: DType) -> str:
    """Return a hint that says how to cast an array to the type."""
    if dtype is DType.BF16:
        return "cast the array: rlxweb.core.bfloat16.from_float32(array)"
    return f"cast the array: array.astype('{dtype.numpy}')"


def cast_array(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Cast an array between any two types, like NumPy's `astype` but including
    bfloat16.
    """
    if is_bfloat16(array.dtype):
        array = to_float32(array)
    return from_float32(array) if dtype is DType.BF16 else array.astype(dtype.numpy)


def unrepresentable_error(value: float, dtype: DType) -> DTypeError:
    """Return the error for a value that a type cannot represent, with the reason."""
    min_value, max_value = dtype.min_value, dtype.max_value
    if dtype.is_float:
        max_value = float(f"{max_value:.6g}")
        min_value = -max_value
    reason = "it is not an integer"
    if value < min_value or value > max_value:
        reason = f"it is out of range ({min_value} to {max_value})"
    return DTypeError(
        "",
        f"{value!r} cannot be represented as {dtype}",
        reason,
        "pass values that the dtype can represent, or cast them first",
    )
