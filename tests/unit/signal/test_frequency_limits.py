"""One rule for frequencies beyond a spectrum: requests of the caller are refused.

Both numbers are told. Bands of a preset that are not wholly in the spectrum are left
out with a warning.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.batch.channel_group_spectrogram import SpectrogramSettings
from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.recording_spectrogram import SpectrogramJob
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import RecordingWarning, UsageError
from tests.edf_bdf_recordings import write_recording

X = np.random.default_rng(3).standard_normal((2, 4000))
FS = 64.0

CALLS_WITH_FMAX = {
    "welch": lambda fmax: rlx.welch(X, FS, fmax=fmax),
    "welch, two-sided": lambda fmax: rlx.welch(X, FS, fmax=fmax, return_onesided=False),
    "csd": lambda fmax: rlx.csd(X, X, FS, fmax=fmax),
    "coherence": lambda fmax: rlx.coherence(X[:1], X[1:], FS, fmax=fmax),
    "spectrogram": lambda fmax: rlx.spectrogram(X, FS, fmax=fmax),
    "multitaper": lambda fmax: rlx.multitaper(X, FS, fmax=fmax),
    "welch_peaks": lambda fmax: rlx.welch_peaks(X, FS, fmax=fmax),
    "WelchStream": lambda fmax: rlx.WelchStream(FS, fmax=fmax),
    "aperiodic": lambda fmax: rlx.aperiodic(rlx.welch(X, FS), fmax=fmax),
    "band_power": lambda fmax: rlx.band_power(X, FS, {"own": (10.0, fmax)}),
    "band_power, tapers": lambda fmax: rlx.band_power(
        X, FS, {"own": (10.0, fmax)}, method="multitaper"
    ),
    "learn_welch": lambda fmax: rlx.learn_welch(
        [X[0]], FS, nperseg=64, fmax=fmax, steps=1, progress=False
    ),
}


@pytest.mark.parametrize("name", CALLS_WITH_FMAX)
def test_fmax_above_half_the_rate_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"33 Hz; half the sampling rate is 32 Hz"):
        CALLS_WITH_FMAX[name](33.0)


@pytest.mark.parametrize(
    "name", [name for name in CALLS_WITH_FMAX if name != "learn_welch"]
)
def test_half_the_rate_is_accepted(name: str) -> None:
    assert CALLS_WITH_FMAX[name](32.0)


@pytest.mark.parametrize("nperseg", [255, 256])
def test_an_odd_length_ends_below_half_the_rate(nperseg: int) -> None:
    f, power = rlx.welch(X, FS, nperseg=nperseg, fmax=32.0)
    want, psd = scipy.signal.welch(X, FS, nperseg=nperseg)
    np.testing.assert_allclose(f, want)
    np.testing.assert_allclose(power, psd)
    got = rlx.band_power(X, FS, {"upper": (16.0, 32.0)}, nperseg=nperseg)
    in_band = want >= 16.0
    total = np.trapezoid(psd[:, in_band], want[in_band])
    np.testing.assert_allclose(got["upper"], total, rtol=0.02)
    assert rlx.aperiodic(rlx.welch(X, FS, nperseg=nperseg), fmax=32.0)


def test_infinite_fmax_means_the_whole_spectrum() -> None:
    assert rlx.welch(X, FS, fmax=np.inf).f[-1] == 32.0


def test_cropped_spectrum_keeps_its_limits() -> None:
    """A band beyond the cut has no power there, and 4 to 8 Hz is not 5 to 8 Hz."""
    cropped = rlx.welch(X, 256.0, fmin=5.0, fmax=40.0)
    for bands, message in (
        ({"a": (10, 60)}, "band 'a' ends at 60 Hz; the spectrum ends at 40 Hz"),
        ({"a": (1, 8)}, "band 'a' begins at 1 Hz; the spectrum begins at 5 Hz"),
    ):
        with pytest.raises(UsageError, match=message):
            rlx.band_power_of(cropped, None, bands)
    with pytest.raises(UsageError, match="fmax is 60 Hz; the spectrum ends at 40 Hz"):
        rlx.aperiodic(cropped, fmax=60.0)
    with pytest.warns(UserWarning, match=r"delta .*theta .*gamma \(30–45 Hz\) are not"):
        result = rlx.band_power_of(cropped)
    assert result.names == ("alpha", "beta")
    assert (result.absolute > 0).all()


def test_presets_leave_out_incomplete_bands() -> None:
    with pytest.warns(UserWarning, match="skipped: half the sampling rate is 32 Hz"):
        result = rlx.band_power(X, FS)
    assert result.names == ("delta", "theta", "alpha", "beta")
    with pytest.raises(
        UsageError, match=r"ends at 4 Hz; half the sampling rate is 0\.5"
    ):
        rlx.band_power(X, 1.0)


def test_band_names_are_unique() -> None:
    with pytest.raises(UsageError, match="2 bands are named '1'"):
        rlx.band_power(X, FS, {1: (1, 8), "1": (8, 12)})  # type: ignore[dict-item]


def test_shortened_segments_warn() -> None:
    """Segments that are shortened to the signal warn as in `welch`."""
    x = X[:, :256]
    with pytest.warns(UserWarning, match="nperseg=1024 is greater than signal length"):
        got = rlx.band_power(x, 256.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        want = rlx.band_power(x, 256.0, nperseg=256)
        rlx.band_power(X, 256.0)
    np.testing.assert_array_equal(got.absolute, want.absolute)


@pytest.fixture
def two_rates(tmp_path: Path) -> str:
    return str(write_recording(tmp_path / "mixed.edf", ("Fz", 256), ("Resp", 64)))


def test_slow_group_is_analysed_up_to_its_own_limit(two_rates: str) -> None:
    """A group with a lower rate ends at its own limit; a limit beyond every group is
    refused.
    """
    settings = Settings(preset="scipy", segment_s=2.0, fmax=100.0, device="cpu", k=1)
    with pytest.warns(RecordingWarning, match="up to 32 Hz; fmax"):
        analysis = analyse_file(two_rates, settings)
    assert sorted(group.hz[-1] for group in analysis.groups) == [32.0, 100.0]
    with pytest.raises(UsageError, match="fmax is 200 Hz; half the sampling rate is"):
        analyse_file(two_rates, Settings(preset="scipy", fmax=200.0))
    spectrogram_settings = SpectrogramSettings(fmax=100.0)
    with pytest.warns(RecordingWarning, match="up to 32 Hz; fmax"):
        spectrogram = SpectrogramJob(spectrogram_settings)(two_rates)
    assert sorted(group.f[-1] for group in spectrogram.groups) == [32.0, 100.0]


@pytest.mark.parametrize("command", ["welch", "spectrogram", "bands"])
def test_command_line_refuses_the_same_limits(
    command: str, call: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", samples=X, fs=FS)
    option = ("--bands", "own=8:40") if command == "bands" else ("--fmax", "40")
    result = call(command, tmp_path / "x.npz", *option, "-q")
    assert result.code == 2
    assert "40 Hz" in result.err
    assert "half the sampling rate is 32 Hz" in result.err


@pytest.mark.parametrize("command", ["bands", "spectrogram"])
def test_command_line_reports_shortened_segments(
    command: str, call: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", samples=X[:, :256], fs=256.0)
    result = call(command, tmp_path / "x.npz", "--segment-s", "4")
    assert "channels at 256 Hz have 1 s, less than a segment of 4 s" in result.err
    assert result.err.count("one segment") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("bands", "x.npz", "--bands", "1k=891:1122,1k=1:2"),
        ("bands", "x.npz", "--bands", "a=1:2,b=2:3, a =3:4"),
        ("inspect", "model.onnx", "--dim", "batch=1", "--dim", "batch=2"),
        (
            *("export", "welch", "d", "--rows", "1", "--samples", "99", "--fs", "9"),
            *("--limit", "maxBufferSize=9", "--limit", "maxBufferSize=8"),
        ),
        ("welch", "x.npz", "--storage", "a=1", "--storage", "a=2"),
    ],
)
def test_duplicate_names_are_refused(arguments: tuple[str, ...], call: Any) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert "is given twice" in result.err


@pytest.mark.parametrize(
    ("n", "span"), [(256, "-32 … 31.75"), (255, "-31.8745 … 31.8745")]
)
def test_repr_of_a_two_sided_spectrum_shows_its_span(n: int, span: str) -> None:
    result = rlx.welch(X, FS, nperseg=n, return_onesided=False)
    assert repr(result).endswith(f", {span} Hz)")
