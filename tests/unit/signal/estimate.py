"""RLX's Welch estimate in plain NumPy, for tests to compare with."""

from __future__ import annotations

import numpy as np


def estimate(x: np.ndarray, n: int, segments: int | None = None) -> np.ndarray:
    """In float64: symmetric Hann, half overlapping, |X|² doubled but DC and Nyquist."""
    x, hop = x.astype(np.float64), max(1, n // 2)
    most = 1 + (x.shape[-1] - n) // hop
    starts = range(0, hop * (segments or most), hop)
    cut = np.stack([x[..., s : s + n] for s in starts], axis=-2)
    power = (np.abs(np.fft.rfft(cut * np.hanning(n))) ** 2).mean(axis=-2)
    power[..., 1 : (n + 1) // 2] *= 2
    return power
