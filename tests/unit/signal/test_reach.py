"""One rule for frequencies beyond a spectrum: what the caller wrote is refused.

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
from rlxweb.errors import RecordingWarning, UsageError
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spectrogram import SpectrogramSettings
from rlxweb.jobs.spectrogram_file import SpectrogramOfFile
from tests.recordings import written

X = np.random.default_rng(3).standard_normal((2, 4000))
FS = 64.0

BEYOND = {
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


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_half_the_rate_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"33 Hz; half the rate is 32 Hz"):
        BEYOND[name](33.0)


@pytest.mark.parametrize("name", [name for name in BEYOND if name != "learn_welch"])
def test_half_the_rate_itself_is_taken(name: str) -> None:
    assert BEYOND[name](32.0)


@pytest.mark.parametrize("nperseg", [255, 256])
def test_an_odd_length_ends_below_half_the_rate(nperseg: int) -> None:
    f, power = rlx.welch(X, FS, nperseg=nperseg, fmax=32.0)
    want, psd = scipy.signal.welch(X, FS, nperseg=nperseg)
    np.testing.assert_allclose(f, want)
    np.testing.assert_allclose(power, psd)
    got = rlx.band_power(X, FS, {"upper": (16.0, 32.0)}, nperseg=nperseg)
    inside = want >= 16.0
    total = np.trapezoid(psd[:, inside], want[inside])
    np.testing.assert_allclose(got["upper"], total, rtol=0.02)
    assert rlx.aperiodic(rlx.welch(X, FS, nperseg=nperseg), fmax=32.0)


def test_infinity_is_no_end() -> None:
    assert rlx.welch(X, FS, fmax=np.inf).f[-1] == 32.0


def test_a_part_of_a_spectrum_ends_where_it_was_cut() -> None:
    """A band beyond the cut has no power there, and 4 to 8 Hz is not 5 to 8 Hz."""
    part = rlx.welch(X, 256.0, fmin=5.0, fmax=40.0)
    for bands, said in (
        ({"a": (10, 60)}, "band 'a' ends at 60 Hz; the spectrum ends at 40 Hz"),
        ({"a": (1, 8)}, "band 'a' begins at 1 Hz; the spectrum begins at 5 Hz"),
    ):
        with pytest.raises(UsageError, match=said):
            rlx.band_power_of(part, None, bands)
    with pytest.raises(UsageError, match="fmax is 60 Hz; the spectrum ends at 40 Hz"):
        rlx.aperiodic(part, fmax=60.0)
    with pytest.warns(UserWarning, match=r"delta .*theta .*gamma \(30–45 Hz\) are not"):
        found = rlx.band_power_of(part)
    assert found.names == ("alpha", "beta")
    assert (found.absolute > 0).all()


def test_presets_leave_out_what_a_spectrum_does_not_hold_whole() -> None:
    with pytest.warns(UserWarning, match="left out: half the rate is 32 Hz"):
        found = rlx.band_power(X, FS)
    assert found.names == ("delta", "theta", "alpha", "beta")
    with pytest.raises(UsageError, match=r"ends at 4 Hz; half the rate is 0\.5"):
        rlx.band_power(X, 1.0)


def test_names_of_bands_are_their_own() -> None:
    with pytest.raises(UsageError, match="2 bands are called '1'"):
        rlx.band_power(X, FS, {1: (1, 8), "1": (8, 12)})  # type: ignore[dict-item]


def test_shortened_segments_are_told() -> None:
    """Segments that are shortened to the signal are warned of as in `welch`."""
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
    return str(written(tmp_path / "mixed.edf", ("Fz", 256), ("Resp", 64)))


def test_a_slow_group_beside_a_fast_one_is_taken_whole(two_rates: str) -> None:
    """Nothing of its own lies beyond; what no group holds is refused."""
    settings = Settings(preset="scipy", segment_s=2.0, fmax=100.0, device="cpu", k=1)
    with pytest.warns(RecordingWarning, match="end at 32 Hz, below"):
        done = analyse_file(two_rates, settings)
    assert sorted(group.hz[-1] for group in done.groups) == [32.0, 100.0]
    with pytest.raises(UsageError, match="fmax is 200 Hz; half the rate is"):
        analyse_file(two_rates, Settings(preset="scipy", fmax=200.0))
    look = SpectrogramSettings(fmax=100.0)
    with pytest.warns(RecordingWarning, match="end at 32 Hz, below"):
        file = SpectrogramOfFile(look)(two_rates)
    assert sorted(group.f[-1] for group in file.groups) == [32.0, 100.0]


@pytest.mark.parametrize("command", ["welch", "spectrogram", "bands"])
def test_the_command_line_refuses_alike(
    command: str, call: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", samples=X, fs=FS)
    option = ("--bands", "own=8:40") if command == "bands" else ("--fmax", "40")
    said = call(command, tmp_path / "x.npz", *option, "-q")
    assert said.code == 2
    assert "40 Hz" in said.err
    assert "half the rate is 32 Hz" in said.err


@pytest.mark.parametrize("command", ["bands", "spectrogram"])
def test_the_command_line_tells_shortened_segments(
    command: str, call: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", samples=X[:, :256], fs=256.0)
    said = call(command, tmp_path / "x.npz", "--segment-s", "4")
    assert "segments of 4 s are longer than the channels at 256 Hz, 1 s" in said.err
    assert said.err.count("one segment") == 1


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
def test_a_name_that_is_given_twice_is_refused(
    arguments: tuple[str, ...], call: Any
) -> None:
    said = call(*arguments)
    assert said.code == 2
    assert "is given twice" in said.err


@pytest.mark.parametrize(
    ("n", "said"), [(256, "-32 … 31.75"), (255, "-31.8745 … 31.8745")]
)
def test_a_two_sided_spectrum_tells_its_span(n: int, said: str) -> None:
    found = rlx.welch(X, FS, nperseg=n, return_onesided=False)
    assert repr(found).endswith(f", {said} Hz)")
