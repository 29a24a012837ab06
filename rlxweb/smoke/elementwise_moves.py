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
    "erf": (-INF, INF, lambda a, b: (-1, 1, 1.13)),
    "exp2": (-10, 4, lambda a, b: (2**a, 2**b, 2**b)),
    "expm1": (-10, 3, lambda a, b: (math.expm1(a), math.expm1(b), math.exp(b))),
    "log2": (0.05, INF, lambda a, b: (math.log2(a), math.log2(b), 1.45 / a)),
    "log1p": (-0.9, INF, lambda a, b: (math.log1p(a), math.log1p(b), 1 / (1 + a))),
    "sinh": (-3, 3, lambda a, b: (math.sinh(a), math.sinh(b), 10.1)),
    "cosh": (-3, 3, lambda a, b: (1, math.cosh(3), 10.1)),
    "asinh": (-INF, INF, lambda a, b: (math.asinh(a), math.asinh(b), 1)),
    "acosh": (1.1, INF, lambda a, b: (math.acosh(a), math.acosh(b), 2.2)),
    "atanh": (-0.9, 0.9, lambda a, b: (math.atanh(a), math.atanh(b), 5.3)),
    "asin": (-0.9, 0.9, lambda a, b: (math.asin(a), math.asin(b), 2.3)),
    "acos": (-0.9, 0.9, lambda a, b: (math.acos(b), math.acos(a), 2.3)),
    "reciprocal": (0.2, INF, lambda a, b: (1 / b, 1 / a, 1 / a**2)),
    "softplus": (-INF, INF, lambda a, b: (0, max(b, 0) + 1, 1)),
    "softsign": (-INF, INF, lambda a, b: (-1, 1, 1)),
    "mish": (-INF, INF, lambda a, b: (-0.4, max(b, 0), 1.1)),
    "elu": (-INF, INF, lambda a, b: (-1, max(b, 0), 1)),
    "celu": (-INF, INF, lambda a, b: (-1, max(b, 0), 1)),
    "selu": (-INF, INF, lambda a, b: (-1.8, max(1.06 * b, 0), 1.8)),
    "hard_swish": (-INF, INF, lambda a, b: (-0.4, max(b, 0), 1.5)),
    "hard_sigmoid": (-INF, INF, lambda a, b: (0, 1, 0.2)),
    "leaky_relu": (-INF, INF, lambda a, b: (min(a, 0), max(b, 0), 1)),
    "swish": (-INF, INF, lambda a, b: (-0.3, max(b, 0), 1.1)),
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
    name = grown.one_of("round", "floor", "ceil", "trunc")
    made = grown.add(name, (halves,), low, high, 0.0)
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


@of(lambda v: v.dtype is DType.BOOL)
def logical(grown: Grown, x: Value) -> Value | None:
    """Two conditions as one, or the other of one."""
    name = grown.one_of("logical_and", "logical_or", "logical_xor", "logical_not")
    if name == "logical_not":
        return grown.add(name, (x,), 0, 1, 0.0)

    def fits(other: Value) -> bool:
        both = zip(other.shape[::-1], x.shape[::-1], strict=False)
        return all(a == b or 1 in (a, b) for a, b in both)

    y = grown.pick(lambda v: v.dtype is DType.BOOL, fits) or x
    return grown.add(name, (x, y), 0, 1, 0.0)


@of(lambda v: v.dtype in (DType.I32, DType.U32))
def of_bits(grown: Grown, x: Value) -> Value | None:
    """Whole numbers bit by bit, and shifted by a few."""
    name = grown.one_of(
        "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"
    )
    if name.startswith("shift"):
        by = grown.integer(0, 4)
        y = grown.constant(float(by), x)
        low, high = x.low, x.high
        if name == "shift_left":
            low, high = low * 2**by, high * 2**by
        return grown.add(name, (x, y), low, high, 0.0)
    y = _partner(grown, x)
    most = 2.0 ** math.ceil(math.log2(max(x.size, y.size, 1) + 1))
    least = 0 if x.dtype is DType.U32 else -most
    return grown.add(name, (x, y), least, most, 0.0)


@of(lambda v: v.whole and v.dtype is not DType.BOOL)
def remaining(grown: Grown, x: Value) -> Value | None:
    """What is left of a division of whole numbers, or how often it goes."""
    y = grown.clamped(_partner(grown, x, lambda v: v.whole), 1, INF)
    name = grown.one_of("mod", "fmod", "floor_divide")
    size = x.size if name == "floor_divide" else min(y.size, x.size + y.size)
    least = 0 if x.dtype is DType.U32 else -size
    return grown.add(name, (x, y), least, size, 0.0)


@of(is_float)
def angled(grown: Grown, y: Value) -> Value | None:
    """The angle of points at the right, or a slope for numbers below 0."""
    if grown.integer(0, 1):
        x = grown.clamped(_partner(grown, y), 0.5, INF)
        return grown.add("atan2", (y, x), -1.6, 1.6, 2 * (y.error + x.error))
    slope = grown.clamped(_partner(grown, y), -2, 2)
    carried = 2 * y.error + y.size * slope.error
    return grown.add("prelu", (y, slope), -2 * y.size, 2 * y.size, carried)
