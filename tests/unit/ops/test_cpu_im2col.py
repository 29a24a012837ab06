"""Convolutions by im2col: matrix products over windows that native code gathers give
NumPy's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ops.conv.cpu.im2col import Im2colConvCall
from rlxweb.ops.matmul.cpu import native as cpu_native_matmul
from rlxweb.ops.matmul.cpu.epilogue import has_epilogue
from rlxweb.ops.matmul.cpu.native import matmul_kernels
from tests.engines_under_test import Array

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def compile_every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile convolutions of any size, before the test goes on."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_native_matmul, "MIN_WORK", 1)
    cpu_native_matmul._cached_tiling.cache_clear()
    yield
    cpu_native_matmul._cached_tiling.cache_clear()


def random_floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


class PreparedConvolution:
    """Graph prepared on the CPU backend, and its im2col convolution calls."""

    def __init__(self, graph: Graph) -> None:
        self.backend, self.graph = CpuEngine(), graph
        plan = compile_graph(graph, self.backend.target)
        self.program = run_blocking(self.backend.prepare(plan))
        functions = [call.function for call in self.program.calls]
        self.calls = [
            function for function in functions if isinstance(function, Im2colConvCall)
        ]

    def check_outputs(self, terms: int, **feeds: Array) -> None:
        expected = evaluate(self.graph, feeds, promote=True)
        outputs = run_blocking(self.backend.run(self.program, feeds))
        for got, want in zip(outputs, expected, strict=True):
            max_error = float(np.abs(got - want).max())
            assert max_error < 2e-5 * max(1, terms) ** 0.5


@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 40), st.integers(16, 40)),
    size=st.tuples(st.integers(3, 14), st.integers(3, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_convolutions_of_any_sizes(
    batch: int,
    groups: int,
    channels: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: int,
    padding: int,
    seed: int,
) -> None:
    """Convolutions of any sizes are right.

    Positions follow each other or do not; edges of images lie within a vector.
    """
    c, m = channels
    graph = Graph("convolution")
    x = graph.input("x", (batch, groups * c, *(n + 4 for n in size)))
    w = graph.input("w", (groups * m, c, *kernel))
    output = graph.conv(x, w, None, stride, padding, dilation, groups)
    graph.set_outputs([output])
    rng = np.random.default_rng(seed)
    PreparedConvolution(graph).check_outputs(
        c * 9, x=random_floats(rng, *x.shape), w=random_floats(rng, *w.shape)
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
    run = PreparedConvolution(graph)
    assert [has_epilogue(conv_call) for conv_call in run.calls] == [
        epilogue != "residual"
    ]
    run.check_outputs(24 * 9, **feeds)


def test_nan_stays_in_its_windows(rng: np.random.Generator) -> None:
    graph = Graph("none")
    x, w = graph.input("x", (2, 16, 9, 30)), graph.input("w", (16, 16, 3, 3))
    graph.set_outputs([graph.conv(x, w, padding=1)])
    run, values = PreparedConvolution(graph), random_floats(rng, *x.shape)
    values[1, 3, 4, 20] = np.nan
    weights = random_floats(rng, *w.shape)
    (got,) = run_blocking(run.backend.run(run.program, {"x": values, "w": weights}))
    want_finite = np.ones((2, 16, 9, 30), bool)
    want_finite[1, :, 3:6, 19:22] = False
    np.testing.assert_array_equal(np.isfinite(got), want_finite)


def test_blas_runs_until_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    matmul_kernels._kernels.clear()
    graph = Graph("later")
    x, w = graph.input("x", (2, 16, 9, 30)), graph.input("w", (16, 16, 3, 3))
    graph.set_outputs([graph.conv(x, w, padding=1)])
    run = PreparedConvolution(graph)
    assert len(run.calls) == 1
    run.check_outputs(
        16 * 9, x=random_floats(rng, *x.shape), w=random_floats(rng, *w.shape)
    )
    matmul_kernels.wait_until_idle(60)
