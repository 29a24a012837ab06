"""The moves a random graph is grown by: each adds one op where its domain allows it.

A move takes values the graph has, brings them into the op's domain, and says in which
interval the result lies and what the op makes of its inputs' errors (a Lipschitz bound
over the domain). It answers None when nothing fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlxweb.ir.dtype import DType
from tests.graphs.grown import ROUNDING, WHOLE, Grown, Value

Move = Callable[[Grown], Value | None]
Bound = Callable[[float, float], tuple[float, float, float]]
"""(low, high) of the operand → low, high of the result, Lipschitz constant."""


def _float(v: Value) -> bool:
    return v.is_float


def _filled(v: Value) -> bool:
    return 0 not in v.shape


def _ranked(v: Value) -> bool:
    return bool(v.shape) and _filled(v)


# --- one operand, element by element ----------------------------------------------

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


def unary(grown: Grown) -> Value | None:
    value = grown.pick(_float)
    if value is None:
        return None
    name = grown.one_of(*UNARY)
    low, high, bound = UNARY[name]
    value = grown.clamped(value, low, high)
    least, most, steep = bound(value.low, value.high)
    return grown.add(name, (value,), least, most, steep * value.error)


def rounded(grown: Grown) -> Value | None:
    """Halves of whole numbers, so that every tie occurs and none is near."""
    value = grown.pick(_float, lambda v: v.whole)
    if value is None:
        return None
    half = grown.constant(0.5, value)
    halves = grown.add("mul", (value, half), value.low / 2, value.high / 2, 0.0)
    low, high = math.floor(halves.low), math.ceil(halves.high)
    made = grown.add("round", (halves,), low, high, 0.0)
    return Value(made.tensor, low, high, 0.0, True)


# --- two operands -----------------------------------------------------------------


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


def arithmetic(grown: Grown) -> Value | None:
    x = grown.pick(lambda v: v.dtype is not DType.BOOL)
    if x is None:
        return None
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
    if x.dtype is DType.U32 and low < 0:  # it would wrap, which intervals cannot say
        return None
    return grown.add(name, (x, y), low, high, carried)


def divided(grown: Grown) -> Value | None:
    x = grown.pick(_float)
    if x is None:
        return None
    y = grown.clamped(_partner(grown, x), 0.5, INF)
    size = x.size / y.low
    carried = x.error / y.low + size / y.low * y.error
    return grown.add("div", (x, y), -size, size, carried)


def powered(grown: Grown) -> Value | None:
    x = grown.pick(_float)
    if x is None:
        return None
    y = grown.clamped(_partner(grown, x), -2, 2)
    x = grown.clamped(x, 0.5, 4)
    return grown.add("pow", (x, y), 0, 16, 16 * x.error + 23 * y.error)


def compared(grown: Grown) -> Value | None:
    x = grown.pick(lambda v: v.whole and v.dtype is not DType.BOOL)
    if x is None:
        return None
    y = _partner(grown, x, lambda v: v.whole)
    name = grown.one_of("eq", "ne", "lt", "le", "gt", "ge")
    return grown.add(name, (x, y), 0, 1, 0.0)


def chosen(grown: Grown) -> Value | None:
    condition = grown.pick(lambda v: v.dtype is DType.BOOL)
    if condition is None:
        return None

    def fits(v: Value) -> bool:
        both = zip(v.shape[::-1], condition.shape[::-1], strict=False)
        return v.dtype is not DType.BOOL and all(a == b or 1 in (a, b) for a, b in both)

    x = grown.pick(fits)
    if x is None:
        return None
    y = grown.constant(float(grown.integer(0, 5)), x)
    low, high = min(x.low, y.low), max(x.high, y.high)
    return grown.add("where", (condition, x, y), low, high, x.error)


def converted(grown: Grown) -> Value | None:
    value = grown.pick(lambda v: v.whole)
    if value is None:
        return None
    to = grown.one_of(*(["f32", "i32"] + ["u32"] * (value.low >= 0) + ["bool"]))
    low, high = (0, 1) if to == "bool" else (value.low, value.high)
    return grown.add("cast", (value,), low, high, 0.0, to=to)


# --- movement ---------------------------------------------------------------------


def reshaped(grown: Grown) -> Value | None:
    value = grown.pick(_filled)
    if value is None:
        return None
    dims = list(value.shape)
    if len(dims) >= 2 and grown.integer(0, 1):
        at = grown.integer(0, len(dims) - 2)
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    splits = [(k, p) for k, d in enumerate(dims) for p in (2, 3) if d % p == 0]
    if splits and len(dims) < 5 and grown.integer(0, 1):
        at, prime = grown.one_of(*splits)
        dims[at : at + 1] = [prime, dims[at] // prime]
    if len(dims) < 5 and grown.integer(0, 2) == 0:
        dims.insert(grown.integer(0, len(dims)), 1)
    return grown.moved("reshape", value, shape=tuple(dims))


def transposed(grown: Grown) -> Value | None:
    value = grown.pick(lambda v: len(v.shape) >= 2)
    if value is None:
        return None
    perm = list(range(len(value.shape)))
    grown.rng.shuffle(perm)
    return grown.moved("transpose", value, perm=tuple(perm))


def narrowed(grown: Grown) -> Value | None:
    value = grown.pick(_ranked)
    if value is None:
        return None
    axis = grown.integer(0, len(value.shape) - 1)
    start = grown.integer(0, value.shape[axis] - 1)
    length = grown.integer(1, value.shape[axis] - start)
    return grown.moved("narrow", value, axis=axis, start=start, length=length)


def expanded(grown: Grown) -> Value | None:
    value = grown.pick(lambda v: len(v.shape) < 5)
    if value is None:
        return None
    wide = [d if d != 1 else grown.integer(1, 4) for d in value.shape]
    lead = [grown.integer(1, 3)] if grown.integer(0, 1) else []
    return grown.moved("expand", value, shape=(*lead, *wide))


def joined(grown: Grown) -> Value | None:
    first = grown.pick(_ranked)
    if first is None:
        return None
    axis = grown.integer(0, len(first.shape) - 1)

    def fits(v: Value) -> bool:
        return (
            v.dtype is first.dtype
            and len(v.shape) == len(first.shape)
            and all(
                a == b or k == axis
                for k, (a, b) in enumerate(zip(v.shape, first.shape, strict=True))
            )
        )

    parts = [first, *(grown.pick(fits) or first for _ in range(grown.integer(1, 3)))]
    made = grown.add(
        "concat",
        tuple(parts),
        min(p.low for p in parts),
        max(p.high for p in parts),
        max(p.error for p in parts),
        axis=axis,
    )
    return Value(
        made.tensor, made.low, made.high, made.error, all(p.whole for p in parts)
    )


def gathered(grown: Grown) -> Value | None:
    table = grown.pick(_ranked)
    if table is None:
        return None
    axis = grown.integer(0, len(table.shape) - 1)
    shape = grown.one_of((), (3,), (2, 2))
    if len(table.shape) - 1 + len(shape) > 5:
        return None
    rows = table.shape[axis]
    drawn = grown.rng.integers(0, rows, shape).astype(np.int32)
    indices = grown.fed(np.asarray(drawn), 0, rows - 1, True)
    made = grown.add(
        "gather", (table, indices), table.low, table.high, table.error, axis=axis
    )
    return Value(made.tensor, made.low, made.high, made.error, table.whole)


# --- along an axis ----------------------------------------------------------------


def reduced(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, lambda v: v.dtype is not DType.BOOL)
    if value is None:
        return None
    rank = len(value.shape)
    axes = tuple(sorted({grown.integer(0, rank - 1) for _ in range(2)}))
    n = math.prod(value.shape[a] for a in axes)
    names = ["sum", "max", "min"]
    names += ["mean"] * value.is_float + ["prod"] * (value.is_float and n <= 6)
    name = grown.one_of(*names)
    if name == "prod":
        value = grown.clamped(value, -1.5, 1.5)
    low, high, steep = {
        "sum": (min(n * value.low, 0), max(n * value.high, 0), n),
        "prod": (-(1.5**6), 1.5**6, 6 * 1.5**5),
    }.get(name, (value.low, value.high, 1))
    if name == "sum" and not value.is_float and n * value.size > WHOLE:
        return None
    if value.dtype is DType.U32:
        low = max(low, 0)
    keep = bool(grown.integer(0, 1))
    return grown.add(
        name, (value,), low, high, steep * value.error, axes=axes, keep_dim=keep
    )


def accumulated(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, _float)
    if value is None:
        return None
    axis = grown.integer(0, len(value.shape) - 1)
    n = value.shape[axis]
    low, high = min(n * value.low, 0), max(n * value.high, 0)
    exclusive = bool(grown.integer(0, 1))
    return grown.add(
        "cumsum", (value,), low, high, n * value.error, axis=axis, exclusive=exclusive
    )


def softmaxed(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, _float)
    if value is None:
        return None
    axis = grown.integer(-1, len(value.shape) - 1)
    return grown.add("softmax", (value,), 0, 1, 2 * value.error, axis=axis)


def normed(grown: Grown) -> Value | None:
    """With an eps of one, so that no row amplifies its rounding without end."""
    value = grown.pick(_ranked, _float)
    if value is None:
        return None
    axis = grown.integer(0, len(value.shape) - 1)
    n = value.shape[axis]
    gamma = grown.leaf((n,), "real", keep=False)
    beta = grown.leaf((n,), "real", keep=False)
    size = 2 * math.sqrt(n) + 2
    steep = 2 * (2 + math.sqrt(n))
    carried = steep * (value.error + 4 * ROUNDING * value.size)
    name = grown.one_of("layer_norm", "rms_norm")
    inputs = (value, gamma, beta)
    return grown.add(name, inputs, -size, size, carried, axis=axis, eps=1.0)


def top(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, _float, lambda v: v.whole)
    if value is None:
        return None
    n = value.shape[-1]
    return grown.add("topk", (value,), 0, n - 1, 0.0, k=grown.integer(1, n))


# --- sums of products -------------------------------------------------------------


def multiplied(grown: Grown) -> Value | None:
    x = grown.pick(_float, lambda v: len(v.shape) >= 2 and _filled(v))
    if x is None:
        return None
    inner = x.shape[-1]

    def fits(v: Value) -> bool:
        return v.shape[-2:-1] == (inner,) and v.is_float and len(v.shape) == 2

    y = grown.pick(fits) or grown.leaf((inner, grown.integer(1, 5)), "whole")
    size = inner * x.size * y.size
    carried = inner * (x.size * y.error + y.size * x.error)
    if grown.integer(0, 2):
        return grown.add("matmul", (x, y), -size, size, carried)
    bias = grown.leaf((y.shape[-1],), "real", keep=False)
    act = grown.one_of(None, "relu", "tanh")
    size += bias.size
    return grown.add(
        "fused_matmul_bias_act", (x, y, bias), -size, size, carried, activation=act
    )


def attended(grown: Grown) -> Value | None:
    x = grown.pick(_float, lambda v: len(v.shape) == 3 and _filled(v))
    if x is None:
        return None
    x = grown.clamped(x, -4, 4)
    wide = x.shape[-1]
    heads = 2 if wide % 2 == 0 else 1
    head = wide // heads
    # A score moves by this much; a weight, and so the mean, by at most twice that.
    score = math.sqrt(head) * 2 * x.size * (x.error + 2 * ROUNDING * x.size)
    carried = x.error + 2 * score * x.size
    kind = grown.one_of("none", "causal")
    return grown.add(
        "attention",
        (x, x, x),
        x.low,
        x.high,
        carried,
        num_heads=heads,
        head_dim=head,
        mask_kind=kind,
    )


def transformed(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, _float)
    if value is None:
        return None
    n = value.shape[-1]
    name = "fft" if n % 2 == 0 and grown.integer(0, 1) else "rfft"
    size = 2 * n * value.size
    return grown.add(name, (value,), -size, size, 2 * n * value.error)


def framed(grown: Grown) -> Value | None:
    value = grown.pick(_ranked, lambda v: len(v.shape) < 5)
    if value is None:
        return None
    length = grown.integer(1, value.shape[-1])
    return grown.moved("frame", value, length=length, hop=grown.integer(1, 3))


MOVES: tuple[Move, ...] = (
    *(unary, arithmetic, arithmetic, divided, powered, rounded),
    *(compared, chosen, converted),
    *(reshaped, transposed, narrowed, expanded, joined, gathered, framed),
    *(reduced, accumulated, softmaxed, normed, top),
    *(multiplied, attended, transformed),
)
