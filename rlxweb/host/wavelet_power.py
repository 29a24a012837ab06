"""Rows convolved with wavelets through the frequency domain, as long as the row.

Owns the transforms and the folding that makes decimation cheap. It must not know how
wavelets are made. A task is a few rows, wavelet by
wavelet, so that they stay in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES


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
    rows = max(1, min(n_rows, BLOCK_SAMPLES // size))

    def make_worker() -> Task:
        padded = np.zeros((rows, size), np.complex128)
        spectrum = np.empty((rows, size), np.complex128)
        product = np.empty((rows, size), np.complex128)
        back = np.empty((rows, folded), np.complex128)

        def under(wave: NDArray[np.complex128], z: NDArray[Any]) -> NDArray[Any]:
            """Transforms (r, N) under one wavelet, in time: (r, N / step), scratch."""
            some = np.multiply(z, wave, out=product[: len(z)])
            if step > 1:
                # Every step-th sample is the transform of the aliased spectrum.
                aliased = some.reshape(len(z), step, folded)
                some = np.mean(aliased, axis=1, out=back[: len(z)])
            return np.fft.ifft(some, out=some)

        def work(task: int) -> None:
            mine = slice(task * rows, (task + 1) * rows)
            own = padded[: len(x[mine])]
            own[:, :n] = x[mine]
            z = np.fft.fft(own, out=spectrum[: len(own)])
            for at, wave in enumerate(spectra):
                found = under(wave, z)[:, :count]
                if power:
                    np.multiply(found.real, found.real, out=found.real)
                    np.multiply(found.imag, found.imag, out=found.imag)
                    into = out[mine, at]
                    np.add(found.real, found.imag, out=into, casting="same_kind")
                else:
                    out[mine, at] = found

        return work

    threads = 1 if n_rows * n_waves * n < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // rows), make_worker, threads=threads)
    return out
