"""Exporters of quantization ops and integer products."""

from __future__ import annotations

from math import prod
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.onnx.export_conv_pool_norms import window_attributes
from rlxweb.onnx.exporter_registry import OnnxGraphBuilder, register_exporter

_INT8_DTYPES = frozenset({DType.I8, DType.U8})
_INT16_DTYPES = frozenset({DType.I16, DType.U16})
_FLOAT_DTYPES = frozenset({DType.F32, DType.F16, DType.BF16})


@register_exporter("round_divide")
def _round_divide(builder: OnnxGraphBuilder, node: Node, x: str, y: str) -> str:
    """Export a rounded division; for f16 the quotient is computed in f32."""
    is_half = node.type.dtype is DType.F16
    x, y = (
        builder.add_cast(operand, DType.F32) if is_half else operand
        for operand in (x, y)
    )
    quotient = builder.add_node("Round", builder.add_node("Div", x, y))
    return builder.add_cast(quotient, DType.F16) if is_half else quotient


def _opset_supports(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether the opset has the block size and 16-bit dtypes that the node
    uses.
    """
    dtypes = {
        node.type.dtype,
        builder.operand_type(node).dtype,
        builder.operand_type(node, 2).dtype,
    }
    return builder.opset >= 21 or not (
        node.attrs["block_size"] or dtypes & _INT16_DTYPES
    )


def _can_export_quantize(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a quantize_linear has an ONNX form."""
    has_dtypes = (
        node.type.dtype in _INT8_DTYPES | _INT16_DTYPES
        and builder.operand_type(node).dtype in _FLOAT_DTYPES
    )
    return has_dtypes and _opset_supports(builder, node)


def _can_export_dequantize(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a dequantize_linear has an ONNX form."""
    has_dtypes = (
        builder.operand_type(node).dtype in _INT8_DTYPES | _INT16_DTYPES
        and node.type.dtype in _FLOAT_DTYPES
    )
    return has_dtypes and _opset_supports(builder, node)


def _scale_operands(
    builder: OnnxGraphBuilder, node: Node, *operands: str
) -> tuple[list[str], dict[str, Any]]:
    """Return scale and zero point in ONNX's shapes, and the axis and block
    attributes.
    """
    shape, attrs = builder.operand_type(node, 1).shape, node.attrs
    if shape in ((), (1,)) and not attrs["block_size"]:
        return [builder.add_reshape(operand, ()) for operand in operands], {}
    block_attribute = {"block_size": attrs["block_size"]} if attrs["block_size"] else {}
    return list(operands), {"axis": attrs["axis"], **block_attribute}


@register_exporter("quantize_linear", condition=_can_export_quantize)
def _quantize(
    builder: OnnxGraphBuilder, node: Node, x: str, scale: str, zero: str
) -> str:
    """Export a quantization; a range narrower than the dtype's is clipped."""
    operands, attributes = _scale_operands(builder, node, scale, zero)
    quantized = builder.add_node("QuantizeLinear", x, *operands, **attributes)
    low, high = node.attrs["quant_min"], node.attrs["quant_max"]
    dtype = node.type.dtype
    if (low, high) == (dtype.min_value, dtype.max_value):
        return quantized
    return builder.add_node(
        "Clip",
        quantized,
        builder.add_scalar_like(low, node.type),
        builder.add_scalar_like(high, node.type),
    )


@register_exporter("dequantize_linear", condition=_can_export_dequantize)
def _dequantize(
    builder: OnnxGraphBuilder, node: Node, x: str, scale: str, zero: str
) -> str:
    operands, attributes = _scale_operands(builder, node, scale, zero)
    return builder.add_node("DequantizeLinear", x, *operands, **attributes)


def _has_one_element(shape: Shape) -> bool:
    """Return whether a shape has exactly one element."""
    return prod(shape) == 1


def _has_int8_operands(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether all operands are 8-bit integers and x has one zero point."""
    dtypes = {builder.operand_type(node, index).dtype for index in range(4)}
    return dtypes <= _INT8_DTYPES and _has_one_element(
        builder.operand_type(node, 2).shape
    )


def _can_export_matmul(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a matmul_integer has an ONNX form."""
    zero = builder.operand_type(node, 3).shape
    return _has_int8_operands(builder, node) and (
        _has_one_element(zero) or len(zero) == 1
    )


@register_exporter("matmul_integer", condition=_can_export_matmul)
def _matmul_integer(
    builder: OnnxGraphBuilder, node: Node, x: str, y: str, x_zero: str, y_zero: str
) -> str:
    shape = builder.operand_type(node, 3).shape
    zeros = (
        builder.add_reshape(x_zero, ()),
        builder.add_reshape(y_zero, () if _has_one_element(shape) else shape),
    )
    return builder.add_node("MatMulInteger", x, y, *zeros)


def _can_export_conv(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a conv_integer has an ONNX form."""
    return _has_int8_operands(builder, node) and _has_one_element(
        builder.operand_type(node, 3).shape
    )


@register_exporter("conv_integer", condition=_can_export_conv)
def _conv_integer(
    builder: OnnxGraphBuilder,
    node: Node,
    x: str,
    weights: str,
    x_zero: str,
    w_zero: str,
) -> str:
    attributes = window_attributes(node, node.type.rank - 2)
    zeros = builder.add_reshape(x_zero, ()), builder.add_reshape(w_zero, ())
    groups = node.attrs["groups"]
    return builder.add_node(
        "ConvInteger", x, weights, *zeros, group=groups, **attributes
    )
