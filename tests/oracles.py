"""What several tests compare with, in plain NumPy: a Welch estimate, the ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np


def estimate(
    x: np.ndarray,
    n: int,
    segments: int | None = None,
    hop: int | None = None,
    window: Any = None,
) -> np.ndarray:
    """RLX's in float64: the mean |X|² of segments, doubled but at DC and Nyquist.

    Symmetric Hann, half overlapping, as many segments as fit, unless told otherwise.
    """
    x, hop = x.astype(np.float64), hop or max(1, n // 2)
    most = 1 + (x.shape[-1] - n) // hop
    starts = range(0, hop * (segments or most), hop)
    cut = np.stack([x[..., s : s + n] for s in starts], axis=-2)
    cut *= np.hanning(n) if window is None else window
    power = (np.abs(np.fft.rfft(cut)) ** 2).mean(axis=-2)
    power[..., 1 : (n + 1) // 2] *= 2
    return power


def strongest_first(power: np.ndarray, k: int) -> np.ndarray:
    """The k bins of each row: power falling, NaN last, then the smaller bin."""

    def key(row: np.ndarray, b: int) -> tuple[bool, float, int]:
        missing = bool(np.isnan(row[b]))
        return missing, 0.0 if missing else -row[b], b

    best = [sorted(range(len(row)), key=partial(key, row))[:k] for row in power]
    return np.array(best, np.int64).reshape(len(power), k)
