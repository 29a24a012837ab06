"""Linear quantization and dequantization: y = round(x / scale) + zero.

As ONNX's QuantizeLinear and DequantizeLinear have them (Jacob et al. 2018): a scale and
a zero for all, for each place of an axis, or for each block along it. Integers of 4 and
2 bits lie in those of 8; their range is said (`quant_min`, `quant_max`). Floats of 16
bits are computed in f32. Owns no shader.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_dtype,
    bad_shape,
    format_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.value_range_rules import RangeRule
from rlxweb.ops.array_dtype_checks import numpy_dtype
from rlxweb.ops.elementwise.cast import cast_values
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, ROUNDING_TOLERANCE, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

QUANTIZED_DTYPES = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.I32})
"""Integer dtypes that hold quantized values; i32 holds sums of products."""
MAX_MAGNITUDE = 1 << 23
"""Largest magnitude of a quantized value: f32 represents it exactly, zero point
included.
"""

_QUANTIZED_RANGE = RangeRule(
    lambda intervals, types, out, attrs: (
        min(0, attrs["quant_min"]),
        max(0, attrs["quant_max"]),
    ),
    "exact",
)
_SCALE_ATTRS = (Attr("axis", "int", 1), Attr("block_size", "int", 0, at_least=0))


def _check_scale_shape(x: Shape, scale: Shape, zero: Shape, attrs: Attrs) -> None:
    """Check that scale and zero point are per tensor, per axis or per block. Errors
    ShapeError, AttributeRefused.
    """
    if zero != scale:
        raise bad_shape(
            f"got scale {format_shape(scale)} and zero {format_shape(zero)}",
            "scale and zero must have the same shape",
        )
    block_size = attrs["block_size"]
    if scale in ((), (1,)) and not block_size:
        return
    axis = normalize_axis(attrs["axis"], len(x))
    expected_shape: Shape = (x[axis],)
    if block_size:
        expected_shape = (*x[:axis], ceil(x[axis] / block_size), *x[axis + 1 :])
    if scale != expected_shape:
        raise bad_shape(
            f"got scale {format_shape(scale)} for x {format_shape(x)}",
            f"expected {format_shape(expected_shape)} for axis {axis} in blocks of "
            f"{block_size}"
            if block_size
            else f"expected one number, or {format_shape(expected_shape)} for axis "
            f"{axis}",
        )


def _infer_quantize(types: Types, attrs: Attrs) -> TensorType:
    x, scale, zero = types
    require_dtypes(types[:2], FLOAT_DTYPES)
    require_dtypes(types[2:], QUANTIZED_DTYPES)
    if x.dtype is not scale.dtype:
        raise bad_dtype(
            f"x is {x.dtype}, scale is {scale.dtype}",
            "x and scale must have the same dtype",
        )
    _check_scale_shape(x.shape, scale.shape, zero.shape, attrs)
    low, high = attrs["quant_min"], attrs["quant_max"]
    min_allowed = max(zero.dtype.min_value, -MAX_MAGNITUDE)
    max_allowed = min(zero.dtype.max_value, MAX_MAGNITUDE)
    if not min_allowed <= low < high <= max_allowed:
        raise bad_attribute(
            f"quant_min={low}, quant_max={high}",
            f"expected quant_min < quant_max, both from {min_allowed} to {max_allowed}",
        )
    return TensorType(x.shape, zero.dtype)


def _infer_dequantize(types: Types, attrs: Attrs) -> TensorType:
    x, scale, zero = types
    require_dtypes((x, zero), QUANTIZED_DTYPES)
    require_dtypes((scale,), FLOAT_DTYPES)
    if x.dtype is not zero.dtype:
        raise bad_dtype(
            f"x is {x.dtype}, zero is {zero.dtype}",
            "x and zero must have the same dtype",
        )
    _check_scale_shape(x.shape, scale.shape, zero.shape, attrs)
    return TensorType(x.shape, scale.dtype)


def _broadcast_array_scale(xp: Any, attrs: Attrs, x: Any, scale: Any) -> Any:
    """Return a scale or zero point (array) that broadcasts with x."""
    if attrs["block_size"]:
        axis = normalize_axis(attrs["axis"], x.ndim)
        repeated_scale = xp.repeat(scale, attrs["block_size"], axis=axis)
        return repeated_scale[(*(slice(None),) * axis, slice(0, x.shape[axis]))]
    return xp.reshape(
        scale, _scale_broadcast_shape(tuple(x.shape), tuple(scale.shape), attrs)
    )


def _scale_broadcast_shape(x: Shape, scale_shape: Shape, attrs: Attrs) -> Shape:
    """Return the shape in which a scale without blocks broadcasts with x."""
    if scale_shape in ((), (1,)):
        return ()
    axis = normalize_axis(attrs["axis"], len(x))
    return (*scale_shape, *(1,) * (len(x) - axis - 1))


def broadcast_scale(g: Graph, attrs: Attrs, x: Tensor, scale: Tensor) -> Tensor:
    """Return a scale or zero point (tensor) that broadcasts with x; attributes as in
    `quantize_linear`.
    """
    block_size = attrs["block_size"]
    if block_size:
        axis = normalize_axis(attrs["axis"], x.rank)
        return g.narrow(g.repeat(scale, block_size, axis), axis, 0, x.shape[axis])
    return g.reshape(scale, _scale_broadcast_shape(x.shape, scale.shape, attrs))


def _quantize(xp: Any, attrs: Attrs, x: Any, scale: Any, zero: Any) -> Any:
    wide = widen_float16(xp, x)
    divisor = _broadcast_array_scale(xp, attrs, x, widen_float16(xp, scale))
    offset = xp.asarray(_broadcast_array_scale(xp, attrs, x, zero), dtype=wide.dtype)
    rounded = xp.round(wide / divisor) + offset
    low, high = (
        attrs[bound] * xp.ones_like(rounded) for bound in ("quant_min", "quant_max")
    )
    rounded = xp.minimum(xp.maximum(rounded, low), high)
    return cast_values(xp, {"to": as_dtype(numpy_dtype(xp, zero))}, rounded)


def _dequantize(xp: Any, attrs: Attrs, x: Any, scale: Any, zero: Any) -> Any:
    factor = _broadcast_array_scale(xp, attrs, x, widen_float16(xp, scale))
    integers = xp.asarray(x, dtype=xp.int32)
    integers = integers - xp.asarray(
        _broadcast_array_scale(xp, attrs, x, zero), dtype=xp.int32
    )
    return xp.asarray(
        xp.asarray(integers, dtype=factor.dtype) * factor, dtype=scale.dtype
    )


def _build_quantize(
    g: Graph, attrs: Attrs, x: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    wide, divisor = widen_float16_tensors(g, x, scale)
    offset = g.cast(broadcast_scale(g, attrs, x, zero), wide.dtype)
    rounded = g.round_divide(wide, broadcast_scale(g, attrs, x, divisor)) + offset
    rounded = g.clip(rounded, float(attrs["quant_min"]), float(attrs["quant_max"]))
    return g.cast(rounded, zero.dtype)


def _build_dequantize(
    g: Graph, attrs: Attrs, x: Tensor, scale: Tensor, zero: Tensor
) -> Tensor:
    (factor,) = widen_float16_tensors(g, scale)
    integers = g.cast(x, DType.I32) - g.cast(
        broadcast_scale(g, attrs, x, zero), DType.I32
    )
    result = g.cast(integers, factor.dtype) * broadcast_scale(g, attrs, x, factor)
    return result if factor is scale else g.cast(result, scale.dtype)


def _cases(is_dequantize: bool) -> tuple[Sample, ...]:
    """Return the samples of both ops: per tensor, per axis, per block, for every
    dtype.
    """

    def case(
        x: Shape,
        scale: Shape,
        integer_dtype: DType,
        float_dtype: DType = DType.F32,
        **attrs: int,
    ) -> Sample:
        half_range = attrs.pop("few", 0)
        low = (
            max(integer_dtype.min_value, -half_range)
            if half_range
            else max(integer_dtype.min_value, -70_000)
        )
        high = (
            min(integer_dtype.max_value, half_range - 1)
            if half_range
            else min(integer_dtype.max_value, 70_000)
        )
        scale_range = (float_dtype, 0.05, 0.9)
        integer_range = (integer_dtype, low, high)
        if is_dequantize:
            return Sample(
                (
                    Drawn(x, *integer_range),
                    Drawn(scale, *scale_range),
                    Drawn(scale, *integer_range),
                ),
                attrs,
            )
        x_limit = 0.6 * (high - low)
        drawn = (
            Drawn(x, float_dtype, -x_limit, x_limit),
            Drawn(scale, *scale_range),
            Drawn(scale, *integer_range),
        )
        return Sample(drawn, {"quant_min": low, "quant_max": high, **attrs})

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
        infer=_infer_quantize,
        reference=_quantize,
        lower=Compose(_build_quantize, is_always_expanded=True),
        range_rule=_QUANTIZED_RANGE,
        attrs=(*_SCALE_ATTRS, Attr("quant_min", "int"), Attr("quant_max", "int")),
        flops=lambda inputs, out, attrs: 6.0 * out.numel,
        samples=_cases(False),
        doc="round(x / scale) + zero, clamped to quant_min … quant_max, in the dtype "
        "of zero; halves round to even, NaN becomes 0. scale and zero have the same "
        "shape: one number; one number per element of the axis `axis`, [n]; or, if "
        "`block_size` is not 0, one number per block of block_size elements of that "
        "axis.",
    ),
    Op(
        name="dequantize_linear",
        arity=3,
        infer=_infer_dequantize,
        reference=_dequantize,
        lower=Compose(_build_dequantize, is_always_expanded=True),
        attrs=_SCALE_ATTRS,
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        tolerance=ROUNDING_TOLERANCE,
        samples=_cases(True),
        doc="(x - zero) · scale, in the dtype of scale; scale and zero have the "
        "shapes that quantize_linear accepts.",
    ),
)
