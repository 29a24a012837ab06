"""A recording on disk to its spectra, reading included, against MNE and SciPy.

The file is a few seconds of 64 channels of noise, its data records repeated. MNE reads
sixteen channels at a time, as one does whose memory is bounded; the script over SciPy
maps the file and takes channel by channel.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import scipy.signal

from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import engines, in_mode, library

CHANNELS, FS, N = 64, 512, 256
MIB = int(os.environ.get("RLX_BENCH_FILE_MIB", "128"))
"""Size of the recording; so long a run takes seconds by any of them."""
_GROUP = 16
_MICRO = 1e12  # MNE has volts


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for preset, limit in (("mne", 0.3), ("scipy", 0.5)):
        name = f"recording of {MIB} MiB, preset {preset}"
        yield name, partial(_work, name, preset, limit)


def _written(path: Path) -> None:
    import edfio

    rng, span = np.random.default_rng(3), (-500, 500)
    signals = [
        edfio.EdfSignal(
            rng.normal(0, 50, 8 * FS),
            FS,
            label=f"EEG {at}",
            physical_dimension="uV",
            physical_range=span,
        )
        for at in range(CHANNELS)
    ]
    edfio.Edf(signals, data_record_duration=1).write(path)
    given = path.read_bytes()
    head = 256 * (1 + CHANNELS)
    body, records = given[head:], int(given[236:244])
    times = max(1, (MIB << 20) // len(body))
    with path.open("wb") as file:
        file.write(given[:236] + f"{records * times:<8d}".encode() + given[244:head])
        for _ in range(times):
            file.write(body)


def _by_rlxweb(path: str, preset: str) -> np.ndarray:
    settings = Settings(preset=preset, nperseg=N, noverlap=N // 2, device="cpu")
    return np.asarray(analyse_file(path, settings).groups[0].power)


def _by_mne(path: str) -> np.ndarray:
    mne = library("mne")
    mne.set_log_level("ERROR")
    raw = mne.io.read_raw_edf(path, preload=False)
    found = []
    for at in range(0, CHANNELS, _GROUP):
        x = raw.get_data(picks=list(range(at, at + _GROUP)))
        how = {"n_fft": N, "n_overlap": N // 2}
        power, _ = mne.time_frequency.psd_array_welch(x, raw.info["sfreq"], **how)
        found.append(power * _MICRO)
    return np.concatenate(found)


def _by_scipy(path: str) -> np.ndarray:
    """SciPy's spectra of a file whose channels all have the header of `_written`."""
    head = 256 * (1 + CHANNELS)
    raw = np.memmap(path, np.int16, mode="r", offset=head).reshape(-1, CHANNELS, FS)
    gain = np.float32(1000 / 65535)
    found = []
    for at in range(CHANNELS):
        x = (raw[:, at].reshape(-1) + np.float32(0.5)) * gain
        found.append(scipy.signal.welch(x, FS, nperseg=N)[1])
    return np.array(found)


def _work(name: str, preset: str, limit: float) -> Work:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "noise.edf")
    _written(path)
    entries = [
        Entry(own, engine, in_mode(mode, partial(_by_rlxweb, str(path), preset)), True)
        for own, engine, mode in engines()
    ]
    if preset == "scipy":
        entries.append(Entry("scipy.signal", "SciPy", partial(_by_scipy, str(path))))
    elif not isinstance(library("mne"), str):
        entries.append(Entry("MNE", "MNE", partial(_by_mne, str(path))))
    others = ("scipy.signal", "MNE")

    def check() -> None:
        right = entries[0].peer()
        for entry in entries[1:]:
            found = entry.peer()
            inner = slice(2, -2)  # the ends depend on what is done with the mean
            np.testing.assert_allclose(found[:, inner], right[:, inner], rtol=2e-3)

    goals = tuple(Goal(entry.name, others, limit) for entry in entries if entry.ours)
    return Work(name, tuple(entries), goals, check, close=folder.cleanup)
