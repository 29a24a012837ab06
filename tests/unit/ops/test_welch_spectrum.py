"""The averaged spectrum equals scipy.signal.welch, for any number of threads."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.cpu import spectrum as welch_spectrum
from rlxweb.ops.welch.cpu.spectrum import frequencies, welch_power
from tests.numpy_welch_peaks_reference import reference_welch
from tests.unit.ops.welch_spec_factory import resolve_spec

WINDOWS = ("hann", "boxcar", "flattop", ("tukey", 0.3), ("kaiser", 8.6))


def noise(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Normal noise on an offset and a slope, so that detrending matters."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) + 2.0 + np.linspace(0, 3, shape[-1])
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def scipy_welch(
    x: np.ndarray, fs: float, **arguments: Any
) -> tuple[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scipy.signal.welch(x, fs, **arguments)


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def check_against_scipy(x: np.ndarray, fs: float = 1.0, **arguments: Any) -> None:
    spec = resolve_spec(x.shape[1], fs=fs, dtype=x.dtype, **arguments)
    f, wanted = scipy_welch(x, fs, **arguments)
    power = welch_power(x, spec)
    assert power.shape == wanted.shape
    assert relative_error(power, wanted) < 1e-12
    np.testing.assert_allclose(frequencies(spec, fs), f, rtol=1e-13, atol=1e-13 * fs)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("detrend", ["constant", "linear", False])
@pytest.mark.parametrize("average", ["mean", "median"])
def test_windows_detrends_averages(
    dtype: str, window: object, detrend: object, average: str
) -> None:
    x = noise(3, 700, dtype=dtype)
    check_against_scipy(
        x, 10.0, window=window, detrend=detrend, average=average, nperseg=64
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("nperseg", [1, 2, 3, 31, 64, 700])
def test_lengths_sides_scalings(dtype: str, nperseg: int) -> None:
    """Lengths odd, even and of one sample are right, padded, on one side or both."""
    x, wrong = noise(2, 700, dtype=dtype), []
    for padding, return_onesided, scaling in product(
        (0, 1, 2, 37), (True, False), ("density", "spectrum")
    ):
        try:
            check_against_scipy(
                x,
                512.0,
                window="hamming",
                nperseg=nperseg,
                nfft=nperseg + padding,
                detrend=False if nperseg == 1 else "constant",
                return_onesided=return_onesided,
                scaling=scaling,
            )
        except AssertionError as error:
            wrong.append((padding, return_onesided, scaling, str(error)))
    assert wrong == []


@pytest.mark.parametrize("segments", [1, 2, 3, 4, 7, 300])
@pytest.mark.parametrize("nfft", [67, 2 * 67, 1009])
@pytest.mark.parametrize("detrend", ["linear", False])
@pytest.mark.parametrize("average", ["mean", "median"])
def test_large_prime_factors(
    segments: int, nfft: int, detrend: object, average: str
) -> None:
    """Prime lengths are right for paired segments and an odd one, padded, in blocks."""
    x = noise(3, 64 * segments)
    check_against_scipy(
        x, nperseg=64, noverlap=0, nfft=nfft, detrend=detrend, average=average
    )


@pytest.mark.parametrize("noverlap", [0, 1, 31, 63])
@pytest.mark.parametrize("average", ["mean", "median"])
def test_overlaps(noverlap: int, average: str) -> None:
    check_against_scipy(noise(2, 500), nperseg=64, noverlap=noverlap, average=average)


def test_a_hop_longer_than_a_segment_leaves_gaps() -> None:
    """Segments farther apart than they are long are counted by the same rule."""
    x = noise(2, 500)
    spec = resolve_spec(500, nperseg=64, detrend=None, scaling="none")
    spec = replace(spec, hop=100, n_segments=5)
    wanted = reference_welch(x, 64, hop=100, window=spec.window_array)
    assert relative_error(welch_power(x, spec), wanted) < 1e-13


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_agrees_with_scipy(data: st.DataObject) -> None:
    """Random rows, lengths, overlaps, padding, strides and options."""
    n_samples = data.draw(st.integers(2, 300), label="T")
    nperseg = data.draw(st.integers(2, n_samples), label="nperseg")
    arguments = {
        "nperseg": nperseg,
        "noverlap": data.draw(st.integers(0, nperseg - 1), label="noverlap"),
        "nfft": nperseg + data.draw(st.integers(0, 40), label="padding"),
        "window": data.draw(st.sampled_from(["hamming", "boxcar", "cosine"])),
        "detrend": data.draw(st.sampled_from(["constant", False])),
        "return_onesided": data.draw(st.booleans()),
        "average": data.draw(st.sampled_from(["mean", "median"])),
        "scaling": data.draw(st.sampled_from(["density", "spectrum"])),
    }
    dtype = data.draw(st.sampled_from(["float64", "complex128"]))
    step = data.draw(st.integers(1, 3), label="stride")
    rows = data.draw(st.integers(1, 5), label="B")
    x = noise(rows, n_samples * step, dtype=dtype, seed=nperseg)[::-1, ::step]
    check_against_scipy(x, 100.0, **arguments)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("n", [256, 1000, 1024])
def test_single_precision(dtype: str, n: int) -> None:
    """Single precision gives float32, within 2e-6 of float64."""
    x = noise(4, 5000, dtype=dtype)
    spec = resolve_spec(5000, nperseg=n, dtype=x.dtype)
    power = welch_power(x, spec)
    wide = np.result_type(x.dtype, np.float64)
    _, wanted = scipy_welch(x.astype(wide), 1.0, nperseg=n)
    assert power.dtype == np.float32
    assert relative_error(power, wanted) < 1e-7


def test_a_large_offset_does_not_drown_the_signal() -> None:
    """A rhythm of amplitude 1 on an offset of 1e5, in float32, keeps its power."""
    t = np.arange(4096) / 256.0
    x = (1e5 + np.sin(2 * np.pi * 10 * t)).astype(np.float32)[None]
    spec = resolve_spec(4096, fs=256.0, nperseg=256, scaling="spectrum", dtype=x.dtype)
    power = welch_power(x, spec)[0]
    assert power.argmax() == 10
    assert power[10] == pytest.approx(0.5, rel=1e-2)
    assert power[20:].max() < 1e-5


@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool", ">f8", "float16"])
def test_other_sample_dtypes(dtype: str) -> None:
    """Integers, bool, big-endian and half floats are taken as they are."""
    x = (noise(2, 600) > 3.0).astype(dtype) if dtype == "bool" else noise(2, 600)
    x = x.astype(dtype) if dtype != "uint8" else (x + 20).astype(dtype)
    spec = resolve_spec(600, nperseg=100, dtype=x.dtype)
    _, wanted = scipy_welch(x.astype(np.float64), 1.0, nperseg=100)
    assert relative_error(welch_power(x, spec), wanted) < 1e-6


def test_axes_by_moveaxis() -> None:
    """Rows that are columns of another array need no copy by the caller."""
    x = noise(500, 3, 2)
    rows = np.moveaxis(x, 0, -1).reshape(6, 500)
    _, wanted = scipy_welch(x, 1.0, nperseg=128, axis=0)
    power = welch_power(rows, resolve_spec(500, nperseg=128)).reshape(3, 2, 65)
    assert relative_error(np.moveaxis(power, -1, 0), wanted) < 1e-13


def test_fewer_segments_use_the_beginning() -> None:
    """nsegments=2 equals the estimate of the samples those two cover."""
    x = noise(2, 1000)
    few = welch_power(x, resolve_spec(1000, nperseg=100, nsegments=2))
    short = welch_power(x[:, :150], resolve_spec(150, nperseg=100))
    np.testing.assert_array_equal(few, short)


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize(
    ("rows", "n_samples", "nperseg"),
    [(2000, 384, 256), (3, 400_000, 256), (40, 40_000, 512), (2, 200_000, 65_536)],
)
def test_the_same_bits_for_any_number_of_threads(
    rows: int, n_samples: int, nperseg: int, average: str
) -> None:
    """Short rows, long ones and long segments have the same bits on any threads."""
    x = noise(rows, n_samples, dtype="float32")
    spec = resolve_spec(n_samples, nperseg=nperseg, average=average, dtype=x.dtype)
    single_threaded = welch_power(x, spec, threads=1)
    for threads in (2, 5, None):
        np.testing.assert_array_equal(
            welch_power(x, spec, threads=threads), single_threaded
        )
    _, wanted = scipy_welch(
        x[-1].astype(np.float64), 1.0, nperseg=nperseg, average=average
    )
    assert relative_error(single_threaded[-1], wanted) < 1e-7


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """A row alone gives the bits it gives among others, long or short."""
    for n_samples in (400, 200_000):
        x = noise(5, n_samples)
        spec = resolve_spec(n_samples, nperseg=128)
        all_rows = welch_power(x, spec)
        for i in range(5):
            single_row = welch_power(x[i : i + 1], spec)
            np.testing.assert_array_equal(single_row[0], all_rows[i])


def test_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny blocks, which split everything, give the answer of large ones."""
    x = noise(7, 3000)
    for average in ("mean", "median"):
        spec = resolve_spec(3000, nperseg=64, average=average)
        whole = welch_power(x, spec)
        for samples in (1, 64, 640, 5000):
            monkeypatch.setattr(welch_spectrum, "BLOCK_SAMPLES", samples)
            monkeypatch.setattr(welch_spectrum, "THREADED_SAMPLES", 0)
            np.testing.assert_allclose(welch_power(x, spec), whole, rtol=1e-13)
        monkeypatch.undo()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("detrend", ["constant", None])
def test_nan_and_infinity_stay_in_their_row(bad: float, detrend: str | None) -> None:
    """A row with NaN or infinity has no finite bin; the others are as they were."""
    x = noise(3, 1000)
    good = welch_power(x, resolve_spec(1000, detrend=detrend))
    x[1, 500] = bad
    power = welch_power(x, resolve_spec(1000, detrend=detrend))
    assert not np.isfinite(power[1]).any()
    np.testing.assert_array_equal(power[[0, 2]], good[[0, 2]])


def test_no_rows() -> None:
    assert welch_power(np.empty((0, 500)), resolve_spec(500)).shape == (0, 129)


def test_wrong_samples_are_refused() -> None:
    """Samples of a wrong rank or length, or complex ones, are refused."""
    spec = resolve_spec(500)
    with pytest.raises(UsageError, match=r"shape \(500,\); expected shape"):
        welch_power(np.zeros(500), spec)
    with pytest.raises(UsageError, match="need 384 samples; the signal has 300"):
        welch_power(np.zeros((1, 300)), spec)
    with pytest.raises(
        DTypeError, match="are complex128; the estimate was created for float64"
    ):
        welch_power(np.zeros((1, 500), complex), spec)


def test_the_median_bias_is_scipys() -> None:
    """The median's bias agrees with SciPy's for 1 to 12 segments."""
    x = noise(1, 2000)
    for n_segments in range(1, 13):
        n_samples = 64 + 32 * (n_segments - 1)
        check_against_scipy(x[:, :n_samples], nperseg=64, average="median")
