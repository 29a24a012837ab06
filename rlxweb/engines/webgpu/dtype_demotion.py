"""Demotion of 64-bit arrays to the 32-bit types of shaders, with checks of their
values.

A plan says between which values an input may lie so that all that is computed of it
fits (`compiler/dtype_demotion.py`). One that lies elsewhere is an error with its place
before anything is computed; what comes back is widened again. Knows no buffers.
"""

from __future__ import annotations

import numpy as np

from rlxweb.compiler.plan import DemotedValue, Plan
from rlxweb.core.errors import DTypeError
from rlxweb.core.message_text import Advice
from rlxweb.engines.protocol import Array
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.value_range_rules import dtype_interval

DEMOTED_DTYPES = {DType.I64: DType.I32, DType.U64: DType.U32, DType.F64: DType.F32}
"""Dtypes that WGSL lacks, and the dtype in which values that fit are stored."""


def demoted_dtype(dtype: DType) -> DType:
    """Return the dtype in which shaders store an array of that dtype."""
    return DEMOTED_DTYPES.get(dtype, dtype)


def demote_input(plan: Plan, name: str, array: Array) -> Array:
    """Return an input or param in the dtype of a plan's shaders.

    Errors   DTypeError with the first value that they cannot have.
    """
    value_range = plan.demoted_inputs.get(name)
    if value_range is None:
        return array
    op = "input" if name in plan.graph.named("input") else "param"
    return demote_array(f"{op} '{name}' of '{plan.graph.name}'", array, value_range)[0]


def check_value_range(plan: Plan, name: str, array_range: DemotedValue | None) -> None:
    """Check that an array on the device is in the value range of this input or param.
    Errors  DTypeError.
    """
    value_range = plan.demoted_inputs.get(name)
    if value_range is None or array_range is None or value_range.dtype.is_float:
        return
    if array_range.low < value_range.low or array_range.high > value_range.high:
        raise DTypeError(
            f"input '{name}' of '{plan.graph.name}'",
            f"the values on the device may lie anywhere from {array_range}",
            _range_rule(value_range),
            "read the array back and pass it from the host, where its values are "
            "checked",
        )


def default_value_range(dtype: DType) -> DemotedValue:
    """Return the value range of an array for which no plan has set one."""
    if dtype.is_float:
        return DemotedValue(dtype, *dtype_interval(dtype))
    low, high = dtype_interval(demoted_dtype(dtype))
    return DemotedValue(dtype, max(low, -high), high)


def demote_array(
    context: str, array: Array, value_range: DemotedValue
) -> tuple[Array, DemotedValue]:
    """Return the numbers in the narrower type, and their value range.

    Errors   DTypeError with the first that does not fit.
    """
    if value_range.dtype.is_float:
        return _to_float32(context, array, value_range), value_range
    if not array.size:
        return array.astype(demoted_dtype(value_range.dtype).numpy), DemotedValue(
            value_range.dtype, 0, 0
        )
    low = int(np.minimum.reduce(array, axis=None))
    high = int(np.maximum.reduce(array, axis=None))
    if low < value_range.low or high > value_range.high:
        _raise_out_of_range(
            context,
            array,
            (array < value_range.low) | (array > value_range.high),
            value_range,
        )
    return array.astype(demoted_dtype(value_range.dtype).numpy), DemotedValue(
        value_range.dtype, low, high
    )


def _to_float32(context: str, array: Array, value_range: DemotedValue) -> Array:
    """Convert to float32, exactly or with the allowed kind of rounding."""
    with np.errstate(all="ignore"):
        single = array.astype(np.float32)
        if value_range.precision == "rounded":
            return single
        if value_range.precision == "odd":
            return _round_to_odd(array, single)
        differs = (single != array) & (single == single)
        # a device may take what lies so near to 0 for 0
        differs |= (np.abs(array) < np.finfo(np.float32).tiny) & (array != 0)
    if differs.any():
        _raise_out_of_range(context, array, differs, value_range)
    return single


def _round_to_odd(array: Array, single: Array) -> Array:
    """Round toward 0 and set the last bit where digits were lost: rounding the result
    once more is rounding the double once.
    """
    single = np.array(single)
    bits = single.view(np.uint32)
    is_inexact = np.isfinite(array) & (single != array)
    bits -= (is_inexact & (np.abs(single) > np.abs(array))).astype(np.uint32)
    bits |= is_inexact.astype(np.uint32)
    return single


def _raise_out_of_range(
    context: str, array: Array, is_wrong: Array, value_range: DemotedValue
) -> None:
    """Raise DTypeError for the first wrong value and its position."""
    flat_index = int(np.argmax(is_wrong))
    position = format_shape([int(i) for i in np.unravel_index(flat_index, array.shape)])
    raise DTypeError(
        context,
        f"the value is {array.reshape(-1)[flat_index].item()!r} at position {position}",
        _range_rule(value_range),
        Advice(
            (
                f"cast the values to {demoted_dtype(value_range.dtype)}"
                if value_range.dtype.is_float
                else "clip the values to this range"
            )
            + ", or run with {}",
            device="cpu",
        ),
    )


def _range_rule(value_range: DemotedValue) -> str:
    """Return the rule of an error message: the values that the device takes."""
    dtype = demoted_dtype(value_range.dtype)
    if value_range.dtype.is_float:
        return (
            f"the device has no {value_range.dtype} support and accepts only values "
            f"that {dtype} represents exactly"
        )
    text = (
        f"the device has no {value_range.dtype} support and accepts only values "
        f"from {value_range.low} to {value_range.high}"
    )
    return text + (
        f", so that the result of {value_range.limiting_node} fits in {dtype}"
        if value_range.limiting_node
        else ""
    )


def widen_output(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Convert an output to the dtype that the graph declares."""
    return array if array.dtype == dtype else array.astype(dtype)
