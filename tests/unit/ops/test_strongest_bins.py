"""The strongest bins are exact, ties and NaN included."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.cpu import strongest_bins as peak_search
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower, strongest_bins
from tests.numpy_welch_peaks_reference import rank_bins


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_ties_and_nan(data: st.DataObject) -> None:
    """Few distinct values, so that ties fall on every position, the edge included.

    By either way: few bins are sorted outright, unless that is forbidden.
    """
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=24))
    values = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, np.inf, np.nan])
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    power = data.draw(hnp.arrays(dtype, shape, elements=values))
    k = data.draw(st.integers(1, shape[1]))
    few = data.draw(st.sampled_from([0, peak_search._MAX_SORTED_BINS]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peak_search, "_MAX_SORTED_BINS", few)
        bins, top = strongest_bins(power, k)
    np.testing.assert_array_equal(bins, rank_bins(power, k))
    np.testing.assert_array_equal(top, np.take_along_axis(power, bins, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "n_bins", "k"),
    [
        (3, 129, 16),
        (700, 513, 16),
        (300, 129, 1),
        (5, 9, 9),
        (2, 1, 1),
        (9, 40_000, 3),
    ],
)
def test_distinct_powers(dtype: str, rows: int, n_bins: int, k: int) -> None:
    """Ordinary spectra, several blocks of them, on any number of threads."""
    rng = np.random.default_rng(1)
    power = rng.permuted(np.tile(np.arange(n_bins), (rows, 1)), axis=1).astype(dtype)
    wanted = np.argsort(-power, axis=1, kind="stable")[:, :k]
    for threads in (1, 3, None):
        bins, top = strongest_bins(power, k, threads=threads)
        np.testing.assert_array_equal(bins, wanted)
        np.testing.assert_array_equal(top, np.take_along_axis(power, wanted, axis=1))
    assert bins.dtype == np.int64
    assert top.dtype == power.dtype


def test_one_tied_row_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows with a tie at the edge take the slow path, and all are right."""
    power = np.random.default_rng(2).random((50, 64))
    power[7] = 0.0
    power[20, 5:40] = 2.0
    power[33, 3] = np.nan
    sorted_row_counts = []
    sort_outright = peak_search._sort_all_bins
    monkeypatch.setattr(
        peak_search,
        "_sort_all_bins",
        lambda p, k: (sorted_row_counts.append(len(p)), sort_outright(p, k))[1],
    )
    bins, _ = strongest_bins(power, 4)
    np.testing.assert_array_equal(bins, rank_bins(power, 4))
    assert sorted_row_counts == [3]


def test_strided_power_is_not_changed() -> None:
    """A transposed, read-only array is searched as it is."""
    power = np.random.default_rng(3).random((40, 30)).T
    power.flags.writeable = False
    before = power.copy()
    bins, _ = strongest_bins(power, 5)
    np.testing.assert_array_equal(bins, rank_bins(before, 5))
    np.testing.assert_array_equal(power, before)


def test_no_rows() -> None:
    bins, top = strongest_bins(np.empty((0, 9)), 4)
    assert bins.shape == top.shape == (0, 4)


@pytest.mark.parametrize("k", [0, -1, 10])
def test_an_impossible_k_is_refused(k: int) -> None:
    """An impossible k is refused with both numbers."""
    with pytest.raises(UsageError, match=f"k is {k}; must be 1 to 9"):
        strongest_bins(np.zeros((2, 9)), k)


def test_wrong_power_is_refused() -> None:
    """Power of one axis, or of unsigned integers that would wrap, is refused."""
    with pytest.raises(UsageError, match="expected shape"):
        strongest_bins(np.zeros(9), 1)
    with pytest.raises(DTypeError, match="expected a floating-point dtype"):
        strongest_bins(np.zeros((2, 9), np.uint8), 1)


def test_selected_peaks_move_to_the_front() -> None:
    peaks = PeaksOfPower(
        bins=np.array([[4, 2, 7], [1, 5, -1]], np.int64),
        hz=np.array([[4.5, 2.0, 7.0], [1.0, 5.0, np.nan]]),
        power=np.array([[9, 8, 7], [6, 5, np.nan]], np.float32),
        count=np.array([3, 2], np.int64),
        prominence=np.array([[1, 5, 3], [2, 4, np.nan]], np.float32),
    )
    selected = peaks.select(peaks.prominence >= 3)
    nan = np.nan
    np.testing.assert_array_equal(selected.bins, [[2, 7, -1], [5, -1, -1]])
    np.testing.assert_array_equal(selected.hz, [[2, 7, nan], [5, nan, nan]])
    np.testing.assert_array_equal(selected.power, [[8, 7, nan], [5, nan, nan]])
    np.testing.assert_array_equal(selected.prominence, [[5, 3, nan], [4, nan, nan]])
    np.testing.assert_array_equal(selected.count, [2, 1])
    assert selected.power.dtype == selected.prominence.dtype == np.float32
    assert selected.bins.dtype == selected.count.dtype == np.int64
    without = dataclasses.replace(peaks, prominence=None).select(peaks.power > 100)
    assert without.prominence is None
    assert without.bins.max() == -1
    assert not without.count.any()
