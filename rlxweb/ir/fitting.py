"""Is an array what a graph declares? Asked of inputs, of params, of what is saved.

An array's dtype is never changed and its shape never guessed; a Python list, which has
no dtype of its own, takes the declared one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from rlxweb.errors import (
    DTypeError,
    RlxError,
    ShapeError,
    UnknownName,
    did_you_mean,
    shown,
)
from rlxweb.given import array_of
from rlxweb.ir.dtype import DType, cast_whole, how_to_cast, shown_dtype
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import show

Array = npt.NDArray[Any]
_TOLD = 20


def array_for(value: Any, dtype: DType) -> Array:
    """What was given, as an array. Errors  those of `array_of`, DTypeError."""
    array = array_of(value, bfloat16=True)
    if isinstance(value, bool | int | float | list | tuple):
        # A list has no dtype of its own; a change of kind or of value is refused.
        fits = not array.size or _kind_fits(array.dtype.kind, dtype)
        return cast_whole(array, dtype) if fits else array
    return array


def _kind_fits(have: str, want: DType) -> bool:
    if have not in "biuf":
        return False
    kind = "f" if want.is_float else want.numpy.kind
    return have == kind or (have in "iu" and kind in "iuf")


def fitted(doing: str, value: Any, want: TensorType) -> Array:
    """What was given, as the array that a graph declares.

    Errors   those of `array_of`, DTypeError, ShapeError.
    """
    try:
        array = array_for(value, want.dtype)
    except RlxError as error:
        error.doing = doing
        raise
    check_fits(doing, array, want)
    return array.astype(want.dtype.numpy, copy=False)


def unknown(doing: str, what: str, name: str, known: Mapping[str, Any]) -> UnknownName:
    """The error for a name that does not exist, with near matches."""
    told = ", ".join(map(shown, list(known)[:_TOLD]))
    more = ", …" * (len(known) > _TOLD)
    return UnknownName(
        doing,
        f"the graph has no {what} '{name}'",
        f"it has {told}{more}" if known else f"it has no {what}s",
        did_you_mean(str(name), known),
    )


def check_fits(doing: str, array: Any, want: TensorType) -> None:
    """Errors  DTypeError, ShapeError. `array` may lie on a device."""
    if array.dtype.newbyteorder("=") != want.dtype.numpy:
        raise DTypeError(
            doing,
            f"the array is {shown_dtype(array.dtype)}",
            f"the graph declares {want.dtype}",
            how_to_cast(want.dtype),
        )
    if array.shape != want.shape:
        raise ShapeError(
            doing,
            f"the array is {show(array.shape)}",
            f"the graph declares {show(want.shape)}",
            "reshape it, or build the graph for this shape",
        )
