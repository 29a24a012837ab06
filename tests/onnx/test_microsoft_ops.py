"""Ops of com.microsoft agree with ONNX Runtime's results on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ModelError, Unsupported
from tests.float32_products import random_floats
from tests.onnx.model_factory import make_model, node, value_info
from tests.onnx.onnx_runtime import run_onnxruntime

RNG = np.random.default_rng(5)
DOMAIN = "com.microsoft"
ELEMENT_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}

INTEGER_OUTPUTS = {"EmbedLayerNormalization": ("y1",)}
"""Outputs that are integers, by op."""


def int_array(*values: Any, dtype: Any = np.int32) -> Any:
    return np.array(values if len(values) != 1 else values[0], dtype)


def single_op_model(
    op: str, feeds: Mapping[str, Any], outputs: int, domain: str, **attrs: Any
) -> Any:
    """Return a model of one node; inputs that are None are omitted."""
    inputs = [
        value_info(name, a.shape, ELEMENT_TYPES[str(a.dtype)])
        for name, a in feeds.items()
        if a is not None
    ]
    names = [name if a is not None else "" for name, a in feeds.items()]
    out = [f"y{i}" for i in range(outputs)]
    op_node = node(op, names, out, domain=domain, **attrs)
    results = [
        value_info(name, None, 6 if name in INTEGER_OUTPUTS.get(op, ()) else 1)
        for name in out
    ]
    return make_model([op_node], inputs, results, opsets={"": 17, DOMAIN: 1})


B, S, N, D = 2, 5, 4, 8
TABLE = [
    fun(np.arange(16)[:, None] * 50.0 ** (-np.arange(8) / 8))
    for fun in (np.cos, np.sin)
]
COS, SIN = (one.astype(np.float32) for one in TABLE)
SHORT_TABLES = (COS[:, :4].copy(), SIN[:, :4].copy())
X, SKIP = random_floats(RNG, B, S, N * D), random_floats(RNG, B, S, N * D)
ROW = [random_floats(RNG, N * D) for _ in range(3)]
QKV = [random_floats(RNG, B, S, N * D) for _ in range(3)]
PAST = [random_floats(RNG, B, N, 3, D) for _ in range(2)]


def named_inputs(*arrays: Any) -> dict[str, Any]:
    return {f"x{i}": a for i, a in enumerate(arrays)}


def grouped_query_attention(
    rng: np.random.Generator,
    S: int,
    past: int,
    totals: Any,
    capacity: int = 0,
    packed: bool = False,
    **attrs: Any,
) -> Any:
    """Return a case with four query heads and two key heads of size 16 each."""
    rows = len(totals)
    q, *kv = (random_floats(rng, rows, S, heads * 16) for heads in (4, 2, 2))
    if packed:
        q, kv = np.concatenate([q, *kv], 2), [None, None]
    past_arrays = [random_floats(rng, rows, 2, capacity or past, 16) for _ in range(2)]
    lengths = np.array(totals, np.int32) - 1
    total = np.array(max(totals), np.int32)
    tables = (COS, SIN) if attrs.get("do_rotary") else ()
    options = {"num_heads": 4, "kv_num_heads": 2, **attrs}
    return (
        "GroupQueryAttention",
        named_inputs(q, *kv, *past_arrays, lengths, total, *tables),
        3,
        options,
    )


CASES: dict[str, Any] = {
    "gelu": ("Gelu", named_inputs(X), 1, {}),
    "quick gelu": ("QuickGelu", named_inputs(X), 1, {"alpha": 1.5}),
    "fast gelu": ("FastGelu", named_inputs(X), 1, {}),
    "fast gelu of a sum": ("FastGelu", named_inputs(X, ROW[0]), 1, {}),
    "bias gelu": ("BiasGelu", named_inputs(X, ROW[0]), 1, {}),
    "simplified norm": ("SimplifiedLayerNormalization", named_inputs(X, ROW[0]), 1, {}),
    "skip norm": ("SkipLayerNormalization", named_inputs(X, SKIP, *ROW[:2]), 1, {}),
    "skip norm, bias": ("SkipLayerNormalization", named_inputs(X, SKIP, *ROW), 1, {}),
    "skip simplified norm": (
        "SkipSimplifiedLayerNormalization",
        named_inputs(X, SKIP, *ROW[:2]),
        1,
        {"epsilon": 1e-3},
    ),
    # Without an epsilon it is small: of small rows it would be most of the norm.
    "skip norm of small rows": (
        "SkipLayerNormalization",
        named_inputs(1e-3 * X, 1e-3 * SKIP, ROW[0]),
        1,
        {},
    ),
    "skip simplified norm of small rows": (
        "SkipSimplifiedLayerNormalization",
        named_inputs(1e-3 * X, 1e-3 * SKIP, ROW[0]),
        1,
        {},
    ),
    "fused matmul": (
        "FusedMatMul",
        named_inputs(random_floats(RNG, 2, 3, 4), random_floats(RNG, 2, 5, 3)),
        1,
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "fused gemm": (
        "FusedGemm",
        named_inputs(
            random_floats(RNG, 3, 4), random_floats(RNG, 4, 5), random_floats(RNG, 5)
        ),
        1,
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "alpha": 0.5},
    ),
    "fused conv": (
        "FusedConv",
        named_inputs(
            random_floats(RNG, 1, 2, 7, 7),
            random_floats(RNG, 3, 2, 3, 3),
            random_floats(RNG, 3),
            random_floats(RNG, 1, 3, 7, 7),
        ),
        1,
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
    ),
    "embeddings": (
        "EmbedLayerNormalization",
        named_inputs(
            *(int_array([[1, 3, 2], [4, 0, 0]]), int_array([[0, 0, 1], [0, 1, 1]])),
            *(
                random_floats(RNG, 5, 8),
                random_floats(RNG, 4, 8),
                random_floats(RNG, 2, 8),
                random_floats(RNG, 8),
                random_floats(RNG, 8),
            ),
            int_array([[1, 1, 1], [1, 0, 0]]),
        ),
        2,
        {"epsilon": 1e-5},
    ),
    "embeddings without kinds": (
        "EmbedLayerNormalization",
        named_inputs(
            *(
                int_array([[1, 3, 2], [4, 0, 0]]),
                None,
                random_floats(RNG, 5, 8),
                random_floats(RNG, 4, 8),
                None,
            ),
            *(
                random_floats(RNG, 8),
                random_floats(RNG, 8),
                int_array([[1, 1, 1], [1, 0, 0]]),
            ),
        ),
        2,
        {},
    ),
    "rotary": (
        "RotaryEmbedding",
        named_inputs(
            X, int_array(np.arange(10).reshape(2, 5) % 7, dtype=np.int64), *SHORT_TABLES
        ),
        1,
        {},
    ),
    "rotary from a place on": (
        "RotaryEmbedding",
        named_inputs(
            random_floats(RNG, B, N, S, D),
            int_array([3], dtype=np.int64),
            *SHORT_TABLES,
        ),
        1,
        {"interleaved": 1},
    ),
    "attention": (
        "Attention",
        named_inputs(
            X,
            random_floats(RNG, N * D, 96),
            random_floats(RNG, 96),
            int_array([[1] * 5, [1, 1, 1, 0, 0]]),
        ),
        1,
        {"num_heads": N},
    ),
    "attention, lengths, causal": (
        "Attention",
        named_inputs(
            X, random_floats(RNG, N * D, 96), random_floats(RNG, 96), int_array([5, 3])
        ),
        1,
        {"num_heads": N, "unidirectional": 1},
    ),
    "attention, ends and starts": (
        "Attention",
        named_inputs(
            X,
            random_floats(RNG, N * D, 96),
            random_floats(RNG, 96),
            int_array([5, 4, 0, 2]),
        ),
        1,
        {"num_heads": N, "scale": 0.2},
    ),
    "attention with a past": (
        "Attention",
        named_inputs(
            X,
            random_floats(RNG, N * D, 96),
            random_floats(RNG, 96),
            None,
            np.stack(PAST),
        ),
        2,
        {"num_heads": N, "unidirectional": 1},
    ),
    "attention, a mask for each place": (
        "Attention",
        named_inputs(
            X,
            random_floats(RNG, N * D, 96),
            random_floats(RNG, 96),
            int_array(np.tri(5)[None].repeat(2, 0)),
        ),
        1,
        {"num_heads": N},
    ),
    "attention, another size of values": (
        "Attention",
        named_inputs(X, random_floats(RNG, N * D, 80), random_floats(RNG, 80)),
        1,
        {"num_heads": N, "qkv_hidden_sizes": [32, 32, 16]},
    ),
    "heads": ("MultiHeadAttention", named_inputs(*QKV), 1, {"num_heads": N}),
    "heads, biases": (
        "MultiHeadAttention",
        named_inputs(
            *QKV,
            random_floats(RNG, 96),
            int_array([[1] * 5, [1, 1, 1, 1, 0]]),
            random_floats(RNG, 1, N, S, S),
        ),
        1,
        {"num_heads": N, "scale": 0.3},
    ),
    "heads with a past": (
        "MultiHeadAttention",
        named_inputs(*QKV, None, None, None, *PAST),
        3,
        {"num_heads": N, "unidirectional": 1},
    ),
    "heads across": (
        "MultiHeadAttention",
        named_inputs(X, random_floats(RNG, B, N, 6, D), random_floats(RNG, B, N, 6, D)),
        1,
        {"num_heads": N},
    ),
    "groups": grouped_query_attention(RNG, 5, 0, [5, 5]),
    "groups, turned": grouped_query_attention(RNG, 5, 0, [5, 5], do_rotary=1),
    "groups, turned in pairs, packed": grouped_query_attention(
        RNG, 5, 0, [5, 5], packed=True, do_rotary=1, rotary_interleaved=1
    ),
    "groups, a step": grouped_query_attention(
        RNG, 1, 6, [7, 7], do_rotary=1, softcap=5.0, scale=0.4
    ),
    "groups, steps of uneven rows": grouped_query_attention(
        RNG, 1, 6, [7, 4], do_rotary=1
    ),
    "groups, several steps": grouped_query_attention(RNG, 3, 6, [9], do_rotary=1),
    "groups, a larger room": grouped_query_attention(RNG, 1, 6, [5, 5], capacity=9),
    "groups, a window": grouped_query_attention(RNG, 1, 6, [7, 7], local_window_size=3),
    "groups, a window at first": grouped_query_attention(
        RNG, 5, 0, [5, 5], local_window_size=2
    ),
}
ONNX_DOMAIN_OPS = {"SimplifiedLayerNormalization"}
"""Ops that ONNX Runtime registers in ONNX's own domain."""


ON_ADAPTERS = ("skip norm", "attention, ends and starts", "groups, turned")
GPU = pytest.mark.requires_wgpu


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, "cpu") for name in CASES]
    + [pytest.param(name, "vulkan", marks=GPU) for name in ON_ADAPTERS],
)
def test_matches_onnx_runtime(name: str, device: str) -> None:
    op, feeds, outputs, attrs = CASES[name]
    message = single_op_model(
        op, feeds, outputs, "" if op in ONNX_DOMAIN_OPS else DOMAIN, **attrs
    )
    data = message.SerializeToString()
    given_feeds = {n: a for n, a in feeds.items() if a is not None}
    want = run_onnxruntime(data, given_feeds)
    got = rlx.onnx.load(data).run(given_feeds, device=device)
    for index, expected in enumerate(want):
        assert got[f"y{index}"].shape == expected.shape
        np.testing.assert_allclose(got[f"y{index}"], expected, rtol=2e-4, atol=2e-5)


def test_packed_operands_equal_separate_ones() -> None:
    """Packed operands give the result of separate ones, which ONNX Runtime's CPU
    supports alone.
    """
    q, k, v = QKV
    separate_feeds = named_inputs(q, k, v)
    data = single_op_model(
        "MultiHeadAttention", separate_feeds, 1, DOMAIN, num_heads=N
    ).SerializeToString()
    (want,) = run_onnxruntime(data, separate_feeds)
    split_heads = [x.reshape(B, S, N, D) for x in QKV]
    for packed_feeds in (
        named_inputs(np.stack(split_heads, 3)),
        named_inputs(q, np.stack(split_heads[1:], 3)),
    ):
        packed = single_op_model(
            "MultiHeadAttention", packed_feeds, 1, DOMAIN, num_heads=N
        )
        got = rlx.onnx.load(packed.SerializeToString()).run(packed_feeds, device="cpu")
        np.testing.assert_allclose(got["y0"], want, rtol=2e-4, atol=2e-5)


UNSUPPORTED: dict[str, Any] = {
    "output 1 is for training, which is not supported": (
        "SkipLayerNormalization",
        named_inputs(X, SKIP, *ROW[:2]),
        2,
        {},
    ),
    "transBatchA is 1; must be 0": (
        "FusedMatMul",
        named_inputs(random_floats(RNG, 2, 3, 4), random_floats(RNG, 2, 4, 5)),
        1,
        {"transBatchA": 1},
    ),
    "activation 'Elu'": (
        "FusedGemm",
        named_inputs(random_floats(RNG, 3, 4), random_floats(RNG, 4, 5)),
        1,
        {"activation": "Elu"},
    ),
    "the mask has shape [7]": (
        "Attention",
        named_inputs(
            X, random_floats(RNG, N * D, 96), random_floats(RNG, 96), int_array([1] * 7)
        ),
        1,
        {"num_heads": N},
    ),
    "for 5 heads": ("MultiHeadAttention", named_inputs(*QKV), 1, {"num_heads": 5}),
    "smooth_softmax=1": grouped_query_attention(RNG, 5, 0, [5, 5], smooth_softmax=1),
    (
        "a sequence has 9 keys, 1 of them new, and the past cache has length 6"
    ): grouped_query_attention(RNG, 1, 6, [9, 3]),
    "do_rotary is set, but input cos_cache is missing": (
        *grouped_query_attention(RNG, 1, 6, [7])[:3],
        {**grouped_query_attention(RNG, 1, 6, [7])[3], "do_rotary": 1},
    ),
}


@pytest.mark.parametrize("message", UNSUPPORTED)
def test_unsupported_options_are_refused(message: str) -> None:
    op, feeds, outputs, attrs = UNSUPPORTED[message]
    data = single_op_model(op, feeds, outputs, DOMAIN, **attrs).SerializeToString()
    with pytest.raises((Unsupported, ModelError)) as caught:
        rlx.onnx.load(data).run(feeds, device="cpu")
    assert message in str(caught.value)
