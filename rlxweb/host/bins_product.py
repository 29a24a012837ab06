"""The power of a few bins by one product of matrices, exact like a whole transform.

A row is cut at the hops; each piece against the bins' sines and cosines at each of the
places it may have in a segment is a product of matrices, and a segment's bins are the
sum of its pieces. Nothing is copied and nothing computed that is not wanted, which pays
for as many bins as a transform has stages, about.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.segment_power import tables
from rlxweb.host.spec import WelchSpec

_BLOCK: Final = 1 << 20
"""Samples of the rows that are multiplied at once."""


def why_not(spec: WelchSpec) -> str:
    """Why such an estimate cannot be computed so; "" where it can."""
    if spec.is_complex or not spec.one_sided:
        return "spectra of two sides are computed whole"
    if spec.average != "mean":
        return f"average='{spec.average}' is computed from whole spectra"
    if spec.detrend == "linear":
        return "lines are removed before whole transforms only"
    if spec.nperseg % spec.hop:
        return f"the hop, {spec.hop}, does not divide the segment, {spec.nperseg}"
    return ""


def products_per_sample(spec: WelchSpec, bins: int) -> float:
    """Multiplications for each sample of a row."""
    return 2.0 * bins * spec.nperseg / spec.hop


def bins_power(
    x: NDArray[Any], spec: WelchSpec, first: int, stop: int
) -> NDArray[np.float64]:
    """Average power (B, stop - first) of rows x (B, T), in float64."""
    count = spec.segments_of(x.shape[1])
    made = np.empty((len(x), stop - first))
    each = max(1, _BLOCK // x.shape[1])
    for at in range(0, len(x), each):
        made[at : at + each] = _some(x[at : at + each], spec, first, stop, count)
    return made


def _some(
    x: NDArray[Any], spec: WelchSpec, first: int, stop: int, count: int
) -> NDArray[np.float64]:
    waves, of_window, weights = _tables(spec, first, stop)
    pieces = spec.nperseg // spec.hop
    used = (count + pieces - 1) * spec.hop
    rows = x[:, :used].astype(np.float64)
    if spec.detrend:  # most of it, so that little is left to cancel
        rows -= rows.mean(axis=1, keepdims=True)
    cut = rows.reshape(-1, spec.hop)
    parts = (cut @ waves).reshape(len(x), count + pieces - 1, pieces, -1)
    total = parts[:, :count, 0].copy()
    for at in range(1, pieces):
        total += parts[:, at : at + count, at]
    if spec.detrend:
        sums = cut.sum(axis=1).reshape(len(x), -1)
        mean = sum(sums[:, at : at + count] for at in range(pieces)) / spec.nperseg
        total -= mean[..., None] * of_window
    np.square(total, out=total)
    power = total.reshape(len(x), count, -1, 2).sum(axis=(1, 3))
    made: NDArray[np.float64] = power * (weights / count)
    return made


@lru_cache(maxsize=16)
def _tables(spec: WelchSpec, first: int, stop: int) -> tuple[NDArray[np.float64], ...]:
    """(hop, pieces x 2 bins) waves, the window's own bins, and the bins' weights."""
    bins = np.arange(first, stop)
    turns = np.multiply.outer(np.arange(spec.nperseg), bins) % spec.nfft
    angle = 2 * np.pi / spec.nfft * turns
    both = np.stack([np.cos(angle), -np.sin(angle)], axis=-1)
    both *= spec.window_array[:, None, None]
    waves = both.reshape(-1, spec.hop, 2 * len(bins)).transpose(1, 0, 2)
    flat = np.ascontiguousarray(waves).reshape(spec.hop, -1)
    of_window = both.reshape(spec.nperseg, -1).sum(axis=0)
    return flat, of_window, tables(spec).weights[first:stop]
