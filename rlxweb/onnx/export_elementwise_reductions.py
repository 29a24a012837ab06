"""Exporters of elementwise ops, reductions and selections."""

from __future__ import annotations

import math

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.onnx.exporter_registry import OnnxGraphBuilder, register_exporter


@register_exporter("maximum")
def _maximum(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return builder.add_node("Max", x, y)


@register_exporter("minimum")
def _minimum(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return builder.add_node("Min", x, y)


@register_exporter("pow")
def _pow(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return builder.add_node("Pow", x, y)


@register_exporter("ne")
def _ne(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return builder.add_node("Not", builder.add_node("Equal", x, y))


@register_exporter("div")
def _div(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    """Export a division; an integer divided by 0 gives 0 here, but may crash other
    runtimes.
    """
    if node.type.dtype.is_float:
        return builder.add_node("Div", x, y)
    zero = builder.add_scalar_like(0, node.type)
    one = builder.add_scalar_like(1, node.type)
    is_zero = builder.add_node("Equal", y, zero)
    quotient = builder.add_node("Div", x, builder.add_node("Where", is_zero, one, y))
    return builder.add_node("Where", is_zero, zero, quotient)


@register_exporter("cast")
def _cast(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export a cast; from floats to integers, out-of-range values and NaN are handled
    explicitly.
    """
    source_type, target_dtype = builder.operand_type(node), node.type.dtype
    if not (source_type.dtype.is_float and target_dtype.is_integer):
        return builder.add_cast(x, target_dtype)
    bounds = np.iinfo(target_dtype.numpy)
    if source_type.dtype is DType.F16:
        x = builder.add_cast(x, DType.F32)
        source_type = TensorType(source_type.shape, DType.F32)
    upper_limit = builder.add_scalar_like(
        2.0 ** (bounds.bits - (bounds.min < 0)), source_type
    )
    is_not_above = builder.add_node("Less", x, upper_limit)
    is_below = builder.add_node(
        "Less", x, builder.add_scalar_like(float(bounds.min), source_type)
    )
    is_inside = builder.add_node("And", is_not_above, builder.add_node("Not", is_below))
    result = builder.add_cast(
        builder.add_node(
            "Where", is_inside, x, builder.add_scalar_like(0, source_type)
        ),
        target_dtype,
    )
    is_above = builder.add_node("GreaterOrEqual", x, upper_limit)
    result = builder.add_node(
        "Where", is_above, builder.add_scalar_like(bounds.max, node.type), result
    )
    return builder.add_node(
        "Where", is_below, builder.add_scalar_like(bounds.min, node.type), result
    )


@register_exporter("rsqrt")
def _rsqrt(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node("Reciprocal", builder.add_node("Sqrt", x))


@register_exporter("silu")
def _silu(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node("Mul", x, builder.add_node("Sigmoid", x))


@register_exporter("swish")
def _swish(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    inner = builder.add_node(
        "Mul", x, builder.add_scalar_like(node.attrs["alpha"], node.type)
    )
    return builder.add_node("Mul", x, builder.add_node("Sigmoid", inner))


@register_exporter("gelu", "gelu_approx")
def _gelu(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    kind = "none" if node.op == "gelu" else "tanh"
    return builder.add_node("Gelu", x, approximate=kind)


@register_exporter("trunc")
def _trunc(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node(
        "Mul",
        builder.add_node("Sign", x),
        builder.add_node("Floor", builder.add_node("Abs", x)),
    )


@register_exporter("exp2")
def _exp2(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node("Pow", builder.add_scalar_like(2, node.type), x)


@register_exporter("log2")
def _log2(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node(
        "Mul",
        builder.add_node("Log", x),
        builder.add_scalar_like(1 / math.log(2), node.type),
    )


@register_exporter("expm1")
def _expm1(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export expm1; near 0 as 2 exp(x / 2) sinh(x / 2), which keeps full precision
    there.
    """
    half = builder.add_node("Mul", x, builder.add_scalar_like(0.5, node.type))
    near = builder.add_node(
        "Mul", builder.add_node("Exp", half), builder.add_node("Sinh", half)
    )
    near = builder.add_node("Mul", near, builder.add_scalar_like(2, node.type))
    far = builder.add_node(
        "Sub", builder.add_node("Exp", x), builder.add_scalar_like(1, node.type)
    )
    is_near = builder.add_node(
        "Less", builder.add_node("Abs", x), builder.add_scalar_like(1, node.type)
    )
    return builder.add_node("Where", is_near, near, far)


@register_exporter("log1p")
def _log1p(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export log1p; near 0 as 2 atanh(x / (2 + x)), which keeps full precision
    there.
    """
    ratio = builder.add_node(
        "Div", x, builder.add_node("Add", x, builder.add_scalar_like(2, node.type))
    )
    near = builder.add_node(
        "Mul", builder.add_node("Atanh", ratio), builder.add_scalar_like(2, node.type)
    )
    far = builder.add_node(
        "Log", builder.add_node("Add", x, builder.add_scalar_like(1, node.type))
    )
    is_near = builder.add_node(
        "Less", builder.add_node("Abs", x), builder.add_scalar_like(0.5, node.type)
    )
    return builder.add_node("Where", is_near, near, far)


@register_exporter("isinf")
def _isinf(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    detects_positive, detects_negative = node.attrs["positive"], node.attrs["negative"]
    return builder.add_node(
        "IsInf",
        x,
        detect_positive=int(detects_positive),
        detect_negative=int(detects_negative),
    )


@register_exporter("isfinite")
def _isfinite(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node(
        "Not",
        builder.add_node(
            "Or", builder.add_node("IsNaN", x), builder.add_node("IsInf", x)
        ),
    )


@register_exporter("fmod")
def _fmod(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return _export_remainder(builder, node, x, y, 1)


@register_exporter("mod")
def _mod(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    """Export a floored remainder, which ONNX has for integers only."""
    if not node.type.dtype.is_float:
        return _export_remainder(builder, node, x, y, 0)
    zero = builder.add_scalar_like(0, node.type)
    remainder = builder.add_node("Mod", x, y, fmod=1)
    signs_differ = builder.add_node(
        "Xor",
        builder.add_node("Less", remainder, zero),
        builder.add_node("Less", y, zero),
    )
    is_nonzero = builder.add_node("Not", builder.add_node("Equal", remainder, zero))
    shifted = builder.add_node("Add", remainder, y)
    return builder.add_node(
        "Where", builder.add_node("And", signs_differ, is_nonzero), shifted, remainder
    )


@register_exporter("floor_divide")
def _floor_divide(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    """Export (x - mod(x, y)) / y; for floats the quotient is rounded like NumPy's."""
    if node.type.dtype.is_float:
        quotient = builder.add_node(
            "Div", builder.add_node("Sub", x, _mod(builder, node, x, y)), y
        )
        return builder.add_node("Round", quotient)
    return _div(
        builder,
        node,
        builder.add_node("Sub", x, _export_remainder(builder, node, x, y, 0)),
        y,
    )


@register_exporter("atan2")
def _atan2(builder: OnnxGraphBuilder, node: Node, y: str, x: str) -> str:
    """Export atan2: the arc tangent of the smaller over the larger, mapped to its
    octant.
    """
    tensor_type = node.type
    zero = builder.add_scalar_like(0, tensor_type)
    abs_y, abs_x = builder.add_node("Abs", y), builder.add_node("Abs", x)
    is_steep = builder.add_node("Greater", abs_y, abs_x)
    smaller, larger = (builder.add_node(op, abs_y, abs_x) for op in ("Min", "Max"))
    is_zero = builder.add_node("Equal", larger, zero)
    ratio = builder.add_node(
        "Div",
        smaller,
        builder.add_node(
            "Where", is_zero, builder.add_scalar_like(1, tensor_type), larger
        ),
    )
    angle = builder.add_node("Atan", ratio)
    complement = builder.add_node(
        "Sub", builder.add_scalar_like(math.pi / 2, tensor_type), angle
    )
    angle = builder.add_node("Where", is_steep, complement, angle)
    reflected = builder.add_node(
        "Sub", builder.add_scalar_like(math.pi, tensor_type), angle
    )
    angle = builder.add_node(
        "Where", builder.add_node("Less", x, zero), reflected, angle
    )
    return builder.add_node(
        "Where",
        builder.add_node("Less", y, zero),
        builder.add_node("Neg", angle),
        angle,
    )


def _export_remainder(
    builder: OnnxGraphBuilder, node: Node, x: str, y: str, fmod: int
) -> str:
    """Export a remainder, truncated with fmod 1 or floored with 0; an integer remainder
    by 0 is 0.
    """
    if node.type.dtype.is_float:
        return builder.add_node("Mod", x, y, fmod=fmod)
    zero = builder.add_scalar_like(0, node.type)
    one = builder.add_scalar_like(1, node.type)
    is_zero = builder.add_node("Equal", y, zero)
    remainder = builder.add_node(
        "Mod", x, builder.add_node("Where", is_zero, one, y), fmod=fmod
    )
    return builder.add_node("Where", is_zero, zero, remainder)


_REDUCTION_OPS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
}


@register_exporter(*_REDUCTION_OPS)
def _reduce(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export a reduction; bools are reduced as integers, which more runtimes
    support.
    """
    if node.type.dtype is DType.BOOL:
        return builder.add_cast(
            _reduce_axes(builder, node, builder.add_cast(x, DType.I32)), DType.BOOL
        )
    return _reduce_axes(builder, node, x)


def _reduce_axes(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Add the ONNX reduction over the node's axes."""
    axes = builder.add_int64_constant(*node.attrs["axes"])
    keep = int(node.attrs["keep_dim"])
    return builder.add_node(
        _REDUCTION_OPS[node.op], x, axes, keepdims=keep, noop_with_empty_axes=1
    )


@register_exporter("argmax", "argmin")
def _arg_extreme(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export argmax or argmin; bools are compared as integers. ONNX leaves the position
    of NaN to the runtime.
    """
    operand_type = builder.operand_type(node)
    x = builder.add_cast(x, DType.I32) if operand_type.dtype is DType.BOOL else x
    op = "ArgMax" if node.op == "argmax" else "ArgMin"
    attributes = {
        "axis": normalize_axis(node.attrs["axis"], operand_type.rank),
        "keepdims": int(node.attrs["keep_dim"]),
        "select_last_index": int(node.attrs["last"]),
    }
    return builder.add_cast(builder.add_node(op, x, **attributes), DType.I32)


@register_exporter("cumsum")
def _cumsum(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    axis = normalize_axis(node.attrs["axis"], node.type.rank)
    reverse = int(node.attrs.get("reverse", False))
    exclusive = int(node.attrs["exclusive"])
    axis_constant = builder.add_constant(np.array(axis, np.int64))
    return builder.add_node(
        "CumSum", x, axis_constant, exclusive=exclusive, reverse=reverse
    )


@register_exporter("cumprod")
def _cumprod(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export a cumulative product as log2(n) shifted multiplications."""
    tensor_type = node.type
    axis = normalize_axis(node.attrs["axis"], tensor_type.rank)
    n, one = tensor_type.shape[axis], builder.add_scalar_like(1, tensor_type)
    product = x

    def shift(steps: int) -> str:
        pads = builder.add_int64_constant(steps, -steps)
        return builder.add_node(
            "Pad", product, pads, one, builder.add_int64_constant(axis), mode="constant"
        )

    steps = 1
    while steps < n:
        product = builder.add_node("Mul", product, shift(steps))
        steps *= 2
    return shift(min(1, n)) if node.attrs["exclusive"] else product


@register_exporter("topk")
def _topk(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    k = builder.add_int64_constant(node.attrs["k"])
    return builder.add_cast(
        builder.add_multi_output_node("TopK", 2, x, k, axis=-1)[1], DType.I32
    )


@register_exporter("matmul")
def _matmul(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    return builder.add_node("MatMul", x, y)


@register_exporter("shift_left", "shift_right")
def _bit_shift(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    direction = "LEFT" if node.op == "shift_left" else "RIGHT"
    return builder.add_node("BitShift", x, y, direction=direction)
