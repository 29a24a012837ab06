"""The builder method that makes images larger or smaller, with PyTorch's arguments.

Other places and roundings, ONNX's say, are attributes of the op: `apply("resize", …)`,
once for each axis. Nothing is computed here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rlxweb.errors import AttributeRefused
from rlxweb.ir.shape import many, short, show
from rlxweb.ir.tensor import Tensor

_MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "place": "asymmetric", "rounding": "floor"},
    "nearest-exact": {"mode": "nearest", "rounding": "round_prefer_ceil"},
    **{word: {"mode": "linear"} for word in ("linear", "bilinear", "trilinear")},
    "bicubic": {"mode": "cubic"},
}


class ResizeBuilder(ABC):
    """Resizing over `apply`; mixed into Graph."""

    @abstractmethod
    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """See Graph.apply."""

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
        for axis, (out, scale) in enumerate(zip(sizes, scales, strict=True), 2):
            if out == x.shape[axis] and scale in (None, 1.0):
                continue
            scale = None if align_corners else scale
            x = self.apply("resize", x, axis=axis, size=out, scale=scale, **how)
        return x


def _sizes(
    doing: str,
    x: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
) -> tuple[list[int], list[float | None]]:
    """Results along each spatial axis, and for an element where that is said."""
    rank = x.rank - 2
    if rank < 1 or (size is None) == (scale_factor is None):
        raise AttributeRefused(
            doing,
            f"size={short(size)}, scale_factor={short(scale_factor)}",
            "one of them, for the spatial axes of [N, C, …]",
        )
    scales: list[float | None] = [None] * rank
    if scale_factor is None:
        sizes = [int(one) for one in many(size) or ()]
        sizes = sizes * rank if len(sizes) == 1 else sizes
    else:
        one = isinstance(scale_factor, int | float)
        factors: list[Any] = (
            [scale_factor] * rank if one else [*(many(scale_factor) or ())]
        )
        scales = [float(f) for f in factors]
        sizes = [int(n * float(f)) for n, f in zip(x.shape[2:], factors, strict=False)]
    if len(sizes) != rank or len(scales) != rank:
        given = f"size={short(size)}, scale_factor={short(scale_factor)}"
        raise AttributeRefused(doing, given, f"one number, or one for each of {rank}")
    return sizes, scales
