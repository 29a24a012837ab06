"""Which elementwise ops are fused into compiled products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlxweb.codegen import jit_cache
from rlxweb.codegen.native_elementwise import region_kernels
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ops.matmul.cpu import native as cpu_native_matmul
from rlxweb.ops.matmul.cpu.epilogue import EpilogueCall, has_epilogue
from rlxweb.ops.matmul.cpu.native import matmul_kernels
from tests.engines_under_test import Array
from tests.ops.kernel_cases.matmul import EPILOGUE_SHAPES, gelu_after
from tests.unit.ops.float32_products import random_floats

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def compile_every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile products and convolutions of any size, before the test goes on."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_native_matmul, "MIN_WORK", 1)
    cpu_native_matmul._cached_tiling.cache_clear()
    yield
    cpu_native_matmul._cached_tiling.cache_clear()


class PreparedCpuGraph:
    """Graph prepared on the CPU engine."""

    def __init__(self, graph: Graph) -> None:
        self.engine, self.graph = CpuEngine(), graph
        plan = compile_graph(graph, self.engine.target)
        self.program = run_blocking(self.engine.prepare(plan))

    @property
    def fused_calls(self) -> list[EpilogueCall]:
        calls = [call.function for call in self.program.calls]
        return [
            function
            for function in calls
            if isinstance(function, EpilogueCall) and has_epilogue(function)
        ]

    def check_outputs(self, **feeds: Array) -> None:
        expected = evaluate(self.graph, feeds, promote=True)
        outputs = run_blocking(self.engine.run(self.program, feeds))
        timed_outputs = run_blocking(self.engine.run_timed(self.program, feeds)).outputs
        for result in (outputs, timed_outputs):
            for got, want in zip(result, expected, strict=True):
                top = max(1.0, float(np.abs(want).max()))
                np.testing.assert_allclose(got, want, 2e-5, 5e-6 * top)


@pytest.mark.parametrize("epilogue", EPILOGUE_SHAPES)
@pytest.mark.parametrize("is_batched", [False, True], ids=["one matrix", "a batch"])
def test_matmul_epilogue(
    epilogue: str, is_batched: bool, rng: np.random.Generator
) -> None:
    """An op fused after a product may read rows, columns, both, or one number."""
    graph = Graph(epilogue)
    shapes = [(3, 40, 70), (3, 70, 90) if is_batched else (70, 90)]
    shapes += EPILOGUE_SHAPES[epilogue]
    feeds = {f"x{i}": random_floats(rng, *shape) for i, shape in enumerate(shapes)}
    inputs = [graph.input(name, array.shape) for name, array in feeds.items()]
    graph.set_outputs([gelu_after(graph, *inputs)])
    run = PreparedCpuGraph(graph)
    assert len(run.fused_calls) == 1
    run.check_outputs(**feeds)


def test_epilogue_with_where(rng: np.random.Generator) -> None:
    graph = Graph("choice")
    x, y = graph.input("x", (80, 70)), graph.input("y", (70, 120))
    truth = graph.input("truth", (80, 120), "bool")
    graph.set_outputs([graph.where(truth, x @ y, -1.0)])
    run = PreparedCpuGraph(graph)
    assert len(run.fused_calls) == 1
    run.check_outputs(
        x=random_floats(rng, 80, 70),
        y=random_floats(rng, 70, 120),
        truth=random_floats(rng, 80, 120) > 0,
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("epilogue", ["bias and relu", "a number", "residual"])
def test_convolution_epilogue(
    groups: int, epilogue: str, rng: np.random.Generator
) -> None:
    """A bias per channel and an activation are fused; an operand of the result's shape
    is not.
    """
    graph = Graph(epilogue)
    x = graph.input("x", (2, 24, 20, 21))
    w = graph.input("w", (groups * 20, 24 // groups, 3, 3))
    output = graph.conv(x, w, padding=1, groups=groups)
    feeds = {"x": random_floats(rng, *x.shape), "w": random_floats(rng, *w.shape)}
    if epilogue == "residual":
        feeds["r"] = random_floats(rng, *output.shape)
        output = graph.relu(output * 0.5 + graph.input("r", output.shape))
    elif epilogue == "a number":
        feeds["r"] = random_floats(rng, 1)
        output = graph.tanh(output) * graph.input("r", (1,)) + 1.0
    else:
        feeds["b"] = random_floats(rng, groups * 20, 1, 1)
        output = graph.gelu(output + graph.input("b", (groups * 20, 1, 1)))
    graph.set_outputs([output])
    run = PreparedCpuGraph(graph)
    assert len(run.fused_calls) == (epilogue != "residual")
    run.check_outputs(**feeds)


def test_blas_runs_until_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(jit_cache, "COMPILE_AFTER_S", 0.0)
    for cache in (matmul_kernels, region_kernels):
        cache._kernels.clear()
    graph = Graph("later")
    x, y = graph.input("x", (64, 70)), graph.input("y", (70, 90))
    graph.set_outputs([graph.gelu(x @ y + graph.input("b", (90,)))])
    run = PreparedCpuGraph(graph)
    feeds = {
        "x": random_floats(rng, 64, 70),
        "y": random_floats(rng, 70, 90),
        "b": random_floats(rng, 90),
    }
    run.check_outputs(**feeds)
    for cache in (matmul_kernels, region_kernels):
        cache.wait_until_idle(60)
    assert matmul_kernels._kernels
    run.check_outputs(**feeds)
