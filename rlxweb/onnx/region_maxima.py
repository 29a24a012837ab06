"""MaxRoiPool: the largest element of every bin in regions of images.

A bin may be of any size. So the largest of all blocks of 1, 2, 4 … rows by 1, 2, 4 …
columns are found first, each of two smaller ones; four such blocks, which may overlap,
cover a bin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]


class _Bins(NamedTuple):
    """Where the bins of each region lie along one axis, all [R, bins] and i32.

    level    the largest power of two that is no longer than a bin
    first    the first element, and `last` the first of the block that ends with the bin
    is_some  bool: whether the bin has an element inside
    """

    level: Tensor
    first: Tensor
    last: Tensor
    is_some: Tensor


@converts("MaxRoiPool")
def _max_roi_pool(
    call: Call,
    x: Tensor,
    rois: Tensor,
    *,
    pooled_shape: Ints,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Regions are [R, 5]: the image, left, top, right and bottom, all inside."""
    if x.rank != 4 or 0 in x.shape or rois.rank != 2 or rois.shape[1] != 5:
        call.contradict(
            f"images {show(x.shape)}, regions {show(rois.shape)}",
            "[N, C, H, W] with elements and [R, 5]",
        )
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        call.contradict(f"pooled_shape is {pooled_shape}", "two sizes of at least 1")
    g = call.g
    images = g.cast(g.narrow(rois, 1, 0, 1), DType.I32)
    images = _by(_of(call, np.arange(x.shape[0]), images), 2)  # refuses what is none
    ends = _rounded(call, rois * spatial_scale)
    down, across = (
        _bins(call, ends, at, size, bins)
        for at, size, bins in zip((2, 1), x.shape[2:], pooled_shape, strict=True)
    )
    made = _largest(call, x, images, down, across)
    is_some = g.where(_by(down.is_some, 2), _by(across.is_some, 1), False)
    made = g.where(g.unsqueeze(is_some, -1), made, 0.0)
    return g.moveaxis(made, -1, 1)


def _largest(
    call: Call, x: Tensor, images: Tensor, down: _Bins, across: _Bins
) -> Tensor:
    """The largest elements [R, P, Q, C] of the bins, each covered by four blocks."""
    g, blocks = call.g, _blocks(x)
    sizes = [(one.shape[1], one.shape[2]) for one in blocks]
    table = g.concat([g.reshape(one, (-1, x.shape[1])) for one in blocks], 0)
    level = _by(down.level, 2) * _levels(x.shape[3]) + _by(across.level, 1)
    counts = [x.shape[0] * rows * columns for rows, columns in sizes]
    starts = _of(call, np.cumsum([0, *counts[:-1]]), level)
    rows, columns = (_of(call, each, level) for each in zip(*sizes, strict=True))
    made: Tensor | None = None
    for top in (down.first, down.last):
        for left in (across.first, across.last):
            at = starts + (images * rows + _by(top, 2)) * columns + _by(left, 1)
            one = g.gather(table, at)
            made = one if made is None else g.maximum(made, one)
    assert made is not None
    return made


def _levels(size: int) -> int:
    """How many powers of two are no larger."""
    return size.bit_length()


def _by(bins: Tensor, axis: int) -> Tensor:
    """[R, bins] beside the bins of the other axis, which becomes `axis`."""
    return bins.graph.unsqueeze(bins, axis)


def _of(call: Call, table: object, at: Tensor) -> Tensor:
    return call.g.gather(call.hold(np.asarray(table, np.int32)), at)


def _rounded(call: Call, x: Tensor) -> Tensor:
    """To whole numbers, halves away from 0, as C's round."""
    g, size = call.g, abs(x)
    whole = g.floor(size)
    return g.sign(x) * (whole + g.cast(g.ge(size - whole, 0.5), x.dtype))


def _bins(call: Call, ends: Tensor, at: int, size: int, bins: int) -> _Bins:
    """The bins of regions whose first and last element are columns `at`, `at` + 2."""
    g = call.g
    start, last = (g.narrow(ends, 1, place, 1) for place in (at, at + 2))
    width = g.maximum(last - start + 1.0, 1.0) / float(bins)
    steps = np.arange(bins, dtype=ends.dtype.numpy)
    low, high = g.floor(width * steps) + start, g.ceil(width * (steps + 1)) + start
    low, high = (
        g.cast(g.minimum(g.maximum(one, 0.0), float(size)), DType.I32)
        for one in (low, high)
    )
    is_some = g.lt(low, high)
    low = g.minimum(low, size - 1)
    lengths = g.maximum(high - low, 1)
    powers = np.array([max(1, n).bit_length() - 1 for n in range(size + 1)])
    block = _of(call, 1 << powers, lengths)
    return _Bins(_of(call, powers, lengths), low, low + lengths - block, is_some)


def _blocks(x: Tensor) -> list[Tensor]:
    """The largest elements [N, rows, columns, C] of all blocks of 2^k rows by 2^l
    columns, k by k.
    """
    g, made = x.graph, []
    for rows in _doubled(g.moveaxis(x, 1, -1), 1):
        made += _doubled(rows, 2)
    return made


def _doubled(x: Tensor, axis: int) -> list[Tensor]:
    """The largest of 1, 2, 4 … neighbours along an axis, as many as there can be."""
    g, made = x.graph, [x]
    for level in range(_levels(x.shape[axis]) - 1):
        before, step = made[-1], 1 << level
        count = before.shape[axis] - step
        made.append(
            g.maximum(
                g.narrow(before, axis, 0, count), g.narrow(before, axis, step, count)
            )
        )
    return made
