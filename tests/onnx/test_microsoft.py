"""Ops of com.microsoft as ONNX Runtime computes them on its CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import ModelError, Unsupported
from tests.onnx.made import model, node, value
from tests.onnx.test_saving import runtime

RNG = np.random.default_rng(5)
DOMAIN = "com.microsoft"
NUMBERS = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}

WHOLE = {"EmbedLayerNormalization": ("y1",)}
"""Outputs that are integers."""


def real(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def whole(*values: Any, dtype: Any = np.int32) -> Any:
    return np.array(values if len(values) != 1 else values[0], dtype)


def made(
    op: str, fed: Mapping[str, Any], outputs: int, domain: str, **attrs: Any
) -> Any:
    """A model of one node; inputs of None are left out, outputs None not asked for."""
    inputs = [
        value(name, a.shape, NUMBERS[str(a.dtype)])
        for name, a in fed.items()
        if a is not None
    ]
    names = [name if a is not None else "" for name, a in fed.items()]
    out = [f"y{i}" for i in range(outputs)]
    one = node(op, names, out, domain=domain, **attrs)
    results = [value(name, None, 6 if name in WHOLE.get(op, ()) else 1) for name in out]
    return model([one], inputs, results, opsets={"": 17, DOMAIN: 1})


B, S, N, D = 2, 5, 4, 8
TABLE = [
    fun(np.arange(16)[:, None] * 50.0 ** (-np.arange(8) / 8))
    for fun in (np.cos, np.sin)
]
COS, SIN = (one.astype(np.float32) for one in TABLE)
SHORT = (COS[:, :4].copy(), SIN[:, :4].copy())
X, SKIP = real(RNG, B, S, N * D), real(RNG, B, S, N * D)
ROW = [real(RNG, N * D) for _ in range(3)]
QKV = [real(RNG, B, S, N * D) for _ in range(3)]
PAST = [real(RNG, B, N, 3, D) for _ in range(2)]


def named(*arrays: Any) -> dict[str, Any]:
    return {f"x{i}": a for i, a in enumerate(arrays)}


def gqa(
    rng: np.random.Generator,
    S: int,
    past: int,
    totals: Any,
    room: int = 0,
    packed: bool = False,
    **attrs: Any,
) -> Any:
    """Four heads of queries, two of keys, each of 16."""
    rows = len(totals)
    q, *kv = (real(rng, rows, S, heads * 16) for heads in (4, 2, 2))
    if packed:
        q, kv = np.concatenate([q, *kv], 2), [None, None]
    old = [real(rng, rows, 2, room or past, 16) for _ in range(2)]
    lengths = np.array(totals, np.int32) - 1
    total = np.array(max(totals), np.int32)
    tables = (COS, SIN) if attrs.get("do_rotary") else ()
    how = {"num_heads": 4, "kv_num_heads": 2, **attrs}
    return "GroupQueryAttention", named(q, *kv, *old, lengths, total, *tables), 3, how


CASES: dict[str, Any] = {
    "gelu": ("Gelu", named(X), 1, {}),
    "quick gelu": ("QuickGelu", named(X), 1, {"alpha": 1.5}),
    "fast gelu": ("FastGelu", named(X), 1, {}),
    "fast gelu of a sum": ("FastGelu", named(X, ROW[0]), 1, {}),
    "bias gelu": ("BiasGelu", named(X, ROW[0]), 1, {}),
    "simplified norm": ("SimplifiedLayerNormalization", named(X, ROW[0]), 1, {}),
    "skip norm": ("SkipLayerNormalization", named(X, SKIP, *ROW[:2]), 1, {}),
    "skip norm, bias": ("SkipLayerNormalization", named(X, SKIP, *ROW), 1, {}),
    "skip simplified norm": (
        "SkipSimplifiedLayerNormalization",
        named(X, SKIP, *ROW[:2]),
        1,
        {"epsilon": 1e-3},
    ),
    # Without an epsilon it is small: of small rows it would be most of the norm.
    "skip norm of small rows": (
        "SkipLayerNormalization",
        named(1e-3 * X, 1e-3 * SKIP, ROW[0]),
        1,
        {},
    ),
    "skip simplified norm of small rows": (
        "SkipSimplifiedLayerNormalization",
        named(1e-3 * X, 1e-3 * SKIP, ROW[0]),
        1,
        {},
    ),
    "fused matmul": (
        "FusedMatMul",
        named(real(RNG, 2, 3, 4), real(RNG, 2, 5, 3)),
        1,
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "fused gemm": (
        "FusedGemm",
        named(real(RNG, 3, 4), real(RNG, 4, 5), real(RNG, 5)),
        1,
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "alpha": 0.5},
    ),
    "fused conv": (
        "FusedConv",
        named(
            real(RNG, 1, 2, 7, 7),
            real(RNG, 3, 2, 3, 3),
            real(RNG, 3),
            real(RNG, 1, 3, 7, 7),
        ),
        1,
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
    ),
    "embeddings": (
        "EmbedLayerNormalization",
        named(
            *(whole([[1, 3, 2], [4, 0, 0]]), whole([[0, 0, 1], [0, 1, 1]])),
            *(
                real(RNG, 5, 8),
                real(RNG, 4, 8),
                real(RNG, 2, 8),
                real(RNG, 8),
                real(RNG, 8),
            ),
            whole([[1, 1, 1], [1, 0, 0]]),
        ),
        2,
        {"epsilon": 1e-5},
    ),
    "embeddings without kinds": (
        "EmbedLayerNormalization",
        named(
            *(
                whole([[1, 3, 2], [4, 0, 0]]),
                None,
                real(RNG, 5, 8),
                real(RNG, 4, 8),
                None,
            ),
            *(real(RNG, 8), real(RNG, 8), whole([[1, 1, 1], [1, 0, 0]])),
        ),
        2,
        {},
    ),
    "rotary": (
        "RotaryEmbedding",
        named(X, whole(np.arange(10).reshape(2, 5) % 7, dtype=np.int64), *SHORT),
        1,
        {},
    ),
    "rotary from a place on": (
        "RotaryEmbedding",
        named(real(RNG, B, N, S, D), whole([3], dtype=np.int64), *SHORT),
        1,
        {"interleaved": 1},
    ),
    "attention": (
        "Attention",
        named(
            X, real(RNG, N * D, 96), real(RNG, 96), whole([[1] * 5, [1, 1, 1, 0, 0]])
        ),
        1,
        {"num_heads": N},
    ),
    "attention, lengths, causal": (
        "Attention",
        named(X, real(RNG, N * D, 96), real(RNG, 96), whole([5, 3])),
        1,
        {"num_heads": N, "unidirectional": 1},
    ),
    "attention, ends and starts": (
        "Attention",
        named(X, real(RNG, N * D, 96), real(RNG, 96), whole([5, 4, 0, 2])),
        1,
        {"num_heads": N, "scale": 0.2},
    ),
    "attention with a past": (
        "Attention",
        named(X, real(RNG, N * D, 96), real(RNG, 96), None, np.stack(PAST)),
        2,
        {"num_heads": N, "unidirectional": 1},
    ),
    "attention, a mask for each place": (
        "Attention",
        named(
            X, real(RNG, N * D, 96), real(RNG, 96), whole(np.tri(5)[None].repeat(2, 0))
        ),
        1,
        {"num_heads": N},
    ),
    "attention, another size of values": (
        "Attention",
        named(X, real(RNG, N * D, 80), real(RNG, 80)),
        1,
        {"num_heads": N, "qkv_hidden_sizes": [32, 32, 16]},
    ),
    "heads": ("MultiHeadAttention", named(*QKV), 1, {"num_heads": N}),
    "heads, biases": (
        "MultiHeadAttention",
        named(
            *QKV,
            real(RNG, 96),
            whole([[1] * 5, [1, 1, 1, 1, 0]]),
            real(RNG, 1, N, S, S),
        ),
        1,
        {"num_heads": N, "scale": 0.3},
    ),
    "heads with a past": (
        "MultiHeadAttention",
        named(*QKV, None, None, None, *PAST),
        3,
        {"num_heads": N, "unidirectional": 1},
    ),
    "heads across": (
        "MultiHeadAttention",
        named(X, real(RNG, B, N, 6, D), real(RNG, B, N, 6, D)),
        1,
        {"num_heads": N},
    ),
    "groups": gqa(RNG, 5, 0, [5, 5]),
    "groups, turned": gqa(RNG, 5, 0, [5, 5], do_rotary=1),
    "groups, turned in pairs, packed": gqa(
        RNG, 5, 0, [5, 5], packed=True, do_rotary=1, rotary_interleaved=1
    ),
    "groups, a step": gqa(RNG, 1, 6, [7, 7], do_rotary=1, softcap=5.0, scale=0.4),
    "groups, steps of uneven rows": gqa(RNG, 1, 6, [7, 4], do_rotary=1),
    "groups, several steps": gqa(RNG, 3, 6, [9], do_rotary=1),
    "groups, a larger room": gqa(RNG, 1, 6, [5, 5], room=9),
    "groups, a window": gqa(RNG, 1, 6, [7, 7], local_window_size=3),
    "groups, a window at first": gqa(RNG, 5, 0, [5, 5], local_window_size=2),
}
OUR_OWN = {"SimplifiedLayerNormalization"}
"""ONNX Runtime has it among ONNX's own ops."""


ON_ADAPTERS = ("skip norm", "attention, ends and starts", "groups, turned")
GPU = pytest.mark.requires_wgpu


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, "cpu") for name in CASES]
    + [pytest.param(name, "vulkan", marks=GPU) for name in ON_ADAPTERS],
)
def test_as_onnx_runtime_does(name: str, device: str) -> None:
    op, fed, outputs, attrs = CASES[name]
    message = made(op, fed, outputs, "" if op in OUR_OWN else DOMAIN, **attrs)
    data = message.SerializeToString()
    given = {n: a for n, a in fed.items() if a is not None}
    want = runtime(data, given)
    got = rlx.onnx.load(data).run(given, device=device)
    for at, one in enumerate(want):
        assert got[f"y{at}"].shape == one.shape
        np.testing.assert_allclose(got[f"y{at}"], one, rtol=2e-4, atol=2e-5)


def test_packed_operands_are_those_apart() -> None:
    """ONNX Runtime's CPU has no packed ones: it is asked for them apart."""
    q, k, v = QKV
    fed = named(q, k, v)
    data = made("MultiHeadAttention", fed, 1, DOMAIN, num_heads=N).SerializeToString()
    (want,) = runtime(data, fed)
    apart = [x.reshape(B, S, N, D) for x in QKV]
    for given in (named(np.stack(apart, 3)), named(q, np.stack(apart[1:], 3))):
        packed = made("MultiHeadAttention", given, 1, DOMAIN, num_heads=N)
        got = rlx.onnx.load(packed.SerializeToString()).run(given, device="cpu")
        np.testing.assert_allclose(got["y0"], want, rtol=2e-4, atol=2e-5)


REFUSED: dict[str, Any] = {
    "only training needs it": (
        "SkipLayerNormalization",
        named(X, SKIP, *ROW[:2]),
        2,
        {},
    ),
    "a batch axis is exchanged": (
        "FusedMatMul",
        named(real(RNG, 2, 3, 4), real(RNG, 2, 4, 5)),
        1,
        {"transBatchA": 1},
    ),
    "activation 'Elu'": (
        "FusedGemm",
        named(real(RNG, 3, 4), real(RNG, 4, 5)),
        1,
        {"activation": "Elu"},
    ),
    "a mask [7]": (
        "Attention",
        named(X, real(RNG, N * D, 96), real(RNG, 96), whole([1] * 7)),
        1,
        {"num_heads": N},
    ),
    "for 5 heads": ("MultiHeadAttention", named(*QKV), 1, {"num_heads": 5}),
    "smooth_softmax=1": gqa(RNG, 5, 0, [5, 5], smooth_softmax=1),
    "9 keys of a row, 6 of them kept before": gqa(RNG, 1, 6, [9, 3]),
    "do_rotary without its tables": (
        *gqa(RNG, 1, 6, [7])[:3],
        {**gqa(RNG, 1, 6, [7])[3], "do_rotary": 1},
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_not_done_is_refused(says: str) -> None:
    op, fed, outputs, attrs = REFUSED[says]
    data = made(op, fed, outputs, DOMAIN, **attrs).SerializeToString()
    with pytest.raises((Unsupported, ModelError)) as caught:
        rlx.onnx.load(data).run(fed, device="cpu")
    assert says in str(caught.value)
