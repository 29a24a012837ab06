"""What the browser tests run inside the tab; each function gives JSON for the desktop.

Imported in Pyodide as `tests.browser.inside.suite`, so it needs NumPy and nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.ir.verify import verify
from rlxweb.limits import Limits, shrunk
from rlxweb.runtime.feeds import as_input
from rlxweb.smoke.random_graphs import grown_graph
from tests.graphs.differentiated import differentiated
from tests.ops.special import FOLDED, elementwise, missed, of_op, of_way


def backend(limits: Limits | None = None) -> WebGpuBackend:
    """The tab's GPU, maybe under stricter limits."""
    if limits is None:
        made: WebGpuBackend = pool.backend("webgpu")
    else:
        made = pool.limited("webgpu", "", limits)
    return made


async def outputs(one: Any, graph: Any, feeds: Any) -> list[Any]:
    """A graph on a backend, with everything freed again."""
    program = await one.prepare(compile_graph(graph, one.target))
    try:
        for name, node in graph.named("param").items():
            await one.set_param(program, name, as_input("param", node, feeds[name]))
        given = {n: np.ascontiguousarray(feeds[n]) for n in graph.named("input")}
        found: list[Any] = await one.run(program, given)
        return found
    finally:
        await one.release(program)


async def special_values() -> str:
    """What becomes of NaN, infinity and arithmetic that a compiler could simplify."""
    await rlx.open_async("webgpu")
    cases = [of_op(name, width) for name in elementwise() for width in (0, 1)]
    cases += [of_way(way) for way in FOLDED]
    wrong = []
    for graph, feeds in cases:
        (got,) = await outputs(backend(), graph, feeds)
        wrong.append(missed(graph, feeds, got))
    return json.dumps({"cases": len(cases), "wrong": [w for w in wrong if w]})


async def random_graphs(first: int, count: int) -> str:
    """Grown graphs number `first` and on, at full limits and at tiny ones."""
    await rlx.open_async("webgpu")
    wrong, nodes = [], 0
    for seed in range(first, first + count):
        case = grown_graph(seed)
        verify(case.graph)
        nodes += len(case.graph)
        for limits in (None, shrunk()):
            outs = await outputs(backend(limits), case.graph, case.feeds)
            wrong += [f"graph {seed} {why}" for why in case.misses(outs)]
    return json.dumps({"nodes": nodes, "wrong": wrong})


async def random_gradients(first: int, count: int) -> str:
    """The gradients of grown graphs number `first` and on."""
    await rlx.open_async("webgpu")
    wrong, judged = [], 0
    for seed in range(first, first + count):
        case = differentiated(grown_graph(seed))
        if case is not None:
            outs = await outputs(backend(), case.graph, case.feeds)
            wrong += [f"graph {seed} {why}" for why in case.misses(outs)]
            judged += case.judged[0]
    return json.dumps({"judged": judged, "wrong": wrong})


def layer() -> rlx.Graph:
    """A small graph with a param: gelu(x @ w)."""
    g = rlx.Graph("layer")
    x, w = g.input("x", (16, 8)), g.param("w", (8, 4))
    g.set_outputs([g.gelu(x @ w)])
    return g


def unseen() -> rlx.Graph:
    """A graph whose shader no other test has compiled."""
    g = rlx.Graph("unseen")
    y = g.input("x", (3,))
    for op in ("sin", "exp", "neg", "exp", "neg", "sin", "tanh", "sin"):
        y = g.apply(op, y)
    g.set_outputs([y])
    return g


def layer_feeds() -> tuple[dict[str, Any], Any]:
    """Inputs and the param of `layer`."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((16, 8)).astype(np.float32)
    return {"x": x}, draw.standard_normal((8, 4)).astype(np.float32)


async def compiled_layer() -> tuple[Any, dict[str, Any]]:
    """`layer` on the GPU, ready to run, and what to run it on."""
    feeds, w = layer_feeds()
    compiled = await rlx.Session("webgpu").compile_async(layer())
    await compiled.set_param_async("w", w)
    return compiled, feeds


def right_layer() -> Any:
    """What NumPy makes of `layer`."""
    feeds, w = layer_feeds()
    compiled = rlx.Session("cpu").compile(layer())
    compiled.set_param("w", w)
    return compiled.run(feeds)[0]


def off(y: Any) -> float:
    """How far an output of `layer` is from NumPy's."""
    return float(abs(y - right_layer()).max())


def js_objects(port: Any) -> int:
    """How many JavaScript objects the bridge holds for a port."""
    return 0 if port._js is None else int(port._js.held())


async def leaks(runs: int) -> str:
    """JavaScript objects and handles held after the first run and after many."""
    await rlx.open_async("webgpu")
    port = backend().port
    before, pipelines = js_objects(port), port.created["pipelines"]
    compiled, feeds = await compiled_layer()
    await compiled.run_async(feeds)
    first = (js_objects(port), len(port.live), dict(port.created))
    for _ in range(runs):
        outs = await compiled.run_async(feeds)
    last = (js_objects(port), len(port.live), dict(port.created))
    compiled.close()
    near = bool(np.allclose(outs[0], right_layer(), rtol=1e-5, atol=1e-6))
    # Pipelines are kept for other programs.
    kept = js_objects(port) - before - (port.created["pipelines"] - pipelines)
    return json.dumps({"first": first, "last": last, "kept": kept, "right": near})
