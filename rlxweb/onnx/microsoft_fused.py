"""Converters of fused com.microsoft operators that ONNX Runtime's optimisers write into
files.

Norms with the sum before them, products with transposes and activations, GELU in its
forms. Attention is in `microsoft_attention.py`, the quantiser's operators are in
`microsoft_quantized.py`. Outputs for training and options of GPU kernels are refused.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.conv_pool import ConvAttributes
from rlxweb.onnx.converter_registry import (
    ConversionContext,
    RegisteredConverter,
    converts,
    find_converter,
)

MICROSOFT_DOMAIN = "com.microsoft"
_ACTIVATIONS = {
    "Relu": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "LeakyRelu": "leaky_relu",
    "HardSigmoid": "hard_sigmoid",
}


@converts("Gelu", domain=MICROSOFT_DOMAIN)
def _gelu(ctx: ConversionContext, x: Tensor) -> Tensor:
    return ctx.graph.gelu(x)


@converts("QuickGelu", domain=MICROSOFT_DOMAIN)
def _quick_gelu(ctx: ConversionContext, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return ctx.graph.apply("swish", x, alpha=alpha)


@converts("FastGelu", domain=MICROSOFT_DOMAIN)
def _fast_gelu(ctx: ConversionContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return ctx.graph.apply("gelu_approx", x if bias is None else x + bias)


@converts("BiasGelu", domain=MICROSOFT_DOMAIN)
def _bias_gelu(ctx: ConversionContext, x: Tensor, bias: Tensor) -> Tensor:
    return ctx.graph.gelu(x + bias)


# --- norms --------------------------------------------------------------------------


def _skip_sum(
    ctx: ConversionContext, x: Tensor, skip: Tensor, bias: Tensor | None
) -> Tensor:
    """Return the operand of the norm; raise Unsupported if output 1 or 2 is used."""
    for index in (1, 2):
        if ctx.needs_output(index):
            ctx.raise_unsupported(
                f"output {index} is used",
                f"output {index} is for training, which is not supported",
            )
    return x + skip if bias is None else x + bias + skip


@converts("SkipLayerNormalization", domain=MICROSOFT_DOMAIN)
def _skip_layer_norm(
    ctx: ConversionContext,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor | None, ...]:
    total = _skip_sum(ctx, x, skip, bias)
    return ctx.graph.layer_norm(total, gamma, beta, -1, epsilon), None, None, total


@converts("SkipSimplifiedLayerNormalization", domain=MICROSOFT_DOMAIN)
def _skip_simplified_layer_norm(
    ctx: ConversionContext,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor | None, ...]:
    total = _skip_sum(ctx, x, skip, bias)
    return ctx.graph.rms_norm(total, gamma, None, -1, epsilon), None, None, total


@converts("EmbedLayerNormalization", domain=MICROSOFT_DOMAIN)
def _embed_layer_norm(
    ctx: ConversionContext,
    token_ids: Tensor,
    segments: Tensor | None,
    token_table: Tensor,
    position_table: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, ...]:
    g, (rows, length) = ctx.graph, token_ids.shape
    total = g.gather(token_table, token_ids)
    if position_ids is None:
        total = total + g.narrow(position_table, 0, 0, length)
    else:
        total = total + g.gather(position_table, position_ids)
    if segment_table is not None and segments is not None:
        total = total + g.gather(segment_table, segments)
    normalized = g.layer_norm(total, gamma, beta, -1, epsilon)
    if mask is None:
        counts = g.constant(np.zeros(rows, np.int32))
    else:
        counts = g.sum(g.cast(g.ne(mask, 0), DType.I32), 1)
    return normalized, counts, total


# --- products -----------------------------------------------------------------------


@converts("FusedMatMul", domain=MICROSOFT_DOMAIN)
def _fused_matmul(
    ctx: ConversionContext,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # its names
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    require_zero(ctx, transBatchA=transBatchA, transBatchB=transBatchB)
    a = ctx.graph.swapaxes(a, -1, -2) if transA and a.rank > 1 else a
    b = ctx.graph.swapaxes(b, -1, -2) if transB and b.rank > 1 else b
    product: Tensor = _standard_converter("MatMul").convert(ctx, a, b)
    return product * alpha if alpha != 1.0 else product


def require_zero(ctx: ConversionContext, **attrs: int) -> None:
    """Raise Unsupported for an attribute that is not 0."""
    for name, value in attrs.items():
        if value:
            ctx.raise_unsupported(f"{name} is {value}", "must be 0")


def _standard_converter(op: str) -> RegisteredConverter:
    """Return the converter of an operator of ONNX's own domain."""
    converter = find_converter(op, "", 13)
    if converter is None:
        raise AssertionError(op)
    return converter


def _apply_activation(
    ctx: ConversionContext, x: Tensor, name: str, constants: tuple[float, ...]
) -> Tensor:
    """Apply the activation that is fused into a product, if there is one."""
    if not name:
        return x
    g = ctx.graph
    if name == "Clip":
        low, high = constants
        return g.minimum(g.maximum(x, low), high)
    if name not in _ACTIVATIONS:
        ctx.raise_unsupported(
            f"activation {name!r} is not supported",
            "supported: Clip, " + ", ".join(_ACTIVATIONS),
        )
    constants_by_name = dict(zip(("alpha", "beta"), constants, strict=False))
    names_by_op = {"leaky_relu": ("alpha",), "hard_sigmoid": ("alpha", "beta")}
    constant_names = names_by_op.get(_ACTIVATIONS[name], ())
    attrs: dict[str, Any] = {
        n: constants_by_name[n] for n in constant_names if n in constants_by_name
    }
    return g.apply(_ACTIVATIONS[name], x, **attrs)


@converts("FusedGemm", domain=MICROSOFT_DOMAIN)
def _fused_gemm(
    ctx: ConversionContext,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    gemm_attrs = {"alpha": alpha, "beta": beta, "transA": transA, "transB": transB}
    product = _standard_converter("Gemm").convert(ctx, a, b, c, **gemm_attrs)
    constants = [v for v in (activation_alpha, activation_beta) if v is not None]
    return _apply_activation(ctx, product, activation, tuple(constants))


@converts("FusedConv", domain=MICROSOFT_DOMAIN)
def _fused_conv(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **conv_attrs: Unpack[ConvAttributes],
) -> Tensor:
    result = _standard_converter("Conv").convert(ctx, x, w, bias, **conv_attrs)
    result = result if addend is None else result + addend
    return _apply_activation(ctx, result, activation, activation_params)
