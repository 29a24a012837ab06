"""Pads, tiles, and what picks elements by index or puts them: scatter, top-k …"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts

Ints = tuple[int, ...]


@converts("Pad", until=1)
def _first_pad(
    call: Call, x: Tensor, *, paddings: Ints, mode: str = "constant", value: float = 0.0
) -> Tensor:
    return _padded(call, x, paddings, range(x.rank), mode, value)


@converts("Pad", since=2, until=10)
def _old_pad(
    call: Call, x: Tensor, *, pads: Ints, mode: str = "constant", value: float = 0.0
) -> Tensor:
    return _padded(call, x, pads, range(x.rank), mode, value)


@converts("Pad", since=11)
def _pad(
    call: Call,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    filled = 0.0 if value is None else call.number(value, "the value")
    on = range(x.rank) if axes is None else call.ints(axes, "the axes")
    return _padded(call, x, call.ints(pads, "the pads"), on, mode, filled)


def _padded(
    call: Call, x: Tensor, pads: Ints, axes: Ints | range, mode: str, value: float
) -> Tensor:
    if len(pads) != 2 * len(axes):
        call.contradict(f"{len(pads)} pads", f"two for each of {len(axes)} axes")
    widths = [[0, 0] for _ in range(x.rank)]
    for at, axis in enumerate(axes):
        ends = pads[at], pads[at + len(axes)]
        widths[normal_axis(axis, x.rank)] = list(ends)
    return call.g.pad(x, widths, mode, value)


@converts("Tile", since=6)
def _tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    counts = call.ints(repeats, "the repeats")
    if len(counts) != x.rank:
        call.contradict(f"{len(counts)} repeats", f"x has rank {x.rank}")
    return call.g.tile(x, counts)


@converts("GatherElements")
def _gather_elements(call: Call, x: Tensor, at: Tensor, *, axis: int = 0) -> Tensor:
    return call.g.gather_elements(x, at, axis)


@converts("Scatter", "ScatterElements")
def _scatter_elements(
    call: Call,
    x: Tensor,
    at: Tensor,
    values: Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Tensor:
    return call.g.scatter_elements(x, at, values, axis, reduction)


@converts("ScatterND", since=11)
def _scatter_nd(
    call: Call, x: Tensor, at: Tensor, values: Tensor, *, reduction: str = "none"
) -> Tensor:
    return call.g.scatter_nd(x, at, values, reduction)


@converts("TopK", until=9)
def _first_top(
    call: Call, x: Tensor, *, k: int, axis: int = -1
) -> tuple[Tensor | None, ...]:
    return _top(call, x, k, axis, True)


@converts("TopK", since=10)
def _topk(
    call: Call,
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor | None, ...]:
    return _top(call, x, int(call.number(k, "k")), axis, bool(largest))


def _top(
    call: Call, x: Tensor, k: int, axis: int, largest: bool
) -> tuple[Tensor | None, ...]:
    axis = normal_axis(axis, x.rank)
    values = call.g.topk_values(x, k, axis, largest) if call.wants(0) else None
    if not call.wants(1):
        return (values,)
    return values, call.g.topk(x, k, axis, largest).cast(DType.I64)


@converts("SpaceToDepth")
def _space_to_depth(
    call: Call, x: Tensor, *, blocksize: int, mode: str = "DCR"
) -> Tensor:
    made = call.g.space_to_depth(x, blocksize)
    if mode == "DCR":
        return made
    if mode != "CRD":
        call.contradict(f"mode is {mode!r}", "it is DCR or CRD")
    n, c = x.shape[:2]
    parts = made.reshape((n, blocksize**2, c, *made.shape[2:]))
    return parts.transpose((0, 2, 1, 3, 4)).reshape(made.shape)


@converts("DepthToSpace")
def _depth_to_space(
    call: Call, x: Tensor, *, blocksize: int, mode: str = "DCR"
) -> Tensor:
    return call.g.depth_to_space(x, blocksize, mode)


@converts("ReverseSequence")
def _reverse_sequence(
    call: Call, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """Of every item of the batch the first so many elements turned round."""
    g = call.g
    steps = g.constant(np.arange(x.shape[time_axis], dtype=np.int64))
    steps = steps.reshape([-1 if a == time_axis else 1 for a in range(x.rank)])
    last = lengths.reshape([-1 if a == batch_axis else 1 for a in range(x.rank)])
    places = g.where(steps < last, last - 1 - steps, steps)
    return g.take_along_axis(x, places, time_axis)


@converts("TensorScatter", since=24)
def _tensor_scatter(
    call: Call,
    past: Tensor,
    update: Tensor,
    begins: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """Rows of every item of the batch put in from a place of its own on."""
    g, axis = call.g, normal_axis(axis, past.rank)
    if not axis or mode not in ("linear", "circular"):
        call.contradict(f"axis {axis} and mode {mode!r}", "the first axis is the batch")
    steps = g.constant(np.arange(update.shape[axis], dtype=np.int64))
    steps = steps.reshape([-1 if a == axis else 1 for a in range(past.rank)])
    places = g.expand(steps, update.shape)
    if begins is not None:
        places = places + begins.reshape((-1, *(1,) * (past.rank - 1)))
    if mode == "circular":
        places = g.mod(places, past.shape[axis])
    return g.scatter_elements(past, places, update, axis)


@converts("NonZero")
def _nonzero(call: Call, x: Tensor) -> Value:
    """How many there are has to be known, not which."""
    known = call.g.known(x)
    if known is not None:
        return call.hold(np.array(np.nonzero(np.atleast_1d(known)), np.int64))
    x = x if x.rank else x.reshape((1,))
    return call.found(x, "how many elements are not zero").cast(DType.I64)


@converts("Compress")
def _compress(
    call: Call, x: Tensor, condition: Tensor, *, axis: int | None = None
) -> Tensor:
    x = x.reshape((-1,)) if axis is None else x
    places = call.found(condition, "how many elements the condition takes")
    return call.g.gather(x, places.reshape((-1,)), axis or 0)


@converts("Unique")
def _unique(
    call: Call, x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Value, ...]:
    """How many there are has to be known."""
    known = call.known(x, "what is looked for")
    found, first, back, counts = np.unique(
        known, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    back = back.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        found = np.take(found, order, axis=axis or 0)
        first, counts, back = first[order], counts[order], rank[back]
    rest = (call.hold(a.astype(np.int64)) for a in (first, back, counts))
    return (call.hold(found), *rest)
