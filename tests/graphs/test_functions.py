"""Functions as people write them, traced, on NumPy and on an adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.conftest import ADAPTERS, demand

RNG = np.random.default_rng(14)


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, gain: Any, bias: Any, eps: float = 1e-5) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + eps) * gain + bias


def mlp(x: Any, layers: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    weight, bias = layers[-1]
    return softmax(x @ weight + bias)


def welch(x: Any, fs: float, nperseg: int) -> Any:
    """The density of Hann segments that overlap by half, as scipy.signal.welch."""
    window = np.hanning(nperseg + 1)[:-1].astype(x.dtype)
    frames = np.lib.stride_tricks.sliding_window_view(x, nperseg, axis=-1)
    frames = frames[..., :: nperseg // 2, :]
    frames = (frames - frames.mean(axis=-1, keepdims=True)) * window
    power = np.abs(np.fft.rfft(frames)) ** 2 / (fs * (window**2).sum())
    power = np.concatenate(
        [power[..., :1], 2 * power[..., 1:-1], power[..., -1:]], axis=-1
    )
    return power.mean(axis=-2)


def k_means_step(points: Any, centres: Any) -> Any:
    """The centre that each point belongs to, and the centres of those that do."""
    apart = ((points[:, None, :] - centres[None]) ** 2).sum(-1)
    label = np.argmin(apart, axis=1)
    mine = (label[:, None] == np.arange(len(centres))).astype(points.dtype)
    return label, (mine.T @ points) / np.maximum(mine.sum(0), 1)[:, None]


def low_pass(x: Any, taps: Any) -> Any:
    """A filter of finite response along the last axis, edges repeated."""
    half = len(taps) // 2
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(wide, len(taps), axis=-1)
    return np.einsum("...nk,k->...n", windows, taps[::-1])


def analytic(x: Any) -> Any:
    """The envelope of a signal, by its analytic signal."""
    n = x.shape[-1]
    keep = np.zeros(n, x.dtype)
    keep[0] = keep[n // 2] = 1
    keep[1 : n // 2] = 2
    return np.abs(np.fft.ifft(np.fft.fft(x) * keep))


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = np.einsum("bqd,bkd->bqk", q, k) / np.float32(q.shape[-1] ** 0.5)
    mask = np.tril(np.ones(scores.shape[-2:], bool))
    return softmax(np.where(mask, scores, np.float32(-1e9))) @ v


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (drawn(RNG, 5, 33),)),
    "layer norm": (layer_norm, (drawn(RNG, 5, 33), drawn(RNG, 33), drawn(RNG, 33))),
    "mlp": (
        mlp,
        (
            drawn(RNG, 9, 16),
            [(drawn(RNG, 16, 24), drawn(RNG, 24)), (drawn(RNG, 24, 4), drawn(RNG, 4))],
        ),
    ),
    "welch": (welch, (drawn(RNG, 2, 300), 100.0, 64)),
    "k-means": (k_means_step, (drawn(RNG, 50, 3), drawn(RNG, 4, 3))),
    "filter": (low_pass, (drawn(RNG, 2, 90), drawn(RNG, 7))),
    "envelope": (analytic, (drawn(RNG, 3, 64),)),
    "attention": (
        attention,
        (drawn(RNG, 2, 6, 8), drawn(RNG, 2, 6, 8), drawn(RNG, 2, 6, 8)),
    ),
}


WHERE = {"cpu": ("cpu", ""), "lavapipe": ("vulkan", "llvmpipe")}


@pytest.mark.parametrize("device", WHERE)
@pytest.mark.parametrize("name", CASES)
def test_functions_compute_what_numpy_computes(
    name: str, device: str, pytestconfig: pytest.Config
) -> None:
    """Functions compute NumPy's numbers in its dtypes, as far as float32 sums do."""
    if device in ADAPTERS:
        demand(device, pytestconfig)
    function, args = CASES[name]
    where, adapter = WHERE[device]
    got = rlx.function(function, device=where, adapter=adapter)(*args)
    want = function(*args)
    several = isinstance(want, tuple)
    both = zip(got, want, strict=True) if several else [(got, want)]
    for mine, theirs in both:
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, 2e-4, 2e-5)


VARY: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "softmax": (
        {"x": (rlx.Dim("b"), "n")},
        [(drawn(RNG, 5, 33),), (drawn(RNG, 2, 7),)],
    ),
    "mlp": (
        {"x": ("b", 16)},
        [(drawn(RNG, n, 16), CASES["mlp"][1][1]) for n in (5, 1)],
    ),
    "welch": (
        {"x": (None, rlx.Dim("t", min=64))},
        [(drawn(RNG, 2, 300), 100.0, 64), (drawn(RNG, 3, 500), 100.0, 64)],
    ),
    "k-means": (
        {"points": ("n", 3)},
        [(drawn(RNG, 50, 3), drawn(RNG, 4, 3)), (drawn(RNG, 20, 3), drawn(RNG, 4, 3))],
    ),
    "moments": (
        {"x": ("n", "m")},
        [(drawn(RNG, 5, 3),), (drawn(RNG, 4, 6),)],
    ),
}


def moments(x: Any) -> Any:
    """What asks for the sizes: means by hand, spreads, places, and a window of ones."""
    n = x.shape[0]
    return (
        x.sum(0) / n,
        x.var(0, ddof=1),
        np.argmax(x, 1) * 2 + x.size - n,
        np.sort(x, -1)[:, ::2],
        np.concatenate([x, np.zeros_like(x[:1])]).reshape(-1),
        np.roll(x, 1, 0) + np.flip(x, 1),
    )


@pytest.mark.parametrize("name", VARY)
def test_functions_are_traced_once_for_sizes_that_vary(name: str) -> None:
    """One trace of a function serves two sizes, with NumPy's numbers and dtypes."""
    dims, every = VARY[name]
    function = moments if name == "moments" else CASES[name][0]
    varying = rlx.function(function, device="cpu", dims=dims)
    for args in every:
        got, want = varying(*args), function(*args)
        several = isinstance(want, tuple)
        for mine, theirs in zip(got, want, strict=True) if several else [(got, want)]:
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(mine, theirs, 2e-4, 2e-5)
    assert varying.cache_info() == (1, 1, 32, 1)


def test_sizes_that_vary_are_no_numbers(rng: np.random.Generator) -> None:
    """A loop, len() and a rank that is not declared say so."""
    with pytest.raises(rlx.RlxError, match="its length varies"):
        rlx.function(lambda x: [r for r in x], dims={"x": ("n", 2)})(drawn(rng, 3, 2))
    with pytest.raises(rlx.RlxError, match="its length varies"):
        rlx.function(lambda x: x / len(x), dims={"x": ("n", 2)})(drawn(rng, 3, 2))
    with pytest.raises(rlx.RlxError, match=r"\[n, 2\] for it"):
        rlx.function(lambda x: x, dims={"x": ("n", 2)})(drawn(rng, 3))
    with pytest.raises(rlx.RlxError, match="dims names 'y'"):
        rlx.function(lambda x: x, dims={"y": ("n", 2)})
