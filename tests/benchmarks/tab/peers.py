"""The work of the browser benchmark on rlxweb and on NumPy, inside the tab.

`work(kind, n)` gives the functions to time by name; what jax-js does is in peers.js,
on the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlxweb as rlx

ROWS, K = 256, 16
HEADS, DIM = 12, 64
BATCH, CLASSES, RATE = 64, 10, 0.01
Peers = dict[str, Callable[[], Any]]


def numbers(kind: str, n: int) -> list[Any]:
    """The operands, float32."""
    draw = np.random.default_rng(n)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "matmul": [(n, n)] * 2,
        "softmax": [(n, n)],
        "attention": [(1, n, HEADS * DIM)] * 3,
        "welch": [(ROWS, n + n // 2)],
    }
    if kind == "training":  # weights, then images and their classes
        w, v = (draw.standard_normal(s, np.float32) for s in ((n, n), (n, CLASSES)))
        x = draw.standard_normal((BATCH, n), np.float32)
        y = np.eye(CLASSES, dtype=np.float32)[draw.integers(0, CLASSES, BATCH)]
        return [w / np.float32(n**0.5), v / np.float32(n**0.5), x, y]
    return [draw.standard_normal(shape, np.float32) for shape in shapes[kind]]


def work(kind: str, n: int) -> Peers:
    """What to time: "… in+out" begins and ends with host arrays."""
    kinds = {"matmul": _matmul, "softmax": _softmax, "attention": _attention}
    kinds["training"] = _training
    return kinds.get(kind, _welch)(n)


def _both(make: Callable[..., Any], *given: Any) -> Peers:
    """A graph over host arrays, and over arrays that lie on the device.

    Of the second one number comes back: what was computed is waited for.

    make  the graph and its operands → the result
    """
    whole, one = rlx.Graph("in+out"), rlx.Graph("resident")
    inputs = {f"x{at}": array for at, array in enumerate(given)}
    shapes = {name: array.shape for name, array in inputs.items()}
    whole.set_outputs(
        [make(whole, *(whole.input(name, shape) for name, shape in shapes.items()))]
    )
    y = make(one, *(one.param(name, shape) for name, shape in shapes.items()))
    for axis in range(len(y.shape)):
        y = one.narrow(y, axis, 0, 1)
    one.set_outputs([y])
    session = rlx.Session("webgpu")
    in_out, resident = session.compile(whole), session.compile(one)
    for name, array in inputs.items():
        resident.set_param(name, array)
    return {
        "rlxweb in+out": lambda: in_out.run(inputs)[0],
        "rlxweb resident": lambda: resident.run()[0],
    }


def _matmul(n: int) -> Peers:
    a, b = numbers("matmul", n)
    ours = _both(lambda g, a, b: a @ b, a, b)
    return {**ours, "NumPy wasm": lambda: a @ b}


def _softmax(n: int) -> Peers:
    (x,) = numbers("softmax", n)
    ours = _both(lambda g, x: g.softmax(x), x)
    return {**ours, "NumPy wasm": lambda: _by_numpy(x)}


def _by_numpy(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _attention(n: int) -> Peers:
    given = numbers("attention", n)
    how = {"num_heads": HEADS, "head_dim": DIM}
    ours = _both(lambda g, q, k, v: g.attention(q, k, v, **how), *given)
    q, k, v = (x.reshape(n, HEADS, DIM).transpose(1, 0, 2) for x in given)

    def plain() -> Any:
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(DIM))
        return (_by_numpy(scores) @ v).transpose(1, 0, 2).reshape(1, n, HEADS * DIM)

    return {**ours, "NumPy wasm": plain}


def _welch(n: int) -> Peers:
    (x,) = numbers("welch", n)
    window = np.hanning(n).astype(np.float32)

    def plain() -> Any:
        frames = np.stack([x[:, :n], x[:, n // 2 :]], axis=1) * window
        spectrum = np.fft.rfft(frames)
        power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
        bins = np.argpartition(power, -K, axis=1)[:, -K:]
        top = np.take_along_axis(power, bins, axis=1)
        return np.take_along_axis(bins, np.argsort(-top, axis=1), axis=1)

    def ours(device: str) -> Callable[[], Any]:
        return lambda: rlx.welch_peaks(x, 256, n, K, device=device).bins

    return {
        "rlxweb in+out": ours("webgpu"),
        "rlxweb on NumPy wasm": ours("cpu"),
        "NumPy wasm": plain,
    }


def _training(n: int) -> Peers:
    """A step of a perceptron: a batch goes in, the loss comes out, weights stay."""
    w, v, *batch = numbers("training", n)

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        z = np.maximum(x @ params[0], 0.0) @ params[1]
        z = z - np.max(z, axis=-1, keepdims=True)
        logs = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
        return -np.mean(np.sum(logs * y, axis=-1))

    def step(params: Any, batch: Any) -> Any:
        value, grads = rlx.value_and_grad(loss)(params, batch)
        moved = [p - RATE * g for p, g in zip(params, grads, strict=True)]
        return moved, value

    def ours(device: str) -> Callable[[], Any]:
        held = rlx.function(step, device=device).held([w, v], batch)
        state: Any = [w, v]

        def run() -> float:
            nonlocal state
            state, value = held(state, batch, stay=1)
            return float(np.asarray(value))

        return run

    return {
        "rlxweb in+out": ours("webgpu"),
        "rlxweb on NumPy wasm": ours("cpu"),
        "NumPy wasm": _trained_by_hand(w, v, *batch),
    }


def _trained_by_hand(w: Any, v: Any, x: Any, y: Any) -> Callable[[], float]:
    w, v = w.copy(), v.copy()

    def run() -> float:
        before = x @ w
        h = np.maximum(before, 0.0)
        z = h @ v
        p = _by_numpy(z)
        g = (p - y) / np.float32(len(x))
        back = (g @ v.T) * (before > 0)
        v[...] -= RATE * (h.T @ g)
        w[...] -= RATE * (x.T @ back)
        return float(-np.mean(np.sum(np.log(p) * y, axis=-1)))

    return run
