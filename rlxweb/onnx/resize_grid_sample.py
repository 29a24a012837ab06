"""Converters of Resize, Upsample, GridSample and AffineGrid."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts

Ints = tuple[int, ...]
Floats = tuple[float, ...]
_LEGACY_OPTIONS = {"place": "asymmetric", "rounding": "floor"}
_MODE_NAMES = {"bilinear": "linear", "bicubic": "cubic"}


def _resize_axes(
    ctx: ConversionContext,
    x: Tensor,
    targets: Sequence[tuple[int, int, float, tuple[float, float]]],
    options: dict[str, Any],
) -> Tensor:
    """Resize axis by axis; each target is (axis, size, scale, range of the axis that is
    sampled).
    """
    mode = _MODE_NAMES.get(options["mode"], options["mode"])
    for axis, size, scale, (start, end) in targets:
        is_full_range = (start, end) == (0.0, 1.0)
        if is_full_range and size == x.shape[axis] and isclose(scale, 1.0):
            continue
        x = ctx.graph.apply(
            "resize",
            x,
            axis=axis,
            size=size,
            scale=scale,
            roi_start=start,
            roi_end=end,
            **{**options, "mode": mode},
        )
    return x


def _sizes_from_scales(
    x: Tensor, axes: Sequence[int], scales: Sequence[float]
) -> list[tuple[int, float]]:
    """Return (size, scale) for each axis, computed from the scales."""
    return [
        (int(np.floor(x.shape[axis] * scale)), float(scale))
        for axis, scale in zip(axes, scales, strict=True)
    ]


def _resize_by_scales(
    ctx: ConversionContext, x: Tensor, scales: Sequence[float], mode: str
) -> Tensor:
    """Resize all axes by scales with the options of the opsets before 11."""
    if len(scales) != x.rank:
        ctx.raise_invalid_model(
            f"got {len(scales)} scales",
            f"expected one for each of the {x.rank} axes of x",
        )
    sizes_and_scales = _sizes_from_scales(x, range(x.rank), scales)
    targets = [(axis, n, s, (0.0, 1.0)) for axis, (n, s) in enumerate(sizes_and_scales)]
    return _resize_axes(ctx, x, targets, {"mode": mode, **_LEGACY_OPTIONS})


def _known_floats(
    ctx: ConversionContext, value: Tensor, description: str
) -> list[float]:
    """Return the elements of a value that must be known, as floats."""
    return [
        float(element) for element in ctx.require_array(value, description).reshape(-1)
    ]


@converts("Upsample", since=7, until=8)
def _old_upsample(
    ctx: ConversionContext, x: Tensor, *, scales: Floats, mode: str = "nearest"
) -> Tensor:
    return _resize_by_scales(ctx, x, scales, mode)


@converts("Upsample", since=9)
@converts("Resize", since=10, until=10)
def _upsample(
    ctx: ConversionContext, x: Tensor, scales: Tensor, *, mode: str = "nearest"
) -> Tensor:
    return _resize_by_scales(ctx, x, _known_floats(ctx, scales, "the scales"), mode)


@converts("Resize", since=11)
def _resize(
    ctx: ConversionContext,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    if coordinate_transformation_mode == "tf_half_pixel_for_nn":
        ctx.raise_unsupported(
            "coordinate_transformation_mode tf_half_pixel_for_nn is not supported",
            "ONNX removed this mode in opset 13",
        )
    resized_axes = (
        range(x.rank) if axes is None else [normalize_axis(a, x.rank) for a in axes]
    )
    target_sizes = [] if sizes is None else ctx.require_ints(sizes, "the sizes")
    scale_factors = [] if scales is None else _known_floats(ctx, scales, "the scales")
    if (not target_sizes) == (not scale_factors) or len(
        target_sizes or scale_factors
    ) != len(resized_axes):
        ctx.raise_invalid_model(
            f"got {len(scale_factors)} scales and {len(target_sizes)} sizes",
            f"expected either scales or sizes, one for each of {len(resized_axes)} "
            "axes",
        )
    if target_sizes:
        sizes_and_scales = _sizes_for_policy(
            ctx, x, resized_axes, target_sizes, keep_aspect_ratio_policy
        )
    else:
        sizes_and_scales = _sizes_from_scales(x, resized_axes, scale_factors)
    sampled_ranges = [(0.0, 1.0)] * len(resized_axes)
    if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None:
        roi_values = _known_floats(ctx, roi, "the roi")
        if len(roi_values) != 2 * len(resized_axes):
            ctx.raise_invalid_model(
                f"roi has {len(roi_values)} elements",
                f"expected 2 for each of {len(resized_axes)} axes",
            )
        sampled_ranges = list(
            zip(
                roi_values[: len(resized_axes)],
                roi_values[len(resized_axes) :],
                strict=True,
            )
        )
    rows = zip(resized_axes, sizes_and_scales, sampled_ranges, strict=True)
    return _resize_axes(
        ctx,
        x,
        [(axis, n, scale, sampled_range) for axis, (n, scale), sampled_range in rows],
        {
            "mode": mode,
            "place": coordinate_transformation_mode,
            "rounding": nearest_mode,
            "cubic": cubic_coeff_a,
            "antialias": bool(antialias),
            "exclude_outside": bool(exclude_outside),
            "extrapolation": extrapolation_value,
        },
    )


def _sizes_for_policy(
    ctx: ConversionContext,
    x: Tensor,
    axes: Sequence[int],
    sizes: Sequence[int],
    policy: str,
) -> list[tuple[int, float]]:
    """Return (size, scale) for each axis, computed from the target sizes and the
    aspect-ratio policy.
    """
    scales = [n / max(1, x.shape[axis]) for axis, n in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return list(zip(sizes, scales, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        ctx.raise_invalid_model(
            f"keep_aspect_ratio_policy is {policy!r}",
            "must be stretch, not_larger or not_smaller",
        )
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [(int(scale * x.shape[axis] + 0.5), scale) for axis in axes]


@converts("GridSample", since=16)
def _grid_sample(
    ctx: ConversionContext,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    grid = grid if grid.dtype is x.dtype else ctx.graph.cast(grid, x.dtype)
    return ctx.graph.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@converts("AffineGrid", since=20)
def _affine_grid(
    ctx: ConversionContext, theta: Tensor, size: Tensor, *, align_corners: int = 0
) -> Tensor:
    return ctx.graph.affine_grid(
        theta, ctx.require_ints(size, "the size"), bool(align_corners)
    )
