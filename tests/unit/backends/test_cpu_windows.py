"""Convolutions as products with windows that machine code gathers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends import cpu_products
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_products import product_kernels
from rlxweb.backends.cpu_tails import is_joined
from rlxweb.backends.cpu_windows import ConvCall
from rlxweb.backends.evaluate import evaluate
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from tests.agreement import Array

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def all_of_them(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However small, and made first."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_products, "LEAST", 1)
    cpu_products._shares.cache_clear()
    yield
    cpu_products._shares.cache_clear()


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


class Run:
    """A graph on the CPU."""

    def __init__(self, graph: Graph) -> None:
        self.backend, self.graph = CpuBackend(), graph
        plan = compile_graph(graph, self.backend.target)
        self.program = drive(self.backend.prepare(plan))
        functions = [call.function for call in self.program.calls]
        self.calls = [one for one in functions if isinstance(one, ConvCall)]

    def check(self, terms: int, **feeds: Array) -> None:
        wanted = evaluate(self.graph, feeds, promote=True)
        found = drive(self.backend.run(self.program, feeds))
        for made, right in zip(found, wanted, strict=True):
            worst = float(np.abs(made - right).max())
            assert worst < 2e-5 * max(1, terms) ** 0.5


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
    made = graph.conv(x, w, None, stride, padding, dilation, groups)
    graph.set_outputs([made])
    rng = np.random.default_rng(seed)
    Run(graph).check(c * 9, x=floats(rng, *x.shape), w=floats(rng, *w.shape))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("after", ["bias and relu", "a number", "residual"])
def test_what_is_done_with_it(
    groups: int, after: str, rng: np.random.Generator
) -> None:
    """A bias per channel and an activation are fused; what lies as the result isn't."""
    graph = Graph(after)
    x = graph.input("x", (2, 24, 20, 21))
    w = graph.input("w", (groups * 20, 24 // groups, 3, 3))
    made = graph.conv(x, w, padding=1, groups=groups)
    feeds = {"x": floats(rng, *x.shape), "w": floats(rng, *w.shape)}
    if after == "residual":
        feeds["r"] = floats(rng, *made.shape)
        made = graph.relu(made * 0.5 + graph.input("r", made.shape))
    elif after == "a number":
        feeds["r"] = floats(rng, 1)
        made = graph.tanh(made) * graph.input("r", (1,)) + 1.0
    else:
        feeds["b"] = floats(rng, groups * 20, 1, 1)
        made = graph.gelu(made + graph.input("b", (groups * 20, 1, 1)))
    graph.set_outputs([made])
    run = Run(graph)
    assert [is_joined(one) for one in run.calls] == [after != "residual"]
    run.check(24 * 9, **feeds)


def test_numbers_that_are_none_stay_in_their_windows(rng: np.random.Generator) -> None:
    graph = Graph("none")
    x, w = graph.input("x", (2, 16, 9, 30)), graph.input("w", (16, 16, 3, 3))
    graph.set_outputs([graph.conv(x, w, padding=1)])
    run, given_ = Run(graph), floats(rng, *x.shape)
    given_[1, 3, 4, 20] = np.nan
    weights = floats(rng, *w.shape)
    (found,) = drive(run.backend.run(run.program, {"x": given_, "w": weights}))
    wanted = np.ones((2, 16, 9, 30), bool)
    wanted[1, :, 3:6, 19:22] = False
    np.testing.assert_array_equal(np.isfinite(found), wanted)


def test_blas_serves_until_the_code_is_there(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    product_kernels._made.clear()
    graph = Graph("later")
    x, w = graph.input("x", (2, 16, 9, 30)), graph.input("w", (16, 16, 3, 3))
    graph.set_outputs([graph.conv(x, w, padding=1)])
    run = Run(graph)
    assert len(run.calls) == 1
    run.check(16 * 9, x=floats(rng, *x.shape), w=floats(rng, *w.shape))
    product_kernels.finish(60)
