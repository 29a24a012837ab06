"""Verdict of one smoke case on one engine: its word, its reason and its numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core import bfloat16
from rlxweb.core.errors import DeviceLost, DTypeError, Unsupported
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.reference_comparison import compare_to_reference
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import EXACT, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.custom_op_registration import register_custom
from rlxweb.smoke.case import SmokeCase, case_of, checked_ops
from rlxweb.smoke.verdict import Verdict, check_case

LOOSE = Tolerance(rtol=0.1, atol=0.5)


class NarrowEngine(CpuEngine):
    """NumPy engine that declares only float32 but computes any dtype."""

    target = replace(CpuEngine.target, dtypes=frozenset({DType.F32}))


class BrokenEngine(CpuEngine):
    """Engine that raises the given error instead of running."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def run(self, program: Any, feeds: Any, keep: Any = ()) -> Any:
        self.program = program
        raise self.error


def find_case(name: str, dtype: DType = DType.F32) -> SmokeCase:
    """Return the first case of an op whose first input has this dtype and several
    elements.
    """
    op = registry.get(name)
    indices = (
        index
        for index, sample in enumerate(op.samples)
        if sample.inputs[0].dtype is dtype and math.prod(sample.inputs[0].shape) > 1
    )
    return case_of(op, next(indices))


def run_check(checked_case: SmokeCase, engine: Any, spoil: Any = None) -> Verdict:
    return run_blocking(check_case(checked_case, engine, spoil))


def test_every_op_but_leaves_is_checked() -> None:
    names = [op.name for op in checked_ops()]
    assert names == sorted(names)
    assert set(names) == {op.name for op in registry if not op.has_trait("leaf")}


def test_a_case_has_the_same_arrays_every_time() -> None:
    first, second = find_case("matmul"), find_case("matmul")
    for name, array in first.prepare().feeds.items():
        np.testing.assert_array_equal(array, second.prepare().feeds[name])


def test_the_numbers_are_those_of_the_worst_element() -> None:
    """The largest error is given, and the share of the element nearest to its limit."""
    want = np.array([1.0, 100.0, 0.0])
    got = np.array([1.3, 104.0, 0.1], np.float32)
    comparison = compare_to_reference(got, want, DType.F32, LOOSE)
    assert comparison.reason == ""
    assert (comparison.wrong_count, comparison.size, comparison.first_wrong) == (
        0,
        3,
        None,
    )
    assert comparison.max_error == pytest.approx(4.0)
    assert comparison.error_fraction == pytest.approx(0.3 / 0.6, rel=1e-5)
    assert comparison.allowance == pytest.approx(0.6)


def test_the_first_wrong_element_is_reported() -> None:
    want = np.zeros((2, 3))
    got = np.array([[0, 0, 0], [0, 7, 9]], np.float32)
    comparison = compare_to_reference(got, want, DType.F32, LOOSE)
    assert comparison.wrong_count == 2
    assert comparison.first_wrong == ((1, 1), 7.0, 0.0)
    assert comparison.error_fraction == pytest.approx(18.0)


def test_an_error_where_none_is_allowed_is_an_infinite_share() -> None:
    comparison = compare_to_reference(
        np.array([5], np.int32), np.array([4]), DType.I32, LOOSE
    )
    assert (comparison.max_error, comparison.error_fraction, comparison.allowance) == (
        1.0,
        math.inf,
        0.0,
    )
    assert "equality is required" in comparison.reason
    nan_comparison = compare_to_reference(
        np.float32([1, np.nan]), np.array([1, np.nan]), DType.F32, EXACT
    )
    assert (
        nan_comparison.reason,
        nan_comparison.max_error,
        nan_comparison.error_fraction,
    ) == ("", 0.0, 0.0)


def test_a_single_number_and_an_empty_result_are_compared_too() -> None:
    comparison = compare_to_reference(
        np.array(2.5, np.float32), np.array(0.5), DType.F32, EXACT
    )
    assert comparison.first_wrong == ((), 2.5, 0.5)
    empty = np.zeros((0, 4))
    assert (
        compare_to_reference(empty.astype(np.float32), empty, DType.F32, EXACT).size
        == 0
    )


def test_right_on_numpy_with_times() -> None:
    verdict = run_check(find_case("softmax"), CpuEngine())
    assert (verdict.word, verdict.why, verdict.error) == ("right", "", None)
    assert verdict.comparison is not None
    assert 0 < verdict.comparison.error_fraction < 1
    assert min(verdict.prepare_ns, verdict.run_ns) > 0


def test_a_spoiled_result_is_wrong() -> None:
    """A deliberately changed result is found, which proves that the check can fail."""
    verdict = run_check(find_case("softmax"), CpuEngine(), lambda result: result + 1)
    assert verdict.word == "wrong"
    assert "elements are wrong, first at" in verdict.why


def test_an_unsupported_dtype_may_be_refused() -> None:
    verdict = run_check(find_case("add", DType.F64), NarrowEngine())
    assert verdict.word == "refused"
    assert "the device has no f64 support" in verdict.why
    assert isinstance(verdict.error, DTypeError)


def test_an_unsupported_dtype_must_not_be_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A result in an unsupported dtype is wrong, since another dtype computed it."""
    float64_case = find_case("add", DType.F64)
    monkeypatch.setattr(
        "rlxweb.smoke.verdict.compile_graph",
        lambda graph, *_, **__: compile_graph(graph, CpuEngine.target),
    )
    verdict = run_check(float64_case, NarrowEngine())
    assert (verdict.word, verdict.why) == (
        "wrong",
        "the result was computed in f64, which the engine does not support",
    )


def test_dtypes_of_dead_nodes_are_ignored() -> None:
    """The compiler removes dead nodes, so an engine without their dtype is right."""
    trial = find_case("add").prepare()
    trial.graph.cast(Tensor(trial.graph, trial.graph.outputs[0]), "u32")
    assert DType.U32 in trial.dtypes
    assert run_check(
        replace(find_case("add"), prepare=lambda: trial), NarrowEngine()
    ).word == ("right")


@pytest.mark.parametrize(
    "error",
    [
        DeviceLost("run", "it went away"),
        DTypeError("run", "no"),
        Unsupported("run", "no"),
        ZeroDivisionError("of the driver's own"),
    ],
)
def test_any_other_error_is_wrong_and_named(error: Exception) -> None:
    """A builtin op in a supported dtype must run; its program is released after an
    error.
    """
    broken = BrokenEngine(error)
    verdict = run_check(find_case("exp"), broken)
    assert (verdict.word, verdict.error) == ("wrong", error)
    assert verdict.why.startswith(type(error).__name__)
    assert broken.program.is_closed


def test_a_custom_op_without_a_shader_may_be_refused() -> None:
    custom_op = register_custom(
        "halve_for_agreement",
        arity=1,
        reference=lambda xp, attrs, x: x / 2,
        samples=(Sample((Drawn((3,)),)),),
    )
    verdict = run_check(
        case_of(custom_op, 0), BrokenEngine(Unsupported("run", "no shader"))
    )
    assert verdict.word == "refused"


def test_a_wrong_bfloat16_is_reported_as_a_number() -> None:
    """NumPy has no bfloat16, so its arrays hold bits, which are reported as numbers."""
    want = bfloat16.from_float32(np.array([1, 2, 3], np.float32))
    got = bfloat16.from_float32(np.array([1, 2.5, 3], np.float32))
    comparison = compare_to_reference(got, want, DType.BF16, EXACT)
    assert comparison.first_wrong == ((1,), 2.5, 2.0)
    assert "got 2.5, expected 2.0" in comparison.reason
