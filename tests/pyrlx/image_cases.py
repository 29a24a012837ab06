"""Pyrlx's methods for images: a call, its operands, and what NumPy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

_RNG = np.random.default_rng(11)
X = _RNG.standard_normal((2, 2, 4, 5)).astype(np.float32)
KERNEL = _RNG.standard_normal((3, 2, 2, 2)).astype(np.float32)
GAMMA, BETA = _RNG.standard_normal((2, 2)).astype(np.float32)


def correlated(x: Any, w: Any) -> Any:
    """[N, C, H, W] by [M, C, kernel], nothing in front of it or behind."""
    cut = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,mcij->nmhw", cut, w)


def spread_out(x: Any, w: Any) -> Any:
    """[N, C, H, W] by [C, M, kernel]: each element adds its kernel."""
    around = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    return correlated(around, np.swapaxes(w, 0, 1)[:, :, ::-1, ::-1])


def normed(axes: tuple[int, ...], eps: float) -> Any:
    """X without its mean, over its deviation, by a number for each channel."""
    mean, var = (f(X, axis=axes, keepdims=True) for f in (np.mean, np.var))
    made = (X - mean) / np.sqrt(var + eps)
    return made * GAMMA[:, None, None] + BETA[:, None, None]


IMAGES: dict[str, tuple[Any, ...]] = {
    "conv2d": (lambda g, x, w: g.conv2d(x, w), (X, KERNEL), correlated(X, KERNEL)),
    "resize_nearest_2x": (
        lambda g, x: g.resize_nearest_2x(x),
        (X,),
        np.repeat(np.repeat(X, 2, 2), 2, 3),
    ),
    "conv_transpose2d": (
        lambda g, x, w: g.conv_transpose2d(x, w),
        (X, KERNEL[:2]),
        spread_out(X, KERNEL[:2]),
    ),
    "layer_norm2d": (
        lambda g, x, c, b: g.layer_norm2d(x, c, b, 1e-3),
        (X, GAMMA, BETA),
        normed((1,), 1e-3),
    ),
    "group_norm": (
        lambda g, x, c, b: g.group_norm(x, 1, c, b),
        (X, GAMMA, BETA),
        normed((1, 2, 3), 1e-5),
    ),
}
