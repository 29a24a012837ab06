"""Converters of quantised com.microsoft ops, as ONNX Runtime's quantiser writes them.

Those of 8 bits in and out are done in floats and quantised again, as ONNX Runtime does
it; products stay whole numbers. An LSTM of quantised weights is one of the floats that
they stand for, whose inputs and state are rounded to 8 bits as there: networks that
were tuned with that answer otherwise without it.
"""

from __future__ import annotations

from math import prod
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.conv_pool import PoolAttributes, build_average_pool
from rlxweb.onnx.converter_registry import (
    ConversionContext,
    Value,
    converts,
    find_converter,
)
from rlxweb.onnx.microsoft_attention import attend_packed_qkv
from rlxweb.onnx.microsoft_fused import MICROSOFT_DOMAIN, require_zero
from rlxweb.onnx.quantized import (
    array_digest,
    as_integer_tensor,
    broadcastable_scales,
    dequantize,
    integer_matmul,
    quantize,
    requantize,
    scalar_scale,
    zero_point_like,
)
from rlxweb.onnx.recurrent import RecurrentAttributes, build_lstm

Array = npt.NDArray[Any]


def _dequantize_input(
    ctx: ConversionContext, x: Tensor, scale: Tensor, zero_point: Value, axis: int = 0
) -> Tensor:
    """Return the dequantised values, f32."""
    scales = broadcastable_scales(scale, scale.shape)
    return dequantize(
        ctx, x, scales, zero_point_like(ctx, zero_point, scales, x.dtype), axis=axis
    )


def _quantize_result(
    ctx: ConversionContext, x: Tensor, scale: Tensor, zero_point: Value, like: Tensor
) -> Value:
    """Quantise a result with a single scale; without a zero point, to the dtype of
    `like`.
    """
    scalar = scalar_scale(ctx, scale)
    return quantize(ctx, x, scalar, zero_point, like.dtype.numpy)


_BINARY_OPS = {"QLinearAdd": "add", "QLinearMul": "mul"}


@converts(*_BINARY_OPS, domain=MICROSOFT_DOMAIN)
def _qlinear_binary(
    ctx: ConversionContext,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Value,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Value,
    c_scale: Tensor,
    c_zero: Tensor | None = None,
) -> Value:
    x = _dequantize_input(ctx, a, a_scale, a_zero)
    y = _dequantize_input(ctx, b, b_scale, b_zero)
    result = ctx.graph.apply(_BINARY_OPS[ctx.node.op], x, y)
    return _quantize_result(ctx, result, c_scale, c_zero, a)


@converts("QLinearSigmoid", domain=MICROSOFT_DOMAIN)
def _qlinear_sigmoid(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Value:
    result = ctx.graph.sigmoid(_dequantize_input(ctx, x, x_scale, x_zero))
    return _quantize_result(ctx, result, y_scale, y_zero, x)


@converts("QLinearLeakyRelu", domain=MICROSOFT_DOMAIN)
def _qlinear_leaky_relu(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Value:
    result = ctx.graph.leaky_relu(_dequantize_input(ctx, x, x_scale, x_zero), alpha)
    return _quantize_result(ctx, result, y_scale, y_zero, x)


@converts("QLinearSoftmax", domain=MICROSOFT_DOMAIN)
def _qlinear_softmax(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """Convert a quantised softmax; before opset 13, all axes from `axis` on are
    normalised together.
    """
    g = ctx.graph
    x_f32 = _dequantize_input(ctx, x, x_scale, x_zero)
    first_axis = normalize_axis(axis, x.rank)
    if opset < 13:
        rows = g.reshape(x_f32, (*x.shape[:first_axis], prod(x.shape[first_axis:])))
        result = g.reshape(g.softmax(rows), x.shape)
    else:
        result = g.softmax(x_f32, first_axis)
    return _quantize_result(ctx, result, y_scale, y_zero, x)


@converts("QLinearGlobalAveragePool", domain=MICROSOFT_DOMAIN)
def _qlinear_global_average_pool(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    channels_last: int = 0,
) -> Value:
    axes = range(1, x.rank - 1) if channels_last else range(2, x.rank)
    result = ctx.graph.mean(
        _dequantize_input(ctx, x, x_scale, x_zero), axes, keep_dim=True
    )
    return _quantize_result(ctx, result, y_scale, y_zero, x)


class _QLinearPoolAttrs(PoolAttributes, total=False):
    """Attributes of QLinearAveragePool."""

    channels_last: int
    count_include_pad: int


@converts("QLinearAveragePool", domain=MICROSOFT_DOMAIN)
def _qlinear_average_pool(
    ctx: ConversionContext,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    **pool_attrs: Unpack[_QLinearPoolAttrs],
) -> Value:
    is_channels_last = bool(pool_attrs.pop("channels_last", 0))
    count_padding = bool(pool_attrs.pop("count_include_pad", 0))
    g, x_f32 = ctx.graph, _dequantize_input(ctx, x, x_scale, x_zero)
    x_f32 = g.moveaxis(x_f32, -1, 1) if is_channels_last else x_f32
    result = build_average_pool(ctx, x_f32, count_padding, pool_attrs)
    result = g.moveaxis(result, 1, -1) if is_channels_last else result
    return _quantize_result(ctx, result, y_scale, y_zero, x)


@converts("QLinearConcat", domain=MICROSOFT_DOMAIN)
def _qlinear_concat(
    ctx: ConversionContext, y_scale: Tensor, y_zero: Tensor, *triples: Tensor, axis: int
) -> Value:
    if len(triples) % 3 or not triples:
        ctx.raise_invalid_model(
            f"got {len(triples)} inputs after the scale and zero point of the result",
            "expected 3 for each tensor to concatenate: the tensor, its scale and its "
            "zero point",
        )
    groups = [triples[start : start + 3] for start in range(0, len(triples), 3)]
    float_inputs = [
        _dequantize_input(ctx, x, scale, zero_point) for x, scale, zero_point in groups
    ]
    result = ctx.graph.concat(float_inputs, normalize_axis(axis, float_inputs[0].rank))
    return _quantize_result(ctx, result, y_scale, y_zero, triples[0])


@converts("QLinearWhere", domain=MICROSOFT_DOMAIN)
def _qlinear_where(
    ctx: ConversionContext,
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Value,
    z_scale: Tensor,
    z_zero: Tensor,
) -> Value:
    x_f32 = _dequantize_input(ctx, x, x_scale, x_zero)
    y_f32 = _dequantize_input(ctx, y, y_scale, y_zero)
    result = ctx.graph.where(condition, x_f32, y_f32)
    return _quantize_result(ctx, result, z_scale, z_zero, x)


# --- products -----------------------------------------------------------------------


@converts("MatMulIntegerToFloat", domain=MICROSOFT_DOMAIN)
def _matmul_integer_to_float(
    ctx: ConversionContext,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Value = None,
    b_zero: Value = None,
    bias: Tensor | None = None,
) -> Tensor:
    total = integer_matmul(ctx, a, b, (a_zero, b_zero)).cast("f32")
    result = (
        total * (broadcastable_scales(a_scale) * broadcastable_scales(b_scale))
    ).cast(a_scale.dtype)
    return result if bias is None else result + bias


@converts("DynamicQuantizeMatMul", domain=MICROSOFT_DOMAIN)
def _dynamic_quantize_matmul(
    ctx: ConversionContext,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Value = None,
    bias: Tensor | None = None,
) -> Tensor:
    quantized_a, scale, zero_point = ctx.graph.dynamic_quantize_linear(a)
    total = integer_matmul(ctx, quantized_a, b, (zero_point, b_zero)).cast("f32")
    result = total * (scale * broadcastable_scales(b_scale))
    return result if bias is None else result + bias


@converts("QGemm", domain=MICROSOFT_DOMAIN)
def _qgemm(
    ctx: ConversionContext,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Value,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Value,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # its names
    transB: int = 0,
) -> Value:
    g = ctx.graph
    a, b = (g.swapaxes(x, 0, 1) if t else x for x, t in ((a, transA), (b, transB)))
    total = integer_matmul(ctx, a, b, (a_zero, b_zero))
    product_scale = broadcastable_scales(a_scale) * broadcastable_scales(b_scale)
    product_scale = product_scale * alpha if alpha != 1.0 else product_scale
    if c is not None:
        total = total + c
    if y_scale is None:
        result: Tensor = total.cast("f32") * product_scale
        return result
    return requantize(
        ctx, total, product_scale / broadcastable_scales(y_scale), y_zero, a.dtype.numpy
    )


@converts("QAttention", domain=MICROSOFT_DOMAIN)
def _qattention(
    ctx: ConversionContext,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Value = None,
    w_zero: Value = None,
    past: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    require_zero(
        ctx, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer
    )
    total = integer_matmul(ctx, x, weights, (x_zero, w_zero)).cast("f32")
    qkv = total * (broadcastable_scales(x_scale) * broadcastable_scales(w_scale)) + bias
    size = qkv.shape[2] // 3
    options: dict[str, Any] = {
        "num_heads": num_heads,
        "scale": scale,
        "causal": bool(unidirectional),
        "closed": mask_filter_value,
    }
    return attend_packed_qkv(ctx, qkv, (size,) * 3, (mask, past, None), **options)


# --- recurrences, embeddings --------------------------------------------------------


@converts("DynamicQuantizeLSTM", domain=MICROSOFT_DOMAIN)
def _dynamic_quantize_lstm(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    peepholes: Tensor | None = None,
    w_scale: Tensor | None = None,
    w_zero: Value = None,
    r_scale: Tensor | None = None,
    r_zero: Value = None,
    *,
    input_forget: int = 0,
    **cell: Unpack[RecurrentAttributes],
) -> tuple[Tensor, ...]:
    """Convert an LSTM of quantised weights, which are stored by columns: [directions,
    inputs, 4 hidden].

    The inputs are quantised as a whole. So is the state of every step, each row by its
    own range: ONNX Runtime shares rows out among threads, as many as it has, and
    quantises each share as a whole.
    """
    if w_scale is None or r_scale is None:
        missing = "W_scale" if w_scale is None else "R_scale"
        ctx.raise_invalid_model(
            f"input {missing} is missing", "W_scale and R_scale are required"
        )
    input_weights = _dequantize_gates(ctx, w, w_scale, w_zero)
    recurrent_weights = _dequantize_gates(ctx, r, r_scale, r_zero)
    quantized_x, scale, zero_point = ctx.graph.dynamic_quantize_linear(x)
    rounded_x = dequantize(ctx, quantized_x, scale, zero_point)
    operands = (rounded_x, input_weights, recurrent_weights)
    optional_inputs = (b, lengths, h0, c0, peepholes)
    return build_lstm(
        ctx, operands, optional_inputs, bool(input_forget), cell, quantized=True
    )


def _dequantize_gates(
    ctx: ConversionContext, w: Tensor, scale: Tensor, zero_point: Value
) -> Tensor:
    """Dequantise gate weights [D, inputs, 4H] to floats [D, 4H, inputs]; scales are [D]
    or [D, 4H].
    """
    g, scale_shape = ctx.graph, (*scale.shape, 1, 1)[:2]
    scale_shape = (scale_shape[0], 1, scale_shape[1])
    zero_tensor = None if zero_point is None else as_integer_tensor(ctx, zero_point)
    if zero_tensor is None:
        zero_tensor = g.constant(np.zeros(scale.shape, w.dtype.numpy))
    scale_array, zero_array = g.known_array(scale), g.known_array(zero_tensor)
    if scale_array is not None and zero_array is not None:
        scale_array, zero_array = (
            values.reshape(scale_shape) for values in (scale_array, zero_array)
        )

        def dequantize_array(array: Array) -> Array:
            centered = array.astype(np.int32) - zero_array.astype(np.int32)
            floats = centered.astype(np.float32) * scale_array
            return np.ascontiguousarray(floats.swapaxes(1, 2))

        D, inputs, columns = w.shape
        key = ("gates", array_digest(scale_array), array_digest(zero_array))
        weights = g.derive_weight(
            w, key, DType.F32, dequantize_array, (D, columns, inputs)
        )
        if weights is not None:
            return weights
    centered = w.cast("i32") - zero_tensor.reshape(scale_shape).cast("i32")
    result: Tensor = g.swapaxes(centered.cast("f32") * scale.reshape(scale_shape), 1, 2)
    return result


@converts("QEmbedLayerNormalization", domain=MICROSOFT_DOMAIN)
def _qembed_layer_norm(
    ctx: ConversionContext,
    token_ids: Tensor,
    segments: Tensor | None,
    token_table: Tensor,
    position_table: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    *quantization_params: Tensor,
    epsilon: float = 1e-12,
) -> tuple[Tensor, ...]:
    """Convert the layer norm of quantised embeddings; `quantization_params` are five
    scales, then five zero points, of the tables and the norm's parameters.
    """
    tables = (token_table, position_table, segment_table, gamma, beta)
    float_tables = [
        None if table is None else _dequantize_input(ctx, table, scale, zero_point)
        for table, scale, zero_point in zip(
            tables, quantization_params[:5], quantization_params[5:10], strict=True
        )
    ]
    float_converter = find_converter("EmbedLayerNormalization", MICROSOFT_DOMAIN, 1)
    assert float_converter is not None
    result: tuple[Tensor, ...] = float_converter.convert(
        ctx, token_ids, segments, *float_tables, mask, epsilon=epsilon
    )
    return result
