"""Grid sample: interpolation of an array at the coordinates of a grid.

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
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.vision.resize_interpolation_tables import (
    cubic_kernel_inner,
    cubic_kernel_outer,
)

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_CUBIC_COEFFICIENT = -0.75
"""Coefficient of the cubic kernel."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, grid = types
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    rank = x.rank - 2
    if not 1 <= rank <= 3 or grid.rank != x.rank or grid.shape[-1:] != (rank,):
        raise bad_shape(
            f"got an array {format_shape(x.shape)} and a grid "
            f"{format_shape(grid.shape)}",
            "expected an array [N, C, 1 to 3 spatial axes] and a grid of the same "
            "rank, [N, positions…, one coordinate per spatial axis]",
        )
    if x.shape[0] != grid.shape[0]:
        raise bad_shape(
            f"got a batch of {x.shape[0]} arrays and {grid.shape[0]} grids",
            "expected one grid per array",
        )
    if 0 in x.shape[2:]:
        raise bad_shape(
            f"got an array {format_shape(x.shape)}",
            "every spatial axis must have at least 1 element",
        )
    rows = x.shape[0] * prod(x.shape[2:])
    if rows >= 1 << 31:
        raise bad_shape(
            f"the batch and spatial axes of the array {format_shape(x.shape)} have "
            f"{rows:,} positions in total",
            f"i32 indices support at most {(1 << 31) - 1:,} positions",
        )
    return TensorType((*x.shape[:2], *grid.shape[1:-1]), dtype)


class SamplingArrayOps:
    """Sampling operations on arrays of a namespace."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.abs, self.round = xp.abs, xp.round

    def replace_nan(self, x: Any, value: float) -> Any:
        return self.xp.where(x == x, x, self.xp.full_like(x, value))

    def clip(self, x: Any, low: float, high: float) -> Any:
        x = self.xp.maximum(x, self.xp.full_like(x, low))
        return self.xp.minimum(x, self.xp.full_like(x, high))

    def minimum(self, x: Any, y: Any) -> Any:
        return self.xp.minimum(x, y)

    def to_int32(self, x: Any) -> Any:
        return self.xp.asarray(x, dtype=self.xp.int32)

    def to_float_like(self, x: Any, like: Any) -> Any:
        return self.xp.asarray(x, dtype=like.dtype)

    def take_rows(self, table: Any, indices: Any) -> Any:
        taken_rows = self.xp.take(table, self.xp.reshape(indices, (-1,)), axis=0)
        return self.xp.reshape(taken_rows, (*indices.shape, table.shape[1]))

    def append_axis(self, x: Any) -> Any:
        return self.xp.reshape(x, (*x.shape, 1))


class SamplingTensorOps:
    """Sampling operations on tensors of a graph."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.abs, self.round = g.abs, g.round

    def replace_nan(self, x: Tensor, value: float) -> Tensor:
        return self.g.where(self.g.eq(x, x), x, value)

    def clip(self, x: Tensor, low: float, high: float) -> Tensor:
        return self.g.minimum(self.g.maximum(x, low), high)

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g.minimum(x, y)

    def to_int32(self, x: Tensor) -> Tensor:
        return self.g.cast(x, DType.I32)

    def to_float_like(self, x: Tensor, like: Tensor) -> Tensor:
        return self.g.cast(x, like.dtype)

    def take_rows(self, table: Tensor, indices: Tensor) -> Tensor:
        return self.g.gather(table, indices)

    def append_axis(self, x: Tensor) -> Tensor:
        return self.g.reshape(x, (*x.shape, 1))


def floor_float(ops: Any, x: Any) -> Any:
    """Return the whole numbers at or below floats that fit an i32."""
    toward_zero = ops.to_float_like(ops.to_int32(x), x)
    return toward_zero - ops.to_float_like(toward_zero > x, x)


def _axis_range(attrs: Attrs, n: int) -> tuple[float, float]:
    """Return where an axis begins and how far it is to its end."""
    return (0.0, n - 1.0) if attrs["align_corners"] else (-0.5, float(n))


def _axis_position(ops: Any, coordinate: Any, n: int, attrs: Attrs) -> Any:
    """Return the position of a coordinate along an axis of n elements; NaN lies at its
    begin.
    """
    padding, is_cubic = attrs["padding"], attrs["mode"] == "cubic"
    low, span = _axis_range(attrs, n)
    position = ops.replace_nan(coordinate * (0.5 * span) + (0.5 * span + low), low)
    if padding == "reflection":
        position = ops.clip(position, -1e9, 1e9)
        position = position if is_cubic else _reflect(ops, position, low, span)
    if padding == "zeros" or (padding == "border" and is_cubic):
        position = ops.clip(
            position, -4.0, n + 3.0
        )  # further out there is nothing else
    elif not is_cubic:
        position = ops.clip(position, 0.0, n - 1.0)
    return ops.round(position) if attrs["mode"] == "nearest" else position


def _reflect(ops: Any, x: Any, low: float, span: float) -> Any:
    """Reflect positions into the range of an axis."""
    if span == 0.0:
        return x * 0.0
    x = ops.abs(x - low)
    rest = x - floor_float(ops, x * (0.5 / span)) * (2.0 * span)
    return ops.minimum(rest, 2.0 * span - rest) + low


def _interpolation_taps(ops: Any, position: Any, mode: str) -> list[tuple[Any, Any]]:
    """Return the elements around a position and their weights."""
    if mode == "nearest":
        return [(position, None)]
    first = floor_float(ops, position)
    fraction = position - first
    complement = 1.0 - fraction
    if mode == "linear":
        return [(first, complement), (first + 1.0, fraction)]
    return [
        (first - 1.0, cubic_kernel_outer(fraction + 1.0, _CUBIC_COEFFICIENT)),
        (first, cubic_kernel_inner(fraction, _CUBIC_COEFFICIENT)),
        (first + 1.0, cubic_kernel_inner(complement, _CUBIC_COEFFICIENT)),
        (first + 2.0, cubic_kernel_outer(complement + 1.0, _CUBIC_COEFFICIENT)),
    ]


def _clamp_tap(
    ops: Any, element: Any, weight: Any, n: int, attrs: Attrs
) -> tuple[Any, Any]:
    """Return the index of an element clamped to the axis, and its weight; 0 outside for
    zero padding.
    """
    if attrs["padding"] == "zeros":
        is_inside = ops.to_float_like(element >= 0.0, element) * ops.to_float_like(
            element <= n - 1.0, element
        )
        weight = is_inside if weight is None else weight * is_inside
    elif attrs["padding"] == "reflection" and attrs["mode"] == "cubic":
        element = _reflect(ops, element, *_axis_range(attrs, n))
    return ops.to_int32(ops.clip(element, 0.0, n - 1.0)), weight


def _interpolate(
    ops: Any,
    attrs: Attrs,
    table: Any,
    size: Shape,
    coordinates: list[Any],
    first_row: Any,
) -> Any:
    """Interpolate in rows of channels, one row for each element of all arrays: [N,
    positions…, C].

    coordinates   along each spatial axis, [N, places…]
    first_row     the row of each array's first element, so that it broadcasts
    """
    axes = []
    for coordinate, n in zip(coordinates, size, strict=True):
        axis_taps = _interpolation_taps(
            ops, _axis_position(ops, coordinate, n, attrs), attrs["mode"]
        )
        axes.append(
            [
                _clamp_tap(ops, element, weight, n, attrs)
                for element, weight in axis_taps
            ]
        )
    result = None
    for taps in product(*axes):
        row, weight = first_row, None
        step = prod(size)
        for (element, tap_weight), n in zip(taps, size, strict=True):
            step //= n
            row = row + element * step
            if tap_weight is not None:
                weight = tap_weight if weight is None else weight * tap_weight
        values = ops.take_rows(table, row)
        weighted = values if weight is None else values * ops.append_axis(weight)
        result = weighted if result is None else result + weighted
    return result


def _reference(xp: Any, attrs: Attrs, x: Any, grid: Any) -> Any:
    rank, (n, c), size = x.ndim - 2, x.shape[:2], tuple(x.shape[2:])
    out = (n, c, *grid.shape[1:-1])
    if 0 in out:
        return xp.zeros(out, dtype=x.dtype)
    wide, wide_grid = widen_float16(xp, x), widen_float16(xp, grid)
    table = xp.reshape(wide, (n, c, prod(size)))
    table = xp.reshape(xp.permute_dims(table, (0, 2, 1)), (n * prod(size), c))
    first_row = xp.asarray(xp.arange(n), dtype=xp.int32) * prod(size)
    first_row = xp.reshape(first_row, (n, *(1,) * rank))
    coordinates = [wide_grid[..., rank - 1 - axis] for axis in range(rank)]
    result = _interpolate(
        SamplingArrayOps(xp), attrs, table, size, coordinates, first_row
    )
    result = xp.permute_dims(result, (0, rank + 1, *range(1, rank + 1)))
    return xp.asarray(result, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, grid: Tensor) -> Tensor:
    rank, (n, c), size = x.rank - 2, x.shape[:2], x.shape[2:]
    out = (n, c, *grid.shape[1:-1])
    if 0 in out:
        return g.expand(g.constant(np.zeros((), x.dtype.numpy)), out)
    wide, wide_grid = widen_float16_tensors(g, x, grid)
    table = g.transpose(g.reshape(wide, (n, c, prod(size))), (0, 2, 1))
    table = g.reshape(table, (n * prod(size), c))
    first_row = np.arange(n, dtype=np.int32).reshape(n, *(1,) * rank) * prod(size)
    coordinates = [
        g.reshape(g.narrow(wide_grid, rank + 1, rank - 1 - axis, 1), grid.shape[:-1])
        for axis in range(rank)
    ]
    result = _interpolate(
        SamplingTensorOps(g), attrs, table, size, coordinates, g.constant(first_row)
    )
    result = g.transpose(result, (0, rank + 1, *range(1, rank + 1)))
    return result if result.dtype is x.dtype else g.cast(result, x.dtype)


def _case(
    x: Shape, grid_shape: Shape, dtype: DType = DType.F32, **attrs: Any
) -> Sample:
    grid = (x[0], *grid_shape, len(x) - 2)
    inputs = Drawn(x, dtype, -2, 2), Drawn(grid, dtype, -1.6, 1.6)
    return Sample(inputs, attrs)


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
SAMPLING_TOLERANCE = Tolerance(rtol=1e-5, atol=1e-5, relative_to_peak=True)

registry.register_all(
    Op(
        name="grid_sample",
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            Attr("mode", "str", "linear", allowed=MODES),
            Attr("padding", "str", "zeros", allowed=PADDINGS),
            Attr("align_corners", "bool", False),
        ),
        traits=frozenset({"floats_only"}),
        flops=lambda inputs, out, attrs: 24.0 * out.numel,
        tolerance=SAMPLING_TOLERANCE,
        samples=_SAMPLES,
        doc="Samples an array [N, C, …] at the positions of a grid [N, positions…, D]; "
        "D is the number of spatial axes. A grid entry holds the D coordinates of one "
        "position, each from -1 to 1, in reverse order of the axes (the first is for "
        "the last axis). Positions outside the array give zero, the border value or "
        "the mirrored value, as `padding` says.",
    )
)
