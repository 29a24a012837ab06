"""Convolution of rows with wavelets through the frequency domain, at the rows' full
length.

Owns the transforms and the folding that makes decimation cheap. It must not know how
wavelets are made. A task is a few rows, wavelet by
wavelet, so that they stay in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ops.welch.cpu.spectrum import BLOCK_SAMPLES, THREADED_SAMPLES


def convolve_wavelets(
    x: NDArray[Any],
    spectra: NDArray[np.complex128],
    step: int,
    count: int,
    *,
    power: bool,
) -> NDArray[Any]:
    """Convolve each row with each wavelet, sampled at every step-th sample.

    spectra  (W, N) transforms of the wavelets, centred on sample 0; N is a multiple of
             the step and long enough that no wavelet reaches around the row's end
    Shapes   x (B, T) → (B, W, count): sample 0, step, 2 · step …
    power    |z|², real; else z
    Numerics float64 inside; the answer has the precision of x
    """
    n_rows, n = x.shape
    n_waves, size = spectra.shape
    is_single = x.dtype in (np.float32, np.complex64)
    real_dtype = np.float32 if is_single else np.float64
    output_dtype = real_dtype if power else np.result_type(real_dtype, np.complex64)
    out = np.empty((n_rows, n_waves, count), output_dtype)
    folded_length = size // step
    block_rows = max(1, min(n_rows, BLOCK_SAMPLES // size))

    def make_worker() -> Task:
        padded = np.zeros((block_rows, size), np.complex128)
        spectrum = np.empty((block_rows, size), np.complex128)
        product = np.empty((block_rows, size), np.complex128)
        folded_spectrum = np.empty((block_rows, folded_length), np.complex128)

        def apply_wavelet(
            wave: NDArray[np.complex128], z: NDArray[Any]
        ) -> NDArray[Any]:
            """Return transforms (r, N) under one wavelet, in time: (r, N / step), in
            scratch memory.
            """
            filtered = np.multiply(z, wave, out=product[: len(z)])
            if step > 1:
                # Every step-th sample is the transform of the aliased spectrum.
                aliased = filtered.reshape(len(z), step, folded_length)
                filtered = np.mean(aliased, axis=1, out=folded_spectrum[: len(z)])
            return np.fft.ifft(filtered, out=filtered)

        def run_task(task: int) -> None:
            row_slice = slice(task * block_rows, (task + 1) * block_rows)
            padded_rows = padded[: len(x[row_slice])]
            padded_rows[:, :n] = x[row_slice]
            z = np.fft.fft(padded_rows, out=spectrum[: len(padded_rows)])
            for wave_index, wave in enumerate(spectra):
                samples = apply_wavelet(wave, z)[:, :count]
                if power:
                    np.multiply(samples.real, samples.real, out=samples.real)
                    np.multiply(samples.imag, samples.imag, out=samples.imag)
                    target = out[row_slice, wave_index]
                    np.add(samples.real, samples.imag, out=target, casting="same_kind")
                else:
                    out[row_slice, wave_index] = samples

        return run_task

    threads = 1 if n_rows * n_waves * n < THREADED_SAMPLES else None
    run_tasks(-(-n_rows // block_rows), make_worker, threads=threads)
    return out
