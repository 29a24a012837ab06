"""Three small networks with their data, written once for rlxweb and JAX.

`xp` is NumPy or jax.numpy; `conv` is either's, of [N, C, H, W] and [M, C, h, w].
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Loss = Callable[..., Any]
"""(xp, conv, params, batch) → loss"""


class Task(NamedTuple):
    """Network to train: its loss, initial parameters and the batch of each step."""

    loss: Loss
    params: dict[str, Any]
    batch: Callable[[int], Any]


def _random_weights(rng: np.random.Generator, *shape: int) -> Any:
    scale = np.sqrt(np.prod(shape[:-1]) if len(shape) == 2 else np.prod(shape[1:]))
    return (rng.normal(size=shape) / scale).astype(np.float32)


def _cross_entropy(xp: Any, z: Any, y: Any) -> Any:
    z = z - xp.max(z, axis=-1, keepdims=True)
    logs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
    return -xp.mean(xp.sum(logs * y, axis=-1))


def _one_hot(labels: Any, count: int) -> Any:
    return np.eye(count, dtype=np.float32)[labels]


def mlp() -> Task:
    """Return a three-layer network that classifies points of two moons."""
    rng = np.random.default_rng(0)
    sizes = (2, 32, 32, 2)
    params = {
        f"w{i}": _random_weights(rng, a, b) for i, (a, b) in enumerate(pairwise(sizes))
    } | {f"b{i}": np.zeros(n, np.float32) for i, n in enumerate(sizes[1:])}

    def loss(xp: Any, conv: Any, p: Any, batch: Any) -> Any:
        x, y = batch
        for i in range(2):
            x = xp.tanh(x @ p[f"w{i}"] + p[f"b{i}"])
        return _cross_entropy(xp, x @ p["w2"] + p["b2"], y)

    def batch(n: int) -> Any:
        draw = np.random.default_rng(100 + n)
        t, side = draw.uniform(0, np.pi, 64), draw.integers(0, 2, 64)
        x = np.stack([np.cos(t) + side - 0.5, np.sin(t) * (1 - 2 * side) + side / 2], 1)
        x += draw.normal(size=x.shape) * 0.1
        return x.astype(np.float32), _one_hot(side, 2)

    return Task(loss, params, batch)


def conv_net() -> Task:
    """Return a network of two convolutions and a mean that tells horizontal from
    vertical bars.
    """
    rng = np.random.default_rng(1)
    params = {
        "c0": _random_weights(rng, 8, 1, 3, 3),
        "c1": _random_weights(rng, 16, 8, 3, 3),
        "w": _random_weights(rng, 16, 2),
        "b": np.zeros(2, np.float32),
    }

    def loss(xp: Any, conv: Any, p: Any, batch: Any) -> Any:
        x, y = batch
        x = xp.maximum(conv(x, p["c0"]), 0.0)
        x = xp.maximum(conv(x, p["c1"]), 0.0)
        return _cross_entropy(xp, xp.mean(x, axis=(2, 3)) @ p["w"] + p["b"], y)

    def batch(n: int) -> Any:
        draw = np.random.default_rng(200 + n)
        side = draw.integers(0, 2, 16)
        x = draw.normal(size=(16, 1, 12, 12)) * 0.3
        for i, is_horizontal in enumerate(side):
            position = draw.integers(0, 12)
            x[
                i,
                0,
                position if is_horizontal else slice(None),
                slice(None) if is_horizontal else position,
            ] += 2.0
        return x.astype(np.float32), _one_hot(side, 2)

    return Task(loss, params, batch)


def transformer() -> Task:
    """Return a transformer of one layer and two heads that tells which of two tokens
    comes first.
    """
    rng = np.random.default_rng(2)
    width, tokens, length = 16, 8, 10
    params = {
        "embed": rng.normal(size=(tokens, width)).astype(np.float32) * 0.3,
        "place": rng.normal(size=(length, width)).astype(np.float32) * 0.3,
        **{name: _random_weights(rng, width, width) for name in ("q", "k", "v", "o")},
        "up": _random_weights(rng, width, 32),
        "down": _random_weights(rng, 32, width),
        "g": np.ones(width, np.float32),
        "head": _random_weights(rng, width, 2),
    }

    def norm(xp: Any, x: Any, g: Any) -> Any:
        mean = xp.mean(x, axis=-1, keepdims=True)
        var = xp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / xp.sqrt(var + 1e-5) * g

    def loss(xp: Any, conv: Any, p: Any, batch: Any) -> Any:
        tokens_, y = batch
        x = xp.take(p["embed"], tokens_, axis=0) + p["place"]
        h = norm(xp, x, p["g"])
        n, t, d = h.shape

        def heads(w: Any) -> Any:
            return xp.transpose(xp.reshape(h @ w, (n, t, 2, d // 2)), (0, 2, 1, 3))

        q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
        scores = q @ xp.swapaxes(k, -1, -2) / (d // 2) ** 0.5
        e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        mixed = (e / xp.sum(e, axis=-1, keepdims=True)) @ v
        x = x + xp.reshape(xp.transpose(mixed, (0, 2, 1, 3)), (n, t, d)) @ p["o"]
        x = x + xp.maximum(norm(xp, x, p["g"]) @ p["up"], 0.0) @ p["down"]
        return _cross_entropy(xp, xp.mean(x, axis=1) @ p["head"], y)

    def batch(n: int) -> Any:
        draw = np.random.default_rng(300 + n)
        sequences = draw.integers(2, tokens, (32, length))
        first = draw.integers(0, 2, 32)
        rows = np.arange(32)
        a, b = draw.integers(0, 5, 32), draw.integers(5, length, 32)
        sequences[rows, a], sequences[rows, b] = first, 1 - first
        return sequences.astype(np.int32), _one_hot(first, 2)

    return Task(loss, params, batch)


TASKS = {"mlp": mlp, "conv net": conv_net, "transformer": transformer}
