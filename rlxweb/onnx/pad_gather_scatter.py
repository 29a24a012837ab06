"""Converters of Pad, Tile, gather, scatter, top-k and other index ops."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, Value, converts

Ints = tuple[int, ...]


@converts("Pad", until=1)
def _pad_v1(
    ctx: ConversionContext,
    x: Tensor,
    *,
    paddings: Ints,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    return _pad_axes(ctx, x, paddings, range(x.rank), mode, value)


@converts("Pad", since=2, until=10)
def _pad_v2(
    ctx: ConversionContext,
    x: Tensor,
    *,
    pads: Ints,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    return _pad_axes(ctx, x, pads, range(x.rank), mode, value)


@converts("Pad", since=11)
def _pad(
    ctx: ConversionContext,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    fill_value = 0.0 if value is None else ctx.require_number(value, "the value")
    padded_axes = range(x.rank) if axes is None else ctx.require_ints(axes, "the axes")
    return _pad_axes(
        ctx, x, ctx.require_ints(pads, "the pads"), padded_axes, mode, fill_value
    )


def _pad_axes(
    ctx: ConversionContext,
    x: Tensor,
    pads: Ints,
    axes: Ints | range,
    mode: str,
    value: float,
) -> Tensor:
    if len(pads) != 2 * len(axes):
        ctx.raise_invalid_model(
            f"got {len(pads)} pads", f"expected 2 for each of {len(axes)} axes"
        )
    widths = [[0, 0] for _ in range(x.rank)]
    for index, axis in enumerate(axes):
        before_after = pads[index], pads[index + len(axes)]
        widths[normalize_axis(axis, x.rank)] = list(before_after)
    return ctx.graph.pad(x, widths, mode, value)


@converts("Tile", since=6)
def _tile(ctx: ConversionContext, x: Tensor, repeats: Tensor) -> Tensor:
    counts = ctx.require_ints(repeats, "the repeats")
    if len(counts) != x.rank:
        ctx.raise_invalid_model(
            f"got {len(counts)} repeats",
            f"expected one for each of the {x.rank} axes of x",
        )
    return ctx.graph.tile(x, counts)


@converts("GatherElements")
def _gather_elements(
    ctx: ConversionContext, x: Tensor, indices: Tensor, *, axis: int = 0
) -> Tensor:
    return ctx.graph.gather_elements(x, indices, axis)


@converts("Scatter", "ScatterElements")
def _scatter_elements(
    ctx: ConversionContext,
    x: Tensor,
    indices: Tensor,
    values: Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Tensor:
    return ctx.graph.scatter_elements(x, indices, values, axis, reduction)


@converts("ScatterND", since=11)
def _scatter_nd(
    ctx: ConversionContext,
    x: Tensor,
    indices: Tensor,
    values: Tensor,
    *,
    reduction: str = "none",
) -> Tensor:
    return ctx.graph.scatter_nd(x, indices, values, reduction)


@converts("TopK", until=9)
def _topk_v1(
    ctx: ConversionContext, x: Tensor, *, k: int, axis: int = -1
) -> tuple[Tensor | None, ...]:
    return _topk_outputs(ctx, x, k, axis, True)


@converts("TopK", since=10)
def _topk(
    ctx: ConversionContext,
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor | None, ...]:
    return _topk_outputs(ctx, x, int(ctx.require_number(k, "k")), axis, bool(largest))


def _topk_outputs(
    ctx: ConversionContext, x: Tensor, k: int, axis: int, largest: bool
) -> tuple[Tensor | None, ...]:
    axis = normalize_axis(axis, x.rank)
    values = ctx.graph.topk_values(x, k, axis, largest) if ctx.needs_output(0) else None
    if not ctx.needs_output(1):
        return (values,)
    return values, ctx.graph.topk(x, k, axis, largest).cast(DType.I64)


@converts("SpaceToDepth")
def _space_to_depth(
    ctx: ConversionContext, x: Tensor, *, blocksize: int, mode: str = "DCR"
) -> Tensor:
    blocks = ctx.graph.space_to_depth(x, blocksize)
    if mode == "DCR":
        return blocks
    if mode != "CRD":
        ctx.raise_invalid_model(f"mode is {mode!r}", "must be DCR or CRD")
    n, c = x.shape[:2]
    split_channels = blocks.reshape((n, blocksize**2, c, *blocks.shape[2:]))
    return split_channels.transpose((0, 2, 1, 3, 4)).reshape(blocks.shape)


@converts("DepthToSpace")
def _depth_to_space(
    ctx: ConversionContext, x: Tensor, *, blocksize: int, mode: str = "DCR"
) -> Tensor:
    return ctx.graph.depth_to_space(x, blocksize, mode)


@converts("ReverseSequence")
def _reverse_sequence(
    ctx: ConversionContext,
    x: Tensor,
    lengths: Tensor,
    *,
    batch_axis: int = 1,
    time_axis: int = 0,
) -> Tensor:
    """Reverse the first `lengths` elements of every batch item along the time axis."""
    g = ctx.graph
    positions = g.constant(np.arange(x.shape[time_axis], dtype=np.int64))
    positions = positions.reshape([-1 if a == time_axis else 1 for a in range(x.rank)])
    row_lengths = lengths.reshape([-1 if a == batch_axis else 1 for a in range(x.rank)])
    indices = g.where(positions < row_lengths, row_lengths - 1 - positions, positions)
    return g.take_along_axis(x, indices, time_axis)


@converts("TensorScatter", since=24)
def _tensor_scatter(
    ctx: ConversionContext,
    past: Tensor,
    update: Tensor,
    starts: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """Write rows into every batch item, each from its own start position."""
    g, axis = ctx.graph, normalize_axis(axis, past.rank)
    if not axis or mode not in ("linear", "circular"):
        ctx.raise_invalid_model(
            f"axis is {axis} and mode is {mode!r}",
            "axis must be > 0 (axis 0 is the batch), and mode linear or circular",
        )
    positions = g.constant(np.arange(update.shape[axis], dtype=np.int64))
    positions = positions.reshape([-1 if a == axis else 1 for a in range(past.rank)])
    indices = g.expand(positions, update.shape)
    if starts is not None:
        indices = indices + starts.reshape((-1, *(1,) * (past.rank - 1)))
    if mode == "circular":
        indices = g.mod(indices, past.shape[axis])
    return g.scatter_elements(past, indices, update, axis)


@converts("NonZero")
def _nonzero(ctx: ConversionContext, x: Tensor) -> Value:
    """Return the indices of nonzero elements; their count must be known, not their
    positions.
    """
    array = ctx.graph.known_array(x)
    if array is not None:
        return ctx.constant_value(np.array(np.nonzero(np.atleast_1d(array)), np.int64))
    x = x if x.rank else x.reshape((1,))
    return ctx.nonzero_indices(x, "the number of nonzero elements").cast(DType.I64)


@converts("Compress")
def _compress(
    ctx: ConversionContext, x: Tensor, condition: Tensor, *, axis: int | None = None
) -> Tensor:
    x = x.reshape((-1,)) if axis is None else x
    indices = ctx.nonzero_indices(condition, "the number of selected elements")
    return ctx.graph.gather(x, indices.reshape((-1,)), axis or 0)


@converts("Unique")
def _unique(
    ctx: ConversionContext, x: Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[Value, ...]:
    """Return the unique elements of a known value, with first indices, inverse and
    counts.
    """
    array = ctx.require_array(x, "the input")
    values, first_indices, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first_indices)
        new_positions = np.argsort(order)
        values = np.take(values, order, axis=axis or 0)
        first_indices = first_indices[order]
        counts = counts[order]
        inverse = new_positions[inverse]
    index_outputs = (
        ctx.constant_value(a.astype(np.int64)) for a in (first_indices, inverse, counts)
    )
    return (ctx.constant_value(values), *index_outputs)
