"""Forms of quantised numbers and their products in ONNX."""

from __future__ import annotations

from math import prod
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape import Shape
from rlxweb.onnx.writer import Writer, writes
from rlxweb.onnx.written_nn import windows

_BYTES = frozenset({DType.I8, DType.U8})
_SHORT = frozenset({DType.I16, DType.U16})
_FLOATS = frozenset({DType.F32, DType.F16, DType.BF16})


@writes("round_divide")
def _round_divide(w: Writer, node: Node, x: str, y: str) -> str:
    """Of halves the quotient is one of f32."""
    is_half = node.type.dtype is DType.F16
    x, y = (w.cast(one, DType.F32) if is_half else one for one in (x, y))
    made = w.add("Round", w.add("Div", x, y))
    return w.cast(made, DType.F16) if is_half else made


def _since(w: Writer, node: Node) -> bool:
    """Has the version blocks and 16 bits, where they are asked for?"""
    kinds = {node.type.dtype, w.type_of(node).dtype, w.type_of(node, 2).dtype}
    return w.opset >= 21 or not (node.attrs["block_size"] or kinds & _SHORT)


def _is_quantized(w: Writer, node: Node) -> bool:
    known = node.type.dtype in _BYTES | _SHORT and w.type_of(node).dtype in _FLOATS
    return known and _since(w, node)


def _is_number(w: Writer, node: Node) -> bool:
    known = w.type_of(node).dtype in _BYTES | _SHORT and node.type.dtype in _FLOATS
    return known and _since(w, node)


def _place(w: Writer, node: Node, *operands: str) -> tuple[list[str], dict[str, Any]]:
    """Scale and zero, where they stand for one axis or for all; and which axis."""
    shape, attrs = w.type_of(node, 1).shape, node.attrs
    if shape in ((), (1,)) and not attrs["block_size"]:
        return [w.shape(one, ()) for one in operands], {}
    block = {"block_size": attrs["block_size"]} if attrs["block_size"] else {}
    return list(operands), {"axis": attrs["axis"], **block}


@writes("quantize_linear", only=_is_quantized)
def _quantize(w: Writer, node: Node, x: str, scale: str, zero: str) -> str:
    """A range of fewer bits is cut out of that of the type."""
    operands, how = _place(w, node, scale, zero)
    made = w.add("QuantizeLinear", x, *operands, **how)
    low, high = node.attrs["quant_min"], node.attrs["quant_max"]
    kind = node.type.dtype
    if (low, high) == (kind.least, kind.most):
        return made
    return w.add("Clip", made, w.like(low, node.type), w.like(high, node.type))


@writes("dequantize_linear", only=_is_number)
def _dequantize(w: Writer, node: Node, x: str, scale: str, zero: str) -> str:
    operands, how = _place(w, node, scale, zero)
    return w.add("DequantizeLinear", x, *operands, **how)


def _is_one(shape: Shape) -> bool:
    return prod(shape) == 1


def _of_bytes(w: Writer, node: Node) -> bool:
    """Integers of 8 bits, one zero point for x."""
    kinds = {w.type_of(node, at).dtype for at in range(4)}
    return kinds <= _BYTES and _is_one(w.type_of(node, 2).shape)


def _is_product(w: Writer, node: Node) -> bool:
    zero = w.type_of(node, 3).shape
    return _of_bytes(w, node) and (_is_one(zero) or len(zero) == 1)


@writes("matmul_integer", only=_is_product)
def _product(w: Writer, node: Node, x: str, y: str, x_zero: str, y_zero: str) -> str:
    shape = w.type_of(node, 3).shape
    zeros = w.shape(x_zero, ()), w.shape(y_zero, () if _is_one(shape) else shape)
    return w.add("MatMulInteger", x, y, *zeros)


def _is_convolution(w: Writer, node: Node) -> bool:
    return _of_bytes(w, node) and _is_one(w.type_of(node, 3).shape)


@writes("conv_integer", only=_is_convolution)
def _convolution(
    w: Writer, node: Node, x: str, weights: str, x_zero: str, w_zero: str
) -> str:
    how = windows(node, node.type.rank - 2)
    zeros = w.shape(x_zero, ()), w.shape(w_zero, ())
    groups = node.attrs["groups"]
    return w.add("ConvInteger", x, weights, *zeros, group=groups, **how)
