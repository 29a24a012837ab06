"""Flat (dead) channels: rounding noise alone has no shares, peaks, fits or coherence.

A constant has exactly no power once its mean is removed; what an engine leaves of it is
rounding. The same rule must not call a small signal on a large offset dead.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal.band_power import integrate_bands
from rlxweb.signal.spectrum_result import PowerDensity
from tests.unit.signal.device_comparison import adapter_arguments

LEVELS = (0.1, -3.3, 1e-9, 12345.678, 2e4, 7e30, 1 / 3)
"""Constants, few of which a binary number holds exactly."""


def constant_rows(dtype: Any, n: int = 4096) -> Any:
    return np.repeat(np.array(LEVELS, dtype)[:, None], n, axis=1)


def call_without_warnings(function: Any, *args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(*args, **options)


def check_constants(method: str, dtype: Any, **placement: Any) -> None:
    x = constant_rows(dtype)
    with pytest.warns(UserWarning, match="band_power: 7 of 7 rows are flat from 0.5"):
        got = rlx.band_power(x, 256.0, method=method, **placement)
    assert got.flat.all()
    assert np.isnan(got.relative).all()
    assert np.isnan(got.peak_hz).all()
    assert np.isnan(got.ratio("theta", "beta")).all()
    mean_square = (x.astype(np.float64) ** 2).mean(axis=1)
    assert (got.absolute <= 1e-9 * mean_square[:, None]).all()


@pytest.mark.parametrize("method", ["welch", "multitaper"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constants_have_no_shares(method: str, dtype: Any) -> None:
    check_constants(method, dtype, device="cpu")


@pytest.mark.parametrize("method", ["welch", "multitaper"])
def test_constants_have_no_shares_on_devices(
    method: str, adapter: AdapterRequest
) -> None:
    check_constants(method, np.float32, **adapter_arguments(adapter))


@pytest.mark.parametrize("method", ["welch", "multitaper"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1000, 4096, 1 << 17])
def test_a_microvolt_on_twenty_millivolts_is_a_signal(
    method: str, dtype: Any, n: int, rng: np.random.Generator
) -> None:
    """A small signal on a large offset is not flat, however long the segment."""
    x = (20_000.0 + rng.standard_normal(n)).astype(dtype)
    options = {"nperseg": n} if method == "welch" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        got = rlx.band_power(x, 256.0, method=method, **options)
    assert not got.flat.any()
    f, psd = scipy.signal.welch(x.astype(np.float64), 256.0, nperseg=n)
    in_band = (f >= 0.5) & (f <= 45)
    want = np.trapezoid(psd[in_band], f[in_band])
    assert got.total == pytest.approx(want, rel=0.2)


def test_averages_leave_dead_channels_out(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.standard_normal((3, 4096)), constant_rows(np.float64)])
    alive = rlx.band_power(x[:3], 256.0)
    got = call_without_warnings(rlx.band_power, x, 256.0)
    np.testing.assert_array_equal(got.relative[:3], alive.relative)
    lines, mixed_lines = repr(alive).splitlines()[1:], repr(got).splitlines()[1:]
    assert mixed_lines == [
        *lines,
        "  not in the averages: 7 flat rows (only rounding errors)",
    ]


def test_log_and_values_of_dead_rows(rng: np.random.Generator) -> None:
    x = np.stack([np.zeros(4096), np.full(4096, 0.1), rng.standard_normal(4096)])
    for relative in (False, True):
        got = call_without_warnings(
            rlx.band_power, x, 256.0, relative=relative, log=True
        )
        assert np.isnan(got.values[:2]).all()
        assert np.isfinite(got.values[2]).all()


def test_an_offset_that_is_not_removed_fills_no_band() -> None:
    """An offset that detrend=False leaves at 0 Hz fills no band."""
    got = call_without_warnings(
        rlx.band_power, constant_rows(np.float64), 256.0, detrend=False
    )
    assert got.flat.all()
    assert np.isnan(got.relative).all()


def test_a_flat_band_of_a_live_row_has_no_peak_and_no_ratio() -> None:
    """A sine on a bin under a periodic Hann window has three bins, exactly."""
    x = np.tile(np.sin(2 * np.pi * np.arange(16) / 16), 256)
    got = rlx.band_power(x, 256.0, nperseg=1024)
    assert got.flat.tolist() == [True, True, True, False, True]
    assert got["beta"] == pytest.approx(0.5)
    assert np.isnan(got.ratio("beta", "gamma"))
    assert np.isnan(got.peak_hz[[0, 1, 2, 4]]).all()
    assert got.peak_hz[3] == pytest.approx(16.0)
    np.testing.assert_allclose(got.relative, [0, 0, 0, 1, 0], atol=1e-12)


def test_custom_detrend_leaves_a_constant_flat() -> None:
    def without_mean(segment: Any) -> Any:
        return segment - segment.mean(axis=-1, keepdims=True)

    x = np.repeat(np.array([0.1, 0.3, 1 / 3])[:, None], 1000, axis=1)
    assert rlx.welch(x, 256.0, nperseg=100, detrend=without_mean).flat.all()
    result = rlx.welch_peaks(x, 256.0, 100, 4, preset="scipy", detrend=without_mean)
    assert not result.count.any()


@pytest.mark.parametrize("axis", [0, -1])
def test_a_spectrum_knows_its_flat_rows(
    axis: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    x = np.stack([rng.standard_normal((2, 2048)), np.full((2, 2048), 0.7)])
    want = [[False, False], [True, True]]
    result = rlx.welch(np.moveaxis(x, -1, axis), 256.0, nperseg=256, axis=axis)
    assert result.flat.tolist() == want
    assert result.mean("channel").flat.tolist() == [False, True]
    assert result.mean("epoch").flat.tolist() == [False, False]
    result.save(tmp_path / "s.npz")
    assert rlx.Spectrum.load(tmp_path / "s.npz").flat.tolist() == want
    peaks = rlx.welch_peaks(x, 256.0, spectrum=True, preset="scipy")
    peaks.save(tmp_path / "p.npz")
    for loaded_or_computed in (peaks, rlx.WelchPeaks.load(tmp_path / "p.npz")):
        assert loaded_or_computed.spectrum is not None
        assert loaded_or_computed.spectrum.flat.tolist() == want
    assert rlx.multitaper(x, 256.0).flat.tolist() == want


def test_aperiodic_of_dead_rows_is_nan(rng: np.random.Generator) -> None:
    x = np.stack([rng.standard_normal(8192).cumsum(), np.full(8192, 0.1)])
    spectra = rlx.welch(x, 256.0, nperseg=1024)
    live_fit = rlx.aperiodic(rlx.welch(x[0], 256.0, nperseg=1024))
    with pytest.warns(UserWarning, match="aperiodic: 1 of 2 rows is flat"):
        result = rlx.aperiodic(spectra)
    assert result.exponent[0] == live_fit.exponent
    assert result.count[1] == 0
    for name in ("offset", "exponent", "knee", "r_squared", "error"):
        assert np.isnan(getattr(result, name)[1])
    assert "1 not fitted" in repr(result)


@pytest.mark.parametrize("rows", [(), (3,)])
def test_white_spectrum_is_fitted_without_warnings(rows: tuple[int, ...]) -> None:
    """A white spectrum's correlation is 0 / 0; neither fit nor repr warns."""
    f = np.arange(1.0, 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = rlx.aperiodic(f, np.ones((*rows, 99)))
        assert "R² –" in repr(result)
    np.testing.assert_allclose(result.exponent, 0.0, atol=1e-12)


def check_coherence(rng: np.random.Generator, dtype: Any, **placement: Any) -> None:
    live = rng.standard_normal((3, 4096)).astype(dtype)
    x = np.concatenate([live, constant_rows(dtype)])
    with pytest.warns(UserWarning, match="coherence: 91 of 100 pairs are flat"):
        _, result = rlx.coherence(x[:, None], x[None], 256.0, **placement)
    assert np.isnan(result[3:]).all()
    assert np.isnan(result[:, 3:]).all()
    _, want = scipy.signal.coherence(live[:, None], live[None], 256.0)
    np.testing.assert_allclose(result[:3, :3], want, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("placement", [{}, {"device": "cpu"}])
def test_coherence_of_a_constant_is_nan(
    dtype: Any, placement: dict[str, Any], rng: np.random.Generator
) -> None:
    check_coherence(rng, dtype, **placement)


def test_coherence_of_a_constant_is_nan_on_devices(
    adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    check_coherence(rng, np.float32, **adapter_arguments(adapter))


def test_coherence_on_an_offset_is_not_dead(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 1 << 15))
    x[1] += x[0]
    offset = (x + 20_000).astype(np.float32)
    _, want = scipy.signal.coherence(*x, 256.0, nperseg=1 << 12)
    _, result = rlx.coherence(*offset, 256.0, nperseg=1 << 12)
    np.testing.assert_allclose(result, want, atol=0.05)


def test_a_stream_knows_its_flat_channels(rng: np.random.Generator) -> None:
    x = np.stack([rng.standard_normal(4096), np.full(4096, 0.1), np.zeros(4096)])
    stream = rlx.WelchStream(256.0, 512, n_channels=3)
    frame = stream.push(x)[-1]
    assert frame.flat.tolist() == [False, True, True]
    assert stream.flat.tolist() == [False, True, True]
    assert frame.peaks.count.tolist()[1:] == [0, 0]
    bands = integrate_bands(
        PowerDensity(frame.f, frame.power, floor=frame.floor), "eeg"
    )
    assert np.isnan(bands.relative[1:]).all()
    assert np.isfinite(bands.relative[0]).all()


@pytest.fixture
def recording(tmp_path: Path, rng: np.random.Generator) -> str:
    x = np.stack([rng.standard_normal(7680), np.full(7680, 0.1), np.full(7680, 2e4)])
    x[2] += 0.001 * rng.standard_normal(7680)
    np.savez(tmp_path / "r.npz", samples=x, fs=256.0)
    return str(tmp_path / "r.npz")


def test_command_line_reports_no_peak_of_a_dead_channel(
    recording: str, call: Any
) -> None:
    result = call("spectrogram", recording, "--json", "-", "-q")
    first, dead, small = result.document["files"][0]["groups"][0]["channels"]
    assert (dead["state"], dead["hz"], dead["power"]) == ("flat", None, None)
    assert first["state"] == small["state"] == ""
    assert first["hz"] > 0
    assert small["hz"] > 0
    table = call("spectrogram", recording).out
    assert [line.split()[1] for line in table.splitlines() if "ch2" in line] == ["flat"]


def test_the_bands_of_a_dead_channel_are_empty_cells(recording: str, call: Any) -> None:
    options = "--log", "--aperiodic", "--ratios", "alpha/beta"
    result = call("bands", recording, *options, "--json", "-", "-q")
    rows = result.document["files"][0]["groups"][0]["rows"]
    assert "flat" not in result.err
    for name in ("alpha", "gamma"):
        cell = rows[1][name]
        assert (cell["relative"], cell["peak_hz"], cell["value"]) == (None,) * 3
        assert rows[2][name]["relative"] is not None
    assert rows[1]["ratios"] == {"alpha/beta": None}
    assert rows[1]["aperiodic"]["exponent"] is None
    json.dumps(rows, allow_nan=False)
