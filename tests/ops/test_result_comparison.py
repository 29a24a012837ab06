"""Test the comparison helpers: each must reject what the agreement tests rely on it to
reject.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import EXACT, Tolerance
from tests.engines_under_test import PoisonedPort, describe_mismatch, strided_view
from tests.gpu_ports import open_fake_port

WANT = np.array([[1.0, -2.0], [0.0, 1e3]])
LOOSE_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-6)


def wanted_with(index: tuple[int, ...], value: float) -> Any:
    got = WANT.astype(np.float32)
    got[index] = value
    return got


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (WANT.astype(np.float32).tolist(), "got a list, expected an array"),
        (WANT, "got .* float64, expected .* f32"),
        (WANT.astype(np.float32)[0], r"got \(2,\) float32, expected \(2, 2\) f32"),
        (wanted_with((1, 1), 1000.1), r"1 of 4 elements are wrong, first at \(1, 1\)"),
        (wanted_with((1, 0), 1e-5), r"first at \(1, 0\)"),
        (wanted_with((0, 0), np.nan), r"first at \(0, 0\)"),
        (wanted_with((0, 1), np.inf), r"first at \(0, 1\)"),
    ],
)
def test_wrong_answer_is_described(got: Any, words: str) -> None:
    """Container, dtype, shape, value, NaN and infinity."""
    assert re.search(words, describe_mismatch(got, WANT, DType.F32, LOOSE_TOLERANCE))


def test_right_answer_passes() -> None:
    """A right answer passes, at the edge of the tolerance and empty too.

    A further allowance is added to the tolerance.
    """
    assert not describe_mismatch(WANT.astype(np.float32), WANT, DType.F32, EXACT)
    assert not describe_mismatch(
        wanted_with((1, 1), 1000.0009), WANT, DType.F32, LOOSE_TOLERANCE
    )
    assert not describe_mismatch(
        wanted_with((1, 0), 0.5), WANT, DType.F32, EXACT, np.full((2, 2), 0.6)
    )
    empty = np.zeros((0, 3))
    assert not describe_mismatch(empty.astype(np.float32), empty, DType.F32, EXACT)


def test_infinities_and_nans_must_match() -> None:
    """A tolerance is no excuse for the wrong sign of infinity."""
    want = np.array([np.inf, -np.inf, np.nan])
    assert not describe_mismatch(
        want.astype(np.float32), want, DType.F32, LOOSE_TOLERANCE
    )
    assert "first at (0,)" in describe_mismatch(
        -want.astype(np.float32), want, DType.F32, LOOSE_TOLERANCE
    )
    finite = np.zeros(3, np.float32)
    assert "3 of 3" in describe_mismatch(finite, want, DType.F32, LOOSE_TOLERANCE)


def test_integers_and_bools_have_no_tolerance() -> None:
    """An integer or bool that is off by one is wrong, however loose the op."""
    want = np.array([1, 2**31 - 1], np.int32)
    assert describe_mismatch(want - 1, want, DType.I32, Tolerance(atol=9.0))
    truth = np.array([True, False])
    assert describe_mismatch(~truth, truth, DType.BOOL, Tolerance(atol=9.0))


def test_a_tolerance_may_be_relative_to_the_peak() -> None:
    """An error of 1e-4 beside a peak of 1000 is one part in ten million."""
    peak_tolerance = Tolerance(atol=2e-7, relative_to_peak=True)
    assert not describe_mismatch(
        wanted_with((1, 0), 1e-4), WANT, DType.F32, peak_tolerance
    )
    assert describe_mismatch(wanted_with((1, 0), 1e-3), WANT, DType.F32, peak_tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_unwritten_memory_reads_as_nan(dtype: type) -> None:
    """Memory that the host did not write reads as NaN before each submission."""
    port = open_fake_port()
    poisoned = PoisonedPort(port)
    unwritten = poisoned.create_buffer(10, "storage")
    host_written = poisoned.create_buffer(8, "storage")
    poisoned.write(host_written, 0, memoryview(bytes(8)))
    for _ in range(2):
        poisoned.submit(())
        assert np.isnan(
            np.frombuffer(run_blocking(port.read(unwritten, 0, 12)), dtype)
        ).all()
        assert bytes(run_blocking(port.read(host_written, 0, 8))) == bytes(8)
        port.write(unwritten, 0, memoryview(bytes(12)))


@pytest.mark.parametrize("seed", [0, 1])
def test_strided_view_has_equal_values(seed: int) -> None:
    """A strided view differs from its dense array only in its strides."""
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    view = strided_view(array, seed)
    np.testing.assert_array_equal(view, array)
    assert not view.flags.c_contiguous
    assert (min(view.strides) < 0) == bool(seed)
