"""Test fusion of attention written as products and a softmax into one kernel.

On the software adapters taken for GPUs, whose kernels for it they then run, and by
machine code on the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.reference_comparison import reference_outputs
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from tests.engines_under_test import EngineUnderTest
from tests.kernel_tables import engine_with_variants

B, H, S, D, K = 2, 3, 16, 32, 20


def split_heads(g: Graph, x: Tensor, keys: bool = False) -> Tensor:
    """Transpose [B, S, H·D] to have heads first, as exporters write it."""
    by_head = g.reshape(x, (x.shape[0], x.shape[1], H, x.shape[2] // H))
    return g.transpose(by_head, (0, 2, 3, 1) if keys else (0, 2, 1, 3))


def exported_attention(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> Tensor:
    """Write attention as PyTorch's exporter does."""
    scores = split_heads(g, q) @ split_heads(g, k, keys=True) / math.sqrt(D) + mask
    mixed = g.softmax(scores, -1) @ split_heads(g, v)
    return g.reshape(g.transpose(mixed, (0, 2, 1, 3)), (B, S, -1))


def attention_with_scaled_queries(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> Tensor:
    """Write attention with the mask first, scaled queries and values that are only
    reshaped.
    """
    values = g.reshape(v, (B, H, K, -1))
    scores = mask + 0.25 * ((split_heads(g, q) * 2.0) @ split_heads(g, k, keys=True))
    return g.softmax(scores, 3) @ values


def attention_with_folded_batch(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> Tensor:
    """Write attention with batches and heads in one axis."""
    folded_operands = [
        g.reshape(split_heads(g, x), (B * H, x.shape[1], x.shape[2] // H))
        for x in (q, k, v)
    ]
    full_mask = g.reshape(g.expand(mask, (B, H, S, K)), (B * H, S, K))
    scores = (
        folded_operands[0] @ g.transpose(folded_operands[1], (0, 2, 1)) * 0.3
        + full_mask
    )
    return g.softmax(scores, -1) @ folded_operands[2]


def attention_without_mask(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> Tensor:
    """Write attention without a scale and without a mask."""
    del mask
    return g.softmax(
        split_heads(g, q) @ split_heads(g, k, keys=True), -1
    ) @ split_heads(g, v)


def attention_graph(build: Any) -> Graph:
    g = Graph("spelled")
    operands = [g.input(n, (B, s, H * D)) for n, s in (("q", S), ("k", K), ("v", K))]
    g.set_outputs([build(g, *operands, g.input("mask", (B, 1, 1, K)))])
    return g


def random_feeds(
    rng: np.random.Generator, has_infinite_mask: bool = False
) -> dict[str, np.ndarray]:
    feeds = {
        n: rng.standard_normal((B, s, H * D)).astype(np.float32)
        for n, s in (("q", S), ("k", K), ("v", K))
    }
    feeds["mask"] = np.where(rng.random((B, 1, 1, K)) < 0.3, -1e9, 0).astype("f4")
    if has_infinite_mask:
        feeds["mask"][0] = -np.inf
        feeds["mask"][1, ..., 3:9] = -np.inf
    return feeds


ATTENTION_BUILDERS = (
    exported_attention,
    attention_with_scaled_queries,
    attention_with_folded_batch,
    attention_without_mask,
)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("build", ATTENTION_BUILDERS, ids=lambda build: build.__name__)
def test_fused_attention_agrees_with_reference(
    build: Any, adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    """A row whose keys are all masked is NaN in both, as softmax computes it."""
    runner = engine_with_variants(adapter)
    graph = attention_graph(build)
    plan = compile_graph(graph, runner.engine.target)
    ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
    assert ops.count("attention") == 1
    assert not {"softmax", "matmul"} & set(ops)
    for has_infinite_mask in (False, True):
        feeds = random_feeds(rng, has_infinite_mask)
        (got,), (want,) = runner.run(graph, feeds), reference_outputs(graph, feeds)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


def weights_as_output(g: Graph, *operands: Tensor) -> list[Tensor]:
    """The weights are an output as well."""
    q, k, v, mask = operands
    weights = g.softmax(split_heads(g, q) @ split_heads(g, k, keys=True) + mask, -1)
    return [weights @ split_heads(g, v), weights]


def softmax_over_queries(g: Graph, *operands: Tensor) -> list[Tensor]:
    q, k, v, _ = operands
    return [
        g.softmax(split_heads(g, q) @ split_heads(g, k, keys=True), 2)
        @ split_heads(g, v)
    ]


def scaled_after_mask(g: Graph, *operands: Tensor) -> list[Tensor]:
    """Write scores whose mask is scaled too, which the attention op cannot express."""
    q, k, v, mask = operands
    scores = (split_heads(g, q) @ split_heads(g, k, keys=True) + mask) * 0.5
    return [g.softmax(scores, -1) @ split_heads(g, v)]


def scores_scaled_by_tensor(g: Graph, *operands: Tensor) -> list[Tensor]:
    q, k, v, mask = operands
    scores = split_heads(g, q) @ split_heads(g, k, keys=True) * mask
    return [g.softmax(scores, -1) @ split_heads(g, v)]


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    "build",
    [
        weights_as_output,
        softmax_over_queries,
        scaled_after_mask,
        scores_scaled_by_tensor,
    ],
    ids=lambda build: build.__name__,
)
def test_similar_graphs_are_not_fused(
    build: Any, adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    runner = engine_with_variants(adapter)
    g = Graph("other")
    operands = [g.input(n, (B, s, H * D)) for n, s in (("q", S), ("k", K), ("v", K))]
    g.set_outputs(build(g, *operands, g.input("mask", (B, 1, 1, K))))
    plan = compile_graph(g, runner.engine.target)
    ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
    assert "attention" not in ops
    feeds = random_feeds(rng)
    for got, want in zip(
        runner.run(g, feeds), reference_outputs(g, feeds), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.requires_fast
@pytest.mark.parametrize("build", ATTENTION_BUILDERS, ids=lambda build: build.__name__)
def test_native_code_fuses_attention_on_cpu(
    build: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Native code runs attention with its mask; without native code nothing is
    fused.
    """
    for mode, fused_count in (("wait", 1), ("off", 0)):
        monkeypatch.setenv("RLX_FAST", mode)
        runner = EngineUnderTest("CPU", CpuEngine())
        graph = attention_graph(build)
        plan = compile_graph(graph, runner.engine.target)
        ops = [plan.graph.node(i).op for step in plan.steps for i in step.nodes]
        assert ops.count("attention") == fused_count
        for has_infinite_mask in (False, True):
            feeds = random_feeds(rng, has_infinite_mask)
            (got,), (want,) = runner.run(graph, feeds), reference_outputs(graph, feeds)
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize(
    "shape", [(B, H, S, K), (1, H, S, K), (B, 1, 1, K), (S, K), (S, 1), (K,), (1,)]
)
def test_native_attention_masks_broadcast(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")
    g = Graph("masked")
    q, k, v = (g.input(n, (B, H, s, D)) for n, s in (("q", S), ("k", K), ("v", K)))
    mask = g.input("mask", shape)
    attrs = {"num_heads": H, "head_dim": D, "mask_kind": "bias"}
    g.set_outputs([g.apply("attention", q, k, v, mask, **attrs)])
    feeds = {
        n: rng.standard_normal(node.type.shape).astype(np.float32)
        for n, node in g.named("input").items()
    }
    (got,), (want,) = (
        EngineUnderTest("CPU", CpuEngine()).run(g, feeds),
        reference_outputs(g, feeds),
    )
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)


@pytest.mark.requires_wgpu
def test_attention_is_not_fused_without_its_kernel(adapter: AdapterRequest) -> None:
    """Attention is not fused without its kernel, nor without optimisation."""
    runner = engine_with_variants(adapter)
    graph = attention_graph(exported_attention)
    plan = compile_graph(graph, runner.engine.target, optimise=False)
    assert "softmax" in {plan.graph.node(i).op for s in plan.steps for i in s.nodes}
    plain_runner = engine_with_variants(adapter, ())
    plan = compile_graph(graph, plain_runner.engine.target)
    assert "attention" not in {n.op for n in plan.graph.nodes()}
