"""Converters of arithmetic, comparisons and casts that are not exactly an op of
rlxweb.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import FoldingGraph, rlx_dtype_or_none
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts

_BINARY_OPS = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Pow": "pow",
    "Equal": "eq",
    "Less": "lt",
    "Greater": "gt",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


@converts(*_BINARY_OPS, until=6)
def _old_binary(
    ctx: ConversionContext,
    x: Tensor,
    y: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: tuple[int, ...] = (),
) -> Tensor:
    """Convert a binary op of opset 6 or older: y is aligned to `axis` of x, and only
    where `broadcast` is set.
    """
    if broadcast and axis is not None and y.rank:
        trailing_axes = x.rank - (axis % x.rank) - y.rank
        y = y.reshape((*y.shape, *(1,) * max(trailing_axes, 0)))
    elif not broadcast and x.shape != y.shape:
        ctx.raise_invalid_model(
            f"the operands have shapes {x.shape} and {y.shape}",
            "the shapes must be equal because broadcast is 0",
        )
    return ctx.graph.apply(_BINARY_OPS[ctx.node.op], x, y)


@converts("Pow", since=7)
def _pow(ctx: ConversionContext, x: Tensor, y: Tensor) -> Tensor:
    exponent = ctx.graph.known_array(y)
    if x.dtype.is_float:
        is_square = (
            exponent is not None and exponent.size == 1 and (exponent == 2).all()
        )
        if is_square and y.rank <= x.rank:
            return x * x  # exactly that, for a tenth of the work
        return ctx.graph.pow(x, y.cast(x.dtype))
    if y.dtype.is_float and (
        exponent is None or (exponent != np.trunc(exponent)).any()
    ):
        return ctx.graph.pow(x.cast("f32"), y.cast("f32")).cast(x.dtype)
    return _integer_power(ctx.graph, x, y.cast(x.dtype))


def _integer_power(g: FoldingGraph, x: Tensor, y: Tensor) -> Tensor:
    """Return integer powers without rounding, by the bits of y; a negative exponent
    gives 1 / x truncated.

    What overflows is undefined: only 0, 1 and -1 have powers beyond those bits.
    """
    exponent = g.known_array(y)
    max_exponent = 63 if exponent is None else int(exponent.max(initial=0))
    unit = g.constant(1, x.dtype)
    power, square = unit, x
    for bit in range(min(max_exponent, 63).bit_length()):
        odd = g.bitwise_and(g.shift_right(y, g.constant(bit, y.dtype)), unit)
        power = g.where(g.eq(odd, 0), power, power * square)
        square = square * square
    power = g.where(g.eq(x, 0), g.eq(y, 0).cast(x.dtype), power)
    if x.dtype.is_unsigned or (exponent is not None and (exponent >= 0).all()):
        return power
    sign = g.where(g.eq(g.bitwise_and(y, unit), 0), x * x, x)
    return g.where(y < 0, g.where(g.le(g.abs(x), 1), sign, 0), power)


@converts("Max")
def _max(ctx: ConversionContext, x: Tensor, *others: Tensor) -> Tensor:
    return reduce(ctx.graph.maximum, others, x)


@converts("Min")
def _min(ctx: ConversionContext, x: Tensor, *others: Tensor) -> Tensor:
    return reduce(ctx.graph.minimum, others, x)


@converts("Sum")
def _sum(ctx: ConversionContext, x: Tensor, *others: Tensor) -> Tensor:
    return reduce(ctx.graph.add, others, x)


@converts("Mean")
def _mean(ctx: ConversionContext, x: Tensor, *others: Tensor) -> Tensor:
    return reduce(ctx.graph.add, others, x) / float(1 + len(others))


@converts("Mod")
def _mod(ctx: ConversionContext, x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return ctx.graph.fmod(x, y) if fmod else ctx.graph.mod(x, y)


@converts("Clip", until=10)
def _old_clip(
    ctx: ConversionContext,
    x: Tensor,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: tuple[int, ...] = (),
) -> Tensor:
    return ctx.graph.clip(x, min, max)


@converts("Clip", since=11)
def _clip(
    ctx: ConversionContext,
    x: Tensor,
    min: Tensor | None = None,
    max: Tensor | None = None,
) -> Tensor:
    return ctx.graph.clip(x, min, max)


@converts("IsInf")
def _isinf(
    ctx: ConversionContext,
    x: Tensor,
    *,
    detect_positive: int = 1,
    detect_negative: int = 1,
) -> Tensor:
    return ctx.graph.isinf(x, bool(detect_positive), bool(detect_negative))


@converts("BitShift")
def _bit_shift(
    ctx: ConversionContext, x: Tensor, y: Tensor, *, direction: str
) -> Tensor:
    kinds = {"LEFT": "shift_left", "RIGHT": "shift_right"}
    if direction not in kinds:
        ctx.raise_invalid_model(f"direction={direction!r}", "must be LEFT or RIGHT")
    return ctx.graph.apply(kinds[direction], x, y)


@converts("PRelu", until=6)
def _old_prelu(
    ctx: ConversionContext,
    x: Tensor,
    slope: Tensor,
    *,
    consumed_inputs: tuple[int, ...] = (),
) -> Tensor:
    """Convert PRelu of opset 6 or older: a slope per channel is aligned to axis 1."""
    if slope.shape != x.shape and slope.rank == 1 and x.rank > 1:
        slope = slope.reshape((*slope.shape, *(1,) * (x.rank - 2)))
    return ctx.graph.prelu(x, slope)


@converts("Gelu")
def _gelu(ctx: ConversionContext, x: Tensor, *, approximate: str = "none") -> Tensor:
    kinds = {"none": "gelu", "tanh": "gelu_approx"}
    if approximate not in kinds:
        ctx.raise_invalid_model(f"approximate={approximate!r}", "must be none or tanh")
    return ctx.graph.apply(kinds[approximate], x)


@converts("Cast")
def _cast(
    ctx: ConversionContext,
    x: Value,
    *,
    to: int,
    saturate: int = 1,
    round_mode: str = "up",
) -> Value:
    return cast_value(
        ctx, x, onnx_library_access.dtype_from_onnx(to), saturate, round_mode
    )


@converts("CastLike")
def _cast_like(
    ctx: ConversionContext,
    x: Value,
    like: Value,
    *,
    saturate: int = 1,
    round_mode: str = "up",
) -> Value:
    dtype = like.dtype.numpy if isinstance(like, Tensor) else like.dtype
    return cast_value(ctx, x, dtype, saturate, round_mode)


def cast_value(
    ctx: ConversionContext,
    x: Value,
    dtype: np.dtype[Any],
    saturate: int = 1,
    round_mode: str = "up",
) -> Value:
    """Cast a value to another type; a known value also from and to types that rlxweb
    does not have.
    """
    target_dtype = rlx_dtype_or_none(dtype)
    if isinstance(x, Tensor) and target_dtype is not None:
        return ctx.graph.cast(x, target_dtype)
    array = ctx.require_array(x, f"the input of the cast to {dtype}")
    if "O" in (array.dtype.kind, dtype.kind):
        names = ["text" if d.kind == "O" else d.name for d in (array.dtype, dtype)]
        ctx.raise_unsupported(
            f"cannot cast from {names[0]} to {names[1]}", "text is not supported"
        )
    return ctx.constant_value(
        onnx_library_access.cast_by_onnx_rules(array, dtype, bool(saturate), round_mode)
    )
