"""Sampling an array at any places: a grid of coordinates, between elements too.

Coordinates are those of PyTorch and ONNX: -1 and 1 are the ends of an axis, the last
axis comes first. Composed of elementwise ops and gathers of rows of channels; the
reference is written with the same few steps. Owns no shader.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.resize_tables import far, near

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_A = -0.75
"""The coefficient of the cubic kernel."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, grid = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    rank = x.rank - 2
    if not 1 <= rank <= 3 or grid.rank != x.rank or grid.shape[-1:] != (rank,):
        raise bad_shape(
            f"an array {show(x.shape)} beside a grid {show(grid.shape)}",
            "[N, C, 1 to 3 spatial axes] and [N, places…, one number for each axis]",
        )
    if x.shape[0] != grid.shape[0]:
        raise bad_shape(
            f"{x.shape[0]} arrays beside {grid.shape[0]} grids", "a grid each"
        )
    if 0 in x.shape[2:]:
        raise bad_shape(f"an array {show(x.shape)}", "its axes have elements")
    rows = x.shape[0] * prod(x.shape[2:])
    if rows >= 1 << 31:
        raise bad_shape(f"{rows} places in {show(x.shape)}", "i32 holds 2**31 - 1")
    return TensorType((*x.shape[:2], *grid.shape[1:-1]), dtype)


class Arrays:
    """The steps in a namespace of arrays."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.abs, self.round = xp.abs, xp.round

    def number_or(self, x: Any, value: float) -> Any:
        return self.xp.where(x == x, x, self.xp.full_like(x, value))

    def clipped(self, x: Any, low: float, high: float) -> Any:
        x = self.xp.maximum(x, self.xp.full_like(x, low))
        return self.xp.minimum(x, self.xp.full_like(x, high))

    def least(self, x: Any, y: Any) -> Any:
        return self.xp.minimum(x, y)

    def whole(self, x: Any) -> Any:
        return self.xp.asarray(x, dtype=self.xp.int32)

    def real(self, x: Any, like: Any) -> Any:
        return self.xp.asarray(x, dtype=like.dtype)

    def rows(self, table: Any, at: Any) -> Any:
        flat = self.xp.take(table, self.xp.reshape(at, (-1,)), axis=0)
        return self.xp.reshape(flat, (*at.shape, table.shape[1]))

    def behind(self, x: Any) -> Any:
        return self.xp.reshape(x, (*x.shape, 1))


class Tensors:
    """The same in a graph."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.abs, self.round = g.abs, g.round

    def number_or(self, x: Tensor, value: float) -> Tensor:
        return self.g.where(self.g.eq(x, x), x, value)

    def clipped(self, x: Tensor, low: float, high: float) -> Tensor:
        return self.g.minimum(self.g.maximum(x, low), high)

    def least(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g.minimum(x, y)

    def whole(self, x: Tensor) -> Tensor:
        return self.g.cast(x, DType.I32)

    def real(self, x: Tensor, like: Tensor) -> Tensor:
        return self.g.cast(x, like.dtype)

    def rows(self, table: Tensor, at: Tensor) -> Tensor:
        return self.g.gather(table, at)

    def behind(self, x: Tensor) -> Tensor:
        return self.g.reshape(x, (*x.shape, 1))


def floored(s: Any, x: Any) -> Any:
    """The whole numbers at or below floats that an i32 holds."""
    toward_zero = s.real(s.whole(x), x)
    return toward_zero - s.real(toward_zero > x, x)


def _ends(attrs: Attrs, n: int) -> tuple[float, float]:
    """Where an axis begins, and how far it is to its end."""
    return (0.0, n - 1.0) if attrs["align_corners"] else (-0.5, float(n))


def _place(s: Any, given: Any, n: int, attrs: Attrs) -> Any:
    """Where in an axis of n elements a coordinate lies, NaN at its begin."""
    padding, is_cubic = attrs["padding"], attrs["mode"] == "cubic"
    low, span = _ends(attrs, n)
    at = s.number_or(given * (0.5 * span) + (0.5 * span + low), low)
    if padding == "reflection":
        at = s.clipped(at, -1e9, 1e9)
        at = at if is_cubic else _mirrored(s, at, low, span)
    if padding == "zeros" or (padding == "border" and is_cubic):
        at = s.clipped(at, -4.0, n + 3.0)  # further out there is nothing else
    elif not is_cubic:
        at = s.clipped(at, 0.0, n - 1.0)
    return s.round(at) if attrs["mode"] == "nearest" else at


def _mirrored(s: Any, x: Any, low: float, span: float) -> Any:
    """Between the ends of an axis, there and back."""
    if span == 0.0:
        return x * 0.0
    x = s.abs(x - low)
    rest = x - floored(s, x * (0.5 / span)) * (2.0 * span)
    return s.least(rest, 2.0 * span - rest) + low


def _taps(s: Any, at: Any, mode: str) -> list[tuple[Any, Any]]:
    """The elements around a place, and their weights."""
    if mode == "nearest":
        return [(at, None)]
    first = floored(s, at)
    f = at - first
    r = 1.0 - f
    if mode == "linear":
        return [(first, r), (first + 1.0, f)]
    return [
        (first - 1.0, far(f + 1.0, _A)),
        (first, near(f, _A)),
        (first + 1.0, near(r, _A)),
        (first + 2.0, far(r + 1.0, _A)),
    ]


def _inside(s: Any, at: Any, weight: Any, n: int, attrs: Attrs) -> tuple[Any, Any]:
    """An element that is there, and its weight: 0 for zeros around the array."""
    if attrs["padding"] == "zeros":
        there = s.real(at >= 0.0, at) * s.real(at <= n - 1.0, at)
        weight = there if weight is None else weight * there
    elif attrs["padding"] == "reflection" and attrs["mode"] == "cubic":
        at = _mirrored(s, at, *_ends(attrs, n))
    return s.whole(s.clipped(at, 0.0, n - 1.0)), weight


def _sampled(
    s: Any, attrs: Attrs, table: Any, size: Shape, coordinates: list[Any], first: Any
) -> Any:
    """[N, places…, C] of rows of channels, one for each element of all arrays.

    coordinates   along each spatial axis, [N, places…]
    first         the row of each array's first element, so that it broadcasts
    """
    axes = []
    for one, n in zip(coordinates, size, strict=True):
        around = _taps(s, _place(s, one, n, attrs), attrs["mode"])
        axes.append([_inside(s, at, weight, n, attrs) for at, weight in around])
    made = None
    for taps in product(*axes):
        row, weight = first, None
        step = prod(size)
        for (at, own), n in zip(taps, size, strict=True):
            step //= n
            row = row + at * step
            if own is not None:
                weight = own if weight is None else weight * own
        values = s.rows(table, row)
        part = values if weight is None else values * s.behind(weight)
        made = part if made is None else made + part
    return made


def _grid_sample(xp: Any, attrs: Attrs, x: Any, grid: Any) -> Any:
    rank, (n, c), size = x.ndim - 2, x.shape[:2], tuple(x.shape[2:])
    out = (n, c, *grid.shape[1:-1])
    if 0 in out:
        return xp.zeros(out, dtype=x.dtype)
    wide, places = widened(xp, x), widened(xp, grid)
    table = xp.reshape(wide, (n, c, prod(size)))
    table = xp.reshape(xp.permute_dims(table, (0, 2, 1)), (n * prod(size), c))
    first = xp.asarray(xp.arange(n), dtype=xp.int32) * prod(size)
    first = xp.reshape(first, (n, *(1,) * rank))
    given = [places[..., rank - 1 - at] for at in range(rank)]
    made = _sampled(Arrays(xp), attrs, table, size, given, first)
    made = xp.permute_dims(made, (0, rank + 1, *range(1, rank + 1)))
    return xp.asarray(made, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, grid: Tensor) -> Tensor:
    rank, (n, c), size = x.rank - 2, x.shape[:2], x.shape[2:]
    out = (n, c, *grid.shape[1:-1])
    if 0 in out:
        return g.expand(g.constant(np.zeros((), x.dtype.numpy)), out)
    wide, places = in_f32(g, x, grid)
    table = g.transpose(g.reshape(wide, (n, c, prod(size))), (0, 2, 1))
    table = g.reshape(table, (n * prod(size), c))
    first = np.arange(n, dtype=np.int32).reshape(n, *(1,) * rank) * prod(size)
    given = [
        g.reshape(g.narrow(places, rank + 1, rank - 1 - at, 1), grid.shape[:-1])
        for at in range(rank)
    ]
    made = _sampled(Tensors(g), attrs, table, size, given, g.constant(first))
    made = g.transpose(made, (0, rank + 1, *range(1, rank + 1)))
    return made if made.dtype is x.dtype else g.cast(made, x.dtype)


def _case(x: Shape, places: Shape, dtype: DType = DType.F32, **attrs: Any) -> Sample:
    grid = (x[0], *places, len(x) - 2)
    drawn = Drawn(x, dtype, -2, 2), Drawn(grid, dtype, -1.6, 1.6)
    return Sample(drawn, attrs)


_SAMPLES = (
    _case((1, 1, 1), (1,)),
    _case((2, 3, 5, 6), (4, 7)),
    _case((1, 2, 5, 6), (4, 7), mode="nearest", align_corners=True),
    _case((1, 2, 5, 6), (4, 7), mode="cubic", padding="border"),
    _case((1, 2, 5, 6), (4, 7), mode="cubic", padding="reflection"),
    _case((2, 2, 4, 1, 3), (2, 3, 4), padding="reflection", align_corners=True),
    _case((1, 2, 5, 6), (4, 7), padding="reflection"),
    _case((1, 3, 9), (0,), padding="border"),
    _case((1, 1, 5), (65_537,), padding="border"),
    _case((1, 2, 5, 6), (3, 2), DType.F64, mode="cubic", align_corners=True),
)

# A coordinate is rounded to 1e-7 of an axis, and the array may change by all it has
# between two elements.
SAMPLED = Tolerance(rtol=1e-5, atol=1e-5, relative_to_peak=True)

registry.register_all(
    Op(
        name="grid_sample",
        arity=2,
        infer=_infer,
        reference=_grid_sample,
        lower=Compose(_build),
        attrs=(
            Attr("mode", "str", "linear", allowed=MODES),
            Attr("padding", "str", "zeros", allowed=PADDINGS),
            Attr("align_corners", "bool", False),
        ),
        traits=frozenset({"floats_only"}),
        flops=lambda inputs, out, attrs: 24.0 * out.numel,
        tolerance=SAMPLED,
        samples=_SAMPLES,
        doc="An array [N, C, …] at the places of a grid [N, places…, axes], whose "
        "coordinates go from -1 to 1, the last axis first. Outside of the array are "
        "zeros, its border, or its mirror image.",
    )
)
