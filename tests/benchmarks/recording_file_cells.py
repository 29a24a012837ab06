"""Benchmark cells from a recording on disk to its spectra, reading included, against
MNE and SciPy.

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

from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.settings import Settings
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.peer_libraries import load_library, our_engines, with_jit_mode

N_CHANNELS, FS, SEGMENT_LENGTH = 64, 512, 256
RECORDING_MIB = int(os.environ.get("RLX_BENCH_FILE_MIB", "128"))
"""Size of the recording, so large that a run takes seconds by any peer."""
_MNE_GROUP_SIZE = 16
_UV2_PER_V2 = 1e12  # MNE has volts


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory."""
    for preset, limit in (("mne", 0.3), ("scipy", 0.5)):
        name = f"recording of {RECORDING_MIB} MiB, preset {preset}"
        yield name, partial(_make_cell, name, preset, limit)


def _write_recording(path: Path) -> None:
    """Write a recording of noise of RECORDING_MIB."""
    import edfio

    rng, physical_range = np.random.default_rng(3), (-500, 500)
    signals = [
        edfio.EdfSignal(
            rng.normal(0, 50, 8 * FS),
            FS,
            label=f"EEG {channel}",
            physical_dimension="uV",
            physical_range=physical_range,
        )
        for channel in range(N_CHANNELS)
    ]
    edfio.Edf(signals, data_record_duration=1).write(path)
    file_bytes = path.read_bytes()
    header_nbytes = 256 * (1 + N_CHANNELS)
    body, records = file_bytes[header_nbytes:], int(file_bytes[236:244])
    repeats = max(1, (RECORDING_MIB << 20) // len(body))
    with path.open("wb") as file:
        file.write(
            file_bytes[:236]
            + f"{records * repeats:<8d}".encode()
            + file_bytes[244:header_nbytes]
        )
        for _ in range(repeats):
            file.write(body)


def _rlxweb_power(path: str, preset: str) -> np.ndarray:
    settings = Settings(
        preset=preset,
        nperseg=SEGMENT_LENGTH,
        noverlap=SEGMENT_LENGTH // 2,
        device="cpu",
    )
    return np.asarray(analyse_file(path, settings).groups[0].power)


def _mne_power(path: str) -> np.ndarray:
    mne = load_library("mne")
    mne.set_log_level("ERROR")
    raw = mne.io.read_raw_edf(path, preload=False)
    powers = []
    for start in range(0, N_CHANNELS, _MNE_GROUP_SIZE):
        x = raw.get_data(picks=list(range(start, start + _MNE_GROUP_SIZE)))
        options = {"n_fft": SEGMENT_LENGTH, "n_overlap": SEGMENT_LENGTH // 2}
        power, _ = mne.time_frequency.psd_array_welch(x, raw.info["sfreq"], **options)
        powers.append(power * _UV2_PER_V2)
    return np.concatenate(powers)


def _scipy_power(path: str) -> np.ndarray:
    """Return SciPy's spectra of a file whose channels all have the header of
    `_write_recording`.
    """
    header_nbytes = 256 * (1 + N_CHANNELS)
    raw = np.memmap(path, np.int16, mode="r", offset=header_nbytes).reshape(
        -1, N_CHANNELS, FS
    )
    gain = np.float32(1000 / 65535)
    powers = []
    for channel in range(N_CHANNELS):
        x = (raw[:, channel].reshape(-1) + np.float32(0.5)) * gain
        powers.append(scipy.signal.welch(x, FS, nperseg=SEGMENT_LENGTH)[1])
    return np.array(powers)


def _make_cell(name: str, preset: str, limit: float) -> BenchmarkCell:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "noise.edf")
    _write_recording(path)
    entries = [
        PeerEntry(
            our_name,
            engine,
            with_jit_mode(mode, partial(_rlxweb_power, str(path), preset)),
            True,
        )
        for our_name, engine, mode in our_engines()
    ]
    if preset == "scipy":
        entries.append(
            PeerEntry("scipy.signal", "SciPy", partial(_scipy_power, str(path)))
        )
    elif not isinstance(load_library("mne"), str):
        entries.append(PeerEntry("MNE", "MNE", partial(_mne_power, str(path))))
    others = ("scipy.signal", "MNE")

    def check() -> None:
        expected = entries[0].run()
        for entry in entries[1:]:
            actual = entry.run()
            inner = slice(2, -2)  # the ends depend on what is done with the mean
            np.testing.assert_allclose(actual[:, inner], expected[:, inner], rtol=2e-3)

    goals = tuple(Goal(entry.name, others, limit) for entry in entries if entry.is_ours)
    return BenchmarkCell(name, tuple(entries), goals, check, close=folder.cleanup)
