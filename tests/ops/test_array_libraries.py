"""The engines over array libraries: every op, every special value, NumPy's answers.

The libraries compute on the CPU here, as on any machine; each must be there. What an
engine does not have is refused, never computed in another type. Cases go into one graph
each op, so that what compiles plans does so once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import pytest

from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.smoke.case import Case, Trial, plain
from rlxweb.smoke.special import elementwise_cases
from rlxweb.smoke.views import through_views
from tests.agreement import ARRAYS, Array, Engine, engine, lacked
from tests.conftest import LACKS
from tests.ops.special import INF, NAN, SPECIAL
from tests.ops.test_agreement import ODD, wrong
from tests.ops.ways import names
from tests.tiers import thinned

U32, F64 = (pytest.param(t, marks=pytest.mark.feature(t)) for t in ("u32", "f64"))
FEW_VIEWS = {"jax-cpu": 2}
"""Library → views of each op. What makes arrays of views is the same for all of them;
JAX takes long to compile it, so the others have all views.
"""


@pytest.fixture(scope="module", params=ARRAYS)
def library(request: pytest.FixtureRequest) -> str:
    """The library's label, each in turn."""
    return str(request.param)


class Together:
    """Trials as one graph, prepared once; fed anew, they are judged one by one."""

    def __init__(self, trials: Mapping[str, Trial]) -> None:
        self.trials, self.graph, outs = trials, Graph("together"), []
        for label, trial in trials.items():
            outs += self._put(label, trial.graph)
        self.graph.set_outputs(outs)

    def _put(self, label: str, graph: Graph) -> list[Any]:
        made: dict[int, Any] = {}
        for node in graph.nodes():
            kind, given = node.type, [made[i] for i in node.inputs]
            if node.op == "input":
                name = f"{label} {node.name}"
                made[node.id] = self.graph.input(name, kind.shape, kind.dtype)
            elif node.op == "constant":
                made[node.id] = self.graph.constant(node.attrs["value"].array)
            else:
                made[node.id] = self.graph.apply(node.op, *given, **node.attrs)
        return [made[i] for i in graph.outputs]

    @contextmanager
    def on(self, one: Engine) -> Iterator[Any]:
        """How other trials of the same graphs are run, with what is wrong of each."""
        backend = one.backend
        program = drive(backend.prepare(compile_graph(self.graph, backend.target)))

        def said(trials: Mapping[str, Trial]) -> list[str]:
            feeds: dict[str, Array] = {}
            for label, trial in {**self.trials, **trials}.items():
                feeds |= {f"{label} {name}": x for name, x in trial.feeds.items()}
            outs = drive(backend.run(program, feeds))
            every = dict(zip(self.trials, outs, strict=True))
            whys = {k: trial.judge([every[k]]).why for k, trial in trials.items()}
            return [f"{k} on {one.name}: {why}" for k, why in whys.items() if why]

        try:
            yield said
        finally:
            drive(backend.release(program))


def held(one: Engine, cases: Sequence[Case]) -> dict[str, Trial]:
    """The trials of types that the engine has; of others it refuses each."""
    trials = {case.name: case.make() for case in cases}
    has = one.backend.target.accepts
    refused = [trial for trial in trials.values() if trial.dtypes - has]
    if refused:
        assert wrong(one, refused) == []
    return {k: trial for k, trial in trials.items() if trial.dtypes <= has}


def turns(name: str) -> list[dict[str, Case]]:
    """Odd values for samples of an op, by sample: one of each at a time."""
    odd: dict[str, list[Case]] = {}
    for case in ODD.get(name, ()):
        odd.setdefault(f"samples/{name}/{case.name.split('/')[2]}", []).append(case)
    every = zip_longest(*odd.values())
    return [{k: c for k, c in zip(odd, turn, strict=True) if c} for turn in every]


@pytest.mark.full("jax-cpu", "mlx")
@pytest.mark.parametrize("name", thinned(names(), 3))
def test_every_op_agrees(name: str, library: str) -> None:
    """Plain and through views, with the engine's variants and without.

    Of sums, products, norms, softmax, rankings also with one odd value in each input
    in turn: fed to the same graphs.
    """
    one, op = engine(library), registry.get(name)
    views = islice(through_views(op), FEW_VIEWS.get(library))
    trials, odd = held(one, [*plain(op), *views]), turns(name)
    ways = [one]
    if name in {row.op for row in one.backend.variants}:
        ways.append(engine(library, variants=False))
    fed = {k: t for k, t in trials.items() if odd and k in odd[0]}
    others = {k: t for k, t in trials.items() if k not in fed}
    for way in ways:
        for part in filter(None, (fed, others)):
            with Together(part).on(way) as said:
                assert said(part) == []
                for turn in odd if part is fed else ():
                    given = {k: c.make() for k, c in turn.items() if k in fed}
                    assert said(given) == []


def test_a_library_lacks_what_the_table_says(library: str) -> None:
    words = {word for name in ARRAYS for word in LACKS.get(name, ())}
    assert lacked(engine(library), words) == LACKS.get(library, set())


def test_special_values_of_elementwise_ops(library: str) -> None:
    """Every special value and every pair of them, and what folds on the way."""
    one = engine(library)
    trials = held(one, [*elementwise_cases((1,))])
    with Together(trials).on(one) as said:
        assert said(trials) == []


@pytest.mark.parametrize("to", ["i32", "i64", U32, "bool", "f32", "f16", F64])
@pytest.mark.parametrize("source", ["f32", F64, "f16"])
def test_casts_saturate(source: str, to: str, library: str) -> None:
    """NaN becomes 0 as an integer and true as a bool."""
    graph = Graph("cast")
    graph.set_outputs([graph.cast(graph.input("x", SPECIAL.size, source), to)])
    with np.errstate(all="ignore"):
        feeds = {"x": SPECIAL.astype(DType(source).numpy)}
    want, got = (engine(e).run(graph, feeds)[0] for e in (None, library))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i32", "i64", U32])
def test_integers_at_their_ends(dtype: str, library: str) -> None:
    """Integers wrap at their ends as NumPy's do, and a division by 0 is 0."""
    ends = np.iinfo(DType(dtype).numpy)
    few = [0, 1, 2, 7, ends.min, ends.max, ends.min + 1, ends.max - 1]
    few += [-1, -2, -7] if ends.min else []
    x, y = (a.ravel() for a in np.meshgrid(*[np.array(few, DType(dtype).numpy)] * 2))
    graph = Graph("ends")
    a, b = (graph.input(name, x.size, dtype) for name in "xy")
    outs = [a + b, a - b, a * b, a / b, graph.maximum(a, b), abs(a), graph.lt(a, b)]
    graph.set_outputs(outs if dtype == "u32" else [*outs, -a])
    feeds = {"x": x, "y": y}
    for got, want in zip(
        *(engine(e).run(graph, feeds) for e in (library, None)), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 5003)])
def test_nan_is_ranked_last(shape: tuple[int, ...], library: str) -> None:
    """NaN is ranked last, and equal values in order, zeros of either sign too."""
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    x[..., 1], x[..., 3] = NAN, -INF
    x[x == 0] *= np.where(np.arange((x == 0).sum()) % 2, -1, 1)
    k = min(shape[-1], 40)
    graph = Graph("ranks")
    graph.set_outputs([graph.topk(graph.input("x", shape), k)])
    want = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    for one in (engine(library), engine(library, variants=False)):
        np.testing.assert_array_equal(one.run(graph, {"x": x})[0], want)


def test_feeds_may_lie_anyhow(library: str) -> None:
    """Sealed, reversed, with gaps, in the other byte order, of no rank or no rows."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    sealed = base.copy()
    sealed.flags.writeable = False
    packed = np.zeros(4, [("a", "u1"), ("b", "f4")])
    packed["b"] = [1, 2, 3, 4]
    odd: list[Any] = [sealed, base[::-1, ::2], base.T, base.astype(">f4"), base[:0]]
    for array in (*odd, np.array(2, np.float32), packed["b"]):
        graph = Graph("anyhow")
        graph.set_outputs([graph.input("x", array.shape) + 1.0])
        for one in (engine(library), engine(None)):
            got = one.run(graph, {"x": array})[0]
            np.testing.assert_array_equal(got, array + 1)
            assert got.dtype == np.float32


def test_results_lie_in_memory_of_their_own(library: str) -> None:
    """Writing into one changes no input, no constant, no other and no later run."""
    graph = Graph("leaves")
    x = graph.input("x", (2, 3))
    c = graph.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    graph.set_outputs([x, c, graph.reshape(x, (6,)), x + c, x + c])
    fed = np.ones((2, 3), np.float32)
    first = engine(library).run(graph, {"x": fed})
    kept = [out.copy() for out in first]
    for out in first:
        out[...] = -1
    assert fed.tolist() == [[1] * 3] * 2
    for got, want in zip(engine(library).run(graph, {"x": fed}), kept, strict=True):
        np.testing.assert_array_equal(got, want)


def say(one: Engine) -> tuple[str, ...]:
    backend = one.backend
    return backend.name, backend.adapter, backend.api, backend.driver


def test_it_says_what_it_is(library: str) -> None:
    """The driver names the version, for measurements to go by; it is software."""
    one = engine(library)
    name, adapter, api, driver = say(one)
    assert all((name, adapter, api, driver))
    assert one.backend.software
    assert "CPU" in adapter
    assert any(c.isdigit() for c in driver)
