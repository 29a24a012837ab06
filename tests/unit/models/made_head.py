"""EEG of a head whose sources are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.signal.electrodes import positions

NAMES = (
    *("Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz", "C4", "T8"),
    *("P7", "P3", "Pz", "P4", "P8", "O1", "Oz", "O2"),
)


def head(fs: float, seconds: float) -> npt.NDArray[Any]:
    """(C, T) V: blinks in front, alpha behind, mains at Cz, and noise."""
    rng = np.random.default_rng(8)
    time = np.arange(int(fs * seconds)) / fs
    at, _ = positions(NAMES)
    blinks = sum(
        np.exp(-(((time - s) / 0.08) ** 2)) for s in np.arange(0.7, seconds, 1.9)
    )
    alpha = np.sin(2 * np.pi * 10.2 * time) * (1 + np.sin(2 * np.pi * 0.3 * time))
    mains = np.sin(2 * np.pi * 50 * time)
    sources = np.stack([150 * blinks, 20 * alpha, 15 * mains])
    places = np.array([[0, 1.1, -0.2], [0.1, -0.9, 0.3], [0, 0, 1.0]])
    maps = np.exp(-2 * ((at[:, None] - places) ** 2).sum(-1))
    pink = np.cumsum(rng.standard_normal((len(at), len(time))), axis=1)
    pink -= np.array([np.convolve(p, np.ones(99) / 99, "same") for p in pink])
    return (maps @ sources + 2 * pink + rng.laplace(size=pink.shape)) * 1e-6
