"""RoIAlign: pool regions of images to one size by the mean or the maximum of samples.

As Mask R-CNN's RoIAlign, torchvision and ONNX have it: a bin's samples lie between
elements, linear in both directions; one more than an element outside is 0. The largest
is ONNX's: of each sample's four corners times their weights. No device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.core.errors import IndexRefused
from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, ValueGuard, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_attribute, bad_shape, format_shape
from rlxweb.ir.vmap_batching import merge_batch_rule
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.gather.index_validation import (
    as_take_indices,
    first_invalid_index,
    invalid_index_error,
    require_index_dtype,
)
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.vision.grid_sample import SAMPLING_TOLERANCE
from rlxweb.ops.vision.roi_align_vjp import MAX_SAMPLES, roi_align_vjp
from rlxweb.ops.vision.wgsl.roi_align import max_samples, plan_roi_align

POOLING_MODES = ("avg", "max")


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, rois, images = types
    dtype = common_dtype((x, rois))
    require_dtypes((x, rois), FLOAT_DTYPES)
    require_index_dtype(images)
    if x.rank != 4 or 0 in x.shape[2:]:
        raise bad_shape(
            f"got images {format_shape(x.shape)}",
            "expected [N, C, H, W] with H and W at least 1",
        )
    if rois.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
        raise bad_shape(
            f"got regions {format_shape(rois.shape)} and image indices "
            f"{format_shape(images.shape)}",
            "expected regions [R, 4] and image indices [R], one image index for each "
            "region",
        )
    if x.shape[0] == 0 and rois.shape[0]:
        raise bad_shape(
            f"got {rois.shape[0]} regions but the batch is empty",
            "every region must refer to an image",
        )
    size, sampling = attrs["size"], attrs["sampling"]
    if len(size) != 2 or min(size) < 1 or not 0 <= sampling <= 1 << 12:
        raise bad_attribute(
            f"size={size}, sampling={sampling}",
            "expected two sizes of at least 1, and sampling from 0 to 4,096",
        )
    return TensorType((rois.shape[0], x.shape[1], *size), dtype)


class _BinSamples(NamedTuple):
    """Samples of every bin along one axis: their positions, a mask of the valid ones
    and their count.
    """

    positions: Any
    is_sample: Any
    count: Any


def _bin_samples(
    xp: Any, rois: Any, axis: int, bins: int, max_samples: int, attrs: Attrs
) -> _BinSamples:
    """Return the sample positions [R, bins, samples] along one axis, limited to those
    that may lie inside the image.

    axis  0: down the images, whose coordinate is the second
    """
    low, high = rois[:, 1 - axis], rois[:, 3 - axis]
    shift = 0.5 if attrs["aligned"] else 0.0
    start = low * attrs["scale"] - shift
    size = high * attrs["scale"] - shift - start
    if not attrs["aligned"]:
        size = xp.maximum(size, xp.ones_like(size))
    width = size / bins
    count = xp.full_like(width, attrs["sampling"])
    if not attrs["sampling"]:
        count = xp.ceil(width)
        count = xp.where(count > 0, count, xp.zeros_like(count))
        count = xp.minimum(count, xp.full_like(count, MAX_SAMPLES))
    step = width / xp.maximum(count, xp.ones_like(count))
    bin_numbers = xp.asarray(xp.arange(bins), dtype=rois.dtype)
    bin_starts = start[:, None] + bin_numbers * width[:, None]
    first_sample = xp.zeros_like(bin_starts)
    if not attrs["sampling"]:
        safe_step = xp.where(step > 0, step, xp.ones_like(step))[:, None]
        first_sample = xp.floor((-1.0 - bin_starts) / safe_step) - 2.0
        first_sample = xp.where(
            first_sample > 0, first_sample, xp.zeros_like(first_sample)
        )
    offsets = xp.asarray(xp.arange(max_samples), dtype=rois.dtype)
    sample_numbers = first_sample[:, :, None] + offsets
    positions = bin_starts[:, :, None] + (sample_numbers + 0.5) * step[:, None, None]
    return _BinSamples(positions, sample_numbers < count[:, None, None], count)


def _bilinear_taps(xp: Any, positions: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Return whether positions are inside, their two neighbouring elements, and the
    fraction between these.
    """
    is_inside = (positions >= -1.0) & (positions <= size)
    clamped = xp.where(
        is_inside, xp.maximum(positions, xp.zeros_like(positions)), positions * 0.0
    )
    clamped = xp.where(is_inside, clamped, xp.zeros_like(clamped))
    low = xp.minimum(xp.floor(clamped), xp.full_like(clamped, size - 1))
    fraction = xp.where(low >= size - 1, xp.zeros_like(clamped), clamped - low)
    high = xp.minimum(low + 1, xp.full_like(clamped, size - 1))
    return (
        is_inside,
        as_take_indices(xp, low, size),
        as_take_indices(xp, high, size),
        fraction,
    )


def _pool_regions(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    """Pool regions without checking their image numbers."""
    n, c, rows, columns = x.shape
    p, q = attrs["size"]
    count = rois.shape[0]
    out = (count, c, p, q)
    if 0 in out:
        return xp.zeros(out, dtype=x.dtype)
    wide, regions = widen_float16(xp, x), widen_float16(xp, rois)
    table = xp.reshape(xp.permute_dims(wide, (0, 2, 3, 1)), (n * rows * columns, c))
    # Of what lies outside one row stands for all, so that it is no index to refuse.
    is_valid = (images >= 0) & (images < n)
    first_row = xp.where(is_valid, images, xp.zeros_like(images))
    first_row = as_take_indices(xp, first_row, n * rows * columns) * (rows * columns)
    sample_limits = [max_samples(size, attrs["sampling"]) for size in (rows, columns)]
    axis_samples = [
        _bin_samples(xp, regions, axis, bins, max_samples, attrs)
        for axis, bins, max_samples in zip((0, 1), (p, q), sample_limits, strict=True)
    ]
    if xp is np:
        pooled = _pool_by_sample(attrs, table, first_row, axis_samples, (rows, columns))
    else:
        pooled = _pool_vectorized(
            xp, attrs, table, first_row, axis_samples, (rows, columns)
        )
    return xp.asarray(xp.permute_dims(pooled, (0, 3, 1, 2)), dtype=x.dtype)


def _weighted_corners(
    xp: Any, table: Any, first_row: Any, y_taps: Any, x_taps: Any, columns: int
) -> list[Any]:
    """Return the four elements around each sample times their weights, 0 outside the
    image.

    y_taps, x_taps  taps that broadcast with each other
    """
    in_y, y0, y1, v = y_taps
    in_x, x0, x1, h = x_taps
    is_inside, corners = (in_y & in_x)[..., None], []
    for y, wy in ((y0, 1.0 - v), (y1, v)):
        for x, wx in ((x0, 1.0 - h), (x1, h)):
            row_index = first_row + y * columns + x
            rows = xp.take(table, xp.reshape(row_index, (-1,)), axis=0)
            rows = xp.reshape(rows, (*row_index.shape, table.shape[1]))
            value = rows * (wy * wx)[..., None]
            corners.append(xp.where(is_inside, value, xp.zeros_like(value)))
    return corners


def _pool_vectorized(
    xp: Any,
    attrs: Attrs,
    table: Any,
    first_row: Any,
    axis_samples: Sequence[_BinSamples],
    size: Shape,
) -> Any:
    """Pool all samples at once into [R, P, Q, C], for engines that trace."""
    y_samples, x_samples = axis_samples
    y_taps = _bilinear_taps(xp, y_samples.positions, size[0])
    x_taps = _bilinear_taps(xp, x_samples.positions, size[1])
    y_axis_taps = [tap[:, :, None, :, None] for tap in y_taps]
    x_axis_taps = [tap[:, None, :, None, :] for tap in x_taps]
    is_sample = (
        y_samples.is_sample[:, :, None, :, None]
        & x_samples.is_sample[:, None, :, None, :]
    )
    corners = _weighted_corners(
        xp,
        table,
        first_row[:, None, None, None, None],
        y_axis_taps,
        x_axis_taps,
        size[1],
    )
    sample_count = y_samples.count * x_samples.count
    if attrs["mode"] == "avg":
        values = corners[0] + corners[1] + corners[2] + corners[3]
        values = xp.where(is_sample[..., None], values, xp.zeros_like(values))
        count = xp.maximum(sample_count, xp.ones_like(sample_count))[
            :, None, None, None
        ]
        return xp.sum(xp.sum(values, axis=4), axis=3) / count
    largest = corners[0]
    for tap in corners[1:]:
        largest = xp.maximum(largest, tap)
    lowest = xp.full_like(largest, -np.inf)
    largest = xp.max(
        xp.max(xp.where(is_sample[..., None], largest, lowest), axis=4), axis=3
    )
    walked_count = xp.sum(
        xp.sum(xp.asarray(is_sample, dtype=sample_count.dtype), axis=4), axis=3
    )
    needs_zero = ((walked_count < sample_count[:, None, None]) | (walked_count == 0))[
        ..., None
    ]
    return xp.where(needs_zero, xp.maximum(largest, xp.zeros_like(largest)), largest)


def _pool_by_sample(
    attrs: Attrs,
    table: Any,
    first_row: Any,
    axis_samples: Sequence[_BinSamples],
    size: Shape,
) -> Any:
    """Pool one sample of every bin after the other, only where bins have that
    sample.
    """
    y_samples, x_samples = axis_samples
    takes_largest = attrs["mode"] == "max"
    shape = (
        *y_samples.positions.shape[:2],
        x_samples.positions.shape[1],
        table.shape[1],
    )
    total = np.full(shape, -np.inf if takes_largest else 0.0, table.dtype)
    walked_count = np.zeros(shape[:3], np.int64)
    for k in range(y_samples.positions.shape[2]):
        candidates = np.flatnonzero(y_samples.is_sample[:, :, k].any(1))
        for j in range(x_samples.positions.shape[2]) if len(candidates) else ():
            regions = candidates[x_samples.is_sample[candidates, :, j].any(1)]
            if not len(regions):
                break
            y_taps = [
                tap[:, :, None]
                for tap in _bilinear_taps(
                    np, y_samples.positions[regions, :, k], size[0]
                )
            ]
            x_taps = [
                tap[:, None]
                for tap in _bilinear_taps(
                    np, x_samples.positions[regions, :, j], size[1]
                )
            ]
            is_sample = (
                y_samples.is_sample[regions, :, None, k]
                & x_samples.is_sample[regions, None, :, j]
            )
            region_row = first_row[regions][:, None, None]
            corners = _weighted_corners(np, table, region_row, y_taps, x_taps, size[1])
            if takes_largest:
                largest = np.max(corners, axis=0)
                largest[~is_sample] = -np.inf
                total[regions] = np.maximum(total[regions], largest)
            else:
                values = np.sum(corners, axis=0)
                values[~is_sample] = 0.0
                total[regions] += values
            walked_count[regions] += is_sample
    sample_count = (y_samples.count * x_samples.count)[:, None, None]
    if takes_largest:
        needs_zero = (walked_count < sample_count) | (walked_count == 0)
        total[needs_zero] = np.maximum(total[needs_zero], 0.0)
        return total
    return total / np.maximum(sample_count, 1)[..., None]


def _first_invalid_image(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    """Return the position and value of the first image number out of range, or -1."""
    return first_invalid_index(xp, (images < 0) | (images >= x.shape[0]), images)


def _raise_if_invalid(
    shapes: Sequence[Shape], attrs: Attrs, first_invalid: Sequence[int]
) -> None:
    """Raise IndexRefused if an image number is out of range."""
    if first_invalid[0] >= 0:
        axis_label = f"axis 0 (the images) of {format_shape(shapes[0])}"
        place = (first_invalid[0], first_invalid[1])
        error: IndexRefused = invalid_index_error(
            "roi_align", shapes[2], place, 0, shapes[0][0], axis_label
        )
        raise error


def _reference(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    first_invalid = _first_invalid_image(xp, attrs, x, rois, images)
    shapes = tuple(x.shape), tuple(rois.shape), tuple(images.shape)
    _raise_if_invalid(shapes, attrs, (int(first_invalid[0]), int(first_invalid[1])))
    return _pool_regions(xp, attrs, x, rois, images)


def _case(
    x: Shape,
    regions: int,
    dtype: DType = DType.F32,
    high: float = 9.0,
    index: DType = DType.I32,
    **attrs: Any,
) -> Sample:
    drawn = (
        Drawn(x, dtype, -2, 2),
        Drawn((regions, 4), dtype, -2, high),
        Drawn((regions,), index, 0, x[0] - 1),
    )
    return Sample(drawn, {"size": (2, 3), "sampling": 2, **attrs})


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    samples: int = max(attrs["sampling"], 2) ** 2
    return 12.0 * out.numel * samples


registry.register_all(
    Op(
        name="roi_align",
        arity=3,
        infer=_infer,
        reference=_reference,
        guard=ValueGuard(_first_invalid_image, _raise_if_invalid, _pool_regions),
        lower=Kernel(plan_roi_align),
        range_rule=value_range_rules.INDEX_ONLY_RANGE,
        attrs=(
            Attr("size", "ints"),
            Attr("sampling", "int", 0),
            Attr("scale", "float", 1.0),
            Attr("aligned", "bool", True),
            Attr("mode", "str", "avg", allowed=POOLING_MODES),
        ),
        flops=_flops,
        vjp=roi_align_vjp,
        batch=merge_batch_rule(None, 0, 0),
        tolerance=SAMPLING_TOLERANCE,
        samples=(
            _case((1, 1, 1, 1), 1),
            _case((2, 3, 5, 7), 5),
            _case((2, 3, 5, 7), 5, aligned=False, mode="max", scale=0.5),
            _case((2, 2, 2, 3), 4, sampling=0),
            _case((2, 1, 2, 3), 4, sampling=0, high=20.0, mode="max", aligned=False),
            _case((1, 2, 4, 4), 0),
            _case((1, 2, 4, 5), 2, DType.F64, index=DType.I64),
            _case((1, 2, 4, 5), 2, index=DType.U32, sampling=1),
            _case((3, 66, 1, 2), 1001, sampling=1, size=(1, 1)),
        ),
        calibration_cases=(_case((1, 4, 8, 8), 4), _case((1, 64, 32, 32), 100)),
        doc="Regions [R, 4] (x1 y1 x2 y2, multiplied by `scale`) of images [N, C, H, "
        "W], resampled to bins [R, C, *size]. The third operand [R] has the index of "
        "the image of each region. A bin is the mean (mode='avg') or the maximum "
        "(mode='max') of `sampling`² samples; with sampling=0, neighbouring samples "
        "of a bin are at most one element apart. With `aligned`, regions are shifted "
        "by half an element; without it, regions smaller than 1 element are enlarged "
        "to 1.",
    )
)
