"""Compare row kernels in compiled code with NumPy node by node: random trees, formulas
by hand, other types, on one thread and several, with narrower vectors too; where Python
itself runs in WebAssembly, in WebAssembly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from rlxweb.codegen import native_row_reduction
from rlxweb.codegen.native_row_reduction import RowKernelCall, row_kernels
from rlxweb.codegen.row_kernel import RowKernel
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph
from tests.cpu_kernel_settings import SETTINGS, narrow_vectors
from tests.graphs.row_reduction_graphs import (
    HANDWRITTEN,
    RowReductionTree,
    handwritten_outputs,
    reduction_trees,
    relative_error,
)
from tests.prepared_cpu_graph import PreparedCpuGraph
from tests.suite_tiers import MAX_EXAMPLES

pytestmark = [] if IN_BROWSER else pytest.mark.requires_fast
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
VECTORS = [name for name in SETTINGS if name.endswith("vectors")]
RUN_SETTINGS = ["here"] if IN_BROWSER else ["here", "threads", *VECTORS]
MIN_ROW_LENGTH = 4 if IN_BROWSER else 1
NOT_COMPILED = ("whole numbers", "unsigned")
"""Formulas with reductions of integers."""


@pytest.fixture(params=RUN_SETTINGS)
def compiled_runs(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Compile kernels of any size; gives a list that grows with each run of one."""
    runs: list[str] = []
    run_kernel = RowKernelCall._run_kernel

    def note_run(call: RowKernelCall, *arguments: Any) -> Any:
        runs.append(call.spec.key)
        return run_kernel(call, *arguments)

    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(RowKernelCall, "_run_kernel", note_run)
        patch.setenv("RLX_FAST", "wait")
        for name in ("MIN_WORK", "MIN_BLOCK_ELEMENTS"):
            patch.setattr(native_row_reduction, name, 1)
        patch.setattr(native_row_reduction, "MIN_ROW_LENGTH", MIN_ROW_LENGTH)
        if request.param == "threads":
            patch.setattr(native_row_reduction, "MIN_THREADED_ELEMENTS", 1)
            patch.setattr(native_row_reduction, "MIN_TASK_ELEMENTS", 64)
        elif request.param.endswith("vectors"):
            nbytes = int(request.param.partition("-")[0])
            stack.enter_context(narrow_vectors(nbytes))
        yield runs


def test_random_row_reductions(compiled_runs: list[str]) -> None:
    """Rows of any length, several axes, transposed and broadcast operands."""
    examples = MAX_EXAMPLES["default"]

    @seed(2)
    @given(reduction_trees())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: RowReductionTree) -> None:
        graph, feeds = case.graph(), case.feeds()
        reference = evaluate(graph, feeds)
        outputs = PreparedCpuGraph(graph).run(**feeds)
        for got, want in zip(outputs, reference, strict=True):
            assert relative_error(got, want) < 2e-5, case

    check()
    assert len(set(compiled_runs)) > examples // 8


def run_compiled(graph: Graph, feeds: dict[str, Any], runs: list[str]) -> list[Any]:
    """Return the outputs, each of which a compiled row kernel computed."""
    runs.clear()
    outputs = PreparedCpuGraph(graph).run(**feeds)
    assert len(runs) == len(outputs)
    return outputs


@pytest.mark.parametrize("name", [n for n in HANDWRITTEN if n not in NOT_COMPILED])
@pytest.mark.parametrize("shape", [(7, 10), (2, 3, 33), (5, 300), (1, 4096), (64, 64)])
def test_formulas_written_by_hand(
    compiled_runs: list[str],
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
) -> None:
    graph = Graph(name)
    x, y = graph.input("x", shape), graph.input("y", shape[-1:])
    graph.set_outputs(handwritten_outputs(name, graph, x, y))
    feeds = {
        "x": np.round(rng.standard_normal(shape).astype("f4"), 2),
        "y": rng.standard_normal(shape[-1:]).astype("f4"),
    }
    outputs = PreparedCpuGraph(graph).run(**feeds)
    assert compiled_runs
    for got, want in zip(outputs, evaluate(graph, feeds, promote=True), strict=True):
        assert relative_error(got, want) < 2e-6


def test_values_that_are_not_finite_stay_in_their_rows(
    compiled_runs: list[str],
) -> None:
    x = np.random.default_rng(4).standard_normal((6, 45)).astype("f4")
    x[1, 7], x[2, 3], x[3, 4] = np.nan, np.inf, -np.inf
    x[4] = -np.inf
    graph = Graph("not finite")
    tensor = graph.input("x", x.shape)
    twice = tensor + tensor
    power = graph.exp(tensor - graph.max(tensor, -1, keep_dim=True))
    graph.set_outputs(
        [
            graph.max(twice, -1),
            graph.min(twice, -1),
            graph.sum(twice, -1),
            power / graph.sum(power, -1, keep_dim=True),
            graph.logsumexp(tensor, -1),
        ]
    )
    outputs = run_compiled(graph, {"x": x}, compiled_runs)
    with np.errstate(all="ignore"):
        reference = evaluate(graph, {"x": x}, promote=True)
    for got, want in zip(outputs, reference, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_masks_whole_numbers_and_values_of_rows_are_read(
    compiled_runs: list[str], rng: np.random.Generator
) -> None:
    """A bool of one byte, an integer, a number and a bool for each row, and a result
    that is a bool.
    """
    graph, shape = Graph("masked"), (9, 70)
    x, mask = graph.input("x", shape), graph.input("mask", shape, "bool")
    count, scale = graph.input("count", shape, "i32"), graph.input("scale", (9, 1))
    is_used = graph.input("is_used", (9, 1), "bool")
    masked = graph.where(mask, x * scale, -np.inf)
    total = graph.logsumexp(graph.where(is_used, masked, x), -1, keep_dim=True)
    sums = graph.sum(graph.cast(count, "f32") * x, -1)
    graph.set_outputs([total, sums, x > graph.sum(x * x, -1, keep_dim=True) * 0.01])
    feeds = {
        "x": rng.standard_normal(shape).astype("f4"),
        "mask": rng.random(shape) < 0.5,
        "count": rng.integers(-9, 9, shape).astype(np.int32),
        "scale": rng.standard_normal((9, 1)).astype("f4"),
        "is_used": rng.random((9, 1)) < 0.5,
    }
    feeds["mask"][3], feeds["is_used"][3] = False, True
    outputs = run_compiled(graph, feeds, compiled_runs)
    for got, want in zip(outputs, evaluate(graph, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    assert outputs[0][3] == -np.inf


def test_sums_of_long_rows_keep_their_digits(compiled_runs: list[str]) -> None:
    x = np.random.default_rng(5).random((3, 50_000)).astype("f4")
    graph = Graph("long")
    tensor = graph.input("x", x.shape)
    graph.set_outputs([graph.sum(tensor * tensor, -1), graph.sum(tensor * 3.0, -1)])
    squares, triples = run_compiled(graph, {"x": x}, compiled_runs)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(squares, np.square(exact).sum(axis=-1), 5e-7)
    np.testing.assert_allclose(triples, 3 * exact.sum(axis=-1), 5e-7)


def test_numpy_computes_until_the_code_is_there(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    graph = Graph("large")
    x = graph.input("x", (64, 300))
    graph.set_outputs([graph.logsumexp(x, -1, keep_dim=True)])
    feeds = {"x": rng.standard_normal((64, 300)).astype("f4")}
    prepared = PreparedCpuGraph(graph)
    (call,) = [c.function for c in prepared.program.calls]
    assert isinstance(call, RowKernelCall)
    monkeypatch.setattr(row_kernels, "get_kernel", lambda spec: None)
    monkeypatch.setattr(call, "_run_kernel", pytest.fail)
    (got,) = prepared.run(**feeds)
    np.testing.assert_allclose(got, evaluate(graph, feeds)[0], 1e-6)


def test_a_call_keeps_its_kernel(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A kernel that the cache has dropped, or for which it is not asked, still runs."""
    monkeypatch.setenv("RLX_FAST", "wait")
    graph = Graph("large")
    graph.set_outputs([graph.logsumexp(graph.input("x", (64, 300)), -1, keep_dim=True)])
    feeds = {"x": rng.standard_normal((64, 300)).astype("f4")}
    prepared = PreparedCpuGraph(graph)
    (first,) = prepared.run(**feeds)
    (call,) = [c.function for c in prepared.program.calls]
    assert isinstance(call, RowKernelCall)
    monkeypatch.setattr(row_kernels, "get_kernel", pytest.fail)
    monkeypatch.setattr(call, "fallback", pytest.fail)
    np.testing.assert_array_equal(prepared.run(**feeds)[0], first)


def test_a_row_kernel_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing takes the kernel that the compiler was given."""
    monkeypatch.setenv("RLX_FAST", "background")
    from_nodes = Mock(side_effect=RowKernel.from_nodes)
    monkeypatch.setattr(RowKernel, "from_nodes", from_nodes)
    graph = Graph("large")
    graph.set_outputs([graph.logsumexp(graph.input("x", (64, 300)), -1, keep_dim=True)])
    PreparedCpuGraph(graph)
    from_nodes.assert_called_once()


def test_what_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements, short rows, float64 and integer reductions are left to NumPy."""
    monkeypatch.setenv("RLX_FAST", "background")

    def is_compiled(shape: tuple[int, ...], dtype: str = "f32") -> bool:
        graph = Graph("maybe")
        x = graph.input("x", shape, dtype)
        graph.set_outputs([graph.sum(x * x, -1) + graph.sum(x, -1)])
        program = PreparedCpuGraph(graph).program
        kinds = {step.kind for step in program.plan.steps}
        functions = [call.function for call in program.calls]
        # In a tab a sum alone is such a call too.
        has_call = any(isinstance(call, RowKernelCall) for call in functions)
        assert has_call or "lines" not in kinds
        return "lines" in kinds

    assert is_compiled((64, 64))
    assert not is_compiled((8, 64))
    assert not is_compiled((4096, 8))
    assert not is_compiled((2, 1 << 17))
    assert not is_compiled((64, 64), "f64")
    assert not is_compiled((64, 64), "i32")
