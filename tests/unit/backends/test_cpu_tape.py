"""Chains of small work as one call of machine code: NumPy's numbers, whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlxweb.backends import cpu_tape
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_regions import region_kernels
from rlxweb.backends.cpu_tape import Segment, tape_kernels
from rlxweb.backends.evaluate import evaluate
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.machine import workshop
from rlxweb.machine.library import Code, object_code
from rlxweb.machine.tape import tape_text, tiles
from rlxweb.machine.wasm import IN_A_TAB
from rlxweb.smoke.grown import GrownGraph
from tests.agreement import Array
from tests.graphs.strategy import graphs

pytestmark = [] if IN_A_TAB else [pytest.mark.requires_fast]


@pytest.fixture(autouse=True)
def every_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tape for whatever can be one, made before going on."""
    monkeypatch.setenv("RLX_FAST", "wait")
    monkeypatch.setattr(cpu_tape, "LEAST_STEPS", 0)


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


class Taped:
    """A graph on the CPU, its params set; `runs` counts those of tapes."""

    def __init__(self, graph: Graph, params: dict[str, Array] | None = None) -> None:
        self.backend, self.graph = CpuBackend(), graph
        plan = compile_graph(graph, self.backend.target)
        self.program = drive(self.backend.prepare(plan))
        self.params: dict[str, Array] = {}
        for name, value in (params or {}).items():
            self.set(name, value)

    def set(self, name: str, value: Array) -> None:
        self.params[name] = value
        drive(self.backend.set_param(self.program, name, value))

    def run(self, **feeds: Array) -> list[Array]:
        return drive(self.backend.run(self.program, feeds))

    @property
    def segments(self) -> list[Segment]:
        parts = getattr(self.program.compute, "args", ())
        return [one for one in parts[-1] if isinstance(one, Segment)]

    @property
    def is_whole(self) -> bool:
        """Return whether the whole program is one tape."""
        parts = self.program.compute.args[-1]
        return len(parts) == 1 and parts[0].tape is not None

    def check(self, **feeds: Array) -> None:
        """Twice, as params that stay are laid out the second time."""
        wanted = evaluate(self.graph, {**feeds, **self.params}, promote=True)
        for _ in range(3):
            for found, right in zip(self.run(**feeds), wanted, strict=True):
                top = max(1.0, float(np.abs(right).max()))
                np.testing.assert_allclose(found, right, 2e-5, 2e-6 * top)
        assert self.is_whole


@pytest.mark.requires_fast
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_its_functions_can_be_compiled_for_any_vectors(nbytes: int) -> None:
    code = Code(object_code(tape_text(nbytes)))
    for tile in tiles(nbytes):
        assert code.function(tile.name, None) is not None


@given(
    rows=st.integers(1, 40),
    terms=st.integers(1, 70),
    columns=st.integers(1, 40),
    param=st.sampled_from(["x", "y", "none", "both"]),
    turned=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_products_of_any_sizes(
    rows: int,
    terms: int,
    columns: int,
    param: str,
    turned: tuple[bool, bool],
    seed: int,
) -> None:
    graph, held, feeds = Graph("product"), {}, {}
    rng = np.random.default_rng(seed)

    def operand(name: str, shape: tuple[int, int], is_turned: bool) -> Any:
        shape = shape[::-1] if is_turned else shape
        if param in (name, "both"):
            held[name], made = floats(rng, *shape), graph.param(name, shape)
        else:
            feeds[name], made = floats(rng, *shape), graph.input(name, shape)
        return graph.transpose(made, (1, 0)) if is_turned else made

    x = operand("x", (rows, terms), turned[0])
    y = operand("y", (terms, columns), turned[1])
    graph.set_outputs([x @ y + 1.0])
    Taped(graph, held).check(**feeds)


@given(
    batch=st.integers(1, 2),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 5), st.integers(1, 20)),
    size=st.tuples(st.integers(1, 7), st.integers(3, 12)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    pads=st.integers(1, 2),
    weights=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_convolutions_of_any_sizes(
    batch: int,
    groups: int,
    channels: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: int,
    weights: bool,
    seed: int,
) -> None:
    """Sums of convolutions on a tape pass an activation, in whatever order they lie."""
    graph = Graph("convolution")
    c, m = channels
    shape = (groups * m, c, *kernel)
    x = graph.input("x", (batch, groups * c, *size))
    w = graph.param("w", shape) if weights else graph.input("w", shape)
    made = graph.conv(x, w, stride=strides, padding=pads, groups=groups)
    rng = np.random.default_rng(seed)
    bias = graph.constant(floats(rng, groups * m, 1, 1))
    graph.set_outputs([graph.relu(made + bias) + made])
    feeds = {"x": floats(rng, *x.shape)}
    held = {"w": floats(rng, *shape)}
    if weights:
        Taped(graph, held).check(**feeds)
    else:
        Taped(graph).check(**feeds, **held)


def _padded(graph: Graph, x: Any, axis: int, draw: st.DrawFn, mode: str) -> Any:
    widths = [(0, 0)] * x.rank
    widths[axis] = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    return graph.pad(x, widths, mode=mode)


def _cut(graph: Graph, x: Any, axis: int, draw: st.DrawFn) -> Any:
    start = draw(st.integers(0, x.shape[axis] - 1))
    return graph.narrow(x, axis, start, x.shape[axis] - start)


def _picked(graph: Graph, x: Any, axis: int, draw: st.DrawFn) -> Any:
    n = x.shape[axis]
    at = draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4))
    return graph.gather(x, graph.constant(np.int32(at)), axis=axis)


MOVES: dict[str, Callable[..., Any]] = {
    "reshape": lambda g, x, axis, draw: g.reshape(x, (-1, x.shape[axis])),
    "transpose": lambda g, x, axis, draw: g.transpose(
        x, draw(st.permutations(range(x.rank)))
    ),
    "narrow": _cut,
    "expand": lambda g, x, axis, draw: g.expand(x, (2, *x.shape)),
    "pad": partial(_padded, mode="constant"),
    "edge": partial(_padded, mode="edge"),
    "flip": lambda g, x, axis, draw: g.flip(x, (axis,)),
    "roll": lambda g, x, axis, draw: g.roll(x, 2, axis),
    "gather": _picked,
    "concat": lambda g, x, axis, draw: g.concat([x, x * 2.0], axis=axis),
}


@st.composite
def moves(draw: st.DrawFn) -> tuple[Graph, tuple[int, ...]]:
    """Chains of what only moves, some of it joined."""
    graph = Graph("moves")
    shape = draw(st.tuples(*[st.integers(1, 5)] * 3))
    x = last = graph.input("x", shape)
    for _ in range(draw(st.integers(1, 6))):
        axis = draw(st.integers(0, last.rank - 1))
        last = MOVES[draw(st.sampled_from(sorted(MOVES)))](graph, last, axis, draw)
        if prod(last.shape) > 2000:
            last = graph.narrow(last, 0, 0, 1)
    graph.set_outputs([last + 0.5, last, graph.sum(last, (0,)), graph.mean(x)])
    return graph, shape


@given(moves(), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_chains_of_moves(case: tuple[Graph, tuple[int, ...]], seed: int) -> None:
    graph, shape = case
    Taped(graph).check(x=floats(np.random.default_rng(seed), *shape))


def test_any_graph() -> None:
    """Segments are taped as far as they can be; the rest is run as ever."""
    taped = 0

    @seed(14)
    @given(graphs())
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    def check(case: GrownGraph) -> None:
        nonlocal taped
        one = Taped(case.graph)
        for _ in range(2):
            wrong = case.misses(one.run(**case.feeds))
            assert wrong == [], f"{wrong}\n{case}"
        taped += any(segment.tape is not None for segment in one.segments)

    check()
    assert taped > 20


def lstm_like() -> Graph:
    graph = Graph("step")
    x, h = graph.input("x", (1, 24)), graph.input("h", (1, 32))
    w, b = graph.param("w", (56, 128)), graph.param("b", (128,))
    gates = graph.concat([x, h], axis=1) @ w + b
    i, f, o, c = (graph.narrow(gates, 1, 32 * at, 32) for at in range(4))
    made = graph.sigmoid(i) * graph.tanh(c) + graph.sigmoid(f) * h
    graph.set_outputs([graph.sigmoid(o) * graph.tanh(made), made, w, h])
    return graph


def test_params_that_are_set_anew_are_used(rng: np.random.Generator) -> None:
    """A param that is set between two runs is used, and also where it is an output."""
    w, b = floats(rng, 56, 128), floats(rng, 128)
    one = Taped(lstm_like(), {"w": w, "b": b})
    feeds = {"x": floats(rng, 1, 24), "h": floats(rng, 1, 32)}
    one.check(**feeds)
    for value in (2 * w, w, np.zeros_like(w)):
        one.set("w", value)
        one.check(**feeds)
    one.set("b", floats(rng, 128))
    one.check(**feeds)


def test_results_are_the_callers_own(rng: np.random.Generator) -> None:
    """A result may be written into, and so may what was given: no run changes."""
    one = Taped(lstm_like(), {"w": floats(rng, 56, 128), "b": floats(rng, 128)})
    feeds = {"x": floats(rng, 1, 24), "h": floats(rng, 1, 32)}
    one.check(**feeds)
    first = one.run(**feeds)
    kept = [np.array(array) for array in first]
    for array in first:
        array[...] = 7
    again = one.run(**feeds)
    for found, right in zip(again, kept, strict=True):
        np.testing.assert_array_equal(found, right)
    one.run(x=floats(rng, 1, 24), h=floats(rng, 1, 32))
    for found, right in zip(again, kept, strict=True):
        np.testing.assert_array_equal(found, right)


def test_arrays_may_lie_as_they_like(rng: np.random.Generator) -> None:
    """Arrays may be turned, parts of another, read-only, or of another byte order."""
    graph = Graph("any")
    graph.set_outputs([graph.exp(graph.input("x", (5, 7))) * 2.0])
    one, base = Taped(graph), floats(rng, 7, 10)
    one.check(x=base.T[:5])
    one.check(x=base[:5, ::-1][:, :7])
    still = floats(rng, 5, 7)
    still.flags.writeable = False
    one.check(x=still)


def test_threads_have_arenas_of_their_own(rng: np.random.Generator) -> None:
    one = Taped(lstm_like(), {"w": floats(rng, 56, 128), "b": floats(rng, 128)})
    given_ = [{"x": floats(rng, 1, 24), "h": floats(rng, 1, 32)} for _ in range(8)]
    one.check(**given_[0])
    right = [one.run(**feeds)[0] for feeds in given_]

    def often(at: int) -> None:
        for _ in range(200):
            np.testing.assert_array_equal(one.run(**given_[at])[0], right[at])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(often, range(8)))


def test_numbers_that_are_none_stay_so(rng: np.random.Generator) -> None:
    """Infinity and NaN go through moves, products and sums as NumPy's do."""
    graph = Graph("none")
    x, w = graph.input("x", (3, 20)), graph.param("w", (20, 5))
    y = graph.relu(graph.pad(x, [(0, 0), (1, 1)]))
    graph.set_outputs([x @ w, y, graph.sum(x, (1,)), graph.mean(x, (0,))])
    one = Taped(graph, {"w": floats(rng, 20, 5)})
    feeds = floats(rng, 3, 20)
    feeds[0, 3], feeds[1, 4], feeds[2, 5] = np.nan, np.inf, -np.inf
    wanted = evaluate(graph, {"x": feeds, **one.params})
    for _ in range(2):
        for found, right in zip(one.run(x=feeds), wanted, strict=True):
            np.testing.assert_allclose(found, right, 1e-5, 1e-5)
    assert one.is_whole


def test_whole_numbers(rng: np.random.Generator) -> None:
    """Whole numbers of 32 bits wrap, also where they fill no vector."""
    graph = Graph("whole")
    x = graph.input("x", (40,), "i32")
    u = graph.input("u", (3,), "u32")
    graph.set_outputs([graph.flip(x * x + 5, (0,)), u // graph.roll(u, 1, 0)])
    one = Taped(graph)
    feeds = {
        "x": rng.integers(-(2**31), 2**31, 40).astype(np.int32),
        "u": np.array([5, 2, 3000000000], np.uint32),
    }
    for _ in range(2):
        found = one.run(**feeds)
        for made, right in zip(found, evaluate(graph, feeds), strict=True):
            np.testing.assert_array_equal(made, right)


def test_steps_are_run_one_by_one_until_the_code_is_there(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(workshop, "WORTH_S", 0.0)
    for shop in (tape_kernels, region_kernels):
        shop._made.clear()
    one = Taped(lstm_like(), {"w": floats(rng, 56, 128), "b": floats(rng, 128)})
    feeds = {"x": floats(rng, 1, 24), "h": floats(rng, 1, 32)}
    for _ in range(3):
        one.run(**feeds)
    for shop in (tape_kernels, region_kernels):
        shop.finish(60)
    one.check(**feeds)


@pytest.mark.parametrize("what", ["off", "a power", "large", "float64"])
def test_what_is_no_tape(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(what)
    size = cpu_tape.MOST + 1 if what == "large" else 8
    x = graph.input("x", (size,), "f64" if what == "float64" else "f32")
    y = graph.pow(x, x) if what == "a power" else graph.exp(x)
    graph.set_outputs([y])
    if what == "off":
        monkeypatch.setenv("RLX_FAST", "off")
    one = Taped(graph)
    feeds = np.full(size, 2.0, x.dtype.numpy)
    right = evaluate(graph, {"x": feeds})[0]
    np.testing.assert_allclose(one.run(x=feeds)[0], right, 1e-6)
    assert not one.segments


def test_weights_that_are_used_as_they_are_lie_once(rng: np.random.Generator) -> None:
    """A row times a matrix reads the param where it is."""
    graph = Graph("row")
    x, w = graph.input("x", (1, 256)), graph.param("w", (256, 256))
    graph.set_outputs([graph.tanh(x @ w)])
    one = Taped(graph, {"w": floats(rng, 256, 256)})
    one.check(x=0.1 * floats(rng, 1, 256))
    (segment,) = one.segments
    assert segment.tape is not None
    held = sum(array.nbytes for array in segment.tape.record.kept)
    shared = one.program.params["w"].nbytes
    assert held - shared < 4096
