"""Goertzel's recurrence: one bin by a resonator that reads a segment sample by sample.

A rival that learned transforms are measured against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ops.welch.cpu.segment_fft_workspace import welch_tables
from rlxweb.ops.welch.cpu.spectrum import segment_view
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.frequency_bins import BinRange


def goertzel_power(x: NDArray[Any], spec: WelchSpec, band: BinRange) -> NDArray[Any]:
    """Return the average power (B, bins) of rows (B, T), computed for all segments and
    bins together.

    s[t] = x[t] + 2 cos(w) s[t-1] - s[t-2], and |X|² = s1² + s2² - 2 cos(w) s1 s2
    (Goertzel, 1958).
    """
    count = spec.segments_per_row(x.shape[1])
    segments = segment_view(x, spec.nperseg, spec.hop, count).astype(np.float64)
    if spec.detrend == "constant":
        segments -= segments.mean(axis=-1, keepdims=True)
    segments *= spec.window_array
    bins = np.arange(band.first, band.stop)
    double_cosines = 2.0 * np.cos(2 * np.pi * bins / spec.nfft)
    previous = np.zeros((len(x), count, len(bins)))
    current = np.zeros_like(previous)
    for t in range(spec.nperseg):
        previous *= -1.0
        previous += double_cosines * current
        previous += segments[:, :, t, None]
        previous, current = current, previous
    power = current**2 + previous**2 - double_cosines * current * previous
    mean_power: NDArray[Any] = (
        power.mean(axis=1) * welch_tables(spec).weights[band.bins]
    )
    return mean_power
