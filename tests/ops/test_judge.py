"""The judges judged: each must refuse what the agreement tests rely on it to refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import EXACT, Tolerance
from tests.agreement import PoisonedPort, judge, strided
from tests.ports import fake

WANT = np.array([[1.0, -2.0], [0.0, 1e3]])
LOOSE = Tolerance(rtol=1e-6, atol=1e-6)


def changed(at: tuple[int, ...], value: float) -> Any:
    got = WANT.astype(np.float32)
    got[at] = value
    return got


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (WANT.astype(np.float32).tolist(), "a list, not an array"),
        (WANT, "float64 instead of"),
        (WANT.astype(np.float32)[0], r"\(2,\) float32 instead of \(2, 2\) f32"),
        (changed((1, 1), 1000.1), r"1 of 4 elements are wrong, first at \(1, 1\)"),
        (changed((1, 0), 1e-5), r"first at \(1, 0\)"),
        (changed((0, 0), np.nan), r"first at \(0, 0\)"),
        (changed((0, 1), np.inf), r"first at \(0, 1\)"),
    ],
)
def test_a_wrong_answer_is_told(got: Any, words: str) -> None:
    """Container, dtype, shape, value, NaN and infinity."""
    assert re.search(words, judge(got, WANT, DType.F32, LOOSE))


def test_a_right_answer_is_let_pass() -> None:
    """A right answer is let pass, at the edge of the tolerance and empty too.

    A further allowance is added to the tolerance.
    """
    assert not judge(WANT.astype(np.float32), WANT, DType.F32, EXACT)
    assert not judge(changed((1, 1), 1000.0009), WANT, DType.F32, LOOSE)
    assert not judge(changed((1, 0), 0.5), WANT, DType.F32, EXACT, np.full((2, 2), 0.6))
    empty = np.zeros((0, 3))
    assert not judge(empty.astype(np.float32), empty, DType.F32, EXACT)


def test_infinities_and_nans_must_be_where_they_are_wanted() -> None:
    """A tolerance is no excuse for the wrong sign of infinity."""
    want = np.array([np.inf, -np.inf, np.nan])
    assert not judge(want.astype(np.float32), want, DType.F32, LOOSE)
    assert "first at (0,)" in judge(-want.astype(np.float32), want, DType.F32, LOOSE)
    finite = np.zeros(3, np.float32)
    assert "3 of 3" in judge(finite, want, DType.F32, LOOSE)


def test_integers_and_bools_have_no_tolerance() -> None:
    """An integer or bool that is off by one is wrong, however loose the op."""
    want = np.array([1, 2**31 - 1], np.int32)
    assert judge(want - 1, want, DType.I32, Tolerance(atol=9.0))
    truth = np.array([True, False])
    assert judge(~truth, truth, DType.BOOL, Tolerance(atol=9.0))


def test_a_tolerance_may_be_relative_to_the_peak() -> None:
    """An error of 1e-4 beside a peak of 1000 is one part in ten million."""
    peak = Tolerance(atol=2e-7, relative_to_peak=True)
    assert not judge(changed((1, 0), 1e-4), WANT, DType.F32, peak)
    assert judge(changed((1, 0), 1e-3), WANT, DType.F32, peak)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_memory_nobody_wrote_reads_as_nan(dtype: type) -> None:
    """Memory that the host did not write reads as NaN before each submission."""
    port = fake()
    poisoned = PoisonedPort(port)
    fresh, fed = poisoned.buffer(10, "storage"), poisoned.buffer(8, "storage")
    poisoned.write(fed, 0, memoryview(bytes(8)))
    for _ in range(2):
        poisoned.submit(())
        assert np.isnan(np.frombuffer(drive(port.read(fresh, 0, 12)), dtype)).all()
        assert bytes(drive(port.read(fed, 0, 8))) == bytes(8)
        port.write(fresh, 0, memoryview(bytes(12)))


@pytest.mark.parametrize("seed", [0, 1])
def test_strided_arrays_hold_equal_values_but_are_not_dense(seed: int) -> None:
    """What is fed in place of a dense array must differ in nothing but its strides."""
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    view = strided(array, seed)
    np.testing.assert_array_equal(view, array)
    assert not view.flags.c_contiguous
    assert (min(view.strides) < 0) == bool(seed)
