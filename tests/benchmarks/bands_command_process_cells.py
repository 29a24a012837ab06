"""Benchmark cells of whole processes on EDF and BDF files: `rlxweb bands` against a
script over MNE.

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

from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.peer_libraries import load_library
from tests.edf_bdf_recordings import write_eeg_recordings

NAME = "process: bands of two recordings"
LIMIT = 0.4
_TIMEOUT_S = 120
_SHARE_ATOL = 1e-9
_BANDS = "delta=1:4,theta=4:8,alpha=8:13,beta=13:30,gamma=30:45"
"""Bands whose edges are bins of both recordings, so that the script interpolates none.
"""
_MNE_SCRIPT = """
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


def works() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield the cell."""
    yield NAME, _create_work


def _run_python(*command: object) -> None:
    subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        timeout=_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    )


def _read_shares(path: Path) -> np.ndarray:
    with path.open(newline="") as file:
        shares = {(r["channel"], r["band"]): r["share"] for r in csv.DictReader(file)}
    return np.array([float(shares[key]) for key in sorted(shares)])


def _create_work() -> BenchmarkCell:
    folder = tempfile.TemporaryDirectory()
    ours, theirs, script = (
        Path(folder.name, name) for name in ("ours.csv", "theirs.csv", "bands.py")
    )
    script.write_text(_MNE_SCRIPT, "utf-8")
    write_eeg_recordings(Path(folder.name))
    files = [Path(folder.name, name) for name in ("test.edf", "test.bdf")]
    command = ("-m", "rlxweb", "bands", *files, "--bands", _BANDS, "--csv", ours)
    run_rlxweb = partial(_run_python, *command, "--device", "cpu", "-q")
    entries = [PeerEntry("rlxweb bands", "NumPy", run_rlxweb, True)]
    has_peer = not isinstance(load_library("mne"), str)
    if has_peer:
        run_mne = partial(_run_python, script, theirs, *files)
        entries.append(PeerEntry("MNE script", "MNE", run_mne))

    def check() -> None:
        if has_peer:
            shares, expected = _read_shares(ours), _read_shares(theirs)
            assert shares.shape == expected.shape, "channels or bands differ"
            np.testing.assert_allclose(shares, expected, rtol=0, atol=_SHARE_ATOL)

    goals = (Goal("rlxweb bands", ("MNE script",), LIMIT),)
    return BenchmarkCell(NAME, tuple(entries), goals, check, close=folder.cleanup)
