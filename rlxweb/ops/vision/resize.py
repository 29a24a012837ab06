"""Resize one axis by nearest, linear or cubic interpolation, optionally with
antialiasing.

What a result is made of is known beforehand
(`resize_interpolation_tables.py`): a few gathers times their weights, or a
product with the whole table where it is wide. Several axes are several ops. f16 is
computed in f32. No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.layout.index_map_op_factory import check_fill_value
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.vision.resize_interpolation_tables import (
    COORDINATE_MODES,
    MODES,
    ROUNDINGS,
    InterpolationTable,
    ResizeOptions,
    interpolation_table,
)

_MAX_GATHERED_TAPS = 6
"""Largest number of taps per result that are gathered one by one; more become a matrix
product.
"""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require_dtypes(
        types, NUMERIC_DTYPES if attrs["mode"] == "nearest" else FLOAT_DTYPES
    )
    axis = normalize_axis(attrs["axis"], x.rank)
    size, scale = attrs["size"], attrs["scale"]
    if size < 0 or (scale is not None and not 0 < scale < np.inf):
        raise bad_attribute(
            f"size={size}, scale={scale}", "expected size >= 0 and a finite scale > 0"
        )
    numbers = [attrs[name] for name in ("roi_start", "roi_end", "cubic")]
    if not np.isfinite(numbers).all():
        raise bad_attribute(
            "roi_start={}, roi_end={}, cubic={}".format(*numbers),
            "roi_start, roi_end and cubic must be finite",
        )
    if attrs["place"] == "tf_crop_and_resize":
        check_fill_value(x.dtype, attrs["extrapolation"])
    if x.shape[axis] == 0 and size:
        raise bad_shape(
            f"axis {axis} of {format_shape(x.shape)} has no elements",
            f"cannot interpolate {size} results from 0 elements",
        )
    return TensorType((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def _axis_table(shape: Shape, attrs: Attrs) -> tuple[int, InterpolationTable]:
    """Return the normalized axis and its resize table."""
    axis, size = normalize_axis(attrs["axis"], len(shape)), attrs["size"]
    n, scale = shape[axis], attrs["scale"]
    resizing = ResizeOptions(
        attrs["mode"],
        attrs["place"],
        attrs["rounding"],
        attrs["cubic"],
        attrs["antialias"],
        attrs["exclude_outside"],
    )
    scale = size / n if scale is None else scale
    return axis, interpolation_table(
        n, size, scale, resizing, (attrs["roi_start"], attrs["roi_end"])
    )


def _align_to_axis(axis: int, rank: int, values: np.ndarray[Any, Any]) -> Any:
    """Reshape one number per result so that it broadcasts along the axis."""
    return values.reshape(-1, *(1,) * (rank - 1 - axis))


def _is_empty(shape: Shape, attrs: Attrs) -> bool:
    """Return whether the operand or the result has no elements."""
    return 0 in shape or attrs["size"] == 0


def _resize(xp: Any, attrs: Attrs, x: Any) -> Any:
    shape = tuple(x.shape)
    if _is_empty(shape, attrs):
        axis = normalize_axis(attrs["axis"], len(shape))
        result = (*shape[:axis], attrs["size"], *shape[axis + 1 :])
        return xp.zeros(result, dtype=x.dtype)
    axis, table = _axis_table(shape, attrs)
    result = _interpolate(xp, x, axis, table, attrs["mode"] == "nearest")
    if table.outside.any():
        outside = xp.asarray(_align_to_axis(axis, len(shape), table.outside))
        extrapolated = xp.full_like(result, attrs["extrapolation"])
        result = xp.where(outside, extrapolated, result)
    return xp.asarray(result, dtype=x.dtype)


def _interpolate(
    xp: Any, x: Any, axis: int, table: InterpolationTable, is_nearest: bool
) -> Any:
    """Interpolate an array along an axis by its table."""
    taps = table.elements.shape[1]
    if is_nearest:
        return xp.take(x, xp.asarray(table.elements[:, 0]), axis=axis)
    wide = widen_float16(xp, x)
    weights = xp.asarray(table.weights.astype(np.float32))
    weights = xp.asarray(table.weights) if wide.dtype != xp.float32 else weights
    if taps > _MAX_GATHERED_TAPS:
        matrix = xp.asarray(_table_matrix(x.shape[axis], table), dtype=wide.dtype)
        return xp.moveaxis(xp.matmul(xp.moveaxis(wide, axis, -1), matrix), -1, axis)
    result = 0.0
    for tap in range(taps):
        tap_values = xp.take(wide, xp.asarray(table.elements[:, tap]), axis=axis)
        tap_weights = xp.reshape(weights[:, tap], (-1, *(1,) * (x.ndim - 1 - axis)))
        result = result + tap_values * tap_weights
    return result


def _table_matrix(n: int, table: InterpolationTable) -> np.ndarray[Any, Any]:
    """Return the table as a matrix [elements, results] of weights."""
    matrix = np.zeros((n, len(table.elements)))
    results = np.broadcast_to(
        np.arange(len(table.elements))[:, None], table.elements.shape
    )
    np.add.at(matrix, (table.elements, results), table.weights)
    return matrix


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    if _is_empty(x.shape, attrs):
        axis = normalize_axis(attrs["axis"], x.rank)
        out_shape = (*x.shape[:axis], attrs["size"], *x.shape[axis + 1 :])
        return g.expand(g.constant(np.zeros((), x.dtype.numpy)), out_shape)
    axis, table = _axis_table(x.shape, attrs)
    if attrs["mode"] == "nearest":
        return _build_nearest(g, attrs, x, axis, table)
    (wide,) = widen_float16_tensors(g, x)
    mixed = _build_interpolation(g, wide, axis, table)
    if table.outside.any():
        outside = g.constant(_align_to_axis(axis, x.rank, table.outside))
        mixed = g.where(outside, attrs["extrapolation"], mixed)
    return mixed if mixed.dtype is x.dtype else g.cast(mixed, x.dtype)


def _build_nearest(
    g: Graph, attrs: Attrs, x: Tensor, axis: int, table: InterpolationTable
) -> Tensor:
    """Build nearest-neighbour resizing: a broadcast view where all elements repeat
    equally often, otherwise a remap.
    """
    positions = np.where(table.outside, -1, table.elements[:, 0])
    n, size = x.shape[axis], len(positions)
    leading, trailing = x.shape[:axis], x.shape[axis + 1 :]
    copies = size // n
    if size % n == 0 and np.array_equal(positions, np.repeat(np.arange(n), copies)):
        split = g.reshape(x, (*leading, n, 1, *trailing))
        split = g.expand(split, (*leading, n, copies, *trailing))
        return g.reshape(split, (*leading, size, *trailing))
    return g.apply(
        "remap",
        x,
        axes=(axis,),
        sizes=(size,),
        places=tuple(positions.tolist()),
        value=attrs["extrapolation"],
    )


def _build_interpolation(
    g: Graph, x: Tensor, axis: int, table: InterpolationTable
) -> Tensor:
    """Build the interpolation of a tensor along an axis by its table."""
    dtype = x.dtype.numpy
    if table.elements.shape[1] > _MAX_GATHERED_TAPS:
        others = [a for a in range(x.rank) if a != axis]
        matrix = g.constant(_table_matrix(x.shape[axis], table).astype(dtype))
        rows = g.transpose(x, (*others, axis))
        if x.rank == 1:
            return g.reshape(g.reshape(rows, (1, -1)) @ matrix, (-1,))
        inverse_order = list(range(x.rank - 1))
        inverse_order.insert(axis, x.rank - 1)
        return g.transpose(rows @ matrix, tuple(inverse_order))
    terms = []
    for index, weight in zip(table.elements.T, table.weights.T, strict=True):
        tap_values = g.gather(x, g.constant(np.ascontiguousarray(index)), axis)
        terms.append(
            tap_values * g.constant(_align_to_axis(axis, x.rank, weight.astype(dtype)))
        )
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def _case(
    shape: Shape, axis: int, size: int, dtype: DType = DType.F32, **attrs: Any
) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    drawn = Drawn(shape, dtype, -4, 4, whole=whole)
    return Sample((drawn,), {"axis": axis, "size": size, **attrs})


_CROP_ATTRS: dict[str, Any] = {
    "place": "tf_crop_and_resize",
    "roi_start": -0.2,
    "roi_end": 0.9,
    "extrapolation": 3.0,
}
_SAMPLES = (
    _case((1,), 0, 1),
    _case((3, 5), -1, 9),
    _case((7, 3), 0, 65_537, rounding="round_prefer_ceil", place="asymmetric"),
    _case((3, 5), 1, 0),
    _case((0, 5), 1, 3),
    _case((2, 7, 3), 1, 5, rounding="floor", place="pytorch_half_pixel"),
    _case((2, 7, 3), 1, 12, DType.I32, rounding="ceil", scale=1.75),
    _case((2, 7, 3), 1, 12, mode="linear"),
    _case((2, 7, 3), 1, 12, mode="linear", place="align_corners"),
    _case((2, 7, 3), 1, 4, mode="linear", place="half_pixel_symmetric", scale=0.6),
    _case((5, 9), -1, 6, mode="linear", **_CROP_ATTRS),
    _case((2, 7, 3), 1, 12, mode="cubic", exclude_outside=True),
    _case((23,), 0, 5, mode="cubic", antialias=True),
    _case((4, 23, 3), 1, 5, mode="linear", antialias=True),
    _case((3, 5), 1, 8, DType.F16, mode="linear"),
    _case((3, 5), 1, 8, DType.F64, mode="cubic"),
)

# Weights are rounded to float32, and cubic ones of both signs cancel.
RESIZE_TOLERANCE = Tolerance(rtol=2e-6, atol=1e-6, relative_to_peak=True)

registry.register_all(
    Op(
        name="resize",
        infer=_infer,
        reference=_resize,
        lower=Compose(_build),
        attrs=(
            Attr("axis", "int"),
            Attr("size", "int"),
            Attr("scale", "float", None, is_nullable=True),
            Attr("mode", "str", "nearest", allowed=MODES),
            Attr("place", "str", "half_pixel", allowed=COORDINATE_MODES),
            Attr("rounding", "str", "round_prefer_floor", allowed=tuple(ROUNDINGS)),
            Attr("cubic", "float", -0.75),
            Attr("antialias", "bool", False),
            Attr("exclude_outside", "bool", False),
            Attr("roi_start", "float", 0.0),
            Attr("roi_end", "float", 1.0),
            Attr("extrapolation", "float", 0.0),
        ),
        flops=lambda inputs, out, attrs: (
            (1.0 if attrs["mode"] == "nearest" else 8.0) * out.numel
        ),
        tolerance=RESIZE_TOLERANCE,
        samples=_SAMPLES,
        doc="One axis resized to `size` elements by interpolation. The attribute "
        "`mode` selects the interpolation, and `place` how positions in the result "
        "are mapped to positions in the array, like ONNX's coordinate transformation "
        "modes. `scale` is the number of results per element, by default `size` "
        "divided by the length of the axis; `antialias` smooths the array when "
        "shrinking.",
    )
)
