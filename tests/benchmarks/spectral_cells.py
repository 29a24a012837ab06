"""Spectra over time, pairs and tapers on the CPU, against SciPy and MNE.

64 channels of ten minutes, as a laboratory has them, and epochs cut from these. Every
answer is compared before a time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.signal

import rlxweb as rlx
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import library

CHANNELS, FS, SECONDS = 64, 256.0, 600
OURS = f"NumPy {np.__version__}"
LIMIT = 0.5
Rows = np.ndarray[Any, Any]
Call = Callable[[Rows, Rows], Any]

_named: dict[str, Any] = {"nperseg": 512}


def _mne() -> Any:
    mne = library("mne")
    mne.set_log_level("ERROR")
    return mne.time_frequency


def _epochs(x: Rows, n: int) -> Rows:
    return x[:, : x.shape[1] // n * n].reshape(-1, n)


def _sfft() -> Any:
    window = scipy.signal.get_window("hann", 512)
    return scipy.signal.ShortTimeFFT(window, 256, FS)


_FREQS = np.arange(4.0, 44.0, 4.0)
SCIPY: dict[str, tuple[Call, Call]] = {
    "spectrogram": (
        lambda x, y: scipy.signal.spectrogram(x, FS, **_named)[2],
        lambda x, y: rlx.spectrogram(x, FS, device="cpu", **_named).values,
    ),
    "short-time transform": (
        lambda x, y: _sfft().stft(x),
        lambda x, y: rlx.stft(x, FS, device="cpu", **_named).values,
    ),
    "cross spectra": (
        lambda x, y: scipy.signal.csd(x, y, FS, **_named)[1],
        lambda x, y: rlx.csd(x, y, FS, device="cpu", **_named)[1],
    ),
    "coherence": (
        lambda x, y: scipy.signal.coherence(x, y, FS, **_named)[1],
        lambda x, y: rlx.coherence(x, y, FS, device="cpu", **_named)[1],
    ),
    "coherence of 16 × 16": (
        lambda x, y: scipy.signal.coherence(x[:16, None], y[None, :16], FS, **_named)[
            1
        ],
        lambda x, y: rlx.coherence(x[:16, None], y[None, :16], FS, **_named)[1],
    ),
}
MNE: dict[str, tuple[Call, Call]] = {
    "multitaper": (
        lambda x, y: _mne().psd_array_multitaper(x, FS, normalization="full")[0],
        lambda x, y: rlx.multitaper(x, FS, device="cpu")[1],
    ),
    "multitaper of epochs": (
        lambda x, y: _mne().psd_array_multitaper(
            _epochs(x, 512), FS, normalization="full"
        )[0],
        lambda x, y: rlx.multitaper(_epochs(x, 512), FS, device="cpu")[1],
    ),
    "Morlet of 16 channels": (
        lambda x, y: _mne().tfr_array_morlet(x[None, :16], FS, _FREQS, output="power")[
            0
        ],
        lambda x, y: rlx.tfr_morlet(x[:16], FS, _FREQS, device="cpu").values,
    ),
    "Morlet of epochs": (
        lambda x, y: _mne().tfr_array_morlet(
            _epochs(x, 1024)[None, :800], FS, _FREQS, output="power"
        )[0],
        lambda x, y: (
            rlx.tfr_morlet(_epochs(x, 1024)[:800], FS, _FREQS, device="cpu").values
        ),
    ),
}


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for peer, table in (("scipy.signal", SCIPY), ("MNE", MNE)):
        for name in table:
            yield f"spectra: {name}", partial(_work, f"spectra: {name}", peer, table)


def _work(name: str, peer: str, table: dict[str, tuple[Call, Call]]) -> Work:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, CHANNELS, int(FS * SECONDS)))
    theirs, ours = table[name.removeprefix("spectra: ")]
    entries = [Entry("rlxweb, CPU", OURS, partial(ours, x, y), True)]
    if peer != "MNE" or not isinstance(library("mne"), str):
        entries.append(Entry(peer, peer, partial(theirs, x, y)))

    def check() -> None:
        if len(entries) < 2:
            return
        right, found = (entry.peer() for entry in reversed(entries))
        peak = float(np.abs(right).max())
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-7 * peak)

    goals = (Goal("rlxweb, CPU", (peer,), LIMIT),)
    return Work(name, tuple(entries), goals, check)
