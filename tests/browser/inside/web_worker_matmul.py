"""Matrix products whose weights Web Workers share with Python's thread, run inside the
tab.

Imported in Pyodide as `tests.browser.inside.web_worker_matmul`.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.ops.matmul.cpu import web_workers as module
from rlxweb.ops.matmul.cpu.wasm import matmul
from rlxweb.ops.matmul.cpu.wasm_on_web_workers import shared_region_cache
from rlxweb.ops.matmul.cpu.web_workers import WebWorkers, available_web_workers

SIZES = ((32, 384, 384), (1, 2000, 600), (97, 130, 100), (200, 64, 109), (90, 256, 65))
"""Rows, terms and columns of the products: few and many, whole and partial panels, with
and without epilogue.
"""
START_TIMEOUT_S = 20.0


def network(rows: int, terms: int, columns: int) -> rlx.Graph:
    """Create the graph gelu(x @ w + b) with an addend, and a second product."""
    g = rlx.Graph("shared")
    x, addend = g.input("x", (rows, terms)), g.input("more", (rows, columns))
    w, b = g.param("w", (terms, columns)), g.param("b", (columns,))
    g.set_outputs([g.gelu(x @ w + b) + addend, x @ g.param("v", (terms, columns))])
    return g


def random_inputs(*sizes: int) -> dict[str, Any]:
    """Return random values for the inputs and params of `network`."""
    rows, terms, columns = sizes
    draw = np.random.default_rng(sum(sizes))
    shapes = {
        "x": (rows, terms),
        "more": (rows, columns),
        "w": (terms, columns),
        "v": (terms, columns),
        "b": (columns,),
    }
    return {
        name: draw.standard_normal(shape).astype(np.float32) / 8
        for name, shape in shapes.items()
    }


def compile_network(*sizes: int) -> tuple[Any, dict[str, Any]]:
    """Compile `network` on the CPU and return it with its inputs."""
    inputs = random_inputs(*sizes)
    compiled_graph = rlx.Session("cpu").compile(network(*sizes))
    for name in "wvb":
        compiled_graph.set_param(name, inputs.pop(name))
    return compiled_graph, inputs


def max_error(outputs: Any, *sizes: int) -> float:
    """Return the largest deviation of the outputs from NumPy's in float64."""
    inputs = {
        name: array.astype(np.float64) for name, array in random_inputs(*sizes).items()
    }
    g = rlx.Graph("right")
    g.set_outputs([g.gelu(g.input("x", (sizes[0], sizes[2]), "f64"))])
    (gelu,) = (
        rlx.Session("cpu")
        .compile(g)
        .run({"x": inputs["x"] @ inputs["w"] + inputs["b"]})
    )
    expected_outputs = gelu + inputs["more"], inputs["x"] @ inputs["v"]
    return max(
        float(np.abs(array - expected).max())
        for array, expected in zip(outputs, expected_outputs, strict=True)
    )


def reset_web_workers() -> None:
    """Clear the cached Web Workers and their code regions, so that new ones are
    started.
    """
    module._start_web_workers.cache_clear()
    shared_region_cache._kernels.clear()
    shared_region_cache._pending.clear()


def start_web_workers() -> WebWorkers | None:
    """Start two Web Workers, however many processors the machine has."""
    from pyodide.code import run_js

    if (
        not module._start_web_workers.cache_info().currsize
        or available_web_workers() is None
    ):
        reset_web_workers()
        run_js(
            "Object.defineProperty(navigator, 'hardwareConcurrency', "
            "{ value: 3, configurable: true })"
        )
    return available_web_workers()


async def wait_for_web_workers() -> WebWorkers:
    """Return the Web Workers once one has started."""
    web_workers = start_web_workers()
    assert web_workers is not None
    deadline = perf_counter() + START_TIMEOUT_S
    while perf_counter() < deadline:
        if web_workers.is_ready:
            return web_workers
        await asyncio.sleep(0)
    raise TimeoutError("no Worker of rlxweb's has started")


class JobCounter:
    """Context that counts jobs, and may corrupt them before they are run."""

    def __init__(self, spoil: Callable[[Any], None] = lambda job: None) -> None:
        self.jobs, self._spoil, self._run = 0, spoil, WebWorkers.run

    def __enter__(self) -> JobCounter:
        run, spoil = self._run, self._spoil

        def count_and_run(web_workers: WebWorkers, job: Any) -> bool:
            self.jobs += 1
            spoil(job)
            return run(web_workers, job)

        WebWorkers.run = count_and_run  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        WebWorkers.run = self._run  # type: ignore[method-assign]


async def products() -> str:
    """Return errors, jobs per run, and whether a product has the bits of one thread, by
    size.

    The product compared is one that nothing follows.
    """
    results = []
    start_web_workers()
    for sizes in SIZES:
        compiled_graph, inputs = compile_network(*sizes)
        await wait_for_web_workers()
        for _ in range(12):  # regions are made once they are worth it
            compiled_graph.run(inputs)
        with JobCounter() as counter:
            outputs = compiled_graph.run(inputs)
        is_identical = np.array_equal(
            outputs[1], matmul(inputs["x"], random_inputs(*sizes)["v"])
        )
        results.append([max_error(outputs, *sizes), counter.jobs, is_identical])
    return json.dumps(results)


def used_shared_bytes(web_workers: WebWorkers) -> int:
    """Return the number of bytes of the shared memory that are in use."""
    allocator = web_workers._allocator
    return allocator.end - sum(size for _, size in allocator._free)


async def memory() -> str:
    """Return the bytes in use before a network, with it and after it, and its error
    with replaced weights.
    """
    web_workers = await wait_for_web_workers()
    gc.collect()
    bytes_before, sizes = used_shared_bytes(web_workers), SIZES[0]
    compiled_graph, inputs = compile_network(*sizes)
    for _ in range(3):
        compiled_graph.run(inputs)
    bytes_with_network = used_shared_bytes(web_workers)
    doubled = 2 * random_inputs(*sizes)["v"]
    compiled_graph.set_param("v", doubled)
    for _ in range(3):
        _, product = compiled_graph.run(inputs)
    error = float(np.abs(product - inputs["x"].astype(np.float64) @ doubled).max())
    del compiled_graph
    gc.collect()
    return json.dumps(
        [bytes_before, bytes_with_network, used_shared_bytes(web_workers), error]
    )


async def faults() -> str:
    """Run a job that breaks: it is done without Workers, which are not used again."""
    await wait_for_web_workers()
    sizes = SIZES[0]
    compiled_graph, inputs = compile_network(*sizes)
    for _ in range(3):
        compiled_graph.run(inputs)

    def spoil(job: Any) -> None:
        job[-10:] = 1 << 31  # no such addresses

    with JobCounter(spoil) as counter:
        outputs = compiled_graph.run(inputs)
    jobs_with_fault = counter.jobs
    with JobCounter() as counter:
        outputs_again = compiled_graph.run(inputs)
    report = [
        jobs_with_fault,
        counter.jobs,
        max_error(outputs, *sizes),
        max_error(outputs_again, *sizes),
    ]
    reset_web_workers()
    return json.dumps(report)


def alone() -> str:
    """Run on a page that is not isolated: without Workers, with the same answer."""
    from pyodide.code import run_js

    script_start = "Object.defineProperty(globalThis, 'crossOriginIsolated', "
    run_js(script_start + "{ value: false, configurable: true })")
    reset_web_workers()
    try:
        compiled_graph, inputs = compile_network(*SIZES[0])
        is_none = available_web_workers() is None
        with JobCounter() as counter:
            for _ in range(3):
                outputs = compiled_graph.run(inputs)
    finally:
        run_js(script_start + "{ value: true, configurable: true })")
        reset_web_workers()
    return json.dumps([is_none, counter.jobs, max_error(outputs, *SIZES[0])])
