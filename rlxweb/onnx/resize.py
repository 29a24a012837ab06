"""Resize, Upsample, and sampling at places of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import numpy as np

from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]
Floats = tuple[float, ...]
_PLAIN = {"place": "asymmetric", "rounding": "floor"}
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _resized(
    call: Call,
    x: Tensor,
    targets: Sequence[tuple[int, int, float, tuple[float, float]]],
    how: dict[str, Any],
) -> Tensor:
    """Axis by axis: (axis, size, scale, part of it that is taken)."""
    mode = _MODES.get(how["mode"], how["mode"])
    for axis, size, scale, (start, end) in targets:
        whole = (start, end) == (0.0, 1.0)
        if whole and size == x.shape[axis] and isclose(scale, 1.0):
            continue
        x = call.g.apply(
            "resize",
            x,
            axis=axis,
            size=size,
            scale=scale,
            roi_start=start,
            roi_end=end,
            **{**how, "mode": mode},
        )
    return x


def _by_scales(
    x: Tensor, axes: Sequence[int], scales: Sequence[float]
) -> list[tuple[int, float]]:
    return [
        (int(np.floor(x.shape[axis] * scale)), float(scale))
        for axis, scale in zip(axes, scales, strict=True)
    ]


def _scaled(call: Call, x: Tensor, scales: Sequence[float], mode: str) -> Tensor:
    """As the first versions do it."""
    if len(scales) != x.rank:
        call.contradict(f"{len(scales)} scales", f"x has rank {x.rank}")
    made = _by_scales(x, range(x.rank), scales)
    targets = [(at, n, s, (0.0, 1.0)) for at, (n, s) in enumerate(made)]
    return _resized(call, x, targets, {"mode": mode, **_PLAIN})


def _numbers(call: Call, value: Tensor, what: str) -> list[float]:
    return [float(one) for one in call.known(value, what).reshape(-1)]


@converts("Upsample", since=7, until=8)
def _old_upsample(
    call: Call, x: Tensor, *, scales: Floats, mode: str = "nearest"
) -> Tensor:
    return _scaled(call, x, scales, mode)


@converts("Upsample", since=9)
@converts("Resize", since=10, until=10)
def _upsample(
    call: Call, x: Tensor, scales: Tensor, *, mode: str = "nearest"
) -> Tensor:
    return _scaled(call, x, _numbers(call, scales, "the scales"), mode)


@converts("Resize", since=11)
def _resize(
    call: Call,
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
        call.refuse("tf_half_pixel_for_nn", "it went with opset 13")
    along = range(x.rank) if axes is None else [normal_axis(a, x.rank) for a in axes]
    wanted = [] if sizes is None else call.ints(sizes, "the sizes")
    factors = [] if scales is None else _numbers(call, scales, "the scales")
    if (not wanted) == (not factors) or len(wanted or factors) != len(along):
        call.contradict(
            f"{len(factors)} scales and {len(wanted)} sizes",
            f"one of them, for {len(along)} axes",
        )
    if wanted:
        made = _by_sizes(call, x, along, wanted, keep_aspect_ratio_policy)
    else:
        made = _by_scales(x, along, factors)
    parts = [(0.0, 1.0)] * len(along)
    if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None:
        ends = _numbers(call, roi, "the roi")
        if len(ends) != 2 * len(along):
            call.contradict(
                f"a roi of {len(ends)}", f"two numbers for {len(along)} axes"
            )
        parts = list(zip(ends[: len(along)], ends[len(along) :], strict=True))
    rows = zip(along, made, parts, strict=True)
    return _resized(
        call,
        x,
        [(axis, n, scale, part) for axis, (n, scale), part in rows],
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


def _by_sizes(
    call: Call, x: Tensor, axes: Sequence[int], sizes: Sequence[int], policy: str
) -> list[tuple[int, float]]:
    scales = [n / max(1, x.shape[axis]) for axis, n in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return list(zip(sizes, scales, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        call.contradict(
            f"keep_aspect_ratio_policy is {policy!r}", "no version knows it"
        )
    one = min(scales) if policy == "not_larger" else max(scales)
    return [(int(one * x.shape[axis] + 0.5), one) for axis in axes]


@converts("GridSample", since=16)
def _grid_sample(
    call: Call,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    grid = grid if grid.dtype is x.dtype else call.g.cast(grid, x.dtype)
    return call.g.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@converts("AffineGrid", since=20)
def _affine_grid(
    call: Call, theta: Tensor, size: Tensor, *, align_corners: int = 0
) -> Tensor:
    return call.g.affine_grid(theta, call.ints(size, "the size"), bool(align_corners))
