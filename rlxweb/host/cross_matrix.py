"""Cross powers of every row of one signal with every row of another, averaged.

All pairs at once are one product of matrices per frequency: each row is transformed
once, however many it is paired with, and BLAS does the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.segment_power import half_bins, tables
from rlxweb.host.segment_spectra import segment_spectra
from rlxweb.host.spec import WelchSpec

SPECTRA_BYTES: Final = 64 << 20
"""Of the spectra of all rows that are held at once."""


def cross_matrix(x: NDArray[Any], y: NDArray[Any], spec: WelchSpec) -> NDArray[Any]:
    """What every pair of rows has in common, x's rows slowest.

    Shapes   x (A, T), y (C, T) → (A · C, 4, F): power of x, of y, real and imaginary
             part of conj(X) · Y, averaged over the segments, as `cross_power`
    Numerics float64 inside; the answer is spec.power_dtype
    """
    a, c, bins = len(x), len(y), half_bins(spec)
    count = spec.segments_of(x.shape[1])
    sums = np.zeros((bins, a, c), np.complex128)
    power_x, power_y = np.zeros((a, bins)), np.zeros((c, bins))
    step = max(1, SPECTRA_BYTES // (16 * bins * (a + c)))
    for first in range(0, count, step):
        some = min(step, count - first)
        left, right = (_some_spectra(one, spec, first, some) for one in (x, y))
        power_x += _squares(left)
        power_y += _squares(right)
        # BLAS takes matrices whose rows lie together: frequencies go first.
        np.conjugate(left, out=left)
        ahead = np.ascontiguousarray(left.transpose(2, 0, 1))
        sums += np.matmul(ahead, np.ascontiguousarray(right.transpose(2, 1, 0)))
    weights = tables(spec).weights / (count * spec.scale)
    out = np.empty((a, c, 4, spec.n_freqs), spec.power_dtype)
    out[:, :, 0, :bins] = (power_x * weights)[:, None]
    out[:, :, 1, :bins] = (power_y * weights)[None]
    cross = sums.transpose(1, 2, 0)
    np.multiply(cross.real, weights, out=out[:, :, 2, :bins], casting="same_kind")
    np.multiply(cross.imag, weights, out=out[:, :, 3, :bins], casting="same_kind")
    if spec.n_freqs > bins:
        out[..., bins:] = out[..., (spec.nfft - 1) // 2 : 0 : -1]
        out[:, :, 3, bins:] *= -1.0
    return out.reshape(a * c, 4, spec.n_freqs)


def _squares(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    """(B, bins) sums of |z|² over the segments of (B, S, bins)."""
    parts = z.view(np.float64)
    total = np.add.reduce(parts * parts, axis=1)
    both: NDArray[np.float64] = np.add(total[:, 0::2], total[:, 1::2])
    return both


def _some_spectra(
    x: NDArray[Any], spec: WelchSpec, first: int, count: int
) -> NDArray[np.complex128]:
    """Spectra of the segments first … first + count - 1, in float64, (B, count, bins).

    Times √scale.
    """
    start = first * spec.hop
    part = x[:, start : start + (count - 1) * spec.hop + spec.nperseg]
    kind = "complex128" if spec.is_complex else "float64"
    own = replace(spec, n_segments=count, dtype=kind, one_sided=not spec.is_complex)
    found: NDArray[np.complex128] = segment_spectra(part, own)
    return found
