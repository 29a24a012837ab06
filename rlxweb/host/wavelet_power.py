"""Rows convolved with wavelets through the frequency domain, as long as the row.

Owns the transforms and the folding that makes decimation cheap. It must not know how
wavelets are made. A task is one row, wavelet by wavelet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.spectrum import THREADED_SAMPLES


def convolved(
    x: NDArray[Any],
    spectra: NDArray[np.complex128],
    step: int,
    count: int,
    *,
    power: bool,
) -> NDArray[Any]:
    """Each row convolved with each wavelet, at every step-th sample.

    spectra  (W, N) transforms of the wavelets, centred on sample 0; N is a multiple of
             the step and long enough that no wavelet reaches around the row's end
    Shapes   x (B, T) → (B, W, count): sample 0, step, 2 · step …
    power    |z|², real; else z
    Numerics float64 inside; the answer has the precision of x
    """
    n_rows, n = x.shape
    n_waves, size = spectra.shape
    single = x.dtype in (np.float32, np.complex64)
    real = np.float32 if single else np.float64
    kind = real if power else np.result_type(real, np.complex64)
    out = np.empty((n_rows, n_waves, count), kind)
    folded = size // step

    def make_worker() -> Task:
        padded = np.zeros(size, np.complex128)
        spectrum = np.empty(size, np.complex128)
        product = np.empty(size, np.complex128)
        back = np.empty(folded, np.complex128)

        def work(row: int) -> None:
            padded[:n] = x[row]
            np.fft.fft(padded, out=spectrum)
            for at, wave in enumerate(spectra):
                np.multiply(spectrum, wave, out=product)
                if step > 1:
                    # Every step-th sample is the transform of the aliased spectrum.
                    np.mean(product.reshape(step, folded), axis=0, out=back)
                    z = np.fft.ifft(back, out=back)[:count]
                else:
                    z = np.fft.ifft(product, out=product)[:count]
                if power:
                    parts = z.view(np.float64)
                    np.multiply(parts, parts, out=parts)
                    np.add(
                        parts[0::2], parts[1::2], out=out[row, at], casting="same_kind"
                    )
                else:
                    out[row, at] = z

        return work

    threads = 1 if n_rows * n_waves * n < THREADED_SAMPLES else None
    run_tasks(n_rows, make_worker, threads=threads)
    return out
