"""Functions that browser tests call in the tab's Python; each returns JSON for the
desktop.

Imported in Pyodide as `tests.browser.inside.tab_functions`, so it needs NumPy and
nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.ir.verify import verify
from rlxweb.runtime.input_validation import validate_array
from rlxweb.smoke.random_graphs import random_graph
from tests.graphs.random_gradient_graph import differentiate_graph
from tests.ops.special_values import (
    FOLDABLE_EXPRESSIONS,
    elementwise_graph,
    elementwise_op_names,
    foldable_graph,
    special_value_mismatch,
)


def engine(limits: Limits | None = None) -> WebGpuEngine:
    """Return the tab's GPU engine, under stricter limits if given."""
    if limits is None:
        gpu_engine: WebGpuEngine = pool.engine("webgpu")
    else:
        gpu_engine = pool.engine_with_limits("webgpu", "", limits)
    return gpu_engine


async def run_on_engine(gpu_engine: Any, graph: Any, feeds: Any) -> list[Any]:
    """Run a graph on an engine and free everything again."""
    program = await gpu_engine.prepare(compile_graph(graph, gpu_engine.target))
    try:
        for name, node in graph.named("param").items():
            await program.set_param(name, validate_array("param", node, feeds[name]))
        inputs = {n: np.ascontiguousarray(feeds[n]) for n in graph.named("input")}
        results: list[Any] = await gpu_engine.run(program, inputs)
        return results
    finally:
        await program.close()


async def special_values() -> str:
    """Check NaN, infinity and arithmetic that a compiler could simplify."""
    await rlx.open_async("webgpu")
    cases = [
        elementwise_graph(name, width)
        for name in elementwise_op_names()
        for width in (0, 1)
    ]
    cases += [foldable_graph(case_name) for case_name in FOLDABLE_EXPRESSIONS]
    wrong = []
    for graph, feeds in cases:
        (got,) = await run_on_engine(engine(), graph, feeds)
        wrong.append(special_value_mismatch(graph, feeds, got))
    return json.dumps({"cases": len(cases), "wrong": [w for w in wrong if w]})


async def random_graphs(first: int, count: int) -> str:
    """Check random graphs number `first` and on, at full limits and at tiny ones."""
    await rlx.open_async("webgpu")
    wrong, nodes = [], 0
    for seed in range(first, first + count):
        case = random_graph(seed)
        verify(case.graph)
        nodes += len(case.graph)
        for limits in (None, tiny_limits()):
            results = await run_on_engine(engine(limits), case.graph, case.feeds)
            wrong += [
                f"graph {seed} {reason}" for reason in case.output_errors(results)
            ]
    return json.dumps({"nodes": nodes, "wrong": wrong})


async def random_gradients(first: int, count: int) -> str:
    """Check the gradients of random graphs number `first` and on."""
    await rlx.open_async("webgpu")
    wrong, n_compared = [], 0
    for seed in range(first, first + count):
        case = differentiate_graph(random_graph(seed))
        if case is not None:
            results = await run_on_engine(engine(), case.graph, case.feeds)
            wrong += [
                f"graph {seed} {reason}" for reason in case.output_errors(results)
            ]
            n_compared += case.sharp_counts[0]
    return json.dumps({"judged": n_compared, "wrong": wrong})


def layer() -> rlx.Graph:
    """Create a small graph with a param: gelu(x @ w)."""
    g = rlx.Graph("layer")
    x, w = g.input("x", (16, 8)), g.param("w", (8, 4))
    g.set_outputs([g.gelu(x @ w)])
    return g


def unseen() -> rlx.Graph:
    """Create a graph whose shader no other test has compiled."""
    g = rlx.Graph("unseen")
    y = g.input("x", (3,))
    for op in ("sin", "exp", "neg", "exp", "neg", "sin", "tanh", "sin"):
        y = g.apply(op, y)
    g.set_outputs([y])
    return g


def layer_feeds() -> tuple[dict[str, Any], Any]:
    """Return inputs and the param of `layer`."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((16, 8)).astype(np.float32)
    return {"x": x}, draw.standard_normal((8, 4)).astype(np.float32)


async def compiled_layer() -> tuple[Any, dict[str, Any]]:
    """Compile `layer` on the GPU and return it with inputs to run it on."""
    feeds, w = layer_feeds()
    compiled = await rlx.Session("webgpu").compile_async(layer())
    await compiled.set_param_async("w", w)
    return compiled, feeds


def expected_layer() -> Any:
    """Return the output of `layer` as NumPy computes it."""
    feeds, w = layer_feeds()
    compiled = rlx.Session("cpu").compile(layer())
    compiled.set_param("w", w)
    return compiled.run(feeds)[0]


def off(y: Any) -> float:
    """Return the largest deviation of an output of `layer` from NumPy's."""
    return float(abs(y - expected_layer()).max())


def js_objects(port: Any) -> int:
    """Return the number of JavaScript objects that the bridge holds for a port."""
    return 0 if port._js is None else int(port._js.held())


async def leaks(runs: int) -> str:
    """Return JavaScript objects and handles held after the first run and after many."""
    await rlx.open_async("webgpu")
    port = engine().port
    objects_before, pipelines = js_objects(port), port.created_counts["pipelines"]
    compiled, feeds = await compiled_layer()
    await compiled.run_async(feeds)
    first = (js_objects(port), len(port.live_handles), dict(port.created_counts))
    for _ in range(runs):
        results = await compiled.run_async(feeds)
    last = (js_objects(port), len(port.live_handles), dict(port.created_counts))
    compiled.close()
    is_close = bool(np.allclose(results[0], expected_layer(), rtol=1e-5, atol=1e-6))
    # Pipelines are kept for other programs.
    leaked = (
        js_objects(port)
        - objects_before
        - (port.created_counts["pipelines"] - pipelines)
    )
    return json.dumps({"first": first, "last": last, "kept": leaked, "right": is_close})
