"""Arithmetic, comparison, casts: what is not exactly one of our ops."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.draft import Draft, ours

_BINARY = {
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


@converts(*_BINARY, until=6)
def _old_binary(
    call: Call,
    x: Tensor,
    y: Tensor,
    *,
    axis: int | None = None,
    broadcast: int = 0,
    consumed_inputs: tuple[int, ...] = (),
) -> Tensor:
    """Before opset 7: y stands at `axis` of x, and only where `broadcast` says so."""
    if broadcast and axis is not None and y.rank:
        after = x.rank - (axis % x.rank) - y.rank
        y = y.reshape((*y.shape, *(1,) * max(after, 0)))
    elif not broadcast and x.shape != y.shape:
        call.contradict(f"operands of {x.shape} and {y.shape}", "broadcast is 0")
    return call.g.apply(_BINARY[call.node.op], x, y)


@converts("Pow", since=7)
def _pow(call: Call, x: Tensor, y: Tensor) -> Tensor:
    known = call.g.known(y)
    if x.dtype.is_float:
        is_square = known is not None and known.size == 1 and (known == 2).all()
        if is_square and y.rank <= x.rank:
            return x * x  # exactly that, for a tenth of the work
        return call.g.pow(x, y.cast(x.dtype))
    if y.dtype.is_float and (known is None or (known != np.trunc(known)).any()):
        return call.g.pow(x.cast("f32"), y.cast("f32")).cast(x.dtype)
    return _whole_power(call.g, x, y.cast(x.dtype))


def _whole_power(g: Draft, x: Tensor, y: Tensor) -> Tensor:
    """Of integers, with no rounding, by the bits of y; below 0 it is 1 / x cut off.

    What overflows is undefined: only 0, 1 and -1 have powers beyond those bits.
    """
    known = g.known(y)
    most = 63 if known is None else int(known.max(initial=0))
    one = g.constant(1, x.dtype)
    made, square = one, x
    for at in range(min(most, 63).bit_length()):
        odd = g.bitwise_and(g.shift_right(y, g.constant(at, y.dtype)), one)
        made = g.where(g.eq(odd, 0), made, made * square)
        square = square * square
    made = g.where(g.eq(x, 0), g.eq(y, 0).cast(x.dtype), made)
    if x.dtype.is_unsigned or (known is not None and (known >= 0).all()):
        return made
    sign = g.where(g.eq(g.bitwise_and(y, one), 0), x * x, x)
    return g.where(y < 0, g.where(g.le(g.abs(x), 1), sign, 0), made)


@converts("Max")
def _max(call: Call, x: Tensor, *more: Tensor) -> Tensor:
    return reduce(call.g.maximum, more, x)


@converts("Min")
def _min(call: Call, x: Tensor, *more: Tensor) -> Tensor:
    return reduce(call.g.minimum, more, x)


@converts("Sum")
def _sum(call: Call, x: Tensor, *more: Tensor) -> Tensor:
    return reduce(call.g.add, more, x)


@converts("Mean")
def _mean(call: Call, x: Tensor, *more: Tensor) -> Tensor:
    return reduce(call.g.add, more, x) / float(1 + len(more))


@converts("Mod")
def _mod(call: Call, x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return call.g.fmod(x, y) if fmod else call.g.mod(x, y)


@converts("Clip", until=10)
def _old_clip(
    call: Call,
    x: Tensor,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: tuple[int, ...] = (),
) -> Tensor:
    return call.g.clip(x, min, max)


@converts("Clip", since=11)
def _clip(
    call: Call, x: Tensor, min: Tensor | None = None, max: Tensor | None = None
) -> Tensor:
    return call.g.clip(x, min, max)


@converts("IsInf")
def _isinf(
    call: Call, x: Tensor, *, detect_positive: int = 1, detect_negative: int = 1
) -> Tensor:
    return call.g.isinf(x, bool(detect_positive), bool(detect_negative))


@converts("BitShift")
def _bit_shift(call: Call, x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    kinds = {"LEFT": "shift_left", "RIGHT": "shift_right"}
    if direction not in kinds:
        call.contradict(f"direction={direction!r}", "it is LEFT or RIGHT")
    return call.g.apply(kinds[direction], x, y)


@converts("PRelu", until=6)
def _old_prelu(
    call: Call, x: Tensor, slope: Tensor, *, consumed_inputs: tuple[int, ...] = ()
) -> Tensor:
    """Before opset 7: a slope for each channel stands at axis 1."""
    if slope.shape != x.shape and slope.rank == 1 and x.rank > 1:
        slope = slope.reshape((*slope.shape, *(1,) * (x.rank - 2)))
    return call.g.prelu(x, slope)


@converts("Gelu")
def _gelu(call: Call, x: Tensor, *, approximate: str = "none") -> Tensor:
    kinds = {"none": "gelu", "tanh": "gelu_approx"}
    if approximate not in kinds:
        call.contradict(f"approximate={approximate!r}", "it is none or tanh")
    return call.g.apply(kinds[approximate], x)


@converts("Cast")
def _cast(
    call: Call, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Value:
    return cast_to(call, x, library.dtype_of(to), saturate, round_mode)


@converts("CastLike")
def _cast_like(
    call: Call, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up"
) -> Value:
    dtype = like.dtype.numpy if isinstance(like, Tensor) else like.dtype
    return cast_to(call, x, dtype, saturate, round_mode)


def cast_to(
    call: Call,
    x: Value,
    dtype: np.dtype[Any],
    saturate: int = 1,
    round_mode: str = "up",
) -> Value:
    """A value in another type; known values also from and to those we have not."""
    to = ours(dtype)
    if isinstance(x, Tensor) and to is not None:
        return call.g.cast(x, to)
    known = call.known(x, f"what is cast to {dtype}")
    if "O" in (known.dtype.kind, dtype.kind):
        call.refuse(f"from {known.dtype} to {dtype}", "text is not read or written")
    return call.hold(library.cast_small(known, dtype, bool(saturate), round_mode))
