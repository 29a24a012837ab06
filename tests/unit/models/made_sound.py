"""Sounds whose notes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FS = 44100


def song(
    seconds: float, fs: float = FS
) -> tuple[npt.NDArray[Any], list[tuple[float, float, int]]]:
    """(samples, [(start, end, pitch)]): plucked tones, up to three at once."""
    rng = np.random.default_rng(1)
    time = np.arange(int(fs * seconds)) / fs
    made, notes = np.zeros_like(time), []
    for start in np.arange(0.2, seconds - 1, 0.4):
        for pitch in rng.choice(np.arange(48, 76, 3), rng.integers(1, 4), False):
            length = rng.uniform(0.3, 0.9)
            own = time - start
            at = (own >= 0) & (own < length)
            loud = np.exp(-3 * own[at]) * np.minimum(1, own[at] * 200)
            hz = 440 * 2 ** ((pitch - 69) / 12)
            for part in range(1, 6):
                made[at] += loud * np.sin(2 * np.pi * hz * part * own[at]) / part**2
            notes.append((float(start), float(start + length), int(pitch)))
    return (made / abs(made).max() * 0.8).astype(np.float32), notes
