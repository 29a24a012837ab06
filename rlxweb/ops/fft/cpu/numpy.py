"""NumPy kernels of transforms: their references on blocks of rows in cache."""

from __future__ import annotations

from rlxweb.ops.cache_blocking import blocked_kernels, last_axis

KERNELS = blocked_kernels(
    last_axis, "fft", "rfft", "irfft", "psd_real", "log_mel", "stft"
)
