"""Gradients of pooled regions: the pooling written with tensors, and taken back.

The mean of a bin's samples is linear in both directions apart: a matrix for each region
that makes bins of rows, and one that makes bins of columns. The largest is of each
sample's corners, which are gathered. Both the images and the regions have a gradient;
how many samples a bin has is a step, and flat.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from rlxweb.errors import GradientRefused
from rlxweb.ir.derivative import Taken
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Attrs
from rlxweb.ir.pullback import pulled_back
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.roi_calls import walked

MOST_SAMPLES = float(1 << 24)
"""Samples along a bin: float32 counts no further."""
MOST_CORNERS = 1 << 26
DOING = "roi_align"


def pooled_back(at: Taken) -> list[Tensor | None]:
    """By the images and by the regions, in f32 of f16."""
    g = at.g
    if not prod(at.out.shape):
        return [None] * 3
    x, rois, grad = in_f32(g, at.x, at.y, at.grad)
    names = [g.identity(one) for one in (x, rois)]
    pool: Callable[..., Tensor] = _mean if at.attrs["mode"] == "avg" else _largest
    made = pool(g, at.attrs, *names, at.inputs[2])
    asked = [one for one, wanted in zip(names, at.wants, strict=False) if wanted]
    found = iter(pulled_back(g, [made], [grad], asked, DOING))
    parts = [next(found) if wanted else None for wanted in at.wants[:2]]
    dtype = at.x.dtype
    same = x is at.x
    return [one if one is None or same else g.cast(one, dtype) for one in parts] + [
        None
    ]


class _Samples(NamedTuple):
    """Samples of every bin along one axis [R, bins, samples].

    low, high  the elements around each (floats), and `part` how far on from the first
    there      1 where it is one and lies inside, else 0
    is_one     whether it is one
    most       how many a bin has [R, 1, 1]
    """

    low: Tensor
    high: Tensor
    part: Tensor
    there: Tensor
    is_one: Tensor
    most: Tensor


def _samples(g: Graph, attrs: Attrs, rois: Tensor, axis: int, size: int) -> _Samples:
    """As the reference has them.

    axis  0: down the images, whose coordinate is the second
    """
    bins, sampling = attrs["size"][axis], attrs["sampling"]
    shift = 0.5 if attrs["aligned"] else 0.0
    column = (rois.shape[0], 1, 1)
    low, high = (g.reshape(rois[:, at - axis], column) for at in (1, 3))
    begin = low * attrs["scale"] - shift
    extent = high * attrs["scale"] - shift - begin
    if not attrs["aligned"]:
        extent = g.maximum(extent, 1.0)
    width = extent / float(bins)

    def numbers(count: int, rank: int) -> Tensor:
        line = g.arange(count, dtype=rois.dtype)
        return g.reshape(line, (1, count, 1) if rank == 1 else (1, 1, count))

    at = begin + numbers(bins, 1) * width
    order = numbers(walked(size, sampling), 2)
    if sampling:
        count = g.expand(g.constant(float(sampling), rois.dtype), column)
        step = width / float(sampling)
    else:
        count = g.minimum(g.maximum(g.ceil(width), 0.0), MOST_SAMPLES)
        step = width / g.maximum(count, 1.0)
        some = g.where(step > 0.0, step, 1.0)
        first = g.floor((-1.0 - at) / some) - 2.0
        order = g.maximum(first, 0.0) + order
    places = at + (order + 0.5) * step
    is_one = order < count
    inside = g.logical_and(places >= -1.0, places <= float(size))
    near = g.where(inside, g.maximum(places, 0.0), 0.0)
    before = g.minimum(g.floor(near), float(size - 1))
    part = g.where(before >= float(size - 1), 0.0, near - before)
    after = g.minimum(before + 1.0, float(size - 1))
    is_one = g.expand(is_one, places.shape)
    there = g.cast(g.logical_and(is_one, inside), rois.dtype)
    return _Samples(before, after, part, there, is_one, count)


def _mean(g: Graph, attrs: Attrs, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    """Rows of all images by one product, which skips other regions' by zeros."""
    n, c, rows, columns = x.shape
    regions, (p, q) = rois.shape[0], attrs["size"]

    def matrix(axis: int, size: int) -> Tensor:
        """[R, bins, size]: what each element counts in the mean of a bin's samples."""
        of = _samples(g, attrs, rois, axis, size)
        every = g.arange(size, dtype=rois.dtype)

        def tap(at: Tensor, weight: Tensor) -> Tensor:
            hit = g.eq(g.reshape(at, (*at.shape, 1)), every)
            return g.where(hit, g.reshape(weight, (*at.shape, 1)), 0.0)

        near = tap(of.low, of.there * (1.0 - of.part))
        far = tap(of.high, of.there * of.part)
        return g.sum(near + far, 2) / g.maximum(of.most, 1.0)

    # A number that is no image's is refused by the gather.
    own = g.gather(g.eye(n, dtype=rois.dtype), images)
    down = g.reshape(matrix(0, rows), (regions, p, 1, rows))
    down = g.reshape(own, (regions, 1, n, 1)) * down
    lines = g.reshape(g.transpose(x, (0, 2, 3, 1)), (n * rows, columns * c))
    bands = g.reshape(down, (regions * p, n * rows)) @ lines
    across = g.reshape(matrix(1, columns), (regions, 1, q, columns))
    made = across @ g.reshape(bands, (regions, p, columns, c))
    return g.transpose(made, (0, 3, 1, 2))


def _largest(g: Graph, attrs: Attrs, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    """The corners of all samples side by side."""
    n, c, rows, columns = x.shape
    regions, (p, q) = rois.shape[0], attrs["size"]
    down = _samples(g, attrs, rois, 0, rows)
    across = _samples(g, attrs, rois, 1, columns)
    tall, wide = down.low.shape[2], across.low.shape[2]
    if 4 * regions * c * p * q * tall * wide > MOST_CORNERS:
        raise GradientRefused(
            DOING,
            f"{regions} regions of {tall} by {wide} samples a bin, the largest of them",
            f"the corners of all samples are kept, up to {MOST_CORNERS:,} numbers",
            "say how many samples a bin has, or take the mean",
        )

    def along(axis: int, x: Tensor) -> Tensor:
        """[R, bins, samples] of one axis beside those of the other."""
        r, bins, samples = x.shape
        shape = (r, 1, bins, 1, samples) if axis else (r, bins, 1, samples, 1)
        return g.reshape(x, shape)

    table = g.reshape(g.transpose(x, (0, 2, 3, 1)), (n * rows * columns, c))
    # A number that is no image's is refused by the gather.
    every = g.arange(n, dtype="i32") * (rows * columns)
    first = g.reshape(g.gather(every, images), (regions, 1, 1, 1, 1))
    there = along(0, down.there) * along(1, across.there)
    corners = []
    for y, tap_y in ((down.low, 1.0 - down.part), (down.high, down.part)):
        for z, tap_x in ((across.low, 1.0 - across.part), (across.high, across.part)):
            row, column = (g.cast(one, "i32") for one in (along(0, y), along(1, z)))
            values = g.gather(table, first + row * columns + column)
            weight = along(0, tap_y) * along(1, tap_x) * there
            corners.append(values * g.reshape(weight, (*weight.shape, 1)))
    is_one = g.logical_and(along(0, down.is_one), along(1, across.is_one))
    flags = g.reshape(is_one, (*is_one.shape, 1))
    corners = [g.where(flags, one, float("-inf")) for one in corners]
    most = g.max(g.stack(corners), (0, 4, 5))
    seen = g.sum(g.cast(is_one, rois.dtype), (3, 4))
    samples = g.reshape(down.most * across.most, (regions, 1, 1))
    more = g.logical_or(seen < samples, g.eq(seen, 0.0))
    kept = g.where(g.reshape(more, (*more.shape, 1)), g.maximum(most, 0.0), most)
    return g.transpose(kept, (0, 3, 1, 2))
