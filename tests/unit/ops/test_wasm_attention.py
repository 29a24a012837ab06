"""Attention by WebAssembly; without it the variant is disabled.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.attention.cpu.wasm import KERNELS, WasmAttention
from tests.unit.ops.attention_shapes import attention_shapes

IN_WASM = sys.platform == "emscripten"
(WASM_ATTENTION,) = KERNELS
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable the compilation that other tests switch off."""
    monkeypatch.setenv("RLX_FAST", "background")


def can_run(q: Shape, dtype: DType = DType.F32, **options: Any) -> bool:
    tensor_type = TensorType(q, dtype)
    op = registry.get("attention")
    attrs = op.check_attrs({"num_heads": q[1], "head_dim": q[3], **options})
    return WASM_ATTENTION.can_run((tensor_type,) * 3, tensor_type, attrs)


def check_attention(
    shapes: tuple[Shape, Shape, Shape], mask: Any, **attrs: Any
) -> None:
    """Compare with the reference in float64, within the op's tolerance."""
    rng = np.random.default_rng(sum(shapes[0]))
    inputs = [rng.standard_normal(shape, np.float32) for shape in shapes]
    if mask is not None:
        inputs.append(mask)
        attrs["mask_kind"] = "bias"
    op = registry.get("attention")
    full_attrs = op.check_attrs(attrs)
    wide = [array.astype(np.float64) for array in inputs]
    with np.errstate(all="ignore"):
        want = op.reference(np, full_attrs, *wide)
        types = tuple(TensorType(array.shape, DType.F32) for array in inputs)
        out = TensorType(want.shape, DType.F32)
        if IN_WASM and WASM_ATTENTION.can_run(types, out, full_attrs):
            got = WASM_ATTENTION.build(types, out, full_attrs)(full_attrs, *inputs)
        else:
            got = op.reference(np, full_attrs, *inputs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 5e-5, 1e-5)


def test_wasm_attention_gates() -> None:
    assert can_run((1, 4, 32, 16)) == IN_WASM
    assert not can_run((1, 4, 32, 16), DType.F64)
    assert not can_run((1, 1, 4, 4))
    assert not can_run((1, 4, 32, 16), softcap=2.0)
    assert not can_run((1, 4, 32, 16), mask_kind="causal")


@given(
    layout=st.sampled_from(["heads", "rows", "flat"]),
    batch=st.integers(1, 3),
    group=st.sampled_from([1, 2]),
    keys_of=st.integers(1, 4),
    queries=st.integers(1, 150),
    keys=st.integers(4, 140),
    size=st.integers(1, 40),
    value=st.integers(1, 40),
)
@settings(max_examples=60)
def test_attention_matches_numpy(
    layout: str,
    batch: int,
    group: int,
    keys_of: int,
    queries: int,
    keys: int,
    size: int,
    value: int,
) -> None:
    """Attention matches NumPy for shared keys, odd lengths and values of another
    size.
    """
    heads = keys_of * group
    sizes = batch, heads, keys_of, queries, keys, size, value
    shapes = attention_shapes(layout, *sizes)
    if shapes is not None:
        check_attention(shapes, None, num_heads=heads, head_dim=size)


@pytest.mark.parametrize(
    "shape",
    [(), (1,), (37,), (70, 37), (1, 37), (2, 1, 1, 37), (2, 5, 70, 37), (70, 1)],
)
def test_bias_broadcasts(shape: Shape) -> None:
    rng = np.random.default_rng(1)
    mask = np.asarray(rng.standard_normal(shape), np.float32)
    q, k = (2, 5, 70, 24), (2, 5, 37, 24)
    check_attention((q, k, k), mask, num_heads=5, head_dim=24, score_scale=0.3)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e38, -3e38])
def test_special_values_match_the_reference(special: float) -> None:
    """Masked keys, NaN and infinity give the reference's results."""
    mask = np.zeros((70, 37), np.float32)
    mask[3, 5], mask[4], mask[6, 30:] = special, special, -np.inf
    q, k = (1, 2, 70, 24), (1, 2, 37, 24)
    check_attention((q, k, k), mask, num_heads=2, head_dim=24)


def test_attention_pattern_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products around a softmax, as in networks, are fused into attention."""
    calls, original_call = [], WasmAttention.__call__

    def count_call(self: WasmAttention, *inputs: Any) -> Any:
        calls.append(self)
        return original_call(self, *inputs)

    monkeypatch.setattr(WasmAttention, "__call__", count_call)
    g, shape = rlx.Graph("spelled"), (2, 4, 32, 16)
    q, k, v = (g.input(name, shape) for name in "qkv")
    b = g.input("b", (2, 1, 1, 32))
    scores = q @ k.transpose(0, 1, 3, 2) * 0.25 + b
    g.set_outputs([g.softmax(scores) @ v])
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape, np.float32) for name in "qkv"}
    feeds["b"] = rng.standard_normal((2, 1, 1, 32), np.float32)
    (got,) = rlx.Session("cpu").compile(g).run(feeds)
    assert len(calls) == IN_WASM
    wide = {name: array.astype(np.float64) for name, array in feeds.items()}
    want = wide["q"] @ wide["k"].transpose(0, 1, 3, 2) * 0.25 + wide["b"]
    want = np.exp(want - want.max(-1, keepdims=True))
    want = want / want.sum(-1, keepdims=True) @ wide["v"]
    np.testing.assert_allclose(got, want, 5e-5, 1e-5)
