"""Attention as machine code: NumPy's numbers for any layout, heads and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.backends import cpu_attention
from rlxweb.backends.cpu_attention import attention_kernels, function_of
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.machine.attention import attention_text
from rlxweb.machine.library import Code, object_code, processor
from tests.unit.backends.attention_shapes import shapes_of

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def check(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    """Against the reference in float64, within the tolerance of the op."""
    rng = np.random.default_rng(sum(q))
    given = [rng.standard_normal(shape, np.float32) for shape in (q, k, v)]
    own = registry.get("attention")
    full = own.check_attrs(attrs)
    found = cpu_attention.COMPILED[0].run(full, *given)
    want = own.reference(np, full, *(one.astype(np.float64) for one in given))
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, 2e-5, 4e-6)


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
def test_it_is_numpys(
    layout: str,
    batch: int,
    group: int,
    keys_of: int,
    queries: int,
    keys: int,
    size: int,
    value_size: int,
) -> None:
    """Attention is NumPy's for shared keys, odd lengths and values of another size."""
    heads = keys_of * group
    sizes = batch, heads, keys_of, queries, keys, size, value_size
    shapes = shapes_of(layout, *sizes)
    if shapes is not None:
        check(*shapes, {"num_heads": heads, "head_dim": size})


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_width(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if nbytes > processor().nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = function_of(Code(object_code(attention_text(nbytes))))
    monkeypatch.setattr(attention_kernels, "ready", lambda about: kernel)
    shape = (1, 3, 37, 80)
    check(shape, shape, shape, {"num_heads": 3, "head_dim": 80, "score_scale": 0.3})


def test_threads_share_heads_and_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_attention, "_THREADED", 1)
    for shape in ((1, 1, 500, 32), (2, 12, 50, 32)):
        check(shape, shape, shape, {"num_heads": shape[1], "head_dim": 32})


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_stays_where_numpy_leaves_it(odd: float) -> None:
    rng = np.random.default_rng(7)
    q, k, v = rng.standard_normal((3, 1, 2, 20, 16), np.float32)
    q[0, 0, 3, 5] = odd
    own = registry.get("attention")
    attrs = own.check_attrs({"num_heads": 2, "head_dim": 16})
    found = cpu_attention.COMPILED[0].run(attrs, q, k, v)
    want = own.reference(np, attrs, *(one.astype(np.float64) for one in (q, k, v)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_allclose(found, want, 2e-5, 4e-6)


def test_numpy_serves_until_the_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    attention_kernels._made.clear()
    shape = (1, 4, 40, 16)
    check(shape, shape, shape, {"num_heads": 4, "head_dim": 16})
    assert attention_kernels.state("attention")


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
def test_in_a_graph(q: Any, k: Any, more: dict[str, Any]) -> None:
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
    ins = [graph.input(name, one.shape) for name, one in feeds.items()]
    how = {"num_heads": q[1], "head_dim": q[-1], **more}
    made = graph.apply("attention", *ins, **how)
    graph.set_outputs([made])
    found = rlx.Session("cpu").compile(graph).run(feeds)[0]
    attrs = graph.node(made.id).attrs
    wide = [one.astype(np.float64) for one in feeds.values()]
    want = registry.get("attention").reference(np, attrs, *wide)
    np.testing.assert_allclose(found, want, 1e-4, 1e-5)
