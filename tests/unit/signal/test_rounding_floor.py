"""Rounding floor of spectra: rounding noise is no peak, components of the samples
are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_blockwise_average import WelchAverage
from tests.run_in_threads import run_in_event_loop

FS = 256.0
T = np.arange(int(12 * FS)) / FS


def tone(hz: float, dtype: str = "float64", size: float = 1.0) -> np.ndarray:
    return (size * np.sin(2 * np.pi * hz * T)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["scipy", "mne", "rlx"])
@pytest.mark.parametrize("hz", [8.0, 10.0, 32.0, 33.0, 64.0, 100.0])
def test_one_tone_is_one_peak(dtype: str, preset: str, hz: float) -> None:
    """A tone at a bin is one peak: all other bins hold only rounding."""
    result = rlx.welch_peaks(tone(hz, dtype), FS, 256, 8, preset=preset, mode="peaks")
    assert int(result.count) == 1
    assert result.bins.tolist() == [int(hz), *[-1] * 7]
    assert result.hz[0] == pytest.approx(hz, abs=0.05)
    assert np.isnan(result.hz[1:]).all()
    assert result.prominence is not None
    assert np.isnan(result.prominence[1:]).all()


def test_bins_beyond_rounding_are_counted_and_no_others() -> None:
    """A periodic Hann spreads a tone over three bins."""
    x = np.stack([tone(32.0), tone(32.0) + tone(50.0, size=1e-6), np.zeros(T.size)])
    result = rlx.welch_peaks(x, FS, 256, 8, preset="scipy")
    assert result.count.tolist() == [3, 6, 0]
    assert set(result.bins[0, :3]) == {31, 32, 33}
    assert set(result.bins[1, :6]) == {31, 32, 33, 49, 50, 51}
    for row, n in enumerate(result.count):
        assert (result.bins[row, n:] == -1).all()
        assert np.isnan(result.hz[row, n:]).all()
        assert np.isnan(result.power[row, n:]).all()
        assert (result.power[row, :n] > 0).all()


@settings(max_examples=80, deadline=None)
@given(
    level=st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6),
    slope=st.sampled_from([0.0, 0.0, 1e-3, 5.0]),
    n=st.sampled_from([16, 100, 256, 999]),
    dtype=st.sampled_from(["float32", "float64", "int16", "int32"]),
    window=st.sampled_from(["hann", "hamming", "boxcar", "blackman"]),
    mode=st.sampled_from(["bins", "peaks"]),
)
def test_a_dead_channel_has_no_peak(
    level: float, slope: float, n: int, dtype: str, window: str, mode: Any
) -> None:
    """A constant whose mean is removed, or a line whose line is, leaves nothing."""
    x = level + slope * np.arange(3000.0)
    if dtype.startswith("int"):
        x = np.full(3000, np.clip(level, -30000, 30000))
        slope = 0.0
    result = rlx.welch_peaks(
        x.astype(dtype),
        nperseg=n,
        k=5,
        mode=mode,
        window=window,
        preset="scipy",
        detrend="linear" if slope else "constant",
        device="cpu",
    )
    assert int(result.count) == 0
    assert (result.bins == -1).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 99),
    offset=st.sampled_from([0.0, 1.0, 1000.0]),
    dtype=st.sampled_from(["float32", "float64"]),
    n=st.sampled_from([32, 100, 256, 1024]),
    preset=st.sampled_from(["rlx", "scipy", "mne"]),
)
def test_every_bin_of_noise_counts(
    seed: int, offset: float, dtype: str, n: int, preset: str
) -> None:
    """Every bin of noise counts, and scipy.signal.find_peaks finds the same maxima.

    But for those that float32 samples far from 0 might have made of themselves.
    """
    x = np.random.default_rng(seed).standard_normal(4096).astype(dtype) + offset
    x = x.astype(dtype)
    options: dict[str, Any] = {"nperseg": n, "preset": preset, "device": "cpu"}
    result = rlx.welch_peaks(x, k=n // 2 + 1, **options)
    assert int(result.count) >= n // 2  # a mean that was removed leaves no bin 0
    peaks = rlx.welch_peaks(x, k=n // 2, mode="peaks", **options)
    _, power = rlx.welch(x, nperseg=n, preset=preset, device="cpu")
    maxima, heights = scipy.signal.find_peaks(power, prominence=0.0)
    is_reported = np.isin(maxima, peaks.bins)
    assert is_reported.sum() == int(peaks.count)
    single = dtype == "float32" and offset == 1000.0
    assert (heights["prominences"] / power[maxima])[~is_reported].max(
        initial=0
    ) <= 0.01 * single


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e-6), ("float64", 1e-11)])
def test_a_weak_tone_beside_a_strong_one_counts(dtype: str, size: float) -> None:
    """A weak tone counts beside a strong one as long as the samples' type holds it."""
    x = (tone(32.0) + tone(90.0, size=size)).astype(dtype)
    result = rlx.welch_peaks(x, FS, 256, 8, preset="scipy", mode="peaks")
    assert result.bins[:2].tolist() == [32, 90]


def test_ripples_do_not_displace_peaks() -> None:
    """The k requested peaks are real where the row has as many."""
    x = tone(30.0, "float32") + tone(90.0, "float32", 1e-5)
    result = rlx.welch_peaks(x, FS, 256, 2, preset="rlx", mode="peaks")
    assert result.bins.tolist() == [30, 90]


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_devices_count_alike(adapter: AdapterRequest, mode: Any) -> None:
    """A tone, a dead channel, an offset, noise: the same peaks on any engine."""
    noise = np.random.default_rng(1).standard_normal(T.size)
    x = np.stack(
        [tone(32.0), np.full(T.size, 1000.1), 1e4 + tone(40.0), noise, 0 * noise]
    ).astype("f4")
    options: dict[str, Any] = {"fs": FS, "k": 6, "preset": "scipy", "mode": mode}
    cpu_result = rlx.welch_peaks(x, **options, device="cpu")
    placement = {"device": adapter.backends[0], "adapter": adapter.name}
    gpu_result = rlx.welch_peaks(x, **options, **placement)
    async_result = run_in_event_loop(rlx.welch_peaks_async(x, **options, **placement))
    assert cpu_result.count.tolist() == [
        3 if mode == "bins" else 1,
        0,
        *cpu_result.count[2:4],
        0,
    ]
    for result in (gpu_result, async_result):
        np.testing.assert_array_equal(result.count, cpu_result.count)
        np.testing.assert_array_equal(result.bins == -1, cpu_result.bins == -1)
        np.testing.assert_array_equal(result.bins[[0, 3]], cpu_result.bins[[0, 3]])


def test_floor_beyond_float32_gives_no_warning() -> None:
    """Samples that the window suppresses count as energy; warnings are errors in
    tests.
    """
    x = np.sin(np.arange(300, dtype=np.float32))[None]
    x[0, 0] = 1.5e27
    assert rlx.welch_peaks(x, k=2, device="cpu").count == 0


def test_a_stream_knows_its_floor() -> None:
    """Blocks give the same peaks, and a dead channel is flat."""
    x = np.stack([tone(32.0, "float32"), np.full(T.size, 7.7, "f4")])
    spec = spec_from_preset("scipy", None, fs=FS, dtype="float32")
    stream = WelchAverage(spec, 2)
    for start in range(0, T.size, 300):
        stream.feed(x[:, start : start + 300])
    power, hz = stream.result(), np.fft.rfftfreq(256, 1 / FS)
    assert stream.floor().is_flat(power).tolist() == [False, True]
    for mode, count in (("bins", 3), ("peaks", 1)):
        result = PeakSearch(8, mode).in_spectrum(power, hz, stream.floor())
        assert result.count.tolist() == [count, 0]
    all_bins = PeakSearch(8, "bins").in_spectrum(power, hz)
    assert all_bins.count.tolist() == [8, 8]
