"""Welch ops: SciPy's estimate, RLX's peaks, ties and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from tests.engines_under_test import Array
from tests.numpy_welch_peaks_reference import rank_bins, reference_welch
from tests.unit.ops.single_op_runner import build_op, run, run_decomposition


def make_signal(rows: int, width: int) -> Array:
    rng = np.random.default_rng(width)
    return rng.normal(size=(rows, width)) + 3.0 + 0.01 * np.arange(width)


CASES = [
    (n, overlap, nfft, detrend)
    for n, overlap, nfft in ((32, 16, 32), (31, 10, 31), (24, 0, 50), (25, 24, 51))
    for detrend in ("none", "constant", "linear")
]


@pytest.mark.parametrize(("n", "overlap", "nfft", "detrend"), CASES)
def test_welch_power_matches_scipy(
    n: int, overlap: int, nfft: int, detrend: str
) -> None:
    """`welch_power` is scipy.signal.welch, given its window, doubling and scale."""
    x, window, fs = make_signal(3, 203), np.hamming(n), 50.0
    _, want = scipy.signal.welch(
        x,
        fs,
        window=window,
        nperseg=n,
        noverlap=overlap,
        nfft=nfft,
        detrend=False if detrend == "none" else detrend,
    )
    attrs = {
        "hop": n - overlap,
        "nfft": nfft,
        "detrend": detrend,
        "doubling": True,
        "scale": 1.0 / (fs * (window**2).sum()),
    }
    np.testing.assert_allclose(run("welch_power", x, window, **attrs), want, rtol=1e-9)
    got = run_decomposition("welch_power", x, window, **attrs)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9 * want.max())


def test_many_rows_and_many_segments() -> None:
    """A row among many gives its result alone; a long one gives NumPy's."""
    x, window = make_signal(40, 70_000), np.hanning(512)
    got = run("welch_power", x[:, :9000], window, hop=256)
    for row in (0, 17, 39):
        single_row = run("welch_power", x[row : row + 1, :9000], window, hop=256)
        np.testing.assert_allclose(got[row], single_row[0], rtol=1e-12)
    long_power = run("welch_power", x[:1], window, hop=64, doubling=True)
    np.testing.assert_allclose(
        long_power, reference_welch(x[:1], 512, hop=64), rtol=1e-9
    )


def test_a_segment_limit_keeps_the_first_ones() -> None:
    x, window = make_signal(2, 100), np.hanning(20)
    got = run("welch_power", x, window, hop=10, segments=3)
    want = run("welch_power", x[:, :40], window, hop=10)
    np.testing.assert_allclose(got, want)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 4), st.integers(1, 12)),
        elements=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]),
    ),
    st.integers(1, 12),
)
def test_peaks_are_the_strongest_with_ties_to_the_smaller_bin(
    power: Array, k: int
) -> None:
    if k > power.shape[1]:
        with pytest.raises(AttributeRefused, match=f"number of bins, {power.shape[1]}"):
            run("power_peaks", power, k=k)
        return
    got = run("power_peaks", power, k=k)
    bins = rank_bins(power, k)
    np.testing.assert_array_equal(got[:, ::2], bins)
    np.testing.assert_array_equal(got[:, 1::2], np.take_along_axis(power, bins, 1))


def test_row_peaks_are_the_peaks_of_the_power() -> None:
    x, window = make_signal(5, 300), np.hanning(64)
    attrs = {"hop": 32, "detrend": "constant", "doubling": True, "scale": 0.5}
    power = run("welch_power", x, window, **attrs)
    want = run("power_peaks", power, k=6)
    np.testing.assert_array_equal(run("welch_row_peaks", x, window, k=6, **attrs), want)
    got = run_decomposition("welch_row_peaks", x, window, k=6, **attrs)
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("n", [8, 9])
def test_welch_peaks_matches_rlx(n: int) -> None:
    """Row b, segment s is spectrum b * S + s; bins 1 … F - 2 count twice, odd n too."""
    rows, segments, bins = 3, 2, n // 2 + 1
    spectra = np.random.default_rng(n).normal(size=(rows * segments, 2 * n))
    got = run("welch_peaks", spectra, k=2, n_segments=segments)
    for b in range(rows):
        power = np.zeros(bins)
        for s in range(segments):
            row = spectra[b * segments + s]
            segment_power = row[:bins] ** 2 + row[n : n + bins] ** 2
            segment_power[1 : bins - 1] *= 2
            power += segment_power / segments
        (order,) = rank_bins(power[None], 2)
        np.testing.assert_array_equal(got[b, ::2], order)
        np.testing.assert_allclose(got[b, 1::2], power[order])
    composed_peaks = run_decomposition("welch_peaks", spectra, k=2, n_segments=segments)
    np.testing.assert_allclose(composed_peaks, got, rtol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "attrs", "error", "message"),
    [
        (((2, 10), (11,)), {"hop": 5}, ShapeError, "11 > 10"),
        (
            ((2, 10), (4,)),
            {"hop": 4, "segments": 3},
            ShapeError,
            "12 values; at most 2",
        ),
        (((2, 10), (4,)), {"hop": 0}, AttributeRefused, "hop=0"),
        (((2, 10), (4,)), {"hop": 2, "nfft": 3}, AttributeRefused, "at least .* 4"),
        (((2, 10), (4,)), {"hop": 2, "detrend": "mean"}, AttributeRefused, "linear"),
        (((2, 1, 10), (4,)), {"hop": 2}, ShapeError, "rank 2"),
        (((2, 10), (1, 4)), {"hop": 2}, ShapeError, "rank 1"),
    ],
)
def test_invalid_welch_operands_are_refused(
    shapes: tuple[tuple[int, ...], ...],
    attrs: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        build_op("welch_power", *shapes, **attrs)


@pytest.mark.parametrize(
    ("rows", "k", "n_segments", "error", "message"),
    [
        (4, 0, 2, AttributeRefused, "k=0"),
        (4, 6, 2, AttributeRefused, "number of bins, 5"),
        (4, 1, 0, AttributeRefused, "n_segments=0"),
        (5, 1, 2, ShapeError, "5 spectra for 2 segments per row"),
    ],
)
def test_welch_peaks_refuses_what_rlx_leaves_undefined(
    rows: int, k: int, n_segments: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build_op("welch_peaks", (rows, 16), k=k, n_segments=n_segments)


def test_float16_powers_are_refused() -> None:
    """Powers overflow float16 at amplitude 256, so they are refused, not silently
    infinite.
    """
    with pytest.raises(DTypeError, match="powers overflow f16"):
        build_op("power_peaks", ((2, 8), "f16"), k=1)
    with pytest.raises(DTypeError, match="the operands have different dtypes"):
        build_op("welch_power", (2, 8), ((4,), "f64"), hop=2)
