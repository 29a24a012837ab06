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


def voice(seconds: float, fs: int = 16000) -> Any:
    """A buzz through changing resonances, now and then: enough of a voice."""
    rng = np.random.default_rng(4)
    time = np.arange(int(seconds * fs)) / fs
    pitch = 110 * (1 + 0.15 * np.sin(2 * np.pi * 2.3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / fs
    made = np.zeros_like(time)
    for part in range(1, 30):
        near = 500 + 300 * np.sin(2 * np.pi * 3 * time), 1500 + 500 * np.cos(9 * time)
        loud = sum(np.exp(-(((part * pitch - f) / 180) ** 2)) for f in near)
        made += loud * np.sin(part * phase)
    made *= np.clip(np.sin(2 * np.pi * 0.9 * time) * 3, 0, 1)
    made += 0.003 * rng.standard_normal(len(time))
    return (0.5 * made / abs(made).max()).astype(np.float32)
