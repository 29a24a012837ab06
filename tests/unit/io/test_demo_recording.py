"""The demo recording contains the rhythms that it declares."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.io import open_recording, write_demo_recording
from tests.numpy_welch_peaks_reference import reference_welch


def test_the_strongest_peaks_are_the_declared_rhythms(tmp_path: Path) -> None:
    """An averaged spectrum by plain NumPy finds each channel's rhythms, in order."""
    truth = write_demo_recording(tmp_path / "demo.edf")
    with open_recording(tmp_path / "demo.edf") as recording:
        (group,) = recording.groups
        assert [name for name, _ in recording.left_out] == ["EDF Annotations"]
        assert group.names == tuple(truth.rhythms)
        assert (group.fs, group.seconds) == (truth.fs, truth.seconds)
        x = group.read()
    power = reference_welch(x, 512, hop=512)
    for row, (name, rhythms) in enumerate(truth.rhythms.items()):
        inner = power[row, 1:-1]
        is_peak = (inner > power[row, :-2]) & (inner > power[row, 2:])
        order = np.argsort(np.where(is_peak, inner, 0))[::-1][: len(rhythms)] + 1
        assert [index / 2 for index in order] == [rhythm.hz for rhythm in rhythms], name


def test_amplitudes_are_as_declared(tmp_path: Path) -> None:
    """The amplitude of each rhythm is met within the noise."""
    truth = write_demo_recording(tmp_path / "demo.edf", seconds=30)
    with open_recording(tmp_path / "demo.edf") as recording:
        x = recording.groups[0].read()
    t = np.arange(x.shape[1]) / truth.fs
    for row, rhythms in zip(x, truth.rhythms.values(), strict=True):
        for rhythm in rhythms:
            amplitude_uv = 2 * abs(np.mean(row * np.exp(-2j * np.pi * rhythm.hz * t)))
            assert amplitude_uv == pytest.approx(rhythm.amplitude_uv, abs=1.0)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """The file is a function of its arguments."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_demo_recording(tmp_path / f"{name}.edf", seconds=2, seed=seed)
    a, b, c = ((tmp_path / f"{name}.edf").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("options", [{"seconds": 0}, {"fs": 100}, {"seconds": 1.5}])
def test_a_demo_that_could_not_hold_its_rhythms_is_refused(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """A demo too short, too slow or not whole is refused, and no file appears."""
    with pytest.raises(UsageError, match=r"got .* Hz, seed .*; expected integers"):
        write_demo_recording(tmp_path / "demo.edf", **options)
    assert list(tmp_path.iterdir()) == []


def test_missing_edfio_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing optional package is an error with the command that installs it."""
    monkeypatch.setitem(sys.modules, "edfio", None)
    with pytest.raises(RecordingError, match=r"pip install rlxweb\[eeg\]"):
        write_demo_recording(tmp_path / "demo.edf")


def sine_amplitude(x: np.ndarray, hz: float, fs: float) -> float:
    """Return the amplitude of a sine of this frequency in the samples."""
    t = np.arange(len(x)) / fs
    return float(2 * abs(np.mean(x * np.exp(-2j * np.pi * hz * t))))


def test_events_of_the_demo_are_annotated(tmp_path: Path) -> None:
    """Alpha rises when the eyes close, beta falters opposite the hand, eyes blink."""
    truth = write_demo_recording(tmp_path / "demo.edf", seconds=80, events=True)
    with open_recording(tmp_path / "demo.edf") as recording:
        (group,) = recording.groups
        assert group.names == (*truth.rhythms, "EOG")
        assert recording.begun == 22 * 3600
        notes = recording.annotations
        x = dict(zip(group.names, group.read(), strict=True))
    fs, half = truth.fs, 40 * truth.fs
    first, last = (note for note in notes if note.text.startswith("Eyes"))
    assert first == (0.0, 40.0, "Eyes open")
    assert last == (40.0, 40.0, "Eyes closed")
    alpha_uv = truth.rhythms["EEG O1"][0].amplitude_uv
    assert sine_amplitude(x["EEG O1"][:half], 10, fs) == pytest.approx(
        0.3 * alpha_uv, abs=1
    )
    assert sine_amplitude(x["EEG O1"][half:], 10, fs) == pytest.approx(alpha_uv, abs=1)
    sides = ("left", "EEG C4", "EEG C3"), ("right", "EEG C3", "EEG C4")
    for side, opposite_channel, same_side_channel in sides:
        starts = [round(n.onset * fs) for n in notes if n.text == f"Stim/{side}"]
        assert len(starts) == 10
        window = slice(round(0.3 * fs), round(1.3 * fs))
        low, high = (
            np.mean([sine_amplitude(x[name][i:][window], 21, fs) for i in starts])
            for name in (opposite_channel, same_side_channel)
        )
        assert low < 0.4 * high
    assert x["EOG"][:half].max() > 150
    assert abs(x["EOG"][half:]).max() < 50


def test_hum_has_one_phase_in_a_demo_with_events(tmp_path: Path) -> None:
    """Hum has one phase, so that the average reference removes it as in real
    recordings.
    """
    write_demo_recording(tmp_path / "demo.edf", seconds=20, events=True)
    hum_by_reference = {}
    for reference in (None, "average"):
        opened_recording = open_recording(
            tmp_path / "demo.edf", channels="EEG*", reference=reference
        )
        with opened_recording as recording:
            x = recording.groups[0].read()
        hum_by_reference[reference] = max(sine_amplitude(row, 50, 256) for row in x)
    assert hum_by_reference["average"] < 0.25 * hum_by_reference[None]
