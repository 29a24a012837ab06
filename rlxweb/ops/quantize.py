"""Numbers as integers times a scale, and back: y = round(x / scale) + zero.

As ONNX's QuantizeLinear and DequantizeLinear have them (Jacob et al. 2018): a scale and
a zero for all, for each place of an axis, or for each block along it. Integers of 4 and
2 bits lie in those of 8; their range is said (`quant_min`, `quant_max`). Floats of 16
bits are computed in f32. Owns no shader.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from rlxweb.ir.bounds import Bounds
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_dtype, bad_shape, normal_axis
from rlxweb.ir.shape import show as show_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.cast import convert
from rlxweb.ops.elementwise import FLOATS, ROUNDED, need
from rlxweb.ops.kinds import numpy_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32

QUANTIZED = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.I32})
"""What integers are read as; of 32 bits those that sums of products are."""
FARTHEST = 1 << 23
"""Quantised values lie this near to 0: f32 holds them, and their zero beside them."""

_RANGE = Bounds(
    lambda given, types, out, attrs: (
        min(0, attrs["quant_min"]),
        max(0, attrs["quant_max"]),
    ),
    "exact",
)
_PLACED = (Attr("axis", "int", 1), Attr("block_size", "int", 0))


def _check_place(x: Shape, scale: Shape, zero: Shape, attrs: Attrs) -> None:
    """Scale and zero stand for all, for an axis or for blocks. Errors  ShapeError."""
    if zero != scale:
        raise bad_shape(
            f"scale {show_shape(scale)}, zero {show_shape(zero)}",
            "both have one shape",
        )
    block = attrs["block_size"]
    if block < 0:
        raise bad_attribute(f"block_size={block}", "0: no blocks, or how long they are")
    if scale in ((), (1,)) and not block:
        return
    axis = normal_axis(attrs["axis"], len(x))
    wanted: Shape = (x[axis],)
    if block:
        wanted = (*x[:axis], ceil(x[axis] / block), *x[axis + 1 :])
    if scale != wanted:
        raise bad_shape(
            f"scale {show_shape(scale)} beside {show_shape(x)}",
            f"one number, or {show_shape(wanted)} for axis {axis}"
            + (f" in blocks of {block}" if block else ""),
        )


def _infer_quantized(types: Types, attrs: Attrs) -> TensorType:
    x, scale, zero = types
    need(types[:2], FLOATS)
    need(types[2:], QUANTIZED)
    if x.dtype is not scale.dtype:
        raise bad_dtype(f"x is {x.dtype}, scale {scale.dtype}", "both have one dtype")
    _check_place(x.shape, scale.shape, zero.shape, attrs)
    low, high = attrs["quant_min"], attrs["quant_max"]
    least, most = (max(zero.dtype.least, -FARTHEST), min(zero.dtype.most, FARTHEST))
    if not least <= low < high <= most:
        raise bad_attribute(
            f"quant_min={low}, quant_max={high}",
            f"the one below the other, from {least} to {most} here",
        )
    return TensorType(x.shape, zero.dtype)


def _infer_number(types: Types, attrs: Attrs) -> TensorType:
    x, scale, zero = types
    need((x, zero), QUANTIZED)
    need((scale,), FLOATS)
    if x.dtype is not zero.dtype:
        raise bad_dtype(f"x is {x.dtype}, zero {zero.dtype}", "both have one dtype")
    _check_place(x.shape, scale.shape, zero.shape, attrs)
    return TensorType(x.shape, scale.dtype)


def _broadcast(xp: Any, attrs: Attrs, x: Any, one: Any) -> Any:
    """Scale or zero as it broadcasts with x."""
    if attrs["block_size"]:
        axis = normal_axis(attrs["axis"], x.ndim)
        again = xp.repeat(one, attrs["block_size"], axis=axis)
        return again[(*(slice(None),) * axis, slice(0, x.shape[axis]))]
    return xp.reshape(one, _beside(tuple(x.shape), tuple(one.shape), attrs))


def _beside(x: Shape, one: Shape, attrs: Attrs) -> Shape:
    """The shape in which a scale that is not in blocks broadcasts with x."""
    if one in ((), (1,)):
        return ()
    axis = normal_axis(attrs["axis"], len(x))
    return (*one, *(1,) * (len(x) - axis - 1))


def placed(g: Graph, attrs: Attrs, x: Tensor, one: Tensor) -> Tensor:
    """A scale or a zero as it broadcasts with x; attrs as of `quantize_linear`."""
    block = attrs["block_size"]
    if block:
        axis = normal_axis(attrs["axis"], x.rank)
        return g.narrow(g.repeat(one, block, axis), axis, 0, x.shape[axis])
    return g.reshape(one, _beside(x.shape, one.shape, attrs))


def _quantized(xp: Any, attrs: Attrs, x: Any, scale: Any, zero: Any) -> Any:
    wide = widened(xp, x)
    by = _broadcast(xp, attrs, x, widened(xp, scale))
    at = xp.asarray(_broadcast(xp, attrs, x, zero), dtype=wide.dtype)
    far = xp.round(wide / by) + at
    low, high = (attrs[end] * xp.ones_like(far) for end in ("quant_min", "quant_max"))
    far = xp.minimum(xp.maximum(far, low), high)
    return convert(xp, {"to": as_dtype(numpy_dtype(xp, zero))}, far)


def _number(xp: Any, attrs: Attrs, x: Any, scale: Any, zero: Any) -> Any:
    by = _broadcast(xp, attrs, x, widened(xp, scale))
    whole = xp.asarray(x, dtype=xp.int32)
    whole = whole - xp.asarray(_broadcast(xp, attrs, x, zero), dtype=xp.int32)
    return xp.asarray(xp.asarray(whole, dtype=by.dtype) * by, dtype=scale.dtype)


def _build_quantized(
    g: Graph, attrs: Attrs, x: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    wide, by = in_f32(g, x, scale)
    at = g.cast(placed(g, attrs, x, zero), wide.dtype)
    far = g.round_divide(wide, placed(g, attrs, x, by)) + at
    far = g.clip(far, float(attrs["quant_min"]), float(attrs["quant_max"]))
    return g.cast(far, zero.dtype)


def _build_number(
    g: Graph, attrs: Attrs, x: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    (wide,) = in_f32(g, scale)
    whole = g.cast(x, DType.I32) - g.cast(placed(g, attrs, x, zero), DType.I32)
    made = g.cast(whole, wide.dtype) * placed(g, attrs, x, wide)
    return made if wide is scale else g.cast(made, scale.dtype)


def _cases(is_back: bool) -> tuple[Sample, ...]:
    """Samples of both: for all, for each place, for blocks, of every type."""

    def case(
        x: Shape, scale: Shape, to: DType, of: DType = DType.F32, **attrs: int
    ) -> Sample:
        few = attrs.pop("few", 0)
        least = max(to.least, -few) if few else max(to.least, -70_000)
        most = min(to.most, few - 1) if few else min(to.most, 70_000)
        number, whole = (of, 0.05, 0.9), (to, least, most)
        if is_back:
            return Sample(
                (Drawn(x, *whole), Drawn(scale, *number), Drawn(scale, *whole)), attrs
            )
        far = 0.6 * (most - least)
        drawn = (Drawn(x, of, -far, far), Drawn(scale, *number), Drawn(scale, *whole))
        return Sample(drawn, {"quant_min": least, "quant_max": most, **attrs})

    return (
        *(case((5, 7), (), to) for to in (DType.I8, DType.U8, DType.I16, DType.U16)),
        case((5, 7), (1,), DType.I32),
        case((3, 4, 5), (4,), DType.U8),
        case((3, 4, 5), (5,), DType.I8, axis=-1),
        case((4, 12, 3), (4, 3, 3), DType.I8, axis=1, block_size=4, few=8),
        case((4, 10), (4, 3), DType.U8, axis=-1, block_size=4, few=16),
        case((), (), DType.U8),
        case((0, 3), (3,), DType.I8),
        case((65_537, 2), (2,), DType.I8),
        case((5, 6), (6,), DType.I8, DType.F16, few=16),
        case((5, 6), (), DType.I8, DType.F64),
    )


registry.register_all(
    Op(
        name="quantize_linear",
        arity=3,
        infer=_infer_quantized,
        reference=_quantized,
        lower=Compose(_build_quantized, apart=True),
        bounds=_RANGE,
        attrs=(*_PLACED, Attr("quant_min", "int"), Attr("quant_max", "int")),
        flops=lambda inputs, out, attrs: 6.0 * out.numel,
        samples=_cases(False),
        doc="round(x / scale) + zero, in quant_min … quant_max and of the type of "
        "zero; halves go to the even one, NaN becomes 0. Scale and zero are one "
        "number, [n] for the places of an axis, or for each block_size of them one.",
    ),
    Op(
        name="dequantize_linear",
        arity=3,
        infer=_infer_number,
        reference=_number,
        lower=Compose(_build_number, apart=True),
        attrs=_PLACED,
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        tolerance=ROUNDED,
        samples=_cases(True),
        doc="(x - zero) · scale, of the type of scale, which stands with zero as in "
        "quantize_linear.",
    ),
)
