"""The moves a random graph is grown by: each adds one op where its domain allows it.

A move takes values the graph has, brings them into the op's domain, and says in which
interval the result lies and what the op makes of its inputs' errors (a Lipschitz bound
over the domain). It answers None when nothing fits.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.smoke.elementwise_moves import (
    angled,
    arithmetic,
    chosen,
    compared,
    converted,
    divided,
    is_float,
    logical,
    of_bits,
    powered,
    remaining,
    rounded,
    unary,
)
from rlxweb.smoke.grown import ROUNDING, WHOLE, Grown, Move, Value, of
from rlxweb.smoke.network_moves import NETWORKS
from rlxweb.smoke.place_moves import PLACES


def _filled(v: Value) -> bool:
    return 0 not in v.shape


def _ranked(v: Value) -> bool:
    return bool(v.shape) and _filled(v)


@of(_filled)
def reshaped(grown: Grown, value: Value) -> Value | None:
    """Axes merged, split by 2 or 3, or added."""
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


@of(lambda v: len(v.shape) >= 2)
def transposed(grown: Grown, value: Value) -> Value | None:
    """The axes in any order."""
    perm = list(range(len(value.shape)))
    grown.rng.shuffle(perm)
    return grown.moved("transpose", value, perm=tuple(perm))


@of(_ranked)
def narrowed(grown: Grown, value: Value) -> Value | None:
    """A part of one axis."""
    axis = grown.integer(0, len(value.shape) - 1)
    start = grown.integer(0, value.shape[axis] - 1)
    length = grown.integer(1, value.shape[axis] - start)
    return grown.moved("narrow", value, axis=axis, start=start, length=length)


@of(lambda v: len(v.shape) < 5)
def expanded(grown: Grown, value: Value) -> Value | None:
    """Axes of one repeated, and maybe a new one in front."""
    wide = [d if d != 1 else grown.integer(1, 4) for d in value.shape]
    lead = [grown.integer(1, 3)] if grown.integer(0, 1) else []
    return grown.moved("expand", value, shape=(*lead, *wide))


@of(_ranked)
def joined(grown: Grown, first: Value) -> Value | None:
    """Two to four values of fitting shape end to end."""
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
    return replace(made, whole=all(p.whole for p in parts))


@of(_ranked)
def gathered(grown: Grown, table: Value) -> Value | None:
    """Rows of a table by drawn indices."""
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
    return replace(made, whole=table.whole)


@of(_ranked, lambda v: v.dtype is not DType.BOOL)
def reduced(grown: Grown, value: Value) -> Value | None:
    """A sum, product, mean or extreme over one or two axes."""
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
    if value.dtype.is_unsigned:
        low = max(low, 0)
    keep = bool(grown.integer(0, 1))
    return grown.add(
        name, (value,), low, high, steep * value.error, axes=axes, keep_dim=keep
    )


@of(_ranked, is_float)
def accumulated(grown: Grown, value: Value) -> Value | None:
    """A running sum."""
    axis = grown.integer(0, len(value.shape) - 1)
    n = value.shape[axis]
    low, high = min(n * value.low, 0), max(n * value.high, 0)
    exclusive = bool(grown.integer(0, 1))
    return grown.add(
        "cumsum", (value,), low, high, n * value.error, axis=axis, exclusive=exclusive
    )


@of(_ranked, is_float)
def softmaxed(grown: Grown, value: Value) -> Value | None:
    """A softmax over any axis, or its logarithm."""
    axis = grown.integer(-1, len(value.shape) - 1)
    name = grown.one_of("softmax", "log_softmax")
    least = value.low - value.high - math.log(value.shape[axis])
    low, high = (0.0, 1.0) if name == "softmax" else (least, 0.0)
    return grown.add(name, (value,), low, high, 2 * value.error, axis=axis)


@of(_ranked, is_float)
def normed(grown: Grown, value: Value) -> Value | None:
    """With an eps of one, so that no row amplifies its rounding without end."""
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


@of(_ranked, is_float, lambda v: v.whole)
def top(grown: Grown, value: Value) -> Value | None:
    """The places of the k largest whole numbers, or of one extreme along any axis."""
    n = value.shape[-1]
    if grown.integer(0, 1):
        axis = grown.integer(0, len(value.shape) - 1)
        name, last = grown.one_of("argmax", "argmin"), bool(grown.integer(0, 1))
        most = value.shape[axis] - 1
        return grown.add(name, (value,), 0, most, 0.0, axis=axis, last=last)
    # The list of the k best is never cut, and a tiny binding holds 1,024 elements.
    k = grown.integer(1, min(n, 700))
    return grown.add("topk", (value,), 0, n - 1, 0.0, k=k)


@of(is_float, lambda v: len(v.shape) >= 2 and _filled(v))
def multiplied(grown: Grown, x: Value) -> Value | None:
    """A product of matrices, or one with bias and activation."""
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


@of(is_float, lambda v: len(v.shape) == 3 and _filled(v))
def attended(grown: Grown, x: Value) -> Value | None:
    """Attention of a value to itself."""
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


@of(_ranked, is_float)
def transformed(grown: Grown, value: Value) -> Value | None:
    """A transform of the rows."""
    n = value.shape[-1]
    name = "fft" if n % 2 == 0 and grown.integer(0, 1) else "rfft"
    size = 2 * n * value.size
    return grown.add(name, (value,), -size, size, 2 * n * value.error)


@of(_ranked, lambda v: len(v.shape) < 5)
def framed(grown: Grown, value: Value) -> Value | None:
    """Overlapping pieces of the rows."""
    length = grown.integer(1, value.shape[-1])
    return grown.moved("frame", value, length=length, hop=grown.integer(1, 3))


MOVES: tuple[Move, ...] = (
    *(unary, unary, arithmetic, arithmetic, divided, powered, rounded),
    *(compared, chosen, converted, logical, of_bits, remaining, angled),
    *(reshaped, transposed, narrowed, expanded, joined, gathered, framed),
    *(reduced, accumulated, softmaxed, normed, top),
    *(multiplied, attended, transformed),
    *PLACES,
    *NETWORKS,
)
