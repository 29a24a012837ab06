"""Files that the command lines of this folder's tables name, each made once a session.

A file is a function that writes it into a folder; its name is its key in `FILES`.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import edfio
import numpy as np
from scipy.io import wavfile

from rlxweb.cli.bench_compare import SCHEMA
from tests.edf_bdf_recordings import save_recording, write_recording
from tests.unit.signal.learned.red_noise import FS, red_noise

Writer = Callable[[Path], object]
"""Function that writes a file at a path."""

USER_MODULES = ("mine_to_export", "torn_to_export", "beside")
MODULE_TEXT = """
import numpy as np
import rlxweb as rlx
import beside

graph = rlx.Graph("lin")
x, w = graph.input("x", (4, 3)), graph.param("w", (3, 2))
graph.set_outputs([x @ w])
W = np.full((3, 2), beside.VALUE, "f4")
number = 3

def compiled():
    one = rlx.Session("cpu").compile(graph)
    one.set_param("w", W)
    return one

class kept:
    @staticmethod
    def devices():
        one = rlx.GraphDevices(graph)
        one.set_param("w", W)
        return one

def bare():
    one = rlx.Graph("bare")
    one.set_outputs([one.input("x", (2,)) * 2])
    return one

def broken():
    raise ValueError("nobody home")
"""


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _text(text: str) -> Writer:
    return lambda path: path.write_text(text, "utf-8")


def _npy(x: np.ndarray) -> Writer:
    """Return a writer of an array in NumPy's format, whatever the file's suffix."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, x)

    return write


def _npz(**arrays: Any) -> Writer:
    return lambda path: np.savez(path, **arrays)


def _edf(*channels: tuple[str, float], notes: Any = (), **more: Any) -> Writer:
    annotations = [edfio.EdfAnnotation(*note) for note in notes]
    return lambda path: write_recording(
        path, *channels, annotations=annotations, **more
    )


def _red(n_samples: int, fs: float = FS) -> Writer:
    """Return a writer of three channels of noise whose power falls as 1/f^4."""
    names = ["Fz", "Cz", "Pz"]
    return lambda path: save_recording(
        path, 100.0 * red_noise(3, n_samples), fs=fs, channels=names, units="uV"
    )


def _bench(*cases: dict[str, object]) -> Writer:
    return _text(json.dumps({"schema": SCHEMA, "cases": cases}))


def _write_night(folder: Path) -> None:
    """Write recordings, other files, hidden ones, and a folder below."""
    (folder / "deeper").mkdir(parents=True)
    names = ("b.npy", "a.npy", "deeper/c.npy", ".hidden.npy", "[x].npy")
    for seed, name in enumerate(names):
        np.save(folder / name, _normal(2, 600, seed=seed))
    for name in ("notes.txt", "report.pdf", "README"):
        (folder / name).write_text("no recording")


def _write_texts(folder: Path) -> None:
    folder.mkdir()
    (folder / "x.txt").write_text("x")


def _with_gap(x: np.ndarray, *at: int) -> np.ndarray:
    x[at] = np.nan
    return x


EVENT_FS = 200.0
LEFT_ONSETS = np.arange(5.0, 55.0, 5.0)
RIGHT_ONSETS = np.arange(7.013, 55.0, 5.0)


def _write_events(path: Path) -> None:
    """Write ten epochs of two kinds each, one too near the end; one of the left kind is
    an artifact.
    """
    x = np.random.default_rng(5).normal(0, 20, (3, 12_000))
    x[2, 2010:2020] += 700.0
    notes = [(at, "Stim left") for at in (*LEFT_ONSETS, 59.9)]
    notes += [(at, "Stim right") for at in RIGHT_ONSETS]
    notes.append((59.95, "Stim odd"))
    span: dict[str, Any] = {
        "physical_dimension": "uV",
        "physical_range": (-1000, 1000),
    }
    signals = [
        edfio.EdfSignal(row, EVENT_FS, label=name, **span)
        for name, row in zip(("Cz", "Pz", "Oz"), x, strict=True)
    ]
    annotations = [edfio.EdfAnnotation(at, None, text) for at, text in notes]
    edfio.Edf(signals, annotations=annotations).write(path)


SHORT = _normal(3, 1000)
"""Samples of `x.npy`."""
WELCH = np.random.default_rng(5).standard_normal((3, 5000)) + 0.3
"""Samples of `welch.npy`: noise with an offset."""
RHYTHM = np.random.default_rng(6).standard_normal((3, 8000)) + 5.0
RHYTHM[1] += 3 * np.sin(2 * np.pi * 10 * np.arange(8000) / 200)
"""Samples of `rhythm.npy`: noise at 200 Hz, with 10 Hz in one of three channels."""
NOTES = [(1.0, None, "go"), (2.5, 1.5, "Größe"), (3.0, None, "go"), (3.5, 0.5, "Größe")]
"""Onset, duration and text of the annotations of `info.edf`."""
ONE_CASE = {"case": "copy", "shape": "8", "data": "device"}
FILES: dict[str, Writer] = {
    # Recordings
    "x.npy": _npy(SHORT),
    "input.parquet": _npy(SHORT),
    "welch.npy": _npy(WELCH),
    "single.npy": _npy(WELCH.astype(np.float32)),
    "bad.npy": _npy(_with_gap(WELCH[:2].copy(), 1, 30)),
    "rhythm.npy": _npy(RHYTHM),
    "tone.npy": _npy(np.sin(2 * np.pi * 12.34 * np.arange(8000) / 100)),
    "tone.wav": lambda path: wavfile.write(
        path,
        1000,
        np.round(np.sin(2 * np.pi * 125 * np.arange(8000) / 1000) * 2**14).astype("i2"),
    ),
    "gap.npy": _npy(_with_gap(_normal(3, 8000), 2, 100)),
    "zeros.npy": _npy(np.zeros((2, 900))),
    "x.wav": lambda path: wavfile.write(path, 100, _normal(600)),
    "two.npz": _npz(a=np.ones((1, 900)), b=np.ones((1, 900)), fs=9),
    "loud.npz": _npz(
        x=_normal(2, 600) * [[1.0], [1e200]], channels=np.array(["Fz", "Cz"]), fs=100.0
    ),
    "nan.npz": _npz(samples=_with_gap(_normal(1, 5000), 0, 7), fs=100.0),
    "b.npz": _npz(x=np.ones((1, 99)), fs=9.0),
    "arrays.npz": _npz(a=np.zeros((900, 2)), b=np.zeros((3, 900)), fs=100.0),
    "names.npz": _npz(
        x=WELCH, fs=100.0, channels=np.array(["b, left", "c", '5" tube'])
    ),
    "rates.edf": _edf(
        ("EEG", 100), ("EEG", 100), ("ECG", 500), seconds=10, notes=[(0, None, "x")]
    ),
    "labels.edf": _edf(
        ("EEG Fp1", 100), ("EEG Cz", 100), ("EOG", 100), ("ECG", 100), seconds=9
    ),
    "info.edf": _edf(
        *(("Cz", 128), ("Temp", 2), ("Pz", 128)),
        seconds=90,
        notes=NOTES,
        starttime=datetime.time(23, 59, 30),
        recording=edfio.Recording(startdate=datetime.date(2002, 3, 2)),
    ),
    "night.edf": _edf(
        *(("EEG Fz", 128), ("EEG Cz", 128)),
        seconds=8,
        notes=[(1, 2, "Lights off"), (5, None, "x")],
    ),
    "psg.edf": _edf(("EEG", 128), ("SpO2", 2)),
    "a.edf": _edf(("A", 128), ("R", 2)),
    "A-2HZ.edf": _edf(("A", 128)),
    "events.edf": _write_events,
    "slow.edf": _edf(("Cz", 64)),
    "bad.edf": _text("0       nothing"),
    "red.npz": _red(9000),
    "brief.npz": _red(6000),
    "slow.npz": _red(6000, FS / 2),
    "short.npz": _red(500),
    # Folders
    "night": _write_night,
    "empty": Path.mkdir,
    "texts": _write_texts,
    "above": lambda path: (path / "below").mkdir(parents=True),
    "folder.parquet": Path.mkdir,
    # Outputs of earlier runs
    "psg-128Hz.wav": _text("mine"),
    "night.wav": _text("mine"),
    # Graphs and weights
    "mine_to_export": _text(MODULE_TEXT),
    "torn_to_export": _text("import not_there_at_all\n"),
    "beside": _text("VALUE = 2.0\n"),
    "v.npz": _npz(v=np.ones(1, "f4")),
    "shape.npz": _npz(w=np.ones((2, 3), "f4")),
    "dtype.npz": _npz(w=np.ones((3, 2))),
    "none.npz": _npz(),
    # Measurements
    "cpu.json": _bench(ONE_CASE | {"rows": [{"engine": "cpu", "ns": 1.0}]}),
    "damaged.json": _bench({}),
    "nothing.json": _bench(),
    "gpu.json": _text('{"schema": "rlxweb.bench.gpu/1"}'),
    "list.json": _text("[]"),
    "text.json": _text("no JSON"),
}


class FileStore:
    """Folder with the files of `FILES` that have been asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy_named(self, line: str, folder: Path) -> None:
        """Copy the files that a command line names into a folder.

        A module brings the one that it imports.
        """
        names = {re.split("[/:]", word)[0] for word in shlex.split(line)}
        if "mine_to_export" in names:
            names.add("beside")
        for name in names & FILES.keys():
            suffix = ".py" if name in USER_MODULES else ""
            path = self.folder / f"{name}{suffix}"
            if not path.exists():
                # It has its place when it is complete, whatever ends a test before.
                with TemporaryDirectory(dir=self.folder) as new_folder:
                    FILES[name](Path(new_folder) / path.name)
                    (Path(new_folder) / path.name).rename(path)
            target = folder / path.name
            if path.is_dir():
                shutil.copytree(path, target)
            else:
                shutil.copy(path, target)
