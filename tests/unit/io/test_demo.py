"""The demo recording holds the rhythms it says it holds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rlxweb.errors import RecordingError, UsageError
from rlxweb.io import open_recording, write_demo_recording
from tests.oracles import estimate


def test_the_strongest_peaks_are_the_rhythms_put_in(tmp_path: Path) -> None:
    """An averaged spectrum by plain NumPy finds each channel's rhythms, in order."""
    truth = write_demo_recording(tmp_path / "demo.edf")
    with open_recording(tmp_path / "demo.edf") as recording:
        (group,) = recording.groups
        assert [name for name, _ in recording.left_out] == ["EDF Annotations"]
        assert group.names == tuple(truth.rhythms)
        assert (group.fs, group.seconds) == (truth.fs, truth.seconds)
        x = group.read()
    power = estimate(x, 512, hop=512)
    for row, (name, rhythms) in enumerate(truth.rhythms.items()):
        inner = power[row, 1:-1]
        is_peak = (inner > power[row, :-2]) & (inner > power[row, 2:])
        order = np.argsort(np.where(is_peak, inner, 0))[::-1][: len(rhythms)] + 1
        assert [at / 2 for at in order] == [rhythm.hz for rhythm in rhythms], name


def test_amplitudes_are_those_told(tmp_path: Path) -> None:
    """The amplitude of each rhythm is met within the noise."""
    truth = write_demo_recording(tmp_path / "demo.edf", seconds=30)
    with open_recording(tmp_path / "demo.edf") as recording:
        x = recording.groups[0].read()
    t = np.arange(x.shape[1]) / truth.fs
    for row, rhythms in zip(x, truth.rhythms.values(), strict=True):
        for rhythm in rhythms:
            found = 2 * abs(np.mean(row * np.exp(-2j * np.pi * rhythm.hz * t)))
            assert found == pytest.approx(rhythm.amplitude_uv, abs=1.0)


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
    """Too short, too slow or not whole: refused, and no file appears."""
    with pytest.raises(UsageError, match="a demo of"):
        write_demo_recording(tmp_path / "demo.edf", **options)
    assert list(tmp_path.iterdir()) == []


def test_without_edfio_the_way_to_get_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing optional package is an error with the command that mends it."""
    monkeypatch.setitem(sys.modules, "edfio", None)
    with pytest.raises(RecordingError, match=r"pip install rlxweb\[eeg\]"):
        write_demo_recording(tmp_path / "demo.edf")
