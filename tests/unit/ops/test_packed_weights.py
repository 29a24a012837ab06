"""Weights are packed once for compiled kernels, and again when they are replaced."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.matmul.cpu.epilogue import MatmulCall
from rlxweb.ops.matmul.cpu.packed_weights import PANEL_CACHE
from tests.float32_products import check_close, random_floats
from tests.prepared_cpu_graph import PreparedCpuGraph

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.usefixtures("wait_for_compilation"),
]


def test_weights_for_few_rows_are_packed(rng: np.random.Generator) -> None:
    """Weights are packed from the second run on; new ones replace them, released ones
    are dropped.
    """
    graph = Graph("weights")
    x, y = graph.input("x", (32, 200)), graph.param("y", (200, 250))
    graph.set_outputs([x @ y])
    prepared, feeds = PreparedCpuGraph(graph), {"x": random_floats(rng, 32, 200)}
    (call,) = (call.function for call in prepared.program.calls)
    assert isinstance(call, MatmulCall)
    assert call.is_weight
    packed = PANEL_CACHE._packed
    before = len(packed)
    for _ in range(3):
        value = random_floats(rng, 200, 250)
        prepared.set_param("y", value)
        for count in (before, before + 1, before + 1):
            (got,) = prepared.run(**feeds)
            check_close(got, feeds["x"].astype(float) @ value, 200)
            assert len(packed) <= count + 1
    run_blocking(prepared.program.close())
    gc.collect()
    assert len(packed) == before


@pytest.mark.parametrize("case", ["turned by the graph", "turned before"])
def test_transposed_weights_are_packed_once(
    case: str, rng: np.random.Generator
) -> None:
    """Transposed weights, as PyTorch stores them ([columns, terms]), are packed
    once.
    """
    graph = Graph("turned")
    x = graph.input("x", (200, 150))
    value = random_floats(rng, 250, 150)
    if case == "turned by the graph":
        y = graph.transpose(graph.param("y", (250, 150)), (1, 0))
    else:
        y, value = graph.param("y", (150, 250)), value.T
    graph.set_outputs([x @ y])
    prepared, feeds = PreparedCpuGraph(graph), {"x": random_floats(rng, 200, 150)}
    prepared.set_param("y", value)
    before = len(PANEL_CACHE._packed)
    want = evaluate(graph, {"y": value, **feeds}, promote=True)[0]
    for _ in range(3):
        (got,) = prepared.run(**feeds)
        check_close(got, want, 150)
    assert len(PANEL_CACHE._packed) == before + 1


def test_replaced_recurrent_weights_are_used(rng: np.random.Generator) -> None:
    """Recurrent weights are packed once and cached from the second run on."""
    g, x = rlx.Graph("net"), 0.5 * random_floats(rng, 6, 1, 2 * 3 * 20)
    a, w = g.input("x", x.shape), g.param("w", (2, 20, 60))
    g.set_outputs([g.apply("gru", a, w, direction="bidirectional")])
    compiled = rlx.Session("cpu").compile(g)
    op = registry.get("gru")
    attrs = op.check_attrs({"direction": "bidirectional"})
    for _ in range(2):
        weights = 0.5 * random_floats(rng, 2, 20, 60)
        compiled.set_param("w", weights)
        for _ in range(3):
            (got,) = compiled.run({"x": x})
            want = op.reference(np, attrs, x, weights)
            np.testing.assert_allclose(got, want, 2e-5, 1e-5)
