"""Attention that a graph spells out in products and a softmax becomes one kernel.

On the software adapters taken for GPUs, whose kernels for it they then run, and by
machine code on the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.agreement import oracle
from rlxweb.backends.cpu import CpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.port import Want
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from tests.agreement import Engine
from tests.ops.test_gpu_variants import by_rows

B, H, S, D, K = 2, 3, 16, 32, 20


def heads(g: Graph, x: Tensor, keys: bool = False) -> Tensor:
    """[B, S, H·D] with heads in front, as exporters turn it."""
    apart = g.reshape(x, (x.shape[0], x.shape[1], H, x.shape[2] // H))
    return g.transpose(apart, (0, 2, 3, 1) if keys else (0, 2, 1, 3))


def exported(g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention as PyTorch's exporter writes it."""
    scores = heads(g, q) @ heads(g, k, keys=True) / math.sqrt(D) + mask
    mixed = g.softmax(scores, -1) @ heads(g, v)
    return g.reshape(g.transpose(mixed, (0, 2, 1, 3)), (B, S, -1))


def scaled_before(g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The mask first, queries scaled, values of heads that were never turned."""
    values = g.reshape(v, (B, H, K, -1))
    scores = mask + 0.25 * ((heads(g, q) * 2.0) @ heads(g, k, keys=True))
    return g.softmax(scores, 3) @ values


def folded(g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Batches and heads in one axis."""
    three = [
        g.reshape(heads(g, x), (B * H, x.shape[1], x.shape[2] // H)) for x in (q, k, v)
    ]
    whole = g.reshape(g.expand(mask, (B, H, S, K)), (B * H, S, K))
    scores = three[0] @ g.transpose(three[1], (0, 2, 1)) * 0.3 + whole
    return g.softmax(scores, -1) @ three[2]


def bare(g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention without a scale and without a mask."""
    del mask
    return g.softmax(heads(g, q) @ heads(g, k, keys=True), -1) @ heads(g, v)


def graph_of(build: Any) -> Graph:
    g = Graph("spelled")
    given = [g.input(n, (B, s, H * D)) for n, s in (("q", S), ("k", K), ("v", K))]
    g.set_outputs([build(g, *given, g.input("mask", (B, 1, 1, K)))])
    return g


def fed(rng: np.random.Generator, odd: bool = False) -> dict[str, np.ndarray]:
    feeds = {
        n: rng.standard_normal((B, s, H * D)).astype(np.float32)
        for n, s in (("q", S), ("k", K), ("v", K))
    }
    feeds["mask"] = np.where(rng.random((B, 1, 1, K)) < 0.3, -1e9, 0).astype("f4")
    if odd:
        feeds["mask"][0] = -np.inf
        feeds["mask"][1, ..., 3:9] = -np.inf
    return feeds


SPELLED = (exported, scaled_before, folded, bare)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("build", SPELLED, ids=lambda one: one.__name__)
def test_one_kernel_gives_what_many_give(
    build: Any, adapter: Want, rng: np.random.Generator
) -> None:
    """A row without a key that is open is NaN in both, as softmax makes it."""
    one = by_rows(adapter)
    graph = graph_of(build)
    plan = compile_graph(graph, one.backend.target)
    ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
    assert ops.count("attention") == 1
    assert not {"softmax", "matmul"} & set(ops)
    for odd in (False, True):
        feeds = fed(rng, odd)
        (got,), (want,) = one.run(graph, feeds), oracle(graph, feeds)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


def one_more(g: Graph, *given: Tensor) -> list[Tensor]:
    """The weights are an output as well."""
    q, k, v, mask = given
    weights = g.softmax(heads(g, q) @ heads(g, k, keys=True) + mask, -1)
    return [weights @ heads(g, v), weights]


def other_axis(g: Graph, *given: Tensor) -> list[Tensor]:
    q, k, v, _ = given
    return [g.softmax(heads(g, q) @ heads(g, k, keys=True), 2) @ heads(g, v)]


def scaled_after_mask(g: Graph, *given: Tensor) -> list[Tensor]:
    """The mask is scaled too, which one op has no word for."""
    q, k, v, mask = given
    scores = (heads(g, q) @ heads(g, k, keys=True) + mask) * 0.5
    return [g.softmax(scores, -1) @ heads(g, v)]


def by_a_tensor(g: Graph, *given: Tensor) -> list[Tensor]:
    q, k, v, mask = given
    scores = heads(g, q) @ heads(g, k, keys=True) * mask
    return [g.softmax(scores, -1) @ heads(g, v)]


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    "build",
    [one_more, other_axis, scaled_after_mask, by_a_tensor],
    ids=lambda one: one.__name__,
)
def test_what_only_looks_like_it_stays(
    build: Any, adapter: Want, rng: np.random.Generator
) -> None:
    one = by_rows(adapter)
    g = Graph("other")
    given = [g.input(n, (B, s, H * D)) for n, s in (("q", S), ("k", K), ("v", K))]
    g.set_outputs(build(g, *given, g.input("mask", (B, 1, 1, K))))
    plan = compile_graph(g, one.backend.target)
    ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
    assert "attention" not in ops
    feeds = fed(rng)
    for got, want in zip(one.run(g, feeds), oracle(g, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.requires_fast
@pytest.mark.parametrize("build", SPELLED, ids=lambda one: one.__name__)
def test_machine_code_takes_it_on_the_cpu(
    build: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Machine code on the CPU takes attention with its mask; else none is joined."""
    for mode, joined in (("wait", 1), ("off", 0)):
        monkeypatch.setenv("RLX_FAST", mode)
        engine = Engine("CPU", CpuBackend())
        graph = graph_of(build)
        plan = compile_graph(graph, engine.backend.target)
        ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
        assert ops.count("attention") == joined
        for odd in (False, True):
            feeds = fed(rng, odd)
            (got,), (want,) = engine.run(graph, feeds), oracle(graph, feeds)
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize(
    "shape", [(B, H, S, K), (1, H, S, K), (B, 1, 1, K), (S, K), (S, 1), (K,), (1,)]
)
def test_masks_of_machine_code_broadcast(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")
    g = Graph("masked")
    q, k, v = (g.input(n, (B, H, s, D)) for n, s in (("q", S), ("k", K), ("v", K)))
    mask = g.input("mask", shape)
    how = {"num_heads": H, "head_dim": D, "mask_kind": "bias"}
    g.set_outputs([g.apply("attention", q, k, v, mask, **how)])
    feeds = {
        n: rng.standard_normal(node.type.shape).astype(np.float32)
        for n, node in g.named("input").items()
    }
    (got,), (want,) = Engine("CPU", CpuBackend()).run(g, feeds), oracle(g, feeds)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.requires_wgpu
def test_without_a_kernel_for_it_nothing_is_joined(adapter: Want) -> None:
    """Attention is not joined without its kernel, nor without optimisation."""
    one = by_rows(adapter)
    graph = graph_of(exported)
    plan = compile_graph(graph, one.backend.target, optimise=False)
    assert "softmax" in {plan.graph.node(i).op for s in plan.steps for i in s.nodes}
    bare = by_rows(adapter, ())
    plan = compile_graph(graph, bare.backend.target)
    assert "attention" not in {n.op for n in plan.graph.nodes()}
