"""Builder methods that resize, warp and sample images, with PyTorch's arguments.

Other places and roundings, ONNX's say, are attributes of the op: `apply("resize", …)`,
once for each axis. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import as_integer, as_shape, many, short, show
from rlxweb.ir.tensor import Tensor

_MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "place": "asymmetric", "rounding": "floor"},
    "nearest-exact": {"mode": "nearest", "rounding": "round_prefer_ceil"},
    **{word: {"mode": "linear"} for word in ("linear", "bilinear", "trilinear")},
    "bicubic": {"mode": "cubic"},
}


class ResizeBuilder(OpBuilder):
    """Resizing over `apply`; mixed into Graph."""

    def interpolate(
        self,
        x: Tensor,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> Tensor:
        """The spatial axes of [N, C, …] made `size` long, or `scale_factor` times.

        mode           "nearest", "nearest-exact", "linear" ("bilinear" and "trilinear"
                       are the same), "bicubic" for any number of axes
        align_corners  the outer elements lie on the outer ones of the result
        antialias      smoothed where it shrinks; of linear and bicubic

        Where a factor leaves a length as it is, PyTorch copies: linear, smoothed and
        two-dimensional nearest modes do so; two-dimensional "nearest" that doubles a
        length takes each element twice. Other modes follow the factor.

        Errors   AttributeRefused, ShapeError.
        """
        doing = f"interpolate {show(x.shape)}"
        if mode not in _MODES:
            rule = "it is one of " + ", ".join(_MODES)
            raise AttributeRefused(doing, f"mode={short(mode)}", rule)
        how = dict(_MODES[mode])
        if how["mode"] == "nearest" and (align_corners or antialias):
            wrong = "align_corners or antialias beside a nearest mode"
            raise AttributeRefused(doing, wrong, "they are of linear and bicubic")
        if align_corners:
            how["place"] = "align_corners"
        if antialias:
            how |= {"antialias": True, "exclude_outside": True, "cubic": -0.5}
        sizes, scales = _sizes(doing, x, size, scale_factor)
        is_flat_nearest = mode == "nearest" and x.rank == 4
        copies = how["mode"] == "linear" or antialias or is_flat_nearest
        for axis, (out, scale) in enumerate(zip(sizes, scales, strict=True), 2):
            n = x.shape[axis]
            if out == n and (copies or scale in (None, 1.0)):
                continue
            if align_corners or (is_flat_nearest and out == 2 * n):
                scale = None
            x = self.apply("resize", x, axis=axis, size=out, scale=scale, **how)
        return x

    def resize_nearest_2x(self, x: Tensor) -> Tensor:
        """Repeat every element of the last two axes of [N, C, H, W]: [N, C, 2H, 2W].

        RLX's op; `interpolate(x, scale_factor=2)` is the same for any number of axes.
        Errors   ShapeError.
        """
        if x.rank != 4:
            doing = f"resize_nearest_2x of {show(x.shape)}"
            raise ShapeError(doing, f"it has {x.rank} axes", "[N, C, H, W]")
        return self.interpolate(x, scale_factor=2)

    def grid_sample(
        self,
        x: Tensor,
        grid: Tensor,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Tensor:
        """[N, C, …] at the places of a grid [N, places…, axes]: [N, C, places…].

        grid           coordinates from -1 to 1, the last axis first
        mode           "bilinear" (also "linear", "trilinear"), "nearest", "bicubic"
        padding_mode   "zeros", "border" or "reflection"
        align_corners  -1 and 1 are the middles of the outer elements, not their edges
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
        own = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
        return self.apply(
            "grid_sample",
            x,
            grid,
            mode=own.get(mode, mode),
            padding=padding_mode,
            align_corners=align_corners,
        )

    def affine_grid(
        self, theta: Tensor, size: Sequence[int], align_corners: bool = False
    ) -> Tensor:
        """The grid [N, places…, axes] of affine maps [N, axes, axes + 1], for a result
        of `size` [N, C, places…]. Errors  ShapeError, DTypeError.
        """
        whole = as_shape(size)
        places, rank = whole[2:], len(whole) - 2
        if rank not in (2, 3) or theta.shape != (whole[0], rank, rank + 1):
            raise ShapeError(
                f"affine_grid of {show(theta.shape)}",
                f"a result of size {show(whole)}",
                "[N, C, 2 or 3 axes] and maps [N, axes, axes + 1]",
            )
        if not theta.dtype.is_float:
            raise DTypeError(
                f"affine_grid of {theta.dtype} maps",
                "coordinates lie between whole numbers",
                "bf16, f16, f32 or f64",
                "cast the maps",
            )
        ends = [1.0 if align_corners else 1.0 - 1.0 / max(1, one) for one in places]
        lines = [
            np.linspace(-end, end, one) if one > 1 else np.zeros(one)
            for end, one in zip(ends, places, strict=True)
        ]
        mesh = np.meshgrid(*lines, indexing="ij")[::-1]
        base = np.stack([*mesh, np.ones(places)], axis=-1).reshape(-1, rank + 1)
        maps = self.apply("transpose", theta, perm=(0, 2, 1))
        made = self.constant(base, theta.dtype) @ maps
        return self.apply("reshape", made, shape=(whole[0], *places, rank))


def _sizes(
    doing: str,
    x: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
) -> tuple[list[int], list[float | None]]:
    """Results along each spatial axis, and for an element where that is said."""
    rank = x.rank - 2
    said = f"size={short(size)}, scale_factor={short(scale_factor)}"
    if rank < 1 or (size is None) == (scale_factor is None):
        rule = "one of them, for the spatial axes of [N, C, …]"
        raise AttributeRefused(doing, said, rule)
    given: Any = size if scale_factor is None else scale_factor
    every = (given,) if isinstance(given, Real) else many(given) or ()
    every = every * rank if len(every) == 1 else every
    if len(every) != rank:
        raise AttributeRefused(doing, said, f"one number, or one for each of {rank}")
    if scale_factor is None:
        return [as_integer(one, "a size") for one in every], [None] * rank
    if not all(isinstance(f, Real) and 0 < float(f) < inf for f in every):
        raise AttributeRefused(doing, said, "factors are numbers, > 0 and finite")
    scales = [float(f) for f in every]
    return [int(n * f) for n, f in zip(x.shape[2:], scales, strict=True)], [*scales]
