"""Converter of MaxRoiPool: the largest element of every bin in regions of images.

A bin may be of any size. So the largest of all blocks of 1, 2, 4 … rows by 1, 2, 4 …
columns are found first, each of two smaller ones; four such blocks, which may overlap,
cover a bin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts

Ints = tuple[int, ...]


class _RoiBins(NamedTuple):
    """Position of each region's bins along one axis; all fields are [R, bins] and i32.

    level    the largest power of two that is no longer than a bin
    first_block  the first element, and `last_block` the first of the block that ends
                 with the bin
    is_nonempty  bool: whether the bin has an element inside
    """

    level: Tensor
    first_block: Tensor
    last_block: Tensor
    is_nonempty: Tensor


@converts("MaxRoiPool")
def _max_roi_pool(
    ctx: ConversionContext,
    x: Tensor,
    rois: Tensor,
    *,
    pooled_shape: Ints,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Convert MaxRoiPool. Regions are [R, 5]: image, left, top, right and bottom, all
    inclusive.
    """
    if x.rank != 4 or 0 in x.shape or rois.rank != 2 or rois.shape[1] != 5:
        ctx.raise_invalid_model(
            f"got images {format_shape(x.shape)} and regions "
            f"{format_shape(rois.shape)}",
            "expected non-empty images [N, C, H, W] and regions [R, 5]",
        )
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        ctx.raise_invalid_model(
            f"pooled_shape is {pooled_shape}", "must be two sizes, each at least 1"
        )
    g = ctx.graph
    images = g.cast(g.narrow(rois, 1, 0, 1), DType.I32)
    images = _insert_bin_axis(
        _look_up(ctx, np.arange(x.shape[0]), images), 2
    )  # refuses what is none
    corners = _round_half_away(ctx, rois * spatial_scale)
    row_bins, column_bins = (
        _axis_bins(ctx, corners, column, size, bins)
        for column, size, bins in zip((2, 1), x.shape[2:], pooled_shape, strict=True)
    )
    maxima = _bin_maxima(ctx, x, images, row_bins, column_bins)
    is_nonempty = g.where(
        _insert_bin_axis(row_bins.is_nonempty, 2),
        _insert_bin_axis(column_bins.is_nonempty, 1),
        False,
    )
    maxima = g.where(g.unsqueeze(is_nonempty, -1), maxima, 0.0)
    return g.moveaxis(maxima, -1, 1)


def _bin_maxima(
    ctx: ConversionContext,
    x: Tensor,
    images: Tensor,
    row_bins: _RoiBins,
    column_bins: _RoiBins,
) -> Tensor:
    """Return the largest elements [R, P, Q, C] of the bins, each covered by four
    blocks.
    """
    g, blocks = ctx.graph, _block_maxima(x)
    sizes = [(block.shape[1], block.shape[2]) for block in blocks]
    table = g.concat([g.reshape(block, (-1, x.shape[1])) for block in blocks], 0)
    level = _insert_bin_axis(row_bins.level, 2) * _level_count(
        x.shape[3]
    ) + _insert_bin_axis(column_bins.level, 1)
    counts = [x.shape[0] * rows * columns for rows, columns in sizes]
    starts = _look_up(ctx, np.cumsum([0, *counts[:-1]]), level)
    rows, columns = (
        _look_up(ctx, lengths, level) for lengths in zip(*sizes, strict=True)
    )
    maxima: Tensor | None = None
    for top in (row_bins.first_block, row_bins.last_block):
        for left in (column_bins.first_block, column_bins.last_block):
            cell_index = (
                starts
                + (images * rows + _insert_bin_axis(top, 2)) * columns
                + _insert_bin_axis(left, 1)
            )
            block = g.gather(table, cell_index)
            maxima = block if maxima is None else g.maximum(maxima, block)
    assert maxima is not None
    return maxima


def _level_count(size: int) -> int:
    """Return the number of powers of two that are not larger than a size."""
    return size.bit_length()


def _insert_bin_axis(bins: Tensor, axis: int) -> Tensor:
    """Unsqueeze [R, bins] at `axis`, the place of the other direction's bins."""
    return bins.graph.unsqueeze(bins, axis)


def _look_up(ctx: ConversionContext, table: object, index: Tensor) -> Tensor:
    """Gather entries of a constant i32 table by index."""
    return ctx.graph.gather(ctx.constant_value(np.asarray(table, np.int32)), index)


def _round_half_away(ctx: ConversionContext, x: Tensor) -> Tensor:
    """Round to integers, halves away from 0, like C's `round`."""
    g, magnitude = ctx.graph, abs(x)
    integer_part = g.floor(magnitude)
    return g.sign(x) * (
        integer_part + g.cast(g.ge(magnitude - integer_part, 0.5), x.dtype)
    )


def _axis_bins(
    ctx: ConversionContext, corners: Tensor, first_column: int, size: int, bins: int
) -> _RoiBins:
    """Return the bins of regions whose first and last elements are in columns
    `first_column` and `first_column` + 2.
    """
    g = ctx.graph
    start, last = (
        g.narrow(corners, 1, column, 1) for column in (first_column, first_column + 2)
    )
    width = g.maximum(last - start + 1.0, 1.0) / float(bins)
    steps = np.arange(bins, dtype=corners.dtype.numpy)
    low, high = g.floor(width * steps) + start, g.ceil(width * (steps + 1)) + start
    low, high = (
        g.cast(g.minimum(g.maximum(edge, 0.0), float(size)), DType.I32)
        for edge in (low, high)
    )
    is_nonempty = g.lt(low, high)
    low = g.minimum(low, size - 1)
    lengths = g.maximum(high - low, 1)
    levels = np.array([max(1, n).bit_length() - 1 for n in range(size + 1)])
    block_length = _look_up(ctx, 1 << levels, lengths)
    return _RoiBins(
        _look_up(ctx, levels, lengths), low, low + lengths - block_length, is_nonempty
    )


def _block_maxima(x: Tensor) -> list[Tensor]:
    """Return the maxima [N, rows, columns, C] of all blocks of 2^k rows by 2^l columns,
    ordered by k, then l.
    """
    g, maxima = x.graph, []
    for rows in _sliding_maxima(g.moveaxis(x, 1, -1), 1):
        maxima += _sliding_maxima(rows, 2)
    return maxima


def _sliding_maxima(x: Tensor, axis: int) -> list[Tensor]:
    """Return the maxima of 1, 2, 4 … neighbours along an axis, for every power of two
    that fits.
    """
    g, maxima = x.graph, [x]
    for level in range(_level_count(x.shape[axis]) - 1):
        previous, step = maxima[-1], 1 << level
        count = previous.shape[axis] - step
        maxima.append(
            g.maximum(
                g.narrow(previous, axis, 0, count),
                g.narrow(previous, axis, step, count),
            )
        )
    return maxima
