"""Power of a few selected frequency bins by one matrix product, as exact as a full
transform.

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

from rlxweb.ops.welch.cpu.segment_fft_workspace import welch_tables
from rlxweb.ops.welch.spec import WelchSpec

_BLOCK_SAMPLES: Final = 1 << 20
"""Samples of the rows that are multiplied at once."""


def unsupported_reason(spec: WelchSpec) -> str:
    """Return why an estimate cannot be computed by a matrix product; "" where it
    can.
    """
    if spec.is_complex or not spec.one_sided:
        return "two-sided spectra need the full transform, not individual bins"
    if spec.average != "mean":
        return f"average='{spec.average}' needs the full spectrum, not individual bins"
    if spec.detrend == "linear":
        return "detrend='linear' needs the full transform, not individual bins"
    if spec.nperseg % spec.hop:
        return (
            f"the hop ({spec.hop}) does not divide the segment length ({spec.nperseg})"
        )
    return ""


def multiplications_per_sample(spec: WelchSpec, bins: int) -> float:
    """Return the number of multiplications for each sample of a row."""
    return 2.0 * bins * spec.nperseg / spec.hop


def compute_bin_power(
    x: NDArray[Any], spec: WelchSpec, first: int, stop: int
) -> NDArray[np.float64]:
    """Return the average power (B, stop - first) of rows x (B, T), in float64."""
    segment_count = spec.segments_per_row(x.shape[1])
    power = np.empty((len(x), stop - first))
    block_rows = max(1, _BLOCK_SAMPLES // x.shape[1])
    for start in range(0, len(x), block_rows):
        power[start : start + block_rows] = _block_power(
            x[start : start + block_rows], spec, first, stop, segment_count
        )
    return power


def _block_power(
    x: NDArray[Any], spec: WelchSpec, first: int, stop: int, segment_count: int
) -> NDArray[np.float64]:
    """Return the average power of one block of rows."""
    fourier_matrix, window_bins, weights = _fourier_tables(spec, first, stop)
    hops_per_segment = spec.nperseg // spec.hop
    used_samples = (segment_count + hops_per_segment - 1) * spec.hop
    rows = x[:, :used_samples].astype(np.float64)
    if spec.detrend:  # most of it, so that little is left to cancel
        rows -= rows.mean(axis=1, keepdims=True)
    hop_rows = rows.reshape(-1, spec.hop)
    products = (hop_rows @ fourier_matrix).reshape(
        len(x), segment_count + hops_per_segment - 1, hops_per_segment, -1
    )
    spectra = products[:, :segment_count, 0].copy()
    for offset in range(1, hops_per_segment):
        spectra += products[:, offset : offset + segment_count, offset]
    if spec.detrend:
        hop_sums = hop_rows.sum(axis=1).reshape(len(x), -1)
        segment_means = (
            sum(
                hop_sums[:, offset : offset + segment_count]
                for offset in range(hops_per_segment)
            )
            / spec.nperseg
        )
        spectra -= segment_means[..., None] * window_bins
    np.square(spectra, out=spectra)
    power = spectra.reshape(len(x), segment_count, -1, 2).sum(axis=(1, 3))
    mean_power: NDArray[np.float64] = power * (weights / segment_count)
    return mean_power


@lru_cache(maxsize=16)
def _fourier_tables(
    spec: WelchSpec, first: int, stop: int
) -> tuple[NDArray[np.float64], ...]:
    """Return the Fourier matrix (hop, segment offsets x 2 bins), the window's own bins
    and the bins' weights.
    """
    bins = np.arange(first, stop)
    phase_steps = np.multiply.outer(np.arange(spec.nperseg), bins) % spec.nfft
    angle = 2 * np.pi / spec.nfft * phase_steps
    cos_sin = np.stack([np.cos(angle), -np.sin(angle)], axis=-1)
    cos_sin *= spec.window_array[:, None, None]
    waves = cos_sin.reshape(-1, spec.hop, 2 * len(bins)).transpose(1, 0, 2)
    fourier_matrix = np.ascontiguousarray(waves).reshape(spec.hop, -1)
    window_bins = cos_sin.reshape(spec.nperseg, -1).sum(axis=0)
    return fourier_matrix, window_bins, welch_tables(spec).weights[first:stop]
