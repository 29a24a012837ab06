"""EDF and BDF files of noise, written and read with edfio; checks for unreadable
files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pytest

from rlxweb.core.errors import RecordingError, RecordingWarning, RlxError
from rlxweb.io import Recording, Written, open_recording

EDFIO_TYPES: dict[str, tuple[Any, Any, Any]] = {
    ".edf": (edfio.EdfSignal, edfio.Edf, edfio.read_edf),
    ".bdf": (edfio.BdfSignal, edfio.Bdf, edfio.read_bdf),
}


def write_recording(
    path: Path, *channels: tuple[str, float], seconds: int = 4, **more: Any
) -> Path:
    """Write noise in microvolts, (label, rate) for each channel; `more` goes to edfio.

    Files of one name have the same noise, and those of other names another.
    """
    rng = np.random.default_rng(list(os.fsencode(path.name)))
    signal_type, file_type, _ = EDFIO_TYPES[path.suffix]
    span = {"physical_dimension": "uV", "physical_range": (-500, 500)}
    signals = [
        signal_type(rng.normal(0, 50, round(fs * seconds)), fs, label=label, **span)
        for label, fs in channels
    ]
    file_type(signals, **more).write(path)
    return path


def save_recording(path: Any, x: Any, **how: Any) -> Written:
    """Save an array or a recording; check that each loss is a warning that names the
    file.

    how  `fs`, `channels` and `units` are those of the array, the rest is `save`'s
    """
    if not isinstance(x, Recording):
        attributes = {key: how.pop(key) for key in ("channels", "units") if key in how}
        x = Recording.from_array(x, how.pop("fs"), **attributes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = x.save(path, **how)
    context = f"writing {result.path!r}" if result.path else "writing a recording"
    wanted = [(RecordingWarning, f"{context}: {text}") for text in result.lost]
    assert [(w.category, str(w.message)) for w in caught] == wanted
    return result


def write_eeg_recordings(folder: Path) -> Path:
    """Write `test.edf` and `test.bdf` with edfio, laid out as EEG recorders do.

    test.edf  6 s: 138 channels of µV at 512 Hz and 16 bits, with a hum at 50 Hz; a
              status channel; annotations
    test.bdf  1 s: 72 channels of µV at 2,048 Hz and 24 bits, 66 of them named after
              electrodes and 6 after no place on a head; a status channel
    """
    rng = np.random.default_rng(5)
    n_sites = 138
    names = [f"{'ABCDEFGHI'[k // 16]}{k % 16 + 1}" for k in range(n_sites - 2)]
    n_samples, fs = 3072, 512
    t = np.arange(n_samples) / fs
    hum = np.sin(2 * np.pi * 50 * t + rng.uniform(0, 6, (n_sites, 1)))
    rows = 12 * hum + _brown_noise(rng, n_sites, n_samples)
    status = np.repeat([0, 255, 4, 0], n_samples // 4)
    span: dict[str, Any] = {"physical_dimension": "uV", "physical_range": (-500, 500)}
    signals = [
        edfio.EdfSignal(row, fs, label=label, **span)
        for label, row in zip([*names, "Ergo-Left", "Ergo-Right"], rows, strict=True)
    ]
    signals.append(edfio.EdfSignal(status, fs, label="Status", physical_dimension="uV"))
    notes = [(0.1, None, "start"), (0.5, 1.0, "type A"), (2.25, 1.0, "type A")]
    annotations = [edfio.EdfAnnotation(*note) for note in notes]
    edfio.Edf(signals, annotations=annotations).write(folder / "test.edf")

    n_samples = fs = 2048
    labels = [*ELECTRODES, "M1", "M2", "EXG1", "EXG2", "HEOG", "VEOG", "IEOG", "EXG8"]
    span = {"physical_dimension": "uV", "physical_range": (-262144, 262143)}
    rows = _brown_noise(rng, len(labels), n_samples) + rng.normal(0, 5000, (72, 1))
    bdf_signals = [
        edfio.BdfSignal(row, fs, label=label, **span, prefiltering="HP: DC; LP: 417 Hz")
        for label, row in zip(labels, rows, strict=True)
    ]
    status = np.repeat([0, 5, 0, 65280], n_samples // 4)
    bdf_signals.append(
        edfio.BdfSignal(
            status, fs, label="Status", physical_range=(-(2**23), 2**23 - 1)
        )
    )
    edfio.Bdf(bdf_signals).write(folder / "test.bdf")
    return folder


def _brown_noise(
    rng: np.random.Generator, n_channels: int, n_samples: int
) -> np.ndarray:
    """Return noise in µV whose power falls with frequency, like that of an EEG."""
    steps = rng.normal(0, 1, (n_channels, n_samples + 1))
    walk = np.cumsum(steps, axis=1)
    return (walk - walk.mean(axis=1, keepdims=True))[:, 1:] + steps[:, 1:]


ELECTRODES = (
    "Fp1 AF7 AF3 F1 F3 F5 F7 FT7 FC5 FC3 FC1 C1 C3 C5 T7 TP7 CP5 CP3 CP1 P1 P3 P5 P7 "
    "P9 PO7 PO3 O1 Iz Oz POz Pz CPz Fpz Fp2 AF8 AF4 AFz Fz F2 F4 F6 F8 FT8 FC6 FC4 FC2 "
    "FCz Cz C2 C4 C6 T8 TP8 CP6 CP4 CP2 P2 P4 P6 P8 P10 PO8 PO4 O2"
).split()
"""The 64 electrodes of a BioSemi cap."""


def read_with_edfio(path: Path) -> dict[str, np.ndarray]:
    """Return the samples by label, as edfio reads them."""
    signals = EDFIO_TYPES[path.suffix][2](path).signals
    return {signal.label: signal.data for signal in signals}


def read_with_warning(path: Path, match: str, **how: Any) -> list[np.ndarray]:
    """Return the samples of each group of a file that is readable in spite of a defect.

    Told twice: as a warning that names the file, and in the recording itself.
    """
    with pytest.warns(RecordingWarning, match=match) as caught:
        recording = open_recording(path, **how)
    with recording:
        messages = [str(w.message) for w in caught]
        assert messages == [
            f"reading {str(path)!r}: {text}" for text in recording.warnings
        ]
        return [group.read() for group in recording.groups]


def check_unreadable(path: Path, match: str, **how: Any) -> None:
    """Check that opening a file raises an error that matches and names the file."""
    with pytest.raises(RecordingError, match=match) as caught:
        open_recording(path, **how)
    assert path.name in str(caught.value)


def write_discontinuous(
    path: Path,
    starts: Sequence[str],
    *channels: tuple[str, float],
    notes: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write an EDF+D file of one-second records that begin at `starts`, given as text.

    notes  (onset and duration, text), all kept in the first record
    """
    placeholder = edfio.EdfAnnotation(
        0, None, "room for what is noted" * (1 + len(notes))
    )
    write_recording(path, *channels, seconds=len(starts), annotations=[placeholder])
    return make_discontinuous(path, starts, notes)


def make_discontinuous(
    path: Path, starts: Sequence[str], notes: Sequence[tuple[str, str]] = ()
) -> Path:
    """Turn a file into EDF+D (or BDF+D), with other times of its records and notes.

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
            tals += "".join(f"+{onset}\x14{text}\x14\x00" for onset, text in notes)
        block = tals.encode().ljust(width * sizes[-1], b"\x00")
        assert len(block) == width * sizes[-1], "no room for the notes"
        record_offset = at + record * width * sum(sizes)
        raw[record_offset : record_offset + len(block)] = block
    path.write_bytes(bytes(raw))
    return path


def try_reading(path: Path, n_samples: int = 9000, **how: Any) -> str:
    """Return "read", or "refused" for an error that names the damaged file.

    Any other exception passes.
    """
    try:
        with open_recording(path, **how) as recording:
            for group in recording.groups:
                group.read(0, min(group.n_samples, n_samples))
            _ = recording.annotations
        return "read"
    except RlxError as error:
        refusal = error
    assert refusal.exit_code == 2
    assert path.name in str(refusal)
    return "refused"
