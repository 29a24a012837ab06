"""Graph methods that resize, warp and sample images, with PyTorch's arguments.

Other places and roundings, ONNX's say, are attributes of the op: `apply("resize", …)`,
once for each axis. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    as_shape,
    as_tuple,
    format_shape,
    short_repr,
)
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

_MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "place": "asymmetric", "rounding": "floor"},
    "nearest-exact": {"mode": "nearest", "rounding": "round_prefer_ceil"},
    **{word: {"mode": "linear"} for word in ("linear", "bilinear", "trilinear")},
    "bicubic": {"mode": "cubic"},
}


@graph_method
def interpolate(
    g: Graph,
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial axes of [N, C, …] to `size`, or by `scale_factor`.

    mode           "nearest", "nearest-exact", "linear" ("bilinear" and "trilinear"
                   are the same), "bicubic" for any number of axes
    align_corners  the outer elements lie on the outer ones of the result
    antialias      smoothed where it shrinks; of linear and bicubic

    Where a factor leaves a length as it is, PyTorch copies: linear, smoothed and
    two-dimensional nearest modes do so; two-dimensional "nearest" that doubles a
    length takes each element twice. Other modes follow the factor.

    Errors   AttributeRefused, ShapeError.
    """
    context = f"interpolate {format_shape(x.shape)}"
    if mode not in _MODES:
        rule = "expected one of " + ", ".join(_MODES)
        raise AttributeRefused(context, f"mode={short_repr(mode)}", rule)
    attrs = dict(_MODES[mode])
    if attrs["mode"] == "nearest" and (align_corners or antialias):
        option = "align_corners" if align_corners else "antialias"
        problem = f"mode={mode!r} does not support {option}"
        rule = f"{option} requires mode linear, bilinear, trilinear or bicubic"
        raise AttributeRefused(context, problem, rule)
    if align_corners:
        attrs["place"] = "align_corners"
    if antialias:
        attrs |= {"antialias": True, "exclude_outside": True, "cubic": -0.5}
    sizes, scales = _output_sizes(context, x, size, scale_factor)
    is_flat_nearest = mode == "nearest" and x.rank == 4
    copies_equal_lengths = attrs["mode"] == "linear" or antialias or is_flat_nearest
    for axis, (output_size, scale) in enumerate(zip(sizes, scales, strict=True), 2):
        n = x.shape[axis]
        if output_size == n and (copies_equal_lengths or scale in (None, 1.0)):
            continue
        if align_corners or (is_flat_nearest and output_size == 2 * n):
            scale = None
        x = g.apply("resize", x, axis=axis, size=output_size, scale=scale, **attrs)
    return x


@graph_method
def resize_nearest_2x(g: Graph, x: Tensor) -> Tensor:
    """Repeat every element of the last two axes of [N, C, H, W]: [N, C, 2H, 2W].

    RLX's op; `interpolate(x, scale_factor=2)` is the same for any number of axes.
    Errors   ShapeError.
    """
    if x.rank != 4:
        context = f"resize_nearest_2x of {format_shape(x.shape)}"
        raise ShapeError(
            context, f"the array has {x.rank} axes", "expected [N, C, H, W]"
        )
    return g.interpolate(x, scale_factor=2)


@graph_method
def grid_sample(
    g: Graph,
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Sample [N, C, …] at the points of a grid [N, places…, axes]: [N, C, places…].

    grid           coordinates from -1 to 1, the last axis first
    mode           "bilinear" (also "linear", "trilinear"), "nearest", "bicubic"
    padding_mode   "zeros", "border" or "reflection"
    align_corners  -1 and 1 are the middles of the outer elements, not their edges
    Errors   AttributeRefused, ShapeError, DTypeError.
    """
    op_modes = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    return g.apply(
        "grid_sample",
        x,
        grid,
        mode=op_modes.get(mode, mode),
        padding=padding_mode,
        align_corners=align_corners,
    )


@graph_method
def affine_grid(
    g: Graph, theta: Tensor, size: Sequence[int], align_corners: bool = False
) -> Tensor:
    """Return the grid [N, places…, axes] of affine maps [N, axes, axes + 1], for a
    result of `size` [N, C, places…]. Errors  ShapeError, DTypeError.
    """
    output_shape = as_shape(size)
    spatial_shape, rank = output_shape[2:], len(output_shape) - 2
    if rank not in (2, 3) or theta.shape != (output_shape[0], rank, rank + 1):
        raise ShapeError(
            f"affine_grid of theta {format_shape(theta.shape)}",
            f"size is {format_shape(output_shape)}",
            "expected size [N, C, H, W] and theta [N, 2, 3], or size "
            "[N, C, D, H, W] and theta [N, 3, 4]",
        )
    if not theta.dtype.is_float:
        raise DTypeError(
            f"affine_grid of {theta.dtype} theta",
            "theta must have a floating-point dtype",
            "expected bf16, f16, f32 or f64",
            "cast theta",
        )
    ends = [
        1.0 if align_corners else 1.0 - 1.0 / max(1, length) for length in spatial_shape
    ]
    axis_coordinates = [
        np.linspace(-end, end, length) if length > 1 else np.zeros(length)
        for end, length in zip(ends, spatial_shape, strict=True)
    ]
    mesh = np.meshgrid(*axis_coordinates, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(spatial_shape)], axis=-1).reshape(-1, rank + 1)
    maps = g.apply("transpose", theta, perm=(0, 2, 1))
    coordinates = g.constant(base, theta.dtype) @ maps
    return g.apply(
        "reshape", coordinates, shape=(output_shape[0], *spatial_shape, rank)
    )


def _output_sizes(
    context: str,
    x: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
) -> tuple[list[int], list[float | None]]:
    """Return the output length of each spatial axis, and its scale factor if that is
    given.
    """
    rank = x.rank - 2
    arguments = f"size={short_repr(size)}, scale_factor={short_repr(scale_factor)}"
    if rank < 1 or (size is None) == (scale_factor is None):
        rule = "expected exactly one of size and scale_factor"
        if rank < 1:
            rule = "expected an array [N, C, …] with at least one spatial axis"
        raise AttributeRefused(context, arguments, rule)
    requested: Any = size if scale_factor is None else scale_factor
    values = (requested,) if isinstance(requested, Real) else as_tuple(requested) or ()
    values = values * rank if len(values) == 1 else values
    if len(values) != rank:
        raise AttributeRefused(
            context,
            arguments,
            f"expected one number, or one for each of the {rank} spatial axes",
        )
    if scale_factor is None:
        return [as_integer(value, "a size") for value in values], [None] * rank
    if not all(isinstance(f, Real) and 0 < float(f) < inf for f in values):
        raise AttributeRefused(
            context, arguments, "scale factors must be finite numbers > 0"
        )
    scales = [float(f) for f in values]
    return [int(n * f) for n, f in zip(x.shape[2:], scales, strict=True)], [*scales]
