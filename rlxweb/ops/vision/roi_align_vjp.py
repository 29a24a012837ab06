"""Vector-Jacobian products of RoIAlign, by rewriting the pooling with tensors and
differentiating it.

The mean of a bin's samples is linear in both directions apart: a matrix for each region
that makes bins of rows, and one that makes bins of columns. The largest is of each
sample's corners, which are gathered. Both the images and the regions have a gradient;
how many samples a bin has is a step, and flat.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from rlxweb.core.errors import GradientRefused
from rlxweb.ir.autodiff import compute_vjp
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Attrs
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.vision.wgsl.roi_align import max_samples

MAX_SAMPLES = float(1 << 24)
"""Largest number of samples along a bin: float32 counts no further."""
MAX_CORNERS = 1 << 26
ERROR_CONTEXT = "roi_align"


def roi_align_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `roi_align` by the images and by the regions; f16 is computed in f32."""
    g = ctx.g
    if not prod(ctx.out.shape):
        return [None] * 3
    x, rois, grad = widen_float16_tensors(g, ctx.x, ctx.y, ctx.grad)
    leaves = [g.identity(leaf) for leaf in (x, rois)]
    pool: Callable[..., Tensor] = (
        _mean_pool if ctx.attrs["mode"] == "avg" else _max_pool
    )
    pooled = pool(g, ctx.attrs, *leaves, ctx.inputs[2])
    wrt = [leaf for leaf, needed in zip(leaves, ctx.needs_grad, strict=False) if needed]
    grads = iter(compute_vjp(g, [pooled], [grad], wrt, ERROR_CONTEXT))
    parts = [next(grads) if needed else None for needed in ctx.needs_grad[:2]]
    dtype = ctx.x.dtype
    is_same_dtype = x is ctx.x
    return [
        leaf if leaf is None or is_same_dtype else g.cast(leaf, dtype) for leaf in parts
    ] + [None]


class _SampleTaps(NamedTuple):
    """Samples of every bin along one axis [R, bins, samples].

    low, high  the elements around each (floats), and `fraction` how far on from the
               first
    is_inside  1 where it is one and lies inside, else 0
    is_sample  whether it is one
    sample_count  how many a bin has [R, 1, 1]
    """

    low: Tensor
    high: Tensor
    fraction: Tensor
    is_inside: Tensor
    is_sample: Tensor
    sample_count: Tensor


def _sample_taps(
    g: Graph, attrs: Attrs, rois: Tensor, axis: int, size: int
) -> _SampleTaps:
    """Return the samples along one axis, as in the reference.

    axis  0: down the images, whose coordinate is the second
    """
    bins, sampling = attrs["size"][axis], attrs["sampling"]
    shift = 0.5 if attrs["aligned"] else 0.0
    column = (rois.shape[0], 1, 1)
    low, high = (g.reshape(rois[:, bin_starts - axis], column) for bin_starts in (1, 3))
    start = low * attrs["scale"] - shift
    region_size = high * attrs["scale"] - shift - start
    if not attrs["aligned"]:
        region_size = g.maximum(region_size, 1.0)
    width = region_size / float(bins)

    def number_along(count: int, rank: int) -> Tensor:
        number_line = g.arange(count, dtype=rois.dtype)
        return g.reshape(number_line, (1, count, 1) if rank == 1 else (1, 1, count))

    bin_starts = start + number_along(bins, 1) * width
    sample_numbers = number_along(max_samples(size, sampling), 2)
    if sampling:
        count = g.expand(g.constant(float(sampling), rois.dtype), column)
        step = width / float(sampling)
    else:
        count = g.minimum(g.maximum(g.ceil(width), 0.0), MAX_SAMPLES)
        step = width / g.maximum(count, 1.0)
        safe_step = g.where(step > 0.0, step, 1.0)
        first = g.floor((-1.0 - bin_starts) / safe_step) - 2.0
        sample_numbers = g.maximum(first, 0.0) + sample_numbers
    positions = bin_starts + (sample_numbers + 0.5) * step
    is_sample = sample_numbers < count
    is_inside = g.logical_and(positions >= -1.0, positions <= float(size))
    clamped = g.where(is_inside, g.maximum(positions, 0.0), 0.0)
    lower = g.minimum(g.floor(clamped), float(size - 1))
    fraction = g.where(lower >= float(size - 1), 0.0, clamped - lower)
    upper = g.minimum(lower + 1.0, float(size - 1))
    is_sample = g.expand(is_sample, positions.shape)
    inside_mask = g.cast(g.logical_and(is_sample, is_inside), rois.dtype)
    return _SampleTaps(lower, upper, fraction, inside_mask, is_sample, count)


def _mean_pool(
    g: Graph, attrs: Attrs, x: Tensor, rois: Tensor, images: Tensor
) -> Tensor:
    """Pool by the mean: one matrix product combines rows of all images, with zeros for
    other images than a region's own.
    """
    n, c, rows, columns = x.shape
    regions, (p, q) = rois.shape[0], attrs["size"]

    def pooling_matrix(axis: int, size: int) -> Tensor:
        """Return [R, bins, size]: the weight of each element in the mean of a bin's
        samples.
        """
        taps = _sample_taps(g, attrs, rois, axis, size)
        elements = g.arange(size, dtype=rois.dtype)

        def tap_weights(element: Tensor, weight: Tensor) -> Tensor:
            is_element = g.eq(g.reshape(element, (*element.shape, 1)), elements)
            return g.where(is_element, g.reshape(weight, (*element.shape, 1)), 0.0)

        lower_weights = tap_weights(taps.low, taps.is_inside * (1.0 - taps.fraction))
        upper_weights = tap_weights(taps.high, taps.is_inside * taps.fraction)
        return g.sum(lower_weights + upper_weights, 2) / g.maximum(
            taps.sample_count, 1.0
        )

    # A number that is no image's is refused by the gather.
    image_mask = g.gather(g.eye(n, dtype=rois.dtype), images)
    down = g.reshape(pooling_matrix(0, rows), (regions, p, 1, rows))
    down = g.reshape(image_mask, (regions, 1, n, 1)) * down
    image_rows = g.reshape(g.transpose(x, (0, 2, 3, 1)), (n * rows, columns * c))
    pooled_rows = g.reshape(down, (regions * p, n * rows)) @ image_rows
    across = g.reshape(pooling_matrix(1, columns), (regions, 1, q, columns))
    pooled = across @ g.reshape(pooled_rows, (regions, p, columns, c))
    return g.transpose(pooled, (0, 3, 1, 2))


def _max_pool(
    g: Graph, attrs: Attrs, x: Tensor, rois: Tensor, images: Tensor
) -> Tensor:
    """Pool by the maximum over the gathered corners of all samples."""
    n, c, rows, columns = x.shape
    regions, (p, q) = rois.shape[0], attrs["size"]
    y_samples = _sample_taps(g, attrs, rois, 0, rows)
    x_samples = _sample_taps(g, attrs, rois, 1, columns)
    y_count, x_count = y_samples.low.shape[2], x_samples.low.shape[2]
    corner_count = 4 * regions * c * p * q * y_count * x_count
    if corner_count > MAX_CORNERS:
        raise GradientRefused(
            ERROR_CONTEXT,
            f"the maximum of {y_count} × {x_count} samples per bin in {regions} "
            f"regions requires {corner_count:,} stored numbers",
            f"a gradient can store at most {MAX_CORNERS:,} numbers, four for each "
            "sample and channel",
            "set `sampling` to fewer samples per bin, or use mode='avg'",
        )

    def align_to_axis(axis: int, x: Tensor) -> Tensor:
        """Reshape [R, bins, samples] of one axis to broadcast with that of the
        other.
        """
        r, bins, samples = x.shape
        shape = (r, 1, bins, 1, samples) if axis else (r, bins, 1, samples, 1)
        return g.reshape(x, shape)

    table = g.reshape(g.transpose(x, (0, 2, 3, 1)), (n * rows * columns, c))
    # A number that is no image's is refused by the gather.
    image_rows = g.arange(n, dtype="i32") * (rows * columns)
    first_row = g.reshape(g.gather(image_rows, images), (regions, 1, 1, 1, 1))
    is_inside = align_to_axis(0, y_samples.is_inside) * align_to_axis(
        1, x_samples.is_inside
    )
    corners = []
    for y_tap, tap_y in (
        (y_samples.low, 1.0 - y_samples.fraction),
        (y_samples.high, y_samples.fraction),
    ):
        for x_tap, tap_x in (
            (x_samples.low, 1.0 - x_samples.fraction),
            (x_samples.high, x_samples.fraction),
        ):
            row, column = (
                g.cast(tap, "i32")
                for tap in (align_to_axis(0, y_tap), align_to_axis(1, x_tap))
            )
            values = g.gather(table, first_row + row * columns + column)
            weight = align_to_axis(0, tap_y) * align_to_axis(1, tap_x) * is_inside
            corners.append(values * g.reshape(weight, (*weight.shape, 1)))
    is_sample = g.logical_and(
        align_to_axis(0, y_samples.is_sample), align_to_axis(1, x_samples.is_sample)
    )
    sample_flags = g.reshape(is_sample, (*is_sample.shape, 1))
    corners = [g.where(sample_flags, tap, float("-inf")) for tap in corners]
    largest = g.max(g.stack(corners), (0, 4, 5))
    walked_count = g.sum(g.cast(is_sample, rois.dtype), (3, 4))
    samples = g.reshape(
        y_samples.sample_count * x_samples.sample_count, (regions, 1, 1)
    )
    needs_zero = g.logical_or(walked_count < samples, g.eq(walked_count, 0.0))
    pooled = g.where(
        g.reshape(needs_zero, (*needs_zero.shape, 1)), g.maximum(largest, 0.0), largest
    )
    return g.transpose(pooled, (0, 3, 1, 2))
