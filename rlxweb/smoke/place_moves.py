"""Moves of a growing random graph that put elements at other places; see `moves.py`.

Slices backwards and by steps, windows, padding, tiling, gathers and scatters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.smoke.grown import Grown, Move, Value, of

MOST_AXES = 5


def _ranked(v: Value) -> bool:
    return bool(v.shape) and 0 not in v.shape


def _number(v: Value) -> bool:
    return v.dtype is not DType.BOOL


def _axis(grown: Grown, value: Value) -> int:
    return grown.integer(0, len(value.shape) - 1)


@of(_ranked)
def sliced(grown: Grown, value: Value) -> Value | None:
    """Part of one or two axes, by steps, backwards too."""
    axes = sorted({_axis(grown, value) for _ in range(2)})
    rows = []
    for axis in axes:
        n, step = value.shape[axis], grown.one_of(-3, -2, -1, 1, 2, 3)
        start, stop = sorted((grown.integer(-n, n), grown.integer(-n, n)))
        if step < 0:
            start, stop = stop, start
        if not len(range(*slice(start, stop, step).indices(n))):
            start, stop = (n - 1, -n - 1) if step < 0 else (0, n)
        rows.append((start, stop, step))
    starts, stops, steps = zip(*rows, strict=True)
    how = {"starts": starts, "stops": stops, "steps": steps}
    return grown.moved("slice", value, axes=tuple(axes), **how)


@of(_ranked, lambda v: len(v.shape) < MOST_AXES)
def windowed(grown: Grown, value: Value) -> Value | None:
    """Sliding windows over an axis, some of them, their elements apart."""
    axis = _axis(grown, value)
    n = value.shape[axis]
    size = grown.integer(1, min(n, 4))
    apart = grown.integer(1, max((n - 1) // max(size - 1, 1), 1))
    how = {"sizes": (size,), "steps": (grown.integer(1, 3),), "dilations": (apart,)}
    return grown.moved("windows", value, axes=(axis,), **how)


@of(_ranked, _number)
def padded(grown: Grown, value: Value) -> Value | None:
    """More elements around, in each mode; of a constant also fewer."""
    axes = tuple(sorted({_axis(grown, value) for _ in range(2)}))
    mode = grown.one_of("constant", "reflect", "symmetric", "edge", "wrap")
    fill = grown.integer(0, 5)
    widths = []
    for axis in axes:
        n = value.shape[axis]
        most = {"reflect": n - 1, "symmetric": n, "wrap": n}.get(mode, 3)
        least = -min((n - 1) // 2, 2) if mode == "constant" else 0
        widths.append([grown.integer(least, min(most, 3)) for _ in range(2)])
    before, after = zip(*widths, strict=True)
    how: dict[str, Any] = {"before": before, "after": after, "mode": mode}
    made = grown.moved("pad", value, axes=axes, value=fill, **how)
    if mode != "constant":
        return made
    return replace(made, low=min(value.low, fill), high=max(value.high, fill))


@of(_ranked)
def again(grown: Grown, value: Value) -> Value | None:
    """The whole of it several times, or each element of an axis."""
    axis = _axis(grown, value)
    if grown.integer(0, 1):
        repeats = [grown.integer(1, 2) for _ in value.shape]
        return grown.moved("tile", value, repeats=tuple(repeats))
    counts = grown.one_of((2,), tuple(grown.rng.integers(0, 3, value.shape[axis])))
    plain = tuple(int(count) for count in counts)
    return grown.moved("repeat", value, repeats=plain, axis=axis)


@of(_ranked, _number)
def rolled(grown: Grown, value: Value) -> Value | None:
    """An axis turned round, or its elements with others between them."""
    axis = _axis(grown, value)
    if grown.integer(0, 1):
        return grown.moved("roll", value, shifts=(grown.integer(-7, 7),), axes=(axis,))
    made = grown.moved("dilate", value, axes=(axis,), steps=(grown.integer(1, 3),))
    return replace(made, low=min(value.low, 0), high=max(value.high, 0))


def _indices(grown: Grown, n: int, shape: tuple[int, ...]) -> Value:
    """Drawn ones of an axis, negative ones among them."""
    drawn = grown.rng.integers(-n, n, shape).astype(np.int32)
    return grown.fed(np.asarray(drawn), -n, n - 1, True, keep=False)


@of(_ranked)
def picked(grown: Grown, value: Value) -> Value | None:
    """An element of an axis for each index, or rows by indices of several axes."""
    if grown.integer(0, 1):
        axis = _axis(grown, value)
        shape = list(value.shape)
        shape[axis] = grown.integer(1, 5)
        indices = _indices(grown, value.shape[axis], tuple(shape))
        made = grown.add(
            "gather_elements",
            (value, indices),
            value.low,
            value.high,
            value.error,
            axis=axis,
        )
    else:
        deep = grown.integer(1, len(value.shape))
        every = [grown.rng.integers(0, n, 3) for n in value.shape[:deep]]
        array = np.stack(every, axis=-1).astype(np.int32)
        indices = grown.fed(array, 0, max(value.shape), True, keep=False)
        both = (value, indices)
        made = grown.add("gather_nd", both, value.low, value.high, value.error)
    return replace(made, error=value.error, whole=value.whole)


@of(_ranked, _number, lambda v: v.dtype is not DType.U32)
def scattered(grown: Grown, value: Value) -> Value | None:
    """Values put at places of an axis: in place of what is there, or combined."""
    axis = _axis(grown, value)
    n = value.shape[axis]
    reduction = grown.one_of("none", "add", "max", "min")
    shape = list(value.shape)
    # Of several values for one place the last is taken, on every engine alike.
    shape[axis] = grown.integer(1, n + 1)
    indices = _indices(grown, n, tuple(shape))
    kind = "i32" if value.dtype is DType.I32 else "whole"
    news = grown.leaf(tuple(shape), kind, keep=False)
    low, high = min(value.low, news.low), max(value.high, news.high)
    if reduction == "add":
        low = value.low + min(shape[axis] * news.low, 0)
        high = value.high + max(shape[axis] * news.high, 0)
    how = {"axis": axis, "reduction": reduction}
    inputs = (value, indices, news)
    return grown.add("scatter_elements", inputs, low, high, value.error, **how)


@of(_ranked, lambda v: v.whole and v.dtype is not DType.BOOL)
def ordered(grown: Grown, value: Value) -> Value | None:
    """Whole numbers of an axis sorted, their places, or where others go in."""
    axis = _axis(grown, value)
    down = bool(grown.integer(0, 1))
    name = grown.one_of("sort", "argsort", "searchsorted")
    if name == "sort":
        return grown.moved("sort", value, axis=axis, descending=down)
    if name == "argsort":
        n = value.shape[axis]
        how = {"axis": axis, "descending": down}
        return grown.add("argsort", (value,), 0, n - 1, 0.0, **how)
    rows = grown.moved("sort", value, axis=len(value.shape) - 1, descending=False)
    kind = {DType.I32: "i32", DType.U32: "u32"}.get(value.dtype, "whole")
    among = grown.leaf((*value.shape[:-1], grown.integer(1, 4)), kind, keep=False)
    side = grown.one_of("left", "right")
    most = value.shape[-1]
    return grown.add("searchsorted", (rows, among), 0, most, 0.0, side=side)


PLACES: tuple[Move, ...] = (
    *(sliced, windowed, padded, again, rolled, picked, scattered, ordered),
)
