"""Cross powers of every row of one signal with every row of another, averaged.

All pairs at once are one product of matrices per frequency: each row is transformed
once, however many it is paired with, and BLAS does the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ops.welch.cpu.segment_fft_workspace import fft_bin_count, welch_tables
from rlxweb.ops.welch.cpu.segment_spectra import segment_spectra
from rlxweb.ops.welch.spec import WelchSpec

MAX_SPECTRA_BYTES: Final = 64 << 20
"""Maximum memory for the spectra of all rows that are held at once."""


def cross_power_matrix(
    x: NDArray[Any], y: NDArray[Any], spec: WelchSpec
) -> NDArray[Any]:
    """Return the powers and cross power of every pair of rows, x's rows slowest.

    Shapes   x (A, T), y (C, T) → (A · C, 4, F): power of x, of y, real and imaginary
             part of conj(X) · Y, averaged over the segments, as `cross_power`
    Numerics float64 inside; the answer is spec.power_dtype
    """
    a, c, bins = len(x), len(y), fft_bin_count(spec)
    segment_count = spec.segments_per_row(x.shape[1])
    cross_sums = np.zeros((bins, a, c), np.complex128)
    power_x, power_y = np.zeros((a, bins)), np.zeros((c, bins))
    max_segments = max(1, MAX_SPECTRA_BYTES // (16 * bins * (a + c)))
    for first in range(0, segment_count, max_segments):
        block_segments = min(max_segments, segment_count - first)
        x_spectra, y_spectra = (
            _segment_range_spectra(samples, spec, first, block_segments)
            for samples in (x, y)
        )
        power_x += _power_sums(x_spectra)
        power_y += _power_sums(y_spectra)
        # BLAS takes matrices whose rows lie together: frequencies go first.
        np.conjugate(x_spectra, out=x_spectra)
        x_by_frequency = np.ascontiguousarray(x_spectra.transpose(2, 0, 1))
        cross_sums += np.matmul(
            x_by_frequency, np.ascontiguousarray(y_spectra.transpose(2, 1, 0))
        )
    weights = welch_tables(spec).weights / (segment_count * spec.scale)
    out = np.empty((a, c, 4, spec.n_freqs), spec.power_dtype)
    out[:, :, 0, :bins] = (power_x * weights)[:, None]
    out[:, :, 1, :bins] = (power_y * weights)[None]
    cross = cross_sums.transpose(1, 2, 0)
    np.multiply(cross.real, weights, out=out[:, :, 2, :bins], casting="same_kind")
    np.multiply(cross.imag, weights, out=out[:, :, 3, :bins], casting="same_kind")
    if spec.n_freqs > bins:
        out[..., bins:] = out[..., (spec.nfft - 1) // 2 : 0 : -1]
        out[:, :, 3, bins:] *= -1.0
    return out.reshape(a * c, 4, spec.n_freqs)


def _power_sums(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return the (B, bins) sums of |z|² over the segments of (B, S, bins)."""
    components = z.view(np.float64)
    total = np.add.reduce(components * components, axis=1)
    power: NDArray[np.float64] = np.add(total[:, 0::2], total[:, 1::2])
    return power


def _segment_range_spectra(
    x: NDArray[Any], spec: WelchSpec, first: int, count: int
) -> NDArray[np.complex128]:
    """Return spectra of the segments first … first + count - 1, in float64, (B, count,
    bins).

    Times √scale.
    """
    start = first * spec.hop
    samples = x[:, start : start + (count - 1) * spec.hop + spec.nperseg]
    dtype = "complex128" if spec.is_complex else "float64"
    range_spec = replace(
        spec, n_segments=count, dtype=dtype, one_sided=not spec.is_complex
    )
    spectra: NDArray[np.complex128] = segment_spectra(samples, range_spec)
    return spectra
