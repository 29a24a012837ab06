"""Recordings made ready block by block are what SciPy makes of the whole."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.errors import RecordingWarning, UnknownName, Unsupported, UsageError
from rlxweb.io import Group, prepared
from rlxweb.io.recording import Channel
from tests.command_line import Call, check_refused
from tests.recordings import saved, written

FS = 200.0
N = 60_000
X = np.random.default_rng(8).standard_normal((4, N)).cumsum(1)
NAMES = ("Cz", "Pz", "A1", "A2")


class Held:
    """Samples in memory, and how many were asked for at once."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.most = x, 0

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        self.most = max(self.most, stop - start)
        return self.x[list(channels), start:stop]


def group(x: np.ndarray = X, fs: float = FS) -> Group:
    channels = tuple(
        Channel(name, name, "uV", at) for at, name in enumerate(NAMES[: len(x)])
    )
    return Group("made", fs, channels, x.shape[1], x.dtype, Held(x))


def check(found: Group, wanted: np.ndarray, block: int = 7001) -> None:
    """Whole and in blocks, to rounding."""
    assert found.n_samples == wanted.shape[1]
    bound = 1e-11 * np.abs(wanted).max()
    np.testing.assert_allclose(found.read(), wanted, atol=bound, rtol=0)
    parts = np.concatenate([one.data for one in found.blocks(block)], axis=1)
    np.testing.assert_allclose(parts, wanted, atol=bound, rtol=0)


def at_rate(x: np.ndarray, up: int, down: int) -> np.ndarray:
    """SciPy's resample_poly of what lies above the line between the two ends."""
    n = x.shape[1]
    begin, slope = x[:, :1], (x[:, -1:] - x[:, :1]) / max(1, n - 1)
    above = scipy.signal.resample_poly(
        x - begin - slope * np.arange(n), up, down, axis=-1
    )
    return above + begin + slope * np.arange(above.shape[1]) * down / up


def test_references() -> None:
    check(prepared(group(), reference="average"), X - X.mean(0))
    linked = prepared(group(), reference=["A1", "A2"])
    assert linked.names == ("Cz", "Pz")
    check(linked, X[:2] - X[2:].mean(0))
    assert prepared(group(), reference="A1").names == ("Cz", "Pz", "A2")


@pytest.mark.parametrize(
    ("asked", "design"),
    [
        ({"highpass": 1.0}, (1.0, "highpass")),
        ({"lowpass": 40.0}, (40.0, "lowpass")),
        ({"highpass": 1.0, "lowpass": 40.0}, ((1.0, 40.0), "bandpass")),
    ],
)
@pytest.mark.parametrize("order", [1, 4])
def test_filters_are_sosfiltfilt(asked: Any, design: Any, order: int) -> None:
    sos = scipy.signal.butter(order, *design, fs=FS, output="sos")
    found = prepared(group(), **asked, order=order)
    check(found, scipy.signal.sosfiltfilt(sos, X, axis=-1))


def test_notches() -> None:
    parts = [
        scipy.signal.tf2sos(*scipy.signal.iirnotch(hz, 30, fs=FS)) for hz in (50, 75)
    ]
    wanted = scipy.signal.sosfiltfilt(np.concatenate(parts), X, axis=-1)
    check(prepared(group(), notch=[50.0, 75.0]), wanted)
    t = np.arange(N) / FS
    hum = prepared(group(np.sin(2 * np.pi * 50 * t)[None]), notch=50.0).read()
    assert np.abs(hum[:, 2000:-2000]).max() < 1e-3


@pytest.mark.parametrize("rate", [100.0, 128.0, 250.0, 441.0, 2000.0, FS / 3])
def test_rates_are_resample_poly(rate: float) -> None:
    ratio = {100: (1, 2), 128: (16, 25), 250: (5, 4), 441: (441, 200), 2000: (10, 1)}
    up, down = ratio.get(rate, (1, 3))  # type: ignore[call-overload]
    found = prepared(group(X[:, :20_001]), resample=rate)
    check(found, at_rate(X[:, :20_001], up, down), 777)
    assert found.fs == rate


@settings(max_examples=60, deadline=None)
@given(
    up=st.integers(1, 40),
    down=st.integers(1, 40),
    n=st.integers(1, 400),
    block=st.integers(1, 90),
)
def test_any_ratio_in_any_blocks(up: int, down: int, n: int, block: int) -> None:
    x = X[:1, :n]
    found = prepared(group(x), resample=FS * up / down)
    wanted = at_rate(x, up, down)
    if up == down:
        wanted = x
    check(found, wanted, block)


def test_all_in_their_order_and_memory_stays_bounded() -> None:
    source = group()
    found = prepared(source, reference="average", lowpass=40.0, resample=100.0)
    sos = scipy.signal.butter(4, 40.0, "lowpass", fs=FS, output="sos")
    wanted = scipy.signal.sosfiltfilt(sos, X - X.mean(0), axis=-1)
    held = source.reader
    assert isinstance(held, Held)
    list(found.blocks(1000))
    assert held.most < 4000
    check(found, at_rate(wanted, 1, 2))


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"highpass": 100.0}, UsageError, "highpass is 100 Hz.*100 Hz"),
        ({"lowpass": 0.0}, UsageError, "lowpass is 0 Hz"),
        ({"highpass": 40.0, "lowpass": 1.0}, UsageError, "below lowpass, 1 Hz"),
        ({"notch": [50.0, 300.0]}, UsageError, "notch is 300 Hz"),
        ({"lowpass": 1.0, "order": 13}, UsageError, "order is 13"),
        ({"resample": -1.0}, UsageError, "above 0"),
        ({"resample": 200.0123456}, UsageError, "no fraction of small numbers"),
        ({"reference": "Fz"}, UnknownName, "no channel is called 'Fz'.*Cz"),
        ({"reference": list(NAMES)}, UsageError, "no channel is left"),
    ],
)
def test_what_cannot_be_is_said(asked: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        prepared(group(), **asked)


def test_a_group_is_prepared(tmp_path: Path) -> None:
    """A whole recording is none, and a number is no reference."""
    with rlx.read(written(tmp_path / "a.edf", ("Fz", 128))) as recording:
        for given in (recording, recording.path, None):
            with pytest.raises(UsageError, match=r"a Group is wanted; take one of rec"):
                prepared(given, lowpass=3)  # type: ignore[arg-type]
    said = "reference is 5; a name or a list of names; 'average' is the mean"
    with pytest.raises(UsageError, match=said):
        prepared(group(), reference=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=said):
        rlx.read(recording.path, reference=5)


def test_a_filter_longer_than_the_recording() -> None:
    with pytest.raises(UsageError, match="has 10 samples; the filter needs 28"):
        prepared(group(X[:, :10]), highpass=1.0, lowpass=40.0)
    with pytest.raises(UsageError, match="an average reference needs 2"):
        prepared(group(X[:1]), reference="average")


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    monkeypatch.delattr("scipy.signal")
    with pytest.raises(Unsupported, match=r"rlxweb\[filter\]"):
        prepared(group(), lowpass=40.0)


def test_files_and_commands_take_it(tmp_path: Path, call: Call) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 128.0), ("Pz", 128.0), seconds=20)
    with rlx.read(path) as plain:
        x = plain.groups[0].read().astype(np.float64)
    how = {"reference": "average", "highpass": 1.0, "resample": 64.0}
    with rlx.read(path, **how, start=5.0, stop=15.0) as recording:
        (own,) = recording.groups
        assert (own.fs, own.n_samples) == (64.0, 640)
        sos = scipy.signal.butter(4, 1.0, "highpass", fs=128.0, output="sos")
        wanted = scipy.signal.sosfiltfilt(sos, x - x.mean(0), axis=-1)
        wanted = at_rate(wanted, 1, 2)[:, 320:960]
        np.testing.assert_allclose(own.read(), wanted, atol=1e-10)
        peaks = rlx.welch_peaks(own, nperseg=128, k=2, preset="scipy")
    flags = ("-r", "average", "--highpass", "1", "--resample", "64")
    span = ("--start", "5", "--stop", "15")
    said = call(
        *("welch", path, *flags, *span, "--preset", "scipy", "--nperseg", "128"),
        *("--k", "2", "--json", "-"),
    )
    channels = said.group["channels"]
    got = [[one["hz"] for one in channel["peaks"]] for channel in channels]
    assert got == peaks.hz.tolist()
    for command in (("bands", "--bands", "alpha=8:13"), ("spectrogram",)):
        done = call(*command, path, *flags, "--segment-s", "2")
        assert done.code == 0, done
    check_refused(call("welch", path, "--lowpass", "70"), 2, "lowpass is 70 Hz")


# --- a reference that is not taken ------------------------------------------------


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        ({"channels": ["Cz", "Pz"], "reference": "A1"}, [2]),
        ({"channels": ["Cz", "Pz"], "reference": ["A1", "a2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz"], "reference": "A?"}, [2, 3]),
        ({"exclude": "A*", "reference": ["A1", "A2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz", "A1"], "reference": ["A1", "A2"]}, [2, 3]),
        ({"channels": ["Cz", "Pz"], "reference": "average"}, [0, 1]),
    ],
)
def test_a_reference_is_read_though_it_is_not_taken(
    tmp_path: Path, how: Any, rows: list[int]
) -> None:
    path = written(tmp_path / "a.edf", *((name, 64.0) for name in NAMES))
    with rlx.read(path) as plain:
        x = plain.groups[0].read()
    with rlx.read(path, **how) as recording:
        (own,) = recording.groups
        assert own.names == ("Cz", "Pz")
        np.testing.assert_allclose(own.read(), x[:2] - x[rows].mean(0), atol=1e-10)


def test_references_there_are_not(tmp_path: Path, call: Call) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0), ("Pz", 64.0), ("A1", 32.0))
    other = "the reference 'A1' has 32 Hz, and 'Cz' 64 Hz; a reference is of the same"
    for how in ({}, {"channels": "Cz"}):
        with pytest.raises(UsageError, match=other):
            rlx.read(path, reference="A1", **how)
    with pytest.raises(UnknownName, match=r"no channel 'A3'; 3 channels: Cz, Pz"):
        rlx.read(path, reference="A3")
    with pytest.raises(UsageError, match="no channel is left beside"):
        rlx.read(path, channels="Cz", reference="Cz")
    said = call("welch", path, "-r", "A1")
    check_refused(said, 2, "take those alone: --channels NAMES")
    flags = ("-c", "Cz", "-r", "Pz", "--bands", "alpha=8:13")
    assert call("bands", path, *flags).code == 0


def test_units_are_not_mixed() -> None:
    volts = tuple(replace(one, unit="mV") for one in group().channels[:1])
    mixed = replace(group(), channels=(*volts, *group().channels[1:]))
    for reference in ("average", "A1"):
        with pytest.raises(UsageError, match="channels are in mV, uV; one is taken"):
            prepared(mixed, reference=reference)


def test_a_filter_that_outlasts_the_recording_is_told_of() -> None:
    """A filter that outlasts the recording is SciPy's all the same, with a warning."""
    x = X[:, :4000] + 1000.0
    with pytest.warns(RecordingWarning, match="filter goes on for 192 s, and the rec"):
        found = prepared(group(x), highpass=0.01)
    sos = scipy.signal.butter(4, 0.01, "highpass", fs=FS, output="sos")
    wanted = scipy.signal.sosfiltfilt(sos, x, axis=-1)
    np.testing.assert_allclose(found.read(), wanted, rtol=1e-9)
    prepared(group(), highpass=0.01)


def test_the_rate_that_is_named_can_be_taken() -> None:
    with pytest.raises(UsageError, match="take ") as caught:
        prepared(group(), resample=37.123)
    rate = float(caught.value.hint.removeprefix("take ").removesuffix(" Hz"))
    assert prepared(group(), resample=rate).fs == rate
    odd = replace(group(), fs=99.97)
    with pytest.raises(UsageError, match=r"take 100\.\d+ Hz, or 104 Hz, which"):
        prepared(odd, resample=100)
    assert prepared(odd, resample=104).fs == 104


# --- the ends -----------------------------------------------------------------------

RATES = [128.0, 100.0, 250.0, 441.0, 512.0, 2000.0]


@pytest.mark.parametrize("rate", RATES)
def test_an_offset_and_a_slope_stay_what_they_are(rate: float) -> None:
    """Nothing is zero beyond the ends, and nothing of an offset goes to other rates."""
    n = 9999
    x = np.stack([np.full(n, 2e4), np.full(n, -3e5), 2e4 - 0.7 * np.arange(n)])
    found = prepared(group(x), resample=rate)
    at = np.arange(found.n_samples) * FS / rate
    wanted = np.stack([np.full(len(at), 2e4), np.full(len(at), -3e5), 2e4 - 0.7 * at])
    np.testing.assert_allclose(found.read(), wanted, rtol=1e-12)
    blocks = np.concatenate([one.data for one in found.blocks(101)], axis=1)
    np.testing.assert_allclose(blocks, wanted, rtol=1e-12)


@pytest.mark.parametrize("rate", RATES)
def test_ends_are_as_those_of_mne_and_scipy(rate: float) -> None:
    """Tones on an offset of 20 mV are what they are, and no less so than there.

    MNE and SciPy leave up to 13 of the offset's 20000 in images of 0 Hz.
    """
    hz = np.random.default_rng(1).uniform(1, 40, 30)

    def signal(n: int, fs: float) -> np.ndarray:
        t = np.arange(n) / fs
        return 2e4 + np.sin(2 * np.pi * hz[:, None] * t + hz[:, None]).sum(0)

    x = signal(4000, FS)
    found = prepared(group(x[None]), resample=rate).read()[0]
    wanted = signal(len(found), rate)
    apart = np.abs(found - wanted)
    inner = slice(len(found) // 10, -(len(found) // 10))
    assert (apart.max() < 1.5, apart[inner].max() < 0.02) == (True, True)
    ratio = Fraction(rate / FS).limit_denominator(1000)
    line = scipy.signal.resample_poly(
        x, ratio.numerator, ratio.denominator, padtype="line"
    )
    import mne  # not there in WebAssembly, where the rest of the file runs

    raw = mne.io.RawArray(
        x[None], mne.create_info(1, FS, verbose="error"), verbose="error"
    )
    by_mne = raw.resample(rate, method="polyphase", verbose="error").get_data()[0]
    for other in (line, by_mne):
        assert apart.max() <= np.abs(other - wanted).max() + 1e-6
        np.testing.assert_allclose(found, other, atol=15)


def test_an_offset_of_a_recording_outlasts_its_conversion(tmp_path: Path) -> None:
    """Integers of a file stay to their last step, in BDF and EDF, at another rate."""
    rng = np.random.default_rng(2)
    counts = rng.integers(-9, 10, (2, 2560)) + np.array([[20_000], [-30_000]])
    np.savez(tmp_path / "a.npz", x=counts.astype(np.int16), fs=256.0, units="uV")
    with rlx.read(tmp_path / "a.npz", resample=128.0) as recording:
        held = recording.groups[0].read()
        assert np.abs(held - np.array([[20_000], [-30_000]])).max() < 15
        saved(tmp_path / "b.edf", recording)
    with rlx.read(tmp_path / "b.edf") as back:
        np.testing.assert_allclose(back.groups[0].read(), held, atol=0.001)


@pytest.mark.parametrize("at", [0, -1])
def test_an_end_that_is_not_finite_stays_alone(at: int) -> None:
    x = X[:1, :4000].copy()
    x[0, at] = np.nan
    found = prepared(group(x), resample=100.0).read()[0]
    assert 0 < np.isnan(found).sum() < 30
    assert np.isnan(found[at])


@pytest.mark.parametrize(
    "how",
    [
        {"highpass": 0.5},
        {"lowpass": 40.0},
        {"notch": [50.0]},
        {"highpass": 1.0, "lowpass": 40.0, "notch": 50.0, "resample": 128.0},
    ],
)
def test_filters_begin_without_a_step(how: Any) -> None:
    """An offset is no step at an end, in blocks or whole."""
    x = np.full((1, 20_000), 3e5)
    found = prepared(group(x), **how)
    wanted = 0.0 if "highpass" in how else 3e5
    np.testing.assert_allclose(found.read(), wanted, atol=1e-5)
    for one in found.blocks(997):
        np.testing.assert_allclose(one.data, wanted, atol=1e-5)
