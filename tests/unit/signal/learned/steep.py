"""Signals to learn from: noise whose power falls as 1/f^4, and a transform of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rlxweb.signal.learned.learn import Learned, learn_welch

FS = 2048.0
N = 128
BAND: dict[str, Any] = {"fmin": 16.0, "fmax": 200.0}
SETTINGS: dict[str, Any] = {
    **BAND,
    "preset": "scipy",
    "nperseg": N,
    "k": 4,
    "max_error": 3e-2,
    "steps": 12,
    "device": "cpu",
}


def steep(rows: int, samples: int, seed: int = 0, power: float = 2.0) -> Any:
    """Rows (rows, samples) float32 at FS, amplitude as 1/f^power above 0.5 Hz."""
    rng = np.random.default_rng(seed)
    f = np.fft.rfftfreq(samples, 1 / FS)
    drawn = rng.standard_normal((rows, len(f))) + 1j * rng.standard_normal(
        (rows, len(f))
    )
    x = np.fft.irfft(drawn / np.maximum(f, 0.5) ** power, samples)
    return (x / x.std(axis=1, keepdims=True)).astype(np.float32)


@cache
def recordings() -> Any:
    """What is learned from."""
    return steep(3, 24_000)


@cache
def learned() -> Learned:
    """A transform of them, trained once for all tests."""
    return learn_welch(recordings(), FS, **SETTINGS)
