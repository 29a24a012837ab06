"""Quantised ops of com.microsoft: what ONNX Runtime's quantiser puts into a file.

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
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converter_of, converts
from rlxweb.onnx.microsoft import DOMAIN
from rlxweb.onnx.microsoft_attention import attended
from rlxweb.onnx.quantized import (
    dequantized,
    integers,
    multiplied,
    quantized,
    requantized,
    scales_of,
    single,
    told,
    zero_of,
)
from rlxweb.onnx.recurrent import Cell, network_of
from rlxweb.onnx.windows import Pooled, pooled_mean

Array = npt.NDArray[Any]


def _floats(call: Call, x: Tensor, scale: Tensor, zero: Value, axis: int = 0) -> Tensor:
    """The numbers that integers stand for, f32."""
    by = scales_of(scale, scale.shape)
    return dequantized(call, x, by, zero_of(call, zero, by, x.dtype), axis=axis)


def _again(call: Call, x: Tensor, scale: Tensor, zero: Value, like: Tensor) -> Value:
    """Numbers quantised with one scale; without a zero point to the type of `like`."""
    by = single(call, scale)
    return quantized(call, x, by, zero, like.dtype.numpy)


_OF_TWO = {"QLinearAdd": "add", "QLinearMul": "mul"}


@converts(*_OF_TWO, domain=DOMAIN)
def _of_two(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Value,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Value,
    c_scale: Tensor,
    c_zero: Tensor | None = None,
) -> Value:
    x, y = _floats(call, a, a_scale, a_zero), _floats(call, b, b_scale, b_zero)
    made = call.g.apply(_OF_TWO[call.node.op], x, y)
    return _again(call, made, c_scale, c_zero, a)


@converts("QLinearSigmoid", domain=DOMAIN)
def _sigmoid(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Value:
    made = call.g.sigmoid(_floats(call, x, x_scale, x_zero))
    return _again(call, made, y_scale, y_zero, x)


@converts("QLinearLeakyRelu", domain=DOMAIN)
def _leaky_relu(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Value:
    made = call.g.leaky_relu(_floats(call, x, x_scale, x_zero), alpha)
    return _again(call, made, y_scale, y_zero, x)


@converts("QLinearSoftmax", domain=DOMAIN)
def _softmax(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """Before opset 13 all axes from one on are one line."""
    g, wide, at = call.g, _floats(call, x, x_scale, x_zero), normal_axis(axis, x.rank)
    if opset < 13:
        rows = g.reshape(wide, (*x.shape[:at], prod(x.shape[at:])))
        made = g.reshape(g.softmax(rows), x.shape)
    else:
        made = g.softmax(wide, at)
    return _again(call, made, y_scale, y_zero, x)


@converts("QLinearGlobalAveragePool", domain=DOMAIN)
def _global_average(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    channels_last: int = 0,
) -> Value:
    axes = range(1, x.rank - 1) if channels_last else range(2, x.rank)
    made = call.g.mean(_floats(call, x, x_scale, x_zero), axes, keep_dim=True)
    return _again(call, made, y_scale, y_zero, x)


class _Averaged(Pooled, total=False):
    channels_last: int
    count_include_pad: int


@converts("QLinearAveragePool", domain=DOMAIN)
def _average(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Value,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    **given: Unpack[_Averaged],
) -> Value:
    is_last = bool(given.pop("channels_last", 0))
    padding = bool(given.pop("count_include_pad", 0))
    g, wide = call.g, _floats(call, x, x_scale, x_zero)
    wide = g.moveaxis(wide, -1, 1) if is_last else wide
    made = pooled_mean(call, wide, padding, given)
    made = g.moveaxis(made, 1, -1) if is_last else made
    return _again(call, made, y_scale, y_zero, x)


@converts("QLinearConcat", domain=DOMAIN)
def _concat(
    call: Call, y_scale: Tensor, y_zero: Tensor, *triples: Tensor, axis: int
) -> Value:
    if len(triples) % 3 or not triples:
        call.contradict(f"{len(triples)} inputs after the first two", "threes")
    each = [triples[at : at + 3] for at in range(0, len(triples), 3)]
    wide = [_floats(call, x, scale, zero) for x, scale, zero in each]
    made = call.g.concat(wide, normal_axis(axis, wide[0].rank))
    return _again(call, made, y_scale, y_zero, triples[0])


@converts("QLinearWhere", domain=DOMAIN)
def _where(
    call: Call,
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
    first, second = _floats(call, x, x_scale, x_zero), _floats(call, y, y_scale, y_zero)
    made = call.g.where(condition, first, second)
    return _again(call, made, z_scale, z_zero, x)


# --- products -----------------------------------------------------------------------


@converts("MatMulIntegerToFloat", domain=DOMAIN)
def _to_float(
    call: Call,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Value = None,
    b_zero: Value = None,
    bias: Tensor | None = None,
) -> Tensor:
    total = multiplied(call, a, b, (a_zero, b_zero)).cast("f32")
    made = (total * (scales_of(a_scale) * scales_of(b_scale))).cast(a_scale.dtype)
    return made if bias is None else made + bias


@converts("DynamicQuantizeMatMul", domain=DOMAIN)
def _dynamic(
    call: Call,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Value = None,
    bias: Tensor | None = None,
) -> Tensor:
    small, scale, zero = call.g.dynamic_quantize_linear(a)
    total = multiplied(call, small, b, (zero, b_zero)).cast("f32")
    made = total * (scale * scales_of(b_scale))
    return made if bias is None else made + bias


@converts("QGemm", domain=DOMAIN)
def _gemm(
    call: Call,
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
    g = call.g
    a, b = (g.swapaxes(x, 0, 1) if t else x for x, t in ((a, transA), (b, transB)))
    total = multiplied(call, a, b, (a_zero, b_zero))
    by = scales_of(a_scale) * scales_of(b_scale)
    by = by * alpha if alpha != 1.0 else by
    if c is not None:
        total = total + c
    if y_scale is None:
        made: Tensor = total.cast("f32") * by
        return made
    return requantized(call, total, by / scales_of(y_scale), y_zero, a.dtype.numpy)


@converts("QAttention", domain=DOMAIN)
def _attention(
    call: Call,
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
    if do_rotary or past_present_share_buffer:
        call.refuse("rotary embedding or a shared buffer within it", "both are 0")
    total = multiplied(call, x, weights, (x_zero, w_zero)).cast("f32")
    made = total * (scales_of(x_scale) * scales_of(w_scale)) + bias
    size = made.shape[2] // 3
    how: dict[str, Any] = {
        "num_heads": num_heads,
        "scale": scale,
        "causal": bool(unidirectional),
        "closed": mask_filter_value,
    }
    return attended(call, made, (size,) * 3, (mask, past, None), **how)


# --- recurrences, embeddings --------------------------------------------------------


@converts("DynamicQuantizeLSTM", domain=DOMAIN)
def _lstm(
    call: Call,
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
    **cell: Unpack[Cell],
) -> tuple[Tensor, ...]:
    """Its weights stand by columns: [directions, inputs, 4 hidden].

    The inputs are quantised as a whole. So is the state of every step, each row by its
    own range: ONNX Runtime shares rows out among threads, as many as it has, and
    quantises each share as a whole.
    """
    if w_scale is None or r_scale is None:
        call.contradict("a scale of its weights is left out", "W_scale and R_scale")
    first = _of_gates(call, w, w_scale, w_zero)
    second = _of_gates(call, r, r_scale, r_zero)
    small, scale, zero = call.g.dynamic_quantize_linear(x)
    near = dequantized(call, small, scale, zero)
    given, more = (near, first, second), (b, lengths, h0, c0, peepholes)
    return network_of(call, given, more, bool(input_forget), cell, quantized=True)


def _of_gates(call: Call, w: Tensor, scale: Tensor, zero: Value) -> Tensor:
    """Weights [D, inputs, 4H] as floats [D, 4H, inputs]; scales [D] or [D, 4H]."""
    g, beside = call.g, (*scale.shape, 1, 1)[:2]
    beside = (beside[0], 1, beside[1])
    at = None if zero is None else integers(call, zero)
    if at is None:
        at = g.constant(np.zeros(scale.shape, w.dtype.numpy))
    steps, zeros = g.known(scale), g.known(at)
    if steps is not None and zeros is not None:
        steps, zeros = (one.reshape(beside) for one in (steps, zeros))

        def numbers(array: Array) -> Array:
            whole = array.astype(np.int32) - zeros.astype(np.int32)
            wide = whole.astype(np.float32) * steps
            return np.ascontiguousarray(wide.swapaxes(1, 2))

        D, inputs, columns = w.shape
        key = ("gates", told(steps), told(zeros))
        found = g.derived(w, key, DType.F32, numbers, (D, columns, inputs))
        if found is not None:
            return found
    whole = w.cast("i32") - at.reshape(beside).cast("i32")
    made: Tensor = g.swapaxes(whole.cast("f32") * scale.reshape(beside), 1, 2)
    return made


@converts("QEmbedLayerNormalization", domain=DOMAIN)
def _embedded(
    call: Call,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    kinds: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    *more: Tensor,
    epsilon: float = 1e-12,
) -> tuple[Tensor, ...]:
    """Five scales, then five zero points, of tables and of the norm."""
    tables = (words, places, kinds, gamma, beta)
    wide = [
        None if table is None else _floats(call, table, scale, zero)
        for table, scale, zero in zip(tables, more[:5], more[5:10], strict=True)
    ]
    own = converter_of("EmbedLayerNormalization", DOMAIN, 1)
    assert own is not None
    made: tuple[Tensor, ...] = own.convert(
        call, ids, segments, *wide, mask, epsilon=epsilon
    )
    return made
