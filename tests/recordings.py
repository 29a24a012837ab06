"""EDF and BDF files of noise, written and read back by edfio; files refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest

from rlxweb.errors import RecordingError, RecordingWarning, RlxError
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


def discontinuous(
    path: Path,
    starts: Sequence[str],
    *channels: tuple[str, float],
    notes: Sequence[tuple[str, str]] = (),
) -> Path:
    """An EDF+D file of one-second records that begin at `starts`, as they are written.

    notes  (onset and duration, text), all kept in the first record
    """
    room = edfio.EdfAnnotation(0, None, "room for what is noted" * (1 + len(notes)))
    written(path, *channels, seconds=len(starts), annotations=[room])
    return restarted(path, starts, notes)


def restarted(
    path: Path, starts: Sequence[str], notes: Sequence[tuple[str, str]] = ()
) -> Path:
    """The same file as EDF+D (or BDF+D), with other times of its records and notes.

    Source  EDF+ specification, 2.2: the TALs of an annotation signal
    """
    raw = bytearray(path.read_bytes())
    raw[192:197] = path.suffix[1:].upper().encode() + b"+D"
    n_signals = int(raw[252:256])
    head = 256 * (n_signals + 1)
    counts = bytes(raw[head - 40 * n_signals : head - 32 * n_signals])
    sizes = [int(counts[8 * at : 8 * at + 8]) for at in range(n_signals)]
    width = 3 if path.suffix == ".bdf" else 2
    at = head + width * sum(sizes[:-1])  # edfio writes the annotations last
    for record, start in enumerate(starts):
        tals = f"+{start}\x14\x14\x00"
        if record == 0:
            tals += "".join(f"+{when}\x14{text}\x14\x00" for when, text in notes)
        block = tals.encode().ljust(width * sizes[-1], b"\x00")
        assert len(block) == width * sizes[-1], "no room for the notes"
        here = at + record * width * sum(sizes)
        raw[here : here + len(block)] = block
    path.write_bytes(bytes(raw))
    return path


def attempt(path: Path, n_samples: int = 9000, **how: Any) -> str:
    """What becomes of a damaged file: "read", or "refused" by an error that names it.

    Any other exception passes.
    """
    try:
        with open_recording(path, **how) as recording:
            for group in recording.groups:
                group.read(0, min(group.n_samples, n_samples))
            _ = recording.annotations
        return "read"
    except RlxError as error:
        told = error
    assert told.exit_code == 2
    assert path.name in str(told)
    return "refused"
