"""Compiled attention gives NumPy's numbers for any layout, heads and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.attention.cpu import native as cpu_native_attention
from rlxweb.ops.attention.cpu.llvm import attention_llvm_ir
from rlxweb.ops.attention.cpu.native import attention_kernels, exported_kernel
from tests.kernel_tables import direct_function
from tests.unit.ops.attention_shapes import attention_shapes

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def _wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def check_attention(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    """Compare with the reference in float64, within the op's tolerance."""
    rng = np.random.default_rng(sum(q))
    inputs = [rng.standard_normal(shape, np.float32) for shape in (q, k, v)]
    op = registry.get("attention")
    full_attrs = op.check_attrs(attrs)
    got = direct_function(cpu_native_attention.KERNELS[0])(full_attrs, *inputs)
    want = op.reference(np, full_attrs, *(array.astype(np.float64) for array in inputs))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 2e-5, 4e-6)


@given(
    layout=st.sampled_from(["heads", "rows", "flat"]),
    batch=st.integers(1, 3),
    group=st.sampled_from([1, 2]),
    keys_of=st.integers(1, 5),
    queries=st.integers(6, 130),
    keys=st.integers(16, 150),
    size=st.sampled_from([16, 48, 64]),
    value_size=st.sampled_from([16, 80]),
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
    value_size: int,
) -> None:
    """Attention matches NumPy for shared keys, odd lengths and values of another
    size.
    """
    heads = keys_of * group
    sizes = batch, heads, keys_of, queries, keys, size, value_size
    shapes = attention_shapes(layout, *sizes)
    if shapes is not None:
        check_attention(*shapes, {"num_heads": heads, "head_dim": size})


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_vector_width(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = exported_kernel(LoadedCode(compile_object(attention_llvm_ir(nbytes))))
    monkeypatch.setattr(attention_kernels, "get_kernel", lambda about: kernel)
    shape = (1, 3, 37, 80)
    check_attention(
        shape, shape, shape, {"num_heads": 3, "head_dim": 80, "score_scale": 0.3}
    )


def test_threads_share_heads_and_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_native_attention, "_MIN_THREADED_WORK", 1)
    for shape in ((1, 1, 500, 32), (2, 12, 50, 32)):
        check_attention(shape, shape, shape, {"num_heads": shape[1], "head_dim": 32})


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_non_finite_values_spread_as_in_numpy(odd: float) -> None:
    rng = np.random.default_rng(7)
    q, k, v = rng.standard_normal((3, 1, 2, 20, 16), np.float32)
    q[0, 0, 3, 5] = odd
    op = registry.get("attention")
    attrs = op.check_attrs({"num_heads": 2, "head_dim": 16})
    got = direct_function(cpu_native_attention.KERNELS[0])(attrs, q, k, v)
    want = op.reference(np, attrs, *(array.astype(np.float64) for array in (q, k, v)))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, 2e-5, 4e-6)


def test_numpy_runs_until_code_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    attention_kernels._kernels.clear()
    shape = (1, 4, 40, 16)
    check_attention(shape, shape, shape, {"num_heads": 4, "head_dim": 16})
    assert attention_kernels.missing_reason("attention")


@pytest.mark.parametrize(
    ("q", "k", "more"),
    [
        ((1, 12, 128, 64), (1, 12, 128, 64), {}),
        ((2, 4, 33, 16), (2, 2, 65, 16), {}),
        ((2, 50, 64), (2, 70, 64), {"num_heads": 4, "head_dim": 16}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"score_scale": 0.5}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"mask_kind": "causal"}),
        ((1, 4, 40, 16), (1, 4, 52, 16), {"mask_kind": "causal", "softcap": 3.0}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"mask_kind": "sliding_window", "window": 5}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"mask_kind": "custom"}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"mask_kind": "bias"}),
        ((1, 4, 40, 16), (1, 4, 40, 16), {"softcap": 2.0}),
    ],
)
def test_attention_in_a_graph(q: Any, k: Any, more: dict[str, Any]) -> None:
    """Attention in any layout is right with a mask, a bias or a cap."""
    rng = np.random.default_rng(5)
    feeds = {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in zip("qkv", (q, k, k), strict=True)
    }
    kind = more.get("mask_kind")
    if kind == "bias":
        feeds["mask"] = rng.standard_normal((1, 1, q[2], k[2]), np.float32)
    elif kind == "custom":
        # A query whose keys are all masked has their mean.
        feeds["mask"] = (np.arange(k[2]) % 3 > 0).astype(np.float32)[None]
    graph = Graph("attention")
    inputs = [graph.input(name, array.shape) for name, array in feeds.items()]
    options = {"num_heads": q[1], "head_dim": q[-1], **more}
    output = graph.apply("attention", *inputs, **options)
    graph.set_outputs([output])
    got = rlx.Session("cpu").compile(graph).run(feeds)[0]
    attrs = graph.node(output.id).attrs
    wide = [array.astype(np.float64) for array in feeds.values()]
    want = registry.get("attention").reference(np, attrs, *wide)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
