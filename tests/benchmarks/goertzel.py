"""Goertzel's recurrence: a bin by a resonator that hears a segment sample by sample.

A rival that learned transforms are measured against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frames
from rlxweb.signal.band_peaks import Band


def goertzel_power(x: NDArray[Any], spec: WelchSpec, band: Band) -> NDArray[Any]:
    """Average power (B, bins) of rows (B, T): all segments and bins side by side.

    s[t] = x[t] + 2 cos(w) s[t-1] - s[t-2], and |X|² = s1² + s2² - 2 cos(w) s1 s2
    (Goertzel, 1958).
    """
    count = spec.segments_of(x.shape[1])
    cut = frames(x, spec.nperseg, spec.hop, count).astype(np.float64)
    if spec.detrend == "constant":
        cut -= cut.mean(axis=-1, keepdims=True)
    cut *= spec.window_array
    bins = np.arange(band.first, band.stop)
    twice = 2.0 * np.cos(2 * np.pi * bins / spec.nfft)
    before = np.zeros((len(x), count, len(bins)))
    last = np.zeros_like(before)
    for t in range(spec.nperseg):
        before *= -1.0
        before += twice * last
        before += cut[:, :, t, None]
        before, last = last, before
    power = last**2 + before**2 - twice * last * before
    made: NDArray[Any] = power.mean(axis=1) * tables(spec).weights[band.bins]
    return made
