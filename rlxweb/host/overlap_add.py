"""Spectra of overlapping segments back into rows: inverse transforms, added up.

The inverse of `segment_spectra`, in blocks that stay in cache. It must not know how
windows are chosen or what the rows are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES


def overlap_added(
    spectra: NDArray[Any],
    window: NDArray[np.float64],
    hop: int,
    nfft: int,
    *,
    shift: int = 0,
    one_sided: bool = True,
) -> NDArray[Any]:
    """Rows whose segments have these spectra, each under a window, added up.

    spectra  complex (B, S, F), with any strides: F = nfft // 2 + 1 bins of real rows,
             or all nfft
    window   (n,) what each segment is multiplied by, n ≤ nfft
    shift    the sample of a segment where phases are zero
    Shapes   (B, S, F) → (B, (S - 1) · hop + n), real where one_sided
    Numerics float64 inside; the answer has the precision of the spectra
    """
    n_rows, count, bins = spectra.shape
    n = len(window)
    # A segment covers so many hops, the last of them in part.
    hops = -(-n // hop)
    length = (count - 1) * hop + n
    single = spectra.dtype == np.complex64
    work = np.float64 if one_sided else np.complex128
    kind = (np.float32 if single else np.float64) if one_sided else spectra.dtype
    out = np.empty((n_rows, length), kind)
    turns = np.arange(bins) * shift % nfft
    factor = np.exp(-2j * np.pi / nfft * turns) if shift else np.ones(1)
    block = max(1, min(count, BLOCK_SAMPLES // nfft))

    def make_worker() -> Task:
        turned = np.empty((block, bins), np.complex128)
        total = np.empty((count + hops - 1, hop), work)

        def work_on(row: int) -> None:
            total[...] = 0.0
            for first in range(0, count, block):
                some = turned[: min(block, count - first)]
                np.multiply(spectra[row, first : first + len(some)], factor, out=some)
                parts: NDArray[Any] = (
                    np.fft.irfft(some, n=nfft, axis=-1)
                    if one_sided
                    else np.fft.ifft(some, axis=-1)
                )
                parts = np.multiply(parts[:, :n], window, out=parts[:, :n])
                for k in range(hops):
                    wide = min(hop, n - k * hop)
                    into = total[first + k : first + k + len(some), :wide]
                    into += parts[:, k * hop : k * hop + wide]
            out[row] = total.reshape(-1)[:length]

        return work_on

    threads = 1 if n_rows * count * nfft < THREADED_SAMPLES else None
    run_tasks(n_rows, make_worker, threads=threads)
    return out
