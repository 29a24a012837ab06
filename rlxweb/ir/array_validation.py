"""Check that arrays match the shapes and dtypes a graph declares for inputs, params and
stored values.

An array's dtype is never changed and its shape never guessed; a Python list, which has
no dtype of its own, takes the declared one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import (
    DTypeError,
    RlxError,
    ShapeError,
    UnknownName,
    did_you_mean,
    shown,
)
from rlxweb.ir.dtype import DType, cast_exact, cast_hint, dtype_name
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape_arithmetic import format_shape

Array = npt.NDArray[Any]
_MAX_LISTED_NAMES = 20


def coerce_array(value: Any, dtype: DType) -> Array:
    """Return the value as an array; Python numbers and lists take `dtype` if it holds
    them. Errors  those of `array_of`, DTypeError.
    """
    array = as_array(value, allow_bfloat16=True)
    if isinstance(value, bool | int | float | list | tuple):
        # A list has no dtype of its own; a change of kind or of value is refused.
        is_compatible = not array.size or _is_compatible_kind(array.dtype.kind, dtype)
        return cast_exact(array, dtype) if is_compatible else array
    return array


def _is_compatible_kind(actual: str, dtype: DType) -> bool:
    if actual not in "biuf":
        return False
    kind = "f" if dtype.is_float else dtype.numpy.kind
    return actual == kind or (actual in "iu" and kind in "iuf")


def coerce_to_type(context: str, value: Any, declared: TensorType) -> Array:
    """Return the value as an array of the shape and dtype that a graph declares.

    Errors   those of `as_array`, DTypeError, ShapeError.
    """
    try:
        array = coerce_array(value, declared.dtype)
    except RlxError as error:
        error.doing = context
        raise
    check_array_type(context, array, declared)
    return array.astype(declared.dtype.numpy, copy=False)


def unknown_name_error(
    context: str, kind: str, name: str, known: Mapping[str, Any]
) -> UnknownName:
    """Return the error for a name that does not exist, with near matches."""
    listed = ", ".join(map(shown, list(known)[:_MAX_LISTED_NAMES]))
    suffix = ", …" * (len(known) > _MAX_LISTED_NAMES)
    return UnknownName(
        context,
        f"the graph has no {kind} '{name}'",
        f"its {kind}s are {listed}{suffix}" if known else f"it has no {kind}s",
        did_you_mean(str(name), known),
    )


def unset_params_clause(names: Iterable[str]) -> str:
    """Return `param 'w' has no value`, or `params 'w', 'b' have no value`."""
    listed = [repr(name) for name in names]
    start, verb = ("param", "has") if len(listed) == 1 else ("params", "have")
    return f"{start} {', '.join(listed)} {verb} no value"


def check_array_type(context: str, array: Any, declared: TensorType) -> None:
    """Check an array's dtype and shape against the declared type; the array may be on a
    device. Errors  DTypeError, ShapeError.
    """
    if array.dtype.newbyteorder("=") != declared.dtype.numpy:
        raise DTypeError(
            context,
            f"the array has dtype {dtype_name(array.dtype)}",
            f"the graph declares dtype {declared.dtype}",
            cast_hint(declared.dtype),
        )
    if array.shape != declared.shape:
        raise ShapeError(
            context,
            f"the array has shape {format_shape(array.shape)}",
            f"the graph declares shape {format_shape(declared.shape)}",
            "reshape the array, or build the graph for the shape of the array",
        )
