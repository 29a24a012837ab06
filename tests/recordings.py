"""EDF and BDF files of noise, written and read back by edfio; files refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest

from rlxweb.errors import RecordingError, RecordingWarning
from rlxweb.io import open_recording

KINDS: dict[str, tuple[Any, Any, Any]] = {
    ".edf": (edfio.EdfSignal, edfio.Edf, edfio.read_edf),
    ".bdf": (edfio.BdfSignal, edfio.Bdf, edfio.read_bdf),
}
RNG = np.random.default_rng(3)


def written(
    path: Path, *channels: tuple[str, float], seconds: int = 4, **more: Any
) -> Path:
    """Noise in microvolts: (label, rate) for each channel; `more` is edfio's."""
    signal, whole, _ = KINDS[path.suffix]
    span = {"physical_dimension": "uV", "physical_range": (-500, 500)}
    signals = [
        signal(RNG.normal(0, 50, round(fs * seconds)), fs, label=label, **span)
        for label, fs in channels
    ]
    whole(signals, **more).write(path)
    return path


def by_edfio(path: Path) -> dict[str, np.ndarray]:
    """What edfio itself reads: samples by label."""
    signals = KINDS[path.suffix][2](path).signals
    return {signal.label: signal.data for signal in signals}


def read_with_warning(path: Path, match: str, **how: Any) -> list[np.ndarray]:
    """The samples of each group of a file that is read although something is wrong.

    Told twice: as a warning that names the file, and in the recording itself.
    """
    with pytest.warns(RecordingWarning, match=match) as caught:
        recording = open_recording(path, **how)
    with recording:
        told = [str(w.message) for w in caught]
        assert told == [f"reading {str(path)!r}: {text}" for text in recording.warnings]
        return [group.read() for group in recording.groups]


def check_unreadable(path: Path, match: str, **how: Any) -> None:
    """No recording: the message says why, and names the file."""
    with pytest.raises(RecordingError, match=match) as caught:
        open_recording(path, **how)
    assert path.name in str(caught.value)
