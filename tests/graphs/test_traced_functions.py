"""Trace functions as people write them, and run them on the CPU and on an adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.conftest import ADAPTERS, require_engine

RNG = np.random.default_rng(14)


def random_array(rng: np.random.Generator, *shape: int) -> Any:
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
    """Return the density of Hann segments that overlap by half, like
    scipy.signal.welch.
    """
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
    """Return the centre that each point belongs to, and the updated centres."""
    distances = ((points[:, None, :] - centres[None]) ** 2).sum(-1)
    label = np.argmin(distances, axis=1)
    membership = (label[:, None] == np.arange(len(centres))).astype(points.dtype)
    return label, (membership.T @ points) / np.maximum(membership.sum(0), 1)[:, None]


def low_pass(x: Any, taps: Any) -> Any:
    """Apply a finite impulse response filter along the last axis, edges repeated."""
    half = len(taps) // 2
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(taps), axis=-1)
    return np.einsum("...nk,k->...n", windows, taps[::-1])


def envelope(x: Any) -> Any:
    """Return the envelope of a signal, computed from its analytic signal."""
    n = x.shape[-1]
    gain = np.zeros(n, x.dtype)
    gain[0] = gain[n // 2] = 1
    gain[1 : n // 2] = 2
    return np.abs(np.fft.ifft(np.fft.fft(x) * gain))


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = np.einsum("bqd,bkd->bqk", q, k) / np.float32(q.shape[-1] ** 0.5)
    mask = np.tril(np.ones(scores.shape[-2:], bool))
    return softmax(np.where(mask, scores, np.float32(-1e9))) @ v


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (random_array(RNG, 5, 33),)),
    "layer norm": (
        layer_norm,
        (random_array(RNG, 5, 33), random_array(RNG, 33), random_array(RNG, 33)),
    ),
    "mlp": (
        mlp,
        (
            random_array(RNG, 9, 16),
            [
                (random_array(RNG, 16, 24), random_array(RNG, 24)),
                (random_array(RNG, 24, 4), random_array(RNG, 4)),
            ],
        ),
    ),
    "welch": (welch, (random_array(RNG, 2, 300), 100.0, 64)),
    "k-means": (k_means_step, (random_array(RNG, 50, 3), random_array(RNG, 4, 3))),
    "filter": (low_pass, (random_array(RNG, 2, 90), random_array(RNG, 7))),
    "envelope": (envelope, (random_array(RNG, 3, 64),)),
    "attention": (
        attention,
        (
            random_array(RNG, 2, 6, 8),
            random_array(RNG, 2, 6, 8),
            random_array(RNG, 2, 6, 8),
        ),
    ),
}


PLACEMENTS = {"cpu": ("cpu", ""), "lavapipe": ("vulkan", "llvmpipe")}


@pytest.mark.parametrize("device", PLACEMENTS)
@pytest.mark.parametrize("name", CASES)
def test_traced_functions_match_numpy(
    name: str, device: str, pytestconfig: pytest.Config
) -> None:
    """Traced functions give NumPy's values and dtypes, to the accuracy of float32
    sums.
    """
    if device in ADAPTERS:
        require_engine(device, pytestconfig)
    function, args = CASES[name]
    device_name, adapter = PLACEMENTS[device]
    got = rlx.function(function, device=device_name, adapter=adapter)(*args)
    want = function(*args)
    is_tuple = isinstance(want, tuple)
    pairs = zip(got, want, strict=True) if is_tuple else [(got, want)]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, 2e-4, 2e-5)


DYNAMIC_CASES: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "softmax": (
        {"x": (rlx.Dim("b"), "n")},
        [(random_array(RNG, 5, 33),), (random_array(RNG, 2, 7),)],
    ),
    "mlp": (
        {"x": ("b", 16)},
        [(random_array(RNG, n, 16), CASES["mlp"][1][1]) for n in (5, 1)],
    ),
    "welch": (
        {"x": (None, rlx.Dim("t", min=64))},
        [
            (random_array(RNG, 2, 300), 100.0, 64),
            (random_array(RNG, 3, 500), 100.0, 64),
        ],
    ),
    "k-means": (
        {"points": ("n", 3)},
        [
            (random_array(RNG, 50, 3), random_array(RNG, 4, 3)),
            (random_array(RNG, 20, 3), random_array(RNG, 4, 3)),
        ],
    ),
    "moments": (
        {"x": ("n", "m")},
        [(random_array(RNG, 5, 3),), (random_array(RNG, 4, 6),)],
    ),
}


def size_dependent_outputs(x: Any) -> Any:
    """Return results that depend on the sizes: means by hand, spreads, positions,
    slices and rolls.
    """
    n = x.shape[0]
    return (
        x.sum(0) / n,
        x.var(0, ddof=1),
        np.argmax(x, 1) * 2 + x.size - n,
        np.sort(x, -1)[:, ::2],
        np.concatenate([x, np.zeros_like(x[:1])]).reshape(-1),
        np.roll(x, 1, 0) + np.flip(x, 1),
    )


@pytest.mark.parametrize("name", DYNAMIC_CASES)
def test_one_trace_serves_dynamic_sizes(name: str) -> None:
    """One trace of a function serves two sizes, with NumPy's numbers and dtypes."""
    dims, calls = DYNAMIC_CASES[name]
    function = size_dependent_outputs if name == "moments" else CASES[name][0]
    dynamic_function = rlx.function(function, device="cpu", dims=dims)
    for args in calls:
        got, want = dynamic_function(*args), function(*args)
        is_tuple = isinstance(want, tuple)
        for ours, theirs in zip(got, want, strict=True) if is_tuple else [(got, want)]:
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours, theirs, 2e-4, 2e-5)
    assert dynamic_function.cache_info() == (1, 1, 32, 1)


def test_dynamic_sizes_are_not_plain_numbers(rng: np.random.Generator) -> None:
    """A loop, len() and an undeclared rank raise errors that say so."""
    with pytest.raises(rlx.RlxError, match="the length is known only"):
        rlx.function(lambda x: [r for r in x], dims={"x": ("n", 2)})(
            random_array(rng, 3, 2)
        )
    with pytest.raises(rlx.RlxError, match="the length is known only"):
        rlx.function(lambda x: x / len(x), dims={"x": ("n", 2)})(
            random_array(rng, 3, 2)
        )
    with pytest.raises(rlx.RlxError, match=r"dims declares \[n, 2\]"):
        rlx.function(lambda x: x, dims={"x": ("n", 2)})(random_array(rng, 3))
    with pytest.raises(rlx.RlxError, match="dims refers to the unknown argument 'y'"):
        rlx.function(lambda x: x, dims={"y": ("n", 2)})
