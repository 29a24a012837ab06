"""Benchmark cells of spectra over time, pairs and tapers on the CPU, against SciPy and
MNE.

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
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.peer_libraries import load_library, our_engines, with_jit_mode

CHANNELS, FS, SECONDS = 64, 256.0, 600
LIMIT = 0.5
RowArray = np.ndarray[Any, Any]
SpectralCall = Callable[[RowArray, RowArray], Any]

_NAME_PREFIX = "spectra: "
_COMPILED_CELL = "band power"
"""Name of the only cell that has compiled code."""
_segment_options: dict[str, Any] = {"nperseg": 512}


def _mne() -> Any:
    mne = load_library("mne")
    mne.set_log_level("ERROR")
    return mne.time_frequency


def _epochs(x: RowArray, n: int) -> RowArray:
    return x[:, : x.shape[1] // n * n].reshape(-1, n)


def _sfft() -> Any:
    window = scipy.signal.get_window("hann", 512)
    return scipy.signal.ShortTimeFFT(window, 256, FS)


def _band_powers(f: RowArray, psd: RowArray) -> RowArray:
    """Return powers (…, K) by the trapezoidal rule between bins, as scripts compute
    them.
    """
    powers = []
    for low, high in _BANDS.values():
        inside = (f >= low) & (f <= high)
        powers.append(np.trapezoid(psd[..., inside], f[inside]))
    return np.stack(powers, axis=-1)


_FREQS = np.arange(4.0, 44.0, 4.0)
_BANDS = {"delta": (0.5, 4.0), "theta": (4.0, 8.0), "alpha": (8.0, 13.0)}
SCIPY: dict[str, tuple[SpectralCall, SpectralCall]] = {
    "spectrogram": (
        lambda x, y: scipy.signal.spectrogram(x, FS, **_segment_options)[2],
        lambda x, y: rlx.spectrogram(x, FS, device="cpu", **_segment_options).values,
    ),
    "short-time transform": (
        lambda x, y: _sfft().stft(x),
        lambda x, y: rlx.stft(x, FS, device="cpu", **_segment_options).values,
    ),
    "cross spectra": (
        lambda x, y: scipy.signal.csd(x, y, FS, **_segment_options)[1],
        lambda x, y: rlx.csd(x, y, FS, device="cpu", **_segment_options)[1],
    ),
    "coherence": (
        lambda x, y: scipy.signal.coherence(x, y, FS, **_segment_options)[1],
        lambda x, y: rlx.coherence(x, y, FS, device="cpu", **_segment_options)[1],
    ),
    "coherence of 16 × 16": (
        lambda x, y: scipy.signal.coherence(
            x[:16, None], y[None, :16], FS, **_segment_options
        )[1],
        lambda x, y: rlx.coherence(x[:16, None], y[None, :16], FS, **_segment_options)[
            1
        ],
    ),
}
SCIPY["band power"] = (
    lambda x, y: _band_powers(*scipy.signal.welch(x, FS, nperseg=1024)),
    lambda x, y: rlx.band_power(x, FS, _BANDS, nperseg=1024, device="cpu").absolute,
)
MNE: dict[str, tuple[SpectralCall, SpectralCall]] = {
    "band power": (
        lambda x, y: _band_powers(
            *_mne().psd_array_welch(x, FS, n_fft=1024, n_overlap=512, window="hann")[
                ::-1
            ]
        ),
        lambda x, y: rlx.band_power(x, FS, _BANDS, nperseg=1024, device="cpu").absolute,
    ),
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


def works() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and a function that creates it."""
    for peer, table in (("scipy.signal", SCIPY), ("MNE", MNE)):
        for name in table:
            cell_name = f"{_NAME_PREFIX}{name}, {peer}"
            yield cell_name, partial(_create_work, cell_name, peer, table[name])


def _create_work(
    name: str, peer: str, calls: tuple[SpectralCall, SpectralCall]
) -> BenchmarkCell:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, CHANNELS, int(FS * SECONDS)))
    theirs, ours = calls
    entries = [
        PeerEntry(label, engine, with_jit_mode(mode, partial(ours, x, y)), True)
        for label, engine, mode in our_engines()
        if mode == "off" or name.startswith(f"{_NAME_PREFIX}{_COMPILED_CELL}")
    ]
    if peer != "MNE" or not isinstance(load_library("mne"), str):
        entries.append(PeerEntry(peer, peer, partial(theirs, x, y)))

    def check() -> None:
        expected = entries[-1].run()
        peak = float(np.abs(expected).max())
        for entry in entries[:-1]:
            np.testing.assert_allclose(entry.run(), expected, rtol=0, atol=1e-7 * peak)

    goals = tuple(
        Goal(entry.name, (peer,), LIMIT) for entry in entries if entry.is_ours
    )
    return BenchmarkCell(name, tuple(entries), goals, check)
