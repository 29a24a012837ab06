"""Differentiable array functions written once for NumPy and JAX: `xp` is either.

What people differentiate: losses, layers, spectra, picks. Each takes float arrays and
gives one float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def _softmax_loss(xp: Any, x: Any, w: Any) -> Any:
    z = x @ w
    z = z - xp.max(z, axis=-1, keepdims=True)
    logs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
    return -xp.mean(logs[:, 1])


def _attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    scores = xp.einsum("hqd,hkd->hqk", q, k) / 2.0
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    p = e / xp.sum(e, axis=-1, keepdims=True)
    return xp.sum(xp.einsum("hqk,hkd->hqd", p, v) ** 2)


def _layer_norm(xp: Any, x: Any, g: Any) -> Any:
    mean = xp.mean(x, axis=-1, keepdims=True)
    var = xp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return xp.sum(xp.sin((x - mean) / xp.sqrt(var + 1e-5) * g))


def _spectrum(xp: Any, x: Any, w: Any) -> Any:
    power = xp.abs(xp.fft.rfft(x * w, axis=-1)) ** 2
    return xp.sum(xp.log(power + 1e-3))


def _complex_fft(xp: Any, x: Any, y: Any) -> Any:
    z = xp.fft.fft(x + 1j * y)
    back = xp.fft.ifft(z * xp.exp(1j * y)).real
    return xp.sum(back**3)


def _sort_and_gather(xp: Any, x: Any) -> Any:
    order = xp.argsort(x, axis=-1)
    top = xp.take_along_axis(x, order[:, -3:], axis=-1)
    return xp.sum(top**2) + xp.sum(xp.sort(x, axis=0)[0] ** 3)


def _slice_pad_roll(xp: Any, x: Any) -> Any:
    concatenated = xp.concatenate([x[:, ::2] ** 2, x[::-1, 1::2]], axis=1)
    padded = xp.pad(concatenated, ((1, 2), (0, 3)))
    return xp.sum(xp.tanh(xp.roll(padded, 2, axis=0) * padded) * xp.arange(1.0, 4.0)[0])


def _statistics(xp: Any, x: Any) -> Any:
    spread = xp.std(x, axis=0) + xp.var(x, axis=0)
    return xp.sum(spread * xp.prod(xp.abs(x) + 0.5, axis=0)) + xp.max(x) * xp.min(x)


def _cumulative(xp: Any, x: Any) -> Any:
    return xp.sum(xp.cumsum(x, axis=1) ** 2) + xp.sum(xp.cumprod(xp.cos(x), axis=0))


def _piecewise(xp: Any, x: Any, y: Any) -> Any:
    selected = xp.where(x > y, x * y, xp.minimum(x, 2.0 * y)) + xp.maximum(x, 0.3)
    return xp.sum(xp.clip(selected, -1.0, 1.5) ** 2)


def _linear_systems(xp: Any, a: Any, b: Any) -> Any:
    n = a.shape[-1]
    m = a @ a.T + n * xp.eye(n, dtype=a.dtype)
    return xp.sum(xp.linalg.solve(m, b) ** 2) + xp.log(xp.linalg.det(m))


def _powers(xp: Any, x: Any, y: Any) -> Any:
    base = xp.abs(x) + 0.1
    return xp.sum(base**y + xp.sqrt(base) / (1.0 + xp.exp(-y)) + xp.arctan2(x, base))


def _einsum(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.sum(xp.einsum("ij,jk,kl->il", a, b, c) ** 2)


CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "cross entropy": (_softmax_loss, ((8, 5), (5, 4))),
    "attention": (_attention, ((2, 5, 4), (2, 6, 4), (2, 6, 3))),
    "layer norm": (_layer_norm, ((6, 9), (9,))),
    "spectrum": (_spectrum, ((3, 16), (16,))),
    "spectrum of odd length": (_spectrum, ((3, 15), (15,))),
    "complex transforms": (_complex_fft, ((12,), (12,))),
    "sorted and picked": (_sort_and_gather, ((5, 7),)),
    "slices, pads, rolls": (_slice_pad_roll, ((4, 6),)),
    "statistics": (_statistics, ((5, 4),)),
    "running sums": (_cumulative, ((3, 6),)),
    "choices": (_piecewise, ((4, 5), (5,))),
    "systems": (_linear_systems, ((4, 4), (4, 2))),
    "powers": (_powers, ((4, 3), (4, 3))),
    "three factors": (_einsum, ((3, 4), (4, 5), (5, 2))),
}
