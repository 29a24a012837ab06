"""Compare the array library engines with NumPy: every op and every special value.

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

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.smoke.case import PreparedCase, SmokeCase, sample_cases
from rlxweb.smoke.special_value_cases import elementwise_cases
from rlxweb.smoke.view_input_cases import view_cases
from tests.conftest import MISSING_FEATURES
from tests.engines_under_test import (
    ARRAY_LIBRARIES,
    Array,
    EngineUnderTest,
    engine,
    missing_features,
)
from tests.ops.op_cases import op_names
from tests.ops.special_values import INF, NAN, SPECIAL_VALUES
from tests.ops.test_agreement import NONFINITE_CASES, case_failures
from tests.suite_tiers import thin_out_cases

U32, F64 = (pytest.param(t, marks=pytest.mark.feature(t)) for t in ("u32", "f64"))
MAX_VIEWS = {"jax-cpu": 2}
"""Library → number of views per op. The view code is the same for all libraries; JAX
compiles it slowly, so the others test all views.
"""


@pytest.fixture(scope="module", params=ARRAY_LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """Label of an array library, each in turn."""
    return str(request.param)


class CombinedCases:
    """Prepared cases as one graph, compiled once and judged one by one on each set of
    feeds.
    """

    def __init__(self, cases: Mapping[str, PreparedCase]) -> None:
        self.cases, self.graph, outs = cases, Graph("together"), []
        for label, prepared in cases.items():
            outs += self._append_graph(label, prepared.graph)
        self.graph.set_outputs(outs)

    def _append_graph(self, label: str, graph: Graph) -> list[Any]:
        tensors: dict[int, Any] = {}
        for node in graph.nodes():
            tensor_type, operands = node.type, [tensors[i] for i in node.inputs]
            if node.op == "input":
                name = f"{label} {node.name}"
                tensors[node.id] = self.graph.input(
                    name, tensor_type.shape, tensor_type.dtype
                )
            elif node.op == "constant":
                tensors[node.id] = self.graph.constant(node.attrs["value"].array)
            else:
                tensors[node.id] = self.graph.apply(node.op, *operands, **node.attrs)
        return [tensors[i] for i in graph.outputs]

    @contextmanager
    def prepare_on(self, runner: EngineUnderTest) -> Iterator[Any]:
        """Yield a function that runs other cases of the same graphs and returns failure
        lines.
        """
        engine = runner.engine
        program = run_blocking(engine.prepare(compile_graph(self.graph, engine.target)))

        def run_cases(cases: Mapping[str, PreparedCase]) -> list[str]:
            feeds: dict[str, Array] = {}
            for label, prepared in {**self.cases, **cases}.items():
                feeds |= {f"{label} {name}": x for name, x in prepared.feeds.items()}
            outs = run_blocking(engine.run(program, feeds))
            outputs_by_case = dict(zip(self.cases, outs, strict=True))
            mismatches = {
                k: prepared.judge([outputs_by_case[k]]).reason
                for k, prepared in cases.items()
            }
            return [
                f"{k} on {runner.name}: {mismatch}"
                for k, mismatch in mismatches.items()
                if mismatch
            ]

        try:
            yield run_cases
        finally:
            run_blocking(program.close())


def supported_cases(
    runner: EngineUnderTest, cases: Sequence[SmokeCase]
) -> dict[str, PreparedCase]:
    """Prepare the cases whose types the engine supports, and check that it rejects the
    others.
    """
    prepared_cases = {case.name: case.prepare() for case in cases}
    dtypes = runner.engine.target.array_dtypes
    unsupported = [
        prepared for prepared in prepared_cases.values() if prepared.dtypes - dtypes
    ]
    if unsupported:
        assert case_failures(runner, unsupported) == []
    return {
        k: prepared
        for k, prepared in prepared_cases.items()
        if prepared.dtypes <= dtypes
    }


def nonfinite_rounds(name: str) -> list[dict[str, SmokeCase]]:
    """Return rounds of nonfinite cases of an op: one case per sample in each round."""
    cases_by_sample: dict[str, list[SmokeCase]] = {}
    for case in NONFINITE_CASES.get(name, ()):
        cases_by_sample.setdefault(
            f"samples/{name}/{case.name.split('/')[2]}", []
        ).append(case)
    rounds = zip_longest(*cases_by_sample.values())
    return [
        {k: c for k, c in zip(cases_by_sample, round_cases, strict=True) if c}
        for round_cases in rounds
    ]


@pytest.mark.full("jax-cpu", "mlx")
@pytest.mark.parametrize("name", thin_out_cases(op_names(), 3))
def test_every_op_agrees(name: str, library: str) -> None:
    """Plain and through views, with the engine's variants and without.

    Of sums, products, norms, softmax, rankings also with one odd value in each input
    in turn: fed to the same graphs.
    """
    runner, op = engine(library), registry.get(name)
    views = islice(view_cases(op), MAX_VIEWS.get(library))
    prepared_cases = supported_cases(runner, [*sample_cases(op), *views])
    rounds = nonfinite_rounds(name)
    runners = [runner]
    if name in {row.op for row in runner.engine.kernels.variants}:
        runners.append(engine(library, variants=False))
    cases_with_nonfinite = {
        k: t for k, t in prepared_cases.items() if rounds and k in rounds[0]
    }
    others = {k: t for k, t in prepared_cases.items() if k not in cases_with_nonfinite}
    for tested_runner in runners:
        for group in filter(None, (cases_with_nonfinite, others)):
            with CombinedCases(group).prepare_on(tested_runner) as run_cases:
                assert run_cases(group) == []
                for round_cases in rounds if group is cases_with_nonfinite else ():
                    nonfinite_group = {
                        k: c.prepare()
                        for k, c in round_cases.items()
                        if k in cases_with_nonfinite
                    }
                    assert run_cases(nonfinite_group) == []


def test_library_lacks_exactly_the_listed_features(library: str) -> None:
    words = {
        word for name in ARRAY_LIBRARIES for word in MISSING_FEATURES.get(name, ())
    }
    assert missing_features(engine(library), words) == MISSING_FEATURES.get(
        library, set()
    )


def test_special_values_of_elementwise_ops(library: str) -> None:
    """Every special value, every pair of them, and foldable expressions."""
    runner = engine(library)
    prepared_cases = supported_cases(runner, [*elementwise_cases((1,))])
    with CombinedCases(prepared_cases).prepare_on(runner) as run_cases:
        assert run_cases(prepared_cases) == []


@pytest.mark.parametrize("to", ["i32", "i64", U32, "bool", "f32", "f16", F64])
@pytest.mark.parametrize("source", ["f32", F64, "f16"])
def test_casts_saturate(source: str, to: str, library: str) -> None:
    """NaN becomes 0 as an integer and true as a bool."""
    graph = Graph("cast")
    graph.set_outputs([graph.cast(graph.input("x", SPECIAL_VALUES.size, source), to)])
    with np.errstate(all="ignore"):
        feeds = {"x": SPECIAL_VALUES.astype(DType(source).numpy)}
    want, got = (engine(e).run(graph, feeds)[0] for e in (None, library))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i32", "i64", U32])
def test_integers_at_their_ends(dtype: str, library: str) -> None:
    """Integers wrap at their ends as NumPy's do, and a division by 0 is 0."""
    ends = np.iinfo(DType(dtype).numpy)
    edge_values = [0, 1, 2, 7, ends.min, ends.max, ends.min + 1, ends.max - 1]
    edge_values += [-1, -2, -7] if ends.min else []
    x, y = (
        a.ravel() for a in np.meshgrid(*[np.array(edge_values, DType(dtype).numpy)] * 2)
    )
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
    for runner in (engine(library), engine(library, variants=False)):
        np.testing.assert_array_equal(runner.run(graph, {"x": x})[0], want)


def test_feeds_of_any_memory_layout(library: str) -> None:
    """Read-only, reversed, gappy, byte-swapped, zero-rank and empty arrays are
    accepted.
    """
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    packed = np.zeros(4, [("a", "u1"), ("b", "f4")])
    packed["b"] = [1, 2, 3, 4]
    arrays: list[Any] = [
        read_only,
        base[::-1, ::2],
        base.T,
        base.astype(">f4"),
        base[:0],
    ]
    for array in (*arrays, np.array(2, np.float32), packed["b"]):
        graph = Graph("anyhow")
        graph.set_outputs([graph.input("x", array.shape) + 1.0])
        for runner in (engine(library), engine(None)):
            got = runner.run(graph, {"x": array})[0]
            np.testing.assert_array_equal(got, array + 1)
            assert got.dtype == np.float32


def test_results_own_their_memory(library: str) -> None:
    """Writing into one changes no input, no constant, no other and no later run."""
    graph = Graph("leaves")
    x = graph.input("x", (2, 3))
    c = graph.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    graph.set_outputs([x, c, graph.reshape(x, (6,)), x + c, x + c])
    input_array = np.ones((2, 3), np.float32)
    first = engine(library).run(graph, {"x": input_array})
    copies = [out.copy() for out in first]
    for out in first:
        out[...] = -1
    assert input_array.tolist() == [[1] * 3] * 2
    for got, want in zip(
        engine(library).run(graph, {"x": input_array}), copies, strict=True
    ):
        np.testing.assert_array_equal(got, want)


def engine_facts(runner: EngineUnderTest) -> tuple[str, ...]:
    identity = runner.engine.identity
    return identity.name, identity.adapter, identity.api, identity.driver


def test_engine_describes_itself(library: str) -> None:
    """The driver names the version, for measurements to go by; it is software."""
    runner = engine(library)
    name, adapter, api, driver = engine_facts(runner)
    assert all((name, adapter, api, driver))
    assert runner.engine.identity.software
    assert "CPU" in adapter
    assert any(c.isdigit() for c in driver)
