"""Overlap-add synthesis: inverse transforms of overlapping segments, added up into
rows.

The inverse of `segment_spectra`, in blocks that stay in cache. It must not know how
windows are chosen or what the rows are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES


def overlap_add_spectra(
    spectra: NDArray[Any],
    window: NDArray[np.float64],
    hop: int,
    nfft: int,
    *,
    shift: int = 0,
    one_sided: bool = True,
) -> NDArray[Any]:
    """Return the rows whose windowed segments have these spectra, by overlap-add.

    spectra  complex (B, S, F), with any strides: F = nfft // 2 + 1 bins of real rows,
             or all nfft
    window   (n,) what each segment is multiplied by, n ≤ nfft
    shift    the sample of a segment where phases are zero
    Shapes   (B, S, F) → (B, (S - 1) · hop + n), real where one_sided
    Numerics float64 inside; the answer has the precision of the spectra
    """
    n_rows, segment_count, bins = spectra.shape
    n = len(window)
    # A segment covers so many hops, the last of them in part.
    hops_per_segment = -(-n // hop)
    length = (segment_count - 1) * hop + n
    is_single = spectra.dtype == np.complex64
    work_dtype = np.float64 if one_sided else np.complex128
    output_dtype = (
        (np.float32 if is_single else np.float64) if one_sided else spectra.dtype
    )
    out = np.empty((n_rows, length), output_dtype)
    phase_steps = np.arange(bins) * shift % nfft
    phase_factors = np.exp(-2j * np.pi / nfft * phase_steps) if shift else np.ones(1)
    block_segments = max(1, min(segment_count, BLOCK_SAMPLES // nfft))

    def make_worker() -> Task:
        shifted = np.empty((block_segments, bins), np.complex128)
        total = np.empty((segment_count + hops_per_segment - 1, hop), work_dtype)

        def process_row(row: int) -> None:
            total[...] = 0.0
            for first in range(0, segment_count, block_segments):
                block_spectra = shifted[: min(block_segments, segment_count - first)]
                np.multiply(
                    spectra[row, first : first + len(block_spectra)],
                    phase_factors,
                    out=block_spectra,
                )
                segments: NDArray[Any] = (
                    np.fft.irfft(block_spectra, n=nfft, axis=-1)
                    if one_sided
                    else np.fft.ifft(block_spectra, axis=-1)
                )
                segments = np.multiply(segments[:, :n], window, out=segments[:, :n])
                for k in range(hops_per_segment):
                    width = min(hop, n - k * hop)
                    target = total[first + k : first + k + len(block_spectra), :width]
                    target += segments[:, k * hop : k * hop + width]
            out[row] = total.reshape(-1)[:length]

        return process_row

    threads = 1 if n_rows * segment_count * nfft < THREADED_SAMPLES else None
    run_tasks(n_rows, make_worker, threads=threads)
    return out
