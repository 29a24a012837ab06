"""Fused operators of com.microsoft that ONNX Runtime's optimisers write into files.

Norms with the sum before them, products with transposes and activations, GELU in its
forms. Attention is in `microsoft_attention.py`, the quantiser's operators are in
`microsoft_quantized.py`. Outputs for training and options of GPU kernels are refused.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Registered, converter_of, converts
from rlxweb.onnx.windows import Weighted

DOMAIN = "com.microsoft"
_ACTIVATIONS = {
    "Relu": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "LeakyRelu": "leaky_relu",
    "HardSigmoid": "hard_sigmoid",
}


@converts("Gelu", domain=DOMAIN)
def _gelu(call: Call, x: Tensor) -> Tensor:
    return call.g.gelu(x)


@converts("QuickGelu", domain=DOMAIN)
def _quick_gelu(call: Call, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return call.g.apply("swish", x, alpha=alpha)


@converts("FastGelu", domain=DOMAIN)
def _fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return call.g.apply("gelu_approx", x if bias is None else x + bias)


@converts("BiasGelu", domain=DOMAIN)
def _bias_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    return call.g.gelu(x + bias)


# --- norms --------------------------------------------------------------------------


def _skip_sum(call: Call, x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    """Return the operand of the norm; outputs 1 and 2 are refused."""
    for at in (1, 2):
        if call.wants(at):
            call.refuse(f"output {at} is used", "only training needs it")
    return x + skip if bias is None else x + bias + skip


@converts("SkipLayerNormalization", domain=DOMAIN)
def _skip_layer_norm(
    call: Call,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor | None, ...]:
    total = _skip_sum(call, x, skip, bias)
    return call.g.layer_norm(total, gamma, beta, -1, epsilon), None, None, total


@converts("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _skip_simplified(
    call: Call,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor | None, ...]:
    total = _skip_sum(call, x, skip, bias)
    return call.g.rms_norm(total, gamma, None, -1, epsilon), None, None, total


@converts("EmbedLayerNormalization", domain=DOMAIN)
def _embed_layer_norm(
    call: Call,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    kinds: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, ...]:
    g, (rows, length) = call.g, ids.shape
    total = g.gather(words, ids)
    if position_ids is None:
        total = total + g.narrow(places, 0, 0, length)
    else:
        total = total + g.gather(places, position_ids)
    if kinds is not None and segments is not None:
        total = total + g.gather(kinds, segments)
    made = g.layer_norm(total, gamma, beta, -1, epsilon)
    if mask is None:
        counts = g.constant(np.zeros(rows, np.int32))
    else:
        counts = g.sum(g.cast(g.ne(mask, 0), DType.I32), 1)
    return made, counts, total


# --- products -----------------------------------------------------------------------


@converts("FusedMatMul", domain=DOMAIN)
def _fused_matmul(
    call: Call,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # its names
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    if transBatchA or transBatchB:
        call.refuse("a batch axis is exchanged with a row's", "transBatchA and B are 0")
    a = call.g.swapaxes(a, -1, -2) if transA and a.rank > 1 else a
    b = call.g.swapaxes(b, -1, -2) if transB and b.rank > 1 else b
    made: Tensor = _standard("MatMul").convert(call, a, b)
    return made * alpha if alpha != 1.0 else made


def _standard(op: str) -> Registered:
    """Return the converter of an operator of ONNX's own domain."""
    found = converter_of(op, "", 13)
    if found is None:
        raise AssertionError(op)
    return found


def _activated(
    call: Call, x: Tensor, name: str, constants: tuple[float, ...]
) -> Tensor:
    """Apply the activation that is fused behind a product, if it has a name."""
    if not name:
        return x
    g = call.g
    if name == "Clip":
        low, high = constants
        return g.minimum(g.maximum(x, low), high)
    if name not in _ACTIVATIONS:
        call.refuse(f"activation {name!r}", "known: Clip, " + ", ".join(_ACTIVATIONS))
    named = dict(zip(("alpha", "beta"), constants, strict=False))
    known = {"leaky_relu": ("alpha",), "hard_sigmoid": ("alpha", "beta")}
    own = known.get(_ACTIVATIONS[name], ())
    how: dict[str, Any] = {n: named[n] for n in own if n in named}
    return g.apply(_ACTIVATIONS[name], x, **how)


@converts("FusedGemm", domain=DOMAIN)
def _fused_gemm(
    call: Call,
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
    how = {"alpha": alpha, "beta": beta, "transA": transA, "transB": transB}
    made = _standard("Gemm").convert(call, a, b, c, **how)
    given = [v for v in (activation_alpha, activation_beta) if v is not None]
    return _activated(call, made, activation, tuple(given))


@converts("FusedConv", domain=DOMAIN)
def _fused_conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    more: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **given: Unpack[Weighted],
) -> Tensor:
    made = _standard("Conv").convert(call, x, w, bias, **given)
    made = made if more is None else made + more
    return _activated(call, made, activation, activation_params)
