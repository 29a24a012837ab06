"""Local maxima and prominences are scipy's; refinement finds a tone between bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.cpu.spectrum import frequencies, welch_power
from rlxweb.signal.local_maxima import local_maxima
from rlxweb.signal.presets import spec_from_preset

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=40)


def check_against_scipy(power: np.ndarray, **filters: Any) -> None:
    """Compare all maxima of all rows, their order and their prominences."""
    n_bins = power.shape[1]
    peaks = local_maxima(power, np.arange(n_bins) * 1.0, n_bins, **filters)
    for i, row in enumerate(power):
        expected_bins, _ = scipy.signal.find_peaks(row, **filters)
        heights, _, _ = scipy.signal.peak_prominences(row, expected_bins)
        falling = np.argsort(-row[expected_bins], kind="stable")
        count = peaks.count[i]
        assert count == len(expected_bins)
        np.testing.assert_array_equal(peaks.bins[i, :count], expected_bins[falling])
        np.testing.assert_array_equal(
            peaks.prominence[i, :count], heights[falling].astype(power.dtype)
        )
        assert (peaks.bins[i, count:] == -1).all()
        for filler in (peaks.hz, peaks.power, peaks.prominence):
            assert np.isnan(filler[i, count:]).all()


@settings(max_examples=150, deadline=None)
@given(
    power=hnp.arrays(np.float64, SHAPES, elements=st.integers(0, 6).map(float)),
    prominence=st.none() | st.integers(0, 6),
)
def test_flat_tops(power: np.ndarray, prominence: int | None) -> None:
    """Few distinct values make plateaus, ties and edges everywhere."""
    check_against_scipy(power, prominence=prominence)


@settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    seed=st.integers(0, 1000),
    prominence=st.none() | st.floats(0, 1),
)
def test_distinct_powers(
    shape: tuple[int, int], seed: int, prominence: float | None
) -> None:
    check_against_scipy(
        np.random.default_rng(seed).random(shape), prominence=prominence
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_rows(dtype: str) -> None:
    """Enough rows for several passes of the prominence tables."""
    check_against_scipy(
        np.random.default_rng(0).standard_exponential((90, 513)).astype(dtype)
    )


def test_the_strongest_k() -> None:
    """The strongest k are by power, ties by the smaller bin."""
    row = np.array([0.0, 5, 4, 6, 0, 3, 0, 5, 0, 0.0])[None]
    freqs = np.arange(10.0)
    assert local_maxima(row, freqs, 3).bins.tolist() == [[3, 1, 7]]
    peaks = local_maxima(row, freqs, 5)
    assert peaks.bins.tolist() == [[3, 1, 7, 5, -1]]
    assert peaks.prominence[0, :4].tolist() == [6, 1, 5, 3]
    assert peaks.count.tolist() == [4]


@pytest.mark.parametrize("hz", [10.0, 10.2, 10.5, 11.37, 40.81])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tone_between_bins_is_found(hz: float, dtype: str) -> None:
    """A pure tone is located to a twentieth of a bin."""
    t = np.arange(4096) / 256.0
    x = np.sin(2 * np.pi * hz * t).astype(dtype)[None]
    spec = spec_from_preset("rlx", 4096, nperseg=256, dtype=x.dtype)
    power = welch_power(x, spec)
    peaks = local_maxima(power, frequencies(spec, 256.0), 1)
    assert peaks.hz[0, 0] == pytest.approx(hz, abs=0.05)
    assert peaks.power[0, 0] >= power[0, peaks.bins[0, 0]]
    assert peaks.power.dtype == x.dtype


def test_parabola_is_exact_for_a_gaussian() -> None:
    """A Gaussian bump comes back with its own centre and height."""
    freqs = np.linspace(3.0, 8.0, 11)
    power = 7.0 * np.exp(-0.5 * ((freqs - 5.13) / 0.8) ** 2)[None]
    peaks = local_maxima(power, freqs, 1)
    assert peaks.hz[0, 0] == pytest.approx(5.13)
    assert peaks.power[0, 0] == pytest.approx(7.0)


def test_zero_neighbours_and_flat_tops_do_not_break_the_refinement() -> None:
    """A peak beside a zero, or with a flat top, is refined and finite."""
    rows = np.array([[0.0, 0, 4, 2, 0, 0], [1.0, 2, 3, 3, 3, 1], [1.0, 2, 4, 4, 2, 1]])
    peaks = local_maxima(rows, np.arange(6.0), 1)
    assert peaks.hz[:, 0] == pytest.approx([2 + 1 / 6, 3.0, 2.5])
    assert np.isfinite(peaks.power[:, 0]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_refined_top_beyond_its_type_is_the_power_of_its_bin(dtype: Any) -> None:
    """The refined power overflows beside a zero, and where two bins near the largest
    number meet.
    """
    max_value = float(np.finfo(dtype).max)
    rows = np.array(
        [[0, max_value / 9, 0, 0], [max_value / 9, max_value, max_value * 0.99, 0.1]],
        dtype,
    )
    peaks = local_maxima(rows, np.arange(4.0), 1)
    assert peaks.power[:, 0].tolist() == rows[[0, 1], [1, 1]].tolist()


def test_a_prominence_beyond_the_type_of_the_power_leaves_nothing() -> None:
    """Float32 is compared with the threshold that was asked for, not a rounded one."""
    power = np.array([[0.0, 0.7, 0.0, 3e38, 0.0]], np.float32)
    freqs = np.arange(5.0)
    assert local_maxima(power, freqs, 2, prominence=1e300).count.tolist() == [0]
    assert local_maxima(power, freqs, 2, prominence=1e38).count.tolist() == [1]
    # Rounded to float32, 0.7 is smaller.
    assert local_maxima(power, freqs, 2, prominence=0.7).count.tolist() == [1]


@pytest.mark.parametrize("n_bins", [0, 1, 2])
def test_too_few_bins_have_no_maximum(n_bins: int) -> None:
    """An edge is never a maximum."""
    peaks = local_maxima(np.ones((3, n_bins)), np.arange(n_bins) * 1.0, 2)
    assert peaks.count.tolist() == [0, 0, 0]
    assert (peaks.bins == -1).all()
    assert peaks.bins.shape == (3, 2)


def test_nan_is_no_maximum_and_ends_the_search() -> None:
    """The maxima beside a NaN are still found."""
    row = np.array([0.0, 3, 1, np.nan, 1, 4, 2, 0])[None]
    peaks = local_maxima(row, np.arange(8.0), 3)
    assert peaks.bins.tolist() == [[5, 1, -1]]
    assert peaks.prominence[0, :2].tolist() == [3.0, 2.0]


def test_no_rows() -> None:
    assert local_maxima(np.empty((0, 9)), np.arange(9.0), 4).hz.shape == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k is 0; must be at least 1"),
        ({"freqs": np.arange(8.0)}, r"expected shapes \(rows, bins\) and \(bins,\)"),
        ({"freqs": np.fft.fftfreq(9)}, "numpy.fft.fftshift"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Wrong arguments are refused with the rule."""
    all_arguments = {
        "power": np.zeros((2, 9)),
        "freqs": np.arange(9.0),
        "k": 1,
    } | arguments
    with pytest.raises(UsageError, match=message):
        local_maxima(**all_arguments)


def test_integers_are_refused() -> None:
    """NaN fills the empty places, so power must be able to hold it."""
    with pytest.raises(DTypeError, match="expected a floating-point dtype"):
        local_maxima(np.zeros((2, 9), np.int64), np.arange(9.0), 1)
