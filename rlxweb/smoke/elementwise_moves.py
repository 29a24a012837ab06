"""Elementwise moves of a growing random graph; see `moves.py` for what a move is."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlxweb.ir.dtype import DType
from rlxweb.smoke.grown import Grown, Value, of

Bound = Callable[[float, float], tuple[float, float, float]]
"""(low, high) of the operand → low, high of the result, Lipschitz constant."""


def is_float(v: Value) -> bool:
    """Is it of float32?"""
    return v.is_float


INF = math.inf
UNARY: dict[str, tuple[float, float, Bound]] = {
    "neg": (-INF, INF, lambda a, b: (-b, -a, 1)),
    "abs": (-INF, INF, lambda a, b: (0, max(abs(a), abs(b)), 1)),
    "relu": (-INF, INF, lambda a, b: (max(a, 0), max(b, 0), 1)),
    "exp": (-10, 3, lambda a, b: (math.exp(a), math.exp(b), math.exp(b))),
    "log": (0.05, INF, lambda a, b: (math.log(a), math.log(b), 1 / a)),
    "sqrt": (0.02, INF, lambda a, b: (a**0.5, b**0.5, 0.5 * a**-0.5)),
    "rsqrt": (0.05, INF, lambda a, b: (b**-0.5, a**-0.5, 0.5 * a**-1.5)),
    "sin": (-30, 30, lambda a, b: (-1, 1, 1)),
    "cos": (-30, 30, lambda a, b: (-1, 1, 1)),
    "tan": (-1.2, 1.2, lambda a, b: (math.tan(a), math.tan(b), 7.7)),
    "atan": (-INF, INF, lambda a, b: (math.atan(a), math.atan(b), 1)),
    "tanh": (-INF, INF, lambda a, b: (math.tanh(a), math.tanh(b), 1)),
    "sigmoid": (-40, 40, lambda a, b: (0, 1, 0.25)),
    "silu": (-INF, INF, lambda a, b: (-0.3, max(b, 0), 1.1)),
    "gelu": (-INF, INF, lambda a, b: (-0.2, max(b, 0), 1.13)),
    "gelu_approx": (-INF, INF, lambda a, b: (-0.2, max(b, 0), 1.13)),
}


@of(is_float)
def unary(grown: Grown, value: Value) -> Value | None:
    """An op of one operand, brought into its domain."""
    name = grown.one_of(*UNARY)
    low, high, bound = UNARY[name]
    value = grown.clamped(value, low, high)
    least, most, steep = bound(value.low, value.high)
    return grown.add(name, (value,), least, most, steep * value.error)


@of(is_float, lambda v: v.whole)
def rounded(grown: Grown, value: Value) -> Value | None:
    """Halves of whole numbers, so that every tie occurs and none is near."""
    half = grown.constant(0.5, value)
    halves = grown.add("mul", (value, half), value.low / 2, value.high / 2, 0.0)
    low, high = math.floor(halves.low), math.ceil(halves.high)
    made = grown.add("round", (halves,), low, high, 0.0)
    return Value(made.tensor, low, high, 0.0, True)


def _partner(grown: Grown, value: Value, *wanted: object) -> Value:
    """A value that broadcasts with this one, else a number."""

    def fits(other: Value) -> bool:
        if other.dtype is not value.dtype:
            return False
        both = zip(other.shape[::-1], value.shape[::-1], strict=False)
        return all(a == b or 1 in (a, b) for a, b in both)

    found = grown.pick(fits, *wanted) if grown.integer(0, 3) else None
    if found is None:
        return grown.constant(float(grown.integer(0, 5)), value)
    return found


@of(lambda v: v.dtype is not DType.BOOL)
def arithmetic(grown: Grown, x: Value) -> Value | None:
    """A sum, difference, product, maximum or minimum."""
    y = _partner(grown, x)
    if grown.integer(0, 1):
        x, y = y, x
    name = grown.one_of("add", "sub", "mul", "maximum", "minimum")
    carried = x.error + y.error
    corners = {
        "add": (x.low + y.low, x.high + y.high),
        "sub": (x.low - y.high, x.high - y.low),
        "maximum": (max(x.low, y.low), max(x.high, y.high)),
        "minimum": (min(x.low, y.low), min(x.high, y.high)),
    }
    if name == "mul":
        every = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
        low, high = min(every), max(every)
        carried = x.size * y.error + y.size * x.error
    else:
        low, high = corners[name]
    if x.dtype.is_unsigned and low < 0:  # it would wrap, which intervals cannot say
        return None
    return grown.add(name, (x, y), low, high, carried)


@of(is_float)
def divided(grown: Grown, x: Value) -> Value | None:
    """A quotient whose divisor is at least a half."""
    y = grown.clamped(_partner(grown, x), 0.5, INF)
    size = x.size / y.low
    carried = x.error / y.low + size / y.low * y.error
    return grown.add("div", (x, y), -size, size, carried)


@of(is_float)
def powered(grown: Grown, x: Value) -> Value | None:
    """A power of a base in [0.5, 4] to an exponent in [-2, 2]."""
    y = grown.clamped(_partner(grown, x), -2, 2)
    x = grown.clamped(x, 0.5, 4)
    return grown.add("pow", (x, y), 0, 16, 16 * x.error + 23 * y.error)


@of(lambda v: v.whole and v.dtype is not DType.BOOL)
def compared(grown: Grown, x: Value) -> Value | None:
    """A comparison of whole numbers, which no rounding can turn."""
    y = _partner(grown, x, lambda v: v.whole)
    name = grown.one_of("eq", "ne", "lt", "le", "gt", "ge")
    return grown.add(name, (x, y), 0, 1, 0.0)


@of(lambda v: v.dtype is DType.BOOL)
def chosen(grown: Grown, condition: Value) -> Value | None:
    """Elements of a value where a condition holds, else a number."""

    def fits(v: Value) -> bool:
        both = zip(v.shape[::-1], condition.shape[::-1], strict=False)
        return v.dtype is not DType.BOOL and all(a == b or 1 in (a, b) for a, b in both)

    x = grown.pick(fits)
    if x is None:
        return None
    y = grown.constant(float(grown.integer(0, 5)), x)
    low, high = min(x.low, y.low), max(x.high, y.high)
    return grown.add("where", (condition, x, y), low, high, x.error)


@of(lambda v: v.whole)
def converted(grown: Grown, value: Value) -> Value | None:
    """Whole numbers in another type."""
    to = grown.one_of(*(["f32", "i32"] + ["u32"] * (value.low >= 0) + ["bool"]))
    low, high = (0, 1) if to == "bool" else (value.low, value.high)
    return grown.add("cast", (value,), low, high, 0.0, to=to)
