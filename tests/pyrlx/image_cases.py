"""Test cases of pyrlx's image methods: the call, its operands and NumPy's result."""

from __future__ import annotations

from typing import Any

import numpy as np

_RNG = np.random.default_rng(11)
X = _RNG.standard_normal((2, 2, 4, 5)).astype(np.float32)
KERNEL = _RNG.standard_normal((3, 2, 2, 2)).astype(np.float32)
GAMMA, BETA = _RNG.standard_normal((2, 2)).astype(np.float32)


def correlate2d(x: Any, w: Any) -> Any:
    """Correlate [N, C, H, W] with [M, C, kernel], without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, w)


def transposed_convolution(x: Any, w: Any) -> Any:
    """Convolve [N, C, H, W] with [C, M, kernel] transposed: each element adds its
    kernel.
    """
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    return correlate2d(padded, np.swapaxes(w, 0, 1)[:, :, ::-1, ::-1])


def normalize(axes: tuple[int, ...], eps: float) -> Any:
    """Return X with zero mean and unit variance over the axes, scaled and shifted for
    each channel.
    """
    mean, var = (f(X, axis=axes, keepdims=True) for f in (np.mean, np.var))
    standardized = (X - mean) / np.sqrt(var + eps)
    return standardized * GAMMA[:, None, None] + BETA[:, None, None]


IMAGE_CASES: dict[str, tuple[Any, ...]] = {
    "conv2d": (lambda g, x, w: g.conv2d(x, w), (X, KERNEL), correlate2d(X, KERNEL)),
    "resize_nearest_2x": (
        lambda g, x: g.resize_nearest_2x(x),
        (X,),
        np.repeat(np.repeat(X, 2, 2), 2, 3),
    ),
    "conv_transpose2d": (
        lambda g, x, w: g.conv_transpose2d(x, w),
        (X, KERNEL[:2]),
        transposed_convolution(X, KERNEL[:2]),
    ),
    "layer_norm2d": (
        lambda g, x, c, b: g.layer_norm2d(x, c, b, 1e-3),
        (X, GAMMA, BETA),
        normalize((1,), 1e-3),
    ),
    "group_norm": (
        lambda g, x, c, b: g.group_norm(x, 1, c, b),
        (X, GAMMA, BETA),
        normalize((1, 2, 3), 1e-5),
    ),
}
