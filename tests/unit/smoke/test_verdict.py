"""One case on one engine: the word for it, the reason, and the numbers behind both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import bfloat16
from rlxweb.backends.agreement import compare
from rlxweb.backends.cpu import CpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import DeviceLost, DTypeError, Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import EXACT, Tolerance, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.custom import register_custom
from rlxweb.smoke.case import Case, case_of, checked_ops
from rlxweb.smoke.verdict import Verdict, check_case

LOOSE = Tolerance(rtol=0.1, atol=0.5)


class NarrowBackend(CpuBackend):
    """NumPy that says it has float32 only, and computes whatever it is given."""

    target = replace(CpuBackend.target, dtypes=frozenset({DType.F32}))


class BrokenBackend(CpuBackend):
    """Raises what it was made with, instead of running."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.released = 0

    async def run(self, program: Any, feeds: Any) -> Any:
        raise self.error

    async def release(self, program: Any) -> None:
        self.released += 1


def case(name: str, dtype: DType = DType.F32) -> Case:
    """The first case of an op whose first input has that type and some elements."""
    op = registry.get(name)
    found = (
        at
        for at, sample in enumerate(op.samples)
        if sample.inputs[0].dtype is dtype and math.prod(sample.inputs[0].shape) > 1
    )
    return case_of(op, next(found))


def check(one: Case, backend: Any, spoil: Any = None) -> Verdict:
    return drive(check_case(one, backend, spoil))


def test_every_op_that_computes_is_checked_and_no_leaf() -> None:
    names = [op.name for op in checked_ops()]
    assert names == sorted(names)
    assert set(names) == {op.name for op in registry if not op.has("leaf")}


def test_a_case_has_the_same_arrays_every_time() -> None:
    first, again = case("matmul"), case("matmul")
    for name, array in first.make().feeds.items():
        np.testing.assert_array_equal(array, again.make().feeds[name])


def test_the_numbers_are_those_of_the_worst_element() -> None:
    """The largest error is told, and the share of the one nearest to its limit."""
    want = np.array([1.0, 100.0, 0.0])
    got = np.array([1.3, 104.0, 0.1], np.float32)
    found = compare(got, want, DType.F32, LOOSE)
    assert found.why == ""
    assert (found.wrong, found.size, found.first) == (0, 3, None)
    assert found.max_error == pytest.approx(4.0)
    assert found.share == pytest.approx(0.3 / 0.6, rel=1e-5)
    assert found.allowed == pytest.approx(0.6)


def test_the_first_wrong_element_is_told() -> None:
    want = np.zeros((2, 3))
    got = np.array([[0, 0, 0], [0, 7, 9]], np.float32)
    found = compare(got, want, DType.F32, LOOSE)
    assert found.wrong == 2
    assert found.first == ((1, 1), 7.0, 0.0)
    assert found.share == pytest.approx(18.0)


def test_an_error_where_none_is_allowed_is_an_infinite_share() -> None:
    found = compare(np.array([5], np.int32), np.array([4]), DType.I32, LOOSE)
    assert (found.max_error, found.share, found.allowed) == (1.0, math.inf, 0.0)
    assert "must be equal" in found.why
    none = compare(np.float32([1, np.nan]), np.array([1, np.nan]), DType.F32, EXACT)
    assert (none.why, none.max_error, none.share) == ("", 0.0, 0.0)


def test_a_single_number_and_an_empty_result_are_compared_too() -> None:
    one = compare(np.array(2.5, np.float32), np.array(0.5), DType.F32, EXACT)
    assert one.first == ((), 2.5, 0.5)
    empty = np.zeros((0, 4))
    assert compare(empty.astype(np.float32), empty, DType.F32, EXACT).size == 0


def test_right_on_numpy_with_times() -> None:
    found = check(case("softmax"), CpuBackend())
    assert (found.word, found.why, found.raised) == ("right", "", None)
    assert found.agreement is not None
    assert 0 < found.agreement.share < 1
    assert min(found.prepare_ns, found.run_ns) > 0


def test_a_spoiled_result_is_wrong() -> None:
    """The switch that proves the check can fail."""
    found = check(case("softmax"), CpuBackend(), lambda result: result + 1)
    assert found.word == "wrong"
    assert "elements are wrong, first at" in found.why


def test_a_type_the_engine_has_not_may_be_refused() -> None:
    found = check(case("add", DType.F64), NarrowBackend())
    assert found.word == "refused"
    assert "the device has no f64" in found.why
    assert isinstance(found.raised, DTypeError)


def test_a_type_the_engine_has_not_must_not_be_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer in a type that the engine has not is wrong: it is another type's."""
    one = case("add", DType.F64)
    monkeypatch.setattr(
        "rlxweb.smoke.verdict.compile_graph",
        lambda graph, *_, **__: compile_graph(graph, CpuBackend.target),
    )
    found = check(one, NarrowBackend())
    assert (found.word, found.why) == ("wrong", "it computed in f64, which it has not")


def test_a_type_that_only_dead_nodes_have_is_not_computed_in() -> None:
    """The compiler leaves them out, so an engine without the type is right."""
    trial = case("add").make()
    trial.graph.cast(Tensor(trial.graph, trial.graph.outputs[0]), "u32")
    assert DType.U32 in trial.dtypes
    assert check(replace(case("add"), make=lambda: trial), NarrowBackend()).word == (
        "right"
    )


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
    """An op of the vocabulary in a type the device has must run; nothing stays held."""
    broken = BrokenBackend(error)
    found = check(case("exp"), broken)
    assert (found.word, found.raised) == ("wrong", error)
    assert found.why.startswith(type(error).__name__)
    assert broken.released == 1


def test_a_custom_op_without_a_shader_may_be_refused() -> None:
    halve = register_custom(
        "halve_for_agreement",
        arity=1,
        reference=lambda xp, attrs, x: x / 2,
        samples=(Sample((Drawn((3,)),)),),
    )
    found = check(case_of(halve, 0), BrokenBackend(Unsupported("run", "no shader")))
    assert found.word == "refused"


def test_a_wrong_bfloat16_is_told_as_a_number() -> None:
    """NumPy has no such type: its array is one of bits."""
    want = bfloat16.from_float32(np.array([1, 2, 3], np.float32))
    got = bfloat16.from_float32(np.array([1, 2.5, 3], np.float32))
    found = compare(got, want, DType.BF16, EXACT)
    assert found.first == ((1,), 2.5, 2.0)
    assert "2.5 instead of 2.0" in found.why
