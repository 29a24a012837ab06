"""Whole processes on EDF and BDF files: `rlxweb bands` against a script over MNE.

Import, reading, spectra, integrals and the table on disk are all in the time; modules
are compiled before, as they are once a package is installed.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import library
from tests.recordings import write_eeg_recordings

NAME = "process: bands of two recordings"
LIMIT = 0.4
_PATIENCE_S = 120
_WITHIN = 1e-9
_BANDS = "delta=1:4,theta=4:8,alpha=8:13,beta=13:30,gamma=30:45"
"""Their edges are bins of both recordings: the script interpolates none."""
_MNE = """
import csv, sys
import mne, numpy as np

mne.set_log_level("ERROR")
BANDS = {"delta": (1, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30),
         "gamma": (30, 45)}
target, *files = sys.argv[1:]
with open(target, "w", newline="") as out:
    table = csv.writer(out)
    table.writerow(["channel", "band", "power", "share"])
    for path in files:
        raw = mne.io.read_raw(path)
        n = min(int(4 * raw.info["sfreq"]), raw.n_times)
        spectrum = raw.compute_psd(method="welch", n_fft=n, n_overlap=n // 2,
                                   window="hann", fmin=0, fmax=46, picks="eeg")
        psd, f = spectrum.get_data(return_freqs=True)
        total = np.trapezoid(psd[:, (f >= 1) & (f <= 45)], f[(f >= 1) & (f <= 45)])
        for band, (low, high) in BANDS.items():
            inside = (f >= low) & (f <= high)
            power = np.trapezoid(psd[:, inside], f[inside])
            for name, one, share in zip(spectrum.ch_names, power, power / total):
                table.writerow([name, band, one, share])
"""


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Yield the cell."""
    yield NAME, _work


def _run(*command: object) -> None:
    subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        timeout=_PATIENCE_S,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    )


def _shares(path: Path) -> np.ndarray:
    with path.open(newline="") as file:
        found = {(r["channel"], r["band"]): r["share"] for r in csv.DictReader(file)}
    return np.array([float(found[key]) for key in sorted(found)])


def _work() -> Work:
    folder = tempfile.TemporaryDirectory()
    ours, theirs, script = (
        Path(folder.name, name) for name in ("ours.csv", "theirs.csv", "bands.py")
    )
    script.write_text(_MNE, "utf-8")
    write_eeg_recordings(Path(folder.name))
    files = [Path(folder.name, name) for name in ("test.edf", "test.bdf")]
    command = ("-m", "rlxweb", "bands", *files, "--bands", _BANDS, "--csv", ours)
    own = partial(_run, *command, "--device", "cpu", "-q")
    entries = [Entry("rlxweb bands", "NumPy", own, True)]
    has_peer = not isinstance(library("mne"), str)
    if has_peer:
        other = partial(_run, script, theirs, *files)
        entries.append(Entry("MNE script", "MNE", other))

    def check() -> None:
        if has_peer:
            found, right = _shares(ours), _shares(theirs)
            assert found.shape == right.shape, "channels or bands differ"
            np.testing.assert_allclose(found, right, rtol=0, atol=_WITHIN)

    goals = (Goal("rlxweb bands", ("MNE script",), LIMIT),)
    return Work(NAME, tuple(entries), goals, check, close=folder.cleanup)
