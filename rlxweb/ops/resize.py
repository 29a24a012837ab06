"""Resizing along one axis: nearest, linear or cubic, smoothed or not.

What a result is made of is known beforehand (`recipes/resize_tables.py`): a few gathers
times their weights, or a product with the whole table where it is wide. Several axes
are several ops. f16 is computed in f32. No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, normal_axis, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, NUMBERS, need
from rlxweb.ops.linalg import widened
from rlxweb.ops.mapped import must_hold
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.resize_tables import (
    MODES,
    PLACES,
    ROUNDINGS,
    Resizing,
    Table,
    table_of,
)

_GATHERED = 6
"""Elements of a result up to which they are gathered one by one."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    need(types, NUMBERS if attrs["mode"] == "nearest" else FLOATS)
    axis = normal_axis(attrs["axis"], x.rank)
    size, scale = attrs["size"], attrs["scale"]
    if size < 0 or (scale is not None and not 0 < scale < np.inf):
        raise bad_attribute(
            f"size={size}, scale={scale}", "size >= 0, scale > 0 and finite"
        )
    numbers = [attrs[name] for name in ("roi_start", "roi_end", "cubic")]
    if not np.isfinite(numbers).all():
        raise bad_attribute(
            "roi_start={}, roi_end={}, cubic={}".format(*numbers), "they are finite"
        )
    if attrs["place"] == "tf_crop_and_resize":
        must_hold(x.dtype, attrs["extrapolation"])
    if x.shape[axis] == 0 and size:
        raise bad_shape(
            f"axis {axis} of {show(x.shape)} has no elements",
            f"{size} results cannot be made of none",
        )
    return TensorType((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def _table(shape: Shape, attrs: Attrs) -> tuple[int, Table]:
    axis, size = normal_axis(attrs["axis"], len(shape)), attrs["size"]
    n, scale = shape[axis], attrs["scale"]
    how = Resizing(
        attrs["mode"],
        attrs["place"],
        attrs["rounding"],
        attrs["cubic"],
        attrs["antialias"],
        attrs["exclude_outside"],
    )
    scale = size / n if scale is None else scale
    return axis, table_of(n, size, scale, how, (attrs["roi_start"], attrs["roi_end"]))


def _along(axis: int, rank: int, values: np.ndarray[Any, Any]) -> Any:
    """A number for each result, so that it broadcasts."""
    return values.reshape(-1, *(1,) * (rank - 1 - axis))


def _nothing(shape: Shape, attrs: Attrs) -> bool:
    return 0 in shape or attrs["size"] == 0


def _resize(xp: Any, attrs: Attrs, x: Any) -> Any:
    shape = tuple(x.shape)
    if _nothing(shape, attrs):
        axis = normal_axis(attrs["axis"], len(shape))
        made = (*shape[:axis], attrs["size"], *shape[axis + 1 :])
        return xp.zeros(made, dtype=x.dtype)
    axis, table = _table(shape, attrs)
    made = _mixed(xp, x, axis, table, attrs["mode"] == "nearest")
    if table.outside.any():
        outside = xp.asarray(_along(axis, len(shape), table.outside))
        filled = xp.full_like(made, attrs["extrapolation"])
        made = xp.where(outside, filled, made)
    return xp.asarray(made, dtype=x.dtype)


def _mixed(xp: Any, x: Any, axis: int, table: Table, nearest: bool) -> Any:
    taps = table.elements.shape[1]
    if nearest:
        return xp.take(x, xp.asarray(table.elements[:, 0]), axis=axis)
    wide = widened(xp, x)
    weight = xp.asarray(table.weights.astype(np.float32))
    weight = xp.asarray(table.weights) if wide.dtype != xp.float32 else weight
    if taps > _GATHERED:
        matrix = xp.asarray(_matrix(x.shape[axis], table), dtype=wide.dtype)
        return xp.moveaxis(xp.matmul(xp.moveaxis(wide, axis, -1), matrix), -1, axis)
    made = 0.0
    for tap in range(taps):
        own = xp.take(wide, xp.asarray(table.elements[:, tap]), axis=axis)
        part = xp.reshape(weight[:, tap], (-1, *(1,) * (x.ndim - 1 - axis)))
        made = made + own * part
    return made


def _matrix(n: int, table: Table) -> np.ndarray[Any, Any]:
    """[elements, results]: how much of each element is in each result."""
    made = np.zeros((n, len(table.elements)))
    results = np.broadcast_to(
        np.arange(len(table.elements))[:, None], table.elements.shape
    )
    np.add.at(made, (table.elements, results), table.weights)
    return made


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    if _nothing(x.shape, attrs):
        axis = normal_axis(attrs["axis"], x.rank)
        made = (*x.shape[:axis], attrs["size"], *x.shape[axis + 1 :])
        return g.expand(g.constant(np.zeros((), x.dtype.numpy)), made)
    axis, table = _table(x.shape, attrs)
    if attrs["mode"] == "nearest":
        return _nearest(g, attrs, x, axis, table)
    (wide,) = in_f32(g, x)
    mixed = _mixed_in(g, wide, axis, table)
    if table.outside.any():
        outside = g.constant(_along(axis, x.rank, table.outside))
        mixed = g.where(outside, attrs["extrapolation"], mixed)
    return mixed if mixed.dtype is x.dtype else g.cast(mixed, x.dtype)


def _nearest(g: Graph, attrs: Attrs, x: Tensor, axis: int, table: Table) -> Tensor:
    """Each element so many times, as a view, where all are; else by the table."""
    places = np.where(table.outside, -1, table.elements[:, 0])
    n, size = x.shape[axis], len(places)
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    each = size // n
    if size % n == 0 and np.array_equal(places, np.repeat(np.arange(n), each)):
        apart = g.reshape(x, (*before, n, 1, *behind))
        apart = g.expand(apart, (*before, n, each, *behind))
        return g.reshape(apart, (*before, size, *behind))
    how: dict[str, Any] = {
        "axes": (axis,),
        "sizes": (size,),
        "places": tuple(places.tolist()),
    }
    return g.apply("remap", x, value=attrs["extrapolation"], **how)


def _mixed_in(g: Graph, x: Tensor, axis: int, table: Table) -> Tensor:
    kind = x.dtype.numpy
    if table.elements.shape[1] > _GATHERED:
        others = [a for a in range(x.rank) if a != axis]
        matrix = g.constant(_matrix(x.shape[axis], table).astype(kind))
        rows = g.transpose(x, (*others, axis))
        if x.rank == 1:
            return g.reshape(g.reshape(rows, (1, -1)) @ matrix, (-1,))
        back = list(range(x.rank - 1))
        back.insert(axis, x.rank - 1)
        return g.transpose(rows @ matrix, tuple(back))
    parts = []
    for index, weight in zip(table.elements.T, table.weights.T, strict=True):
        own = g.gather(x, g.constant(np.ascontiguousarray(index)), axis)
        parts.append(own * g.constant(_along(axis, x.rank, weight.astype(kind))))
    made = parts[0]
    for part in parts[1:]:
        made = made + part
    return made


def _case(
    shape: Shape, axis: int, size: int, dtype: DType = DType.F32, **attrs: Any
) -> Sample:
    whole = dtype in (DType.F16, DType.I32)
    drawn = Drawn(shape, dtype, -4, 4, whole=whole)
    return Sample((drawn,), {"axis": axis, "size": size, **attrs})


_CROPPED: dict[str, Any] = {
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
    _case((5, 9), -1, 6, mode="linear", **_CROPPED),
    _case((2, 7, 3), 1, 12, mode="cubic", exclude_outside=True),
    _case((23,), 0, 5, mode="cubic", antialias=True),
    _case((4, 23, 3), 1, 5, mode="linear", antialias=True),
    _case((3, 5), 1, 8, DType.F16, mode="linear"),
    _case((3, 5), 1, 8, DType.F64, mode="cubic"),
)

# Weights are rounded to float32, and cubic ones of both signs cancel.
RESIZED = Tolerance(rtol=2e-6, atol=1e-6, relative_to_peak=True)

registry.register_all(
    Op(
        name="resize",
        infer=_infer,
        reference=_resize,
        lower=Compose(_build),
        attrs=(
            Attr("axis", "int"),
            Attr("size", "int"),
            Attr("scale", "float", None, optional=True),
            Attr("mode", "str", "nearest", allowed=MODES),
            Attr("place", "str", "half_pixel", allowed=PLACES),
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
        tolerance=RESIZED,
        samples=_SAMPLES,
        doc="One axis made `size` long by interpolation. place: where in the array a "
        "result lies, as ONNX's coordinate transformations; scale: results for an "
        "element, size / length unless given; antialias: smoothed where it shrinks.",
    )
)
