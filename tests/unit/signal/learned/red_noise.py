"""Red noise with power 1/f^4 as training recordings, and a transform learned from
it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rlxweb.signal.learned.learn import Learned, learn_welch

FS = 2048.0
N = 128
BAND_LIMITS: dict[str, Any] = {"fmin": 16.0, "fmax": 200.0}
LEARN_OPTIONS: dict[str, Any] = {
    **BAND_LIMITS,
    "preset": "scipy",
    "nperseg": N,
    "k": 4,
    "max_error": 3e-2,
    "steps": 12,
    "device": "cpu",
}


def red_noise(rows: int, samples: int, seed: int = 0, power: float = 2.0) -> Any:
    """Return rows (rows, samples) of float32 noise at FS with amplitude 1/f^power above
    0.5 Hz.
    """
    rng = np.random.default_rng(seed)
    f = np.fft.rfftfreq(samples, 1 / FS)
    coefficients = rng.standard_normal((rows, len(f))) + 1j * rng.standard_normal(
        (rows, len(f))
    )
    x = np.fft.irfft(coefficients / np.maximum(f, 0.5) ** power, samples)
    return (x / x.std(axis=1, keepdims=True)).astype(np.float32)


@cache
def training_recordings() -> Any:
    """Return the training recordings."""
    return red_noise(3, 24_000)


@cache
def learned_result() -> Learned:
    """Return the result of learning a transform from the recordings, trained once for
    all tests.
    """
    return learn_welch(training_recordings(), FS, **LEARN_OPTIONS)
