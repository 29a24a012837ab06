"""Products as machine code, alone and with what is done after: NumPy's numbers."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends import cpu_products
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_panels import PANELS
from rlxweb.backends.cpu_products import (
    Kind,
    Sizes,
    computed,
    multiply,
    product_kernels,
    shares_of,
)
from rlxweb.backends.cpu_regions import region_kernels
from rlxweb.backends.cpu_tails import ProductCall, is_joined
from rlxweb.backends.evaluate import evaluate
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.host.shared_code import Shared
from rlxweb.ir.graph import Graph
from rlxweb.machine import workshop
from rlxweb.machine.library import Code, object_code, processor
from rlxweb.machine.products import product_text, tiles
from tests.agreement import Array

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def made_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def near(found: Array, right: Array, terms: int) -> None:
    assert float(np.abs(found - right).max()) < 1e-5 * max(1, terms) ** 0.5


@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_it_can_be_compiled_for_any_vectors(
    nbytes: int, rng: np.random.Generator
) -> None:
    """The kernel compiles for each vector width and runs on those of this processor."""
    for tile in tiles(nbytes):
        code = Code(object_code(product_text(tile, nbytes)))
        if nbytes > processor().nbytes:
            continue
        x = floats(rng, tile.rows + 3, 9)
        y = floats(rng, 9, tile.vectors * nbytes // 4 + 1)
        out = np.full((x.shape[0], y.shape[1]), np.nan, np.float32)
        sizes = Sizes(1, *x.shape, y.shape[1], True)
        shares = cpu_products.Shares(tile, 2, 1, x.shape[0])
        with pytest.MonkeyPatch.context() as patch:
            own = SimpleNamespace(nbytes=nbytes)
            patch.setattr(cpu_products.library, "processor", lambda own=own: own)
            computed(Shared.of(code, "product"), sizes, shares, (x, y), out)
        near(out, x.astype(float) @ y, 9)


@given(
    rows=st.integers(4, 70),
    terms=st.sampled_from([1, 2, 63, 511, 512, 513, 1024, 1300]),
    columns=st.integers(16, 150),
    threads=st.integers(1, 8),
    spare=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=120, deadline=None)
def test_products_of_any_sizes(
    rows: int, terms: int, columns: int, threads: int, spare: int, seed: int
) -> None:
    """Products of any sizes are right however they are shared out."""
    lanes = processor().nbytes // 4
    sizes = Sizes(1, rows, terms, columns, True)
    shares = shares_of(sizes, lanes, threads)
    if shares is None:
        assert columns < lanes or rows < 8
        return
    rng = np.random.default_rng(seed)
    x, y = floats(rng, rows, terms), floats(rng, terms, columns + spare)[:, :columns]
    out = np.full((rows, columns), np.nan, np.float32)
    kernel = product_kernels.ready(Kind(shares.tile))
    assert kernel is not None
    computed(kernel, sizes, shares, (x, y), out)
    near(out, x.astype(float) @ y, terms)


@pytest.mark.parametrize("way", ["rows", "columns", "float64", "turned", "small"])
def test_what_is_blas_s(way: str, rng: np.random.Generator) -> None:
    """Products that are left to BLAS are right too."""
    rows, columns = (2 if way == "rows" else 200), (8 if way == "columns" else 300)
    terms = 3 if way == "small" else 900
    x, y = floats(rng, rows, terms), floats(rng, terms, columns)
    if way == "float64":
        x, y = x.astype(np.float64), y.astype(np.float64)
    if way == "turned":
        y = np.asfortranarray(y)
    out = np.empty((rows, columns), x.dtype)
    multiply(x, y, out)
    near(out, x.astype(float) @ y, terms)


class Run:
    """A graph on the CPU."""

    def __init__(self, graph: Graph) -> None:
        self.backend, self.graph = CpuBackend(), graph
        plan = compile_graph(graph, self.backend.target)
        self.program = drive(self.backend.prepare(plan))

    @property
    def joined(self) -> list[ProductCall]:
        calls = [call.function for call in self.program.calls]
        return [one for one in calls if isinstance(one, ProductCall) and is_joined(one)]

    def check(self, **feeds: Array) -> None:
        wanted = evaluate(self.graph, feeds, promote=True)
        found = drive(self.backend.run(self.program, feeds))
        timed = drive(self.backend.timed(self.program, feeds)).outputs
        for some in (found, timed):
            for made, right in zip(some, wanted, strict=True):
                top = max(1.0, float(np.abs(right).max()))
                np.testing.assert_allclose(made, right, 2e-5, 5e-6 * top)


TAILS = {
    "bias": ((90,),),
    "bias and residual": ((90,), (3, 40, 90)),
    "one for each row": ((3, 40, 1),),
    "one for all": ((1,),),
    "residual": ((3, 40, 90),),
    "nothing": (),
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("many", [False, True], ids=["one matrix", "a batch"])
def test_what_is_done_with_a_product(
    tail: str, many: bool, rng: np.random.Generator
) -> None:
    """An op fused after a product may read rows, columns, both, or one number."""
    graph = Graph(tail)
    x = graph.input("x", (3, 40, 70))
    y = graph.input("y", (3, 70, 90) if many else (70, 90))
    made, feeds = x @ y, {"x": floats(rng, 3, 40, 70), "y": floats(rng, *y.shape)}
    for at, shape in enumerate(TAILS[tail]):
        made = made * 0.5 + graph.input(f"z{at}", shape)
        feeds[f"z{at}"] = floats(rng, *shape)
    graph.set_outputs([graph.gelu(made)])
    run = Run(graph)
    assert len(run.joined) == 1
    run.check(**feeds)


def test_a_choice_by_truth_values(rng: np.random.Generator) -> None:
    graph = Graph("choice")
    x, y = graph.input("x", (80, 70)), graph.input("y", (70, 120))
    truth = graph.input("truth", (80, 120), "bool")
    graph.set_outputs([graph.where(truth, x @ y, -1.0)])
    run = Run(graph)
    assert len(run.joined) == 1
    run.check(
        x=floats(rng, 80, 70), y=floats(rng, 70, 120), truth=floats(rng, 80, 120) > 0
    )


@pytest.mark.parametrize(
    "what", ["is an output", "is read twice", "meets another", "a power", "a product"]
)
def test_a_product_that_others_need_is_made(
    what: str, rng: np.random.Generator
) -> None:
    graph = Graph(what)
    x, y = graph.input("x", (40, 70)), graph.input("y", (70, 90))
    made = x @ y
    after = graph.tanh(made) * 2.0
    outputs = [after]
    if what == "is an output":
        outputs.append(made)
    elif what == "is read twice":
        outputs.append(graph.sum(made, (0,)))
    elif what == "meets another":
        outputs = [graph.tanh(graph.reshape(made, (40, 1, 90))) * graph.exp(x @ y)]
    elif what == "a power":
        outputs = [graph.pow(graph.abs(made) + 1.0, 1.5)]
    else:
        outputs = [after @ graph.transpose(after, (1, 0))]
    graph.set_outputs(outputs)
    Run(graph).check(x=0.1 * floats(rng, 40, 70), y=floats(rng, 70, 90))


def test_blas_serves_until_the_code_is_there(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(workshop, "WORTH_S", 0.0)
    for shop in (product_kernels, region_kernels):
        shop._made.clear()
    graph = Graph("later")
    x, y = graph.input("x", (64, 70)), graph.input("y", (70, 90))
    graph.set_outputs([graph.gelu(x @ y + graph.input("b", (90,)))])
    run = Run(graph)
    feeds = {"x": floats(rng, 64, 70), "y": floats(rng, 70, 90), "b": floats(rng, 90)}
    run.check(**feeds)
    for shop in (product_kernels, region_kernels):
        shop.finish(60)
    assert product_kernels._made
    run.check(**feeds)


def test_numbers_that_are_none_stay_so(rng: np.random.Generator) -> None:
    x, y = floats(rng, 50, 600), floats(rng, 600, 100)
    x[3, 4], x[9, 599], y[7, 8] = np.nan, np.inf, -np.inf
    out = np.empty((50, 100), np.float32)
    multiply(x, y, out)
    with np.errstate(invalid="ignore"):
        right = x @ y
    np.testing.assert_allclose(out, right, 1e-4, 1e-4)


def test_weights_of_few_rows_are_kept_in_panels(rng: np.random.Generator) -> None:
    """Weights are in panels from the second run on; new ones are used and let go of."""
    graph = Graph("weights")
    x, y = graph.input("x", (32, 200)), graph.param("y", (200, 250))
    graph.set_outputs([x @ y])
    run, feeds = Run(graph), {"x": floats(rng, 32, 200)}
    (call,) = (call.function for call in run.program.calls)
    assert isinstance(call, ProductCall)
    assert call.is_weight
    kept = PANELS._made
    before = len(kept)
    for _ in range(3):
        value = floats(rng, 200, 250)
        drive(run.backend.set_param(run.program, "y", value))
        for count in (before, before + 1, before + 1):
            (found,) = drive(run.backend.run(run.program, feeds))
            near(found, feeds["x"].astype(float) @ value, 200)
            assert len(kept) <= count + 1
    drive(run.backend.release(run.program))
    gc.collect()
    assert len(kept) == before


@pytest.mark.parametrize("how", ["turned by the graph", "turned before"])
def test_weights_that_lie_turned_are_laid_out(
    how: str, rng: np.random.Generator
) -> None:
    """Turned weights, as PyTorch keeps them ([columns, terms]), are laid out once."""
    graph = Graph("turned")
    x = graph.input("x", (200, 150))
    value = floats(rng, 250, 150)
    if how == "turned by the graph":
        y = graph.transpose(graph.param("y", (250, 150)), (1, 0))
    else:
        y, value = graph.param("y", (150, 250)), value.T
    graph.set_outputs([x @ y])
    run, feeds = Run(graph), {"x": floats(rng, 200, 150)}
    drive(run.backend.set_param(run.program, "y", value))
    before = len(PANELS._made)
    right = evaluate(graph, {"y": value, **feeds}, promote=True)[0]
    for _ in range(3):
        (found,) = drive(run.backend.run(run.program, feeds))
        near(found, right, 150)
    assert len(PANELS._made) == before + 1


def test_a_matrix_that_is_turned_and_no_weight_is_blas_s(
    rng: np.random.Generator,
) -> None:
    graph = Graph("turned")
    x, y = graph.input("x", (200, 150)), graph.input("y", (250, 150))
    graph.set_outputs([graph.tanh(x @ graph.transpose(y, (1, 0)) * 0.1)])
    run = Run(graph)
    run.check(x=floats(rng, 200, 150), y=floats(rng, 250, 150))
    run.check(x=floats(rng, 200, 150), y=floats(rng, 250, 150))
