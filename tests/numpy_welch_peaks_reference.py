"""NumPy references that several tests share: a Welch estimate and a peak ranking."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np


def reference_welch(
    x: np.ndarray,
    n: int,
    segments: int | None = None,
    hop: int | None = None,
    window: Any = None,
) -> np.ndarray:
    """Return RLX's estimate in float64: the mean |X|² of segments, doubled except at DC
    and Nyquist.

    Symmetric Hann, half overlapping, as many segments as fit, unless told otherwise.
    """
    x, hop = x.astype(np.float64), hop or max(1, n // 2)
    max_segments = 1 + (x.shape[-1] - n) // hop
    starts = range(0, hop * (segments or max_segments), hop)
    windowed_segments = np.stack([x[..., s : s + n] for s in starts], axis=-2)
    windowed_segments *= np.hanning(n) if window is None else window
    power = (np.abs(np.fft.rfft(windowed_segments)) ** 2).mean(axis=-2)
    power[..., 1 : (n + 1) // 2] *= 2
    return power


def rank_bins(power: np.ndarray, k: int) -> np.ndarray:
    """Return the k strongest bins of each row: falling power, NaN last, ties by smaller
    bin.
    """

    def sort_key(row: np.ndarray, b: int) -> tuple[bool, float, int]:
        missing = bool(np.isnan(row[b]))
        return missing, 0.0 if missing else -row[b], b

    ranked_bins = [
        sorted(range(len(row)), key=partial(sort_key, row))[:k] for row in power
    ]
    return np.array(ranked_bins, np.int64).reshape(len(power), k)
