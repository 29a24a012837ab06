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
    """Return the float32 operands."""
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
    """Return the functions to time; those named "… in+out" start and end with host
    arrays.
    """
    kinds = {"matmul": _matmul, "softmax": _softmax, "attention": _attention}
    kinds["training"] = _training
    return kinds.get(kind, _welch)(n)


def _graph_peers(make: Callable[..., Any], *operands: Any) -> Peers:
    """Compile a graph over host arrays and one over arrays that stay on the device.

    Of the second one number comes back: what was computed is waited for.

    make  the graph and its operands → the result
    """
    in_out_graph, resident_graph = rlx.Graph("in+out"), rlx.Graph("resident")
    inputs = {f"x{index}": array for index, array in enumerate(operands)}
    shapes = {name: array.shape for name, array in inputs.items()}
    in_out_graph.set_outputs(
        [
            make(
                in_out_graph,
                *(in_out_graph.input(name, shape) for name, shape in shapes.items()),
            )
        ]
    )
    y = make(
        resident_graph,
        *(resident_graph.param(name, shape) for name, shape in shapes.items()),
    )
    for axis in range(len(y.shape)):
        y = resident_graph.narrow(y, axis, 0, 1)
    resident_graph.set_outputs([y])
    session = rlx.Session("webgpu")
    in_out, resident = session.compile(in_out_graph), session.compile(resident_graph)
    for name, array in inputs.items():
        resident.set_param(name, array)
    return {
        "rlxweb in+out": lambda: in_out.run(inputs)[0],
        "rlxweb resident": lambda: resident.run()[0],
    }


def _matmul(n: int) -> Peers:
    a, b = numbers("matmul", n)
    ours = _graph_peers(lambda g, a, b: a @ b, a, b)
    return {**ours, "NumPy wasm": lambda: a @ b}


def _softmax(n: int) -> Peers:
    (x,) = numbers("softmax", n)
    ours = _graph_peers(lambda g, x: g.softmax(x), x)
    return {**ours, "NumPy wasm": lambda: _numpy_softmax(x)}


def _numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _attention(n: int) -> Peers:
    operands = numbers("attention", n)
    options = {"num_heads": HEADS, "head_dim": DIM}
    ours = _graph_peers(lambda g, q, k, v: g.attention(q, k, v, **options), *operands)
    q, k, v = (x.reshape(n, HEADS, DIM).transpose(1, 0, 2) for x in operands)

    def run_numpy() -> Any:
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(DIM))
        return (
            (_numpy_softmax(scores) @ v).transpose(1, 0, 2).reshape(1, n, HEADS * DIM)
        )

    return {**ours, "NumPy wasm": run_numpy}


def _welch(n: int) -> Peers:
    (x,) = numbers("welch", n)
    window = np.hanning(n).astype(np.float32)

    def run_numpy() -> Any:
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
        "NumPy wasm": run_numpy,
    }


def _training(n: int) -> Peers:
    """Return a training step of a perceptron: a batch goes in, the loss comes out,
    weights stay.
    """
    w, v, *batch = numbers("training", n)

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        z = np.maximum(x @ params[0], 0.0) @ params[1]
        z = z - np.max(z, axis=-1, keepdims=True)
        logs = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
        return -np.mean(np.sum(logs * y, axis=-1))

    def step(params: Any, batch: Any) -> Any:
        value, grads = rlx.value_and_grad(loss)(params, batch)
        updated = [p - RATE * g for p, g in zip(params, grads, strict=True)]
        return updated, value

    def ours(device: str) -> Callable[[], Any]:
        bound_step = rlx.function(step, device=device).held([w, v], batch)
        state: Any = [w, v]

        def run() -> float:
            nonlocal state
            state, value = bound_step(state, batch, stay=1)
            return float(np.asarray(value))

        return run

    return {
        "rlxweb in+out": ours("webgpu"),
        "rlxweb on NumPy wasm": ours("cpu"),
        "NumPy wasm": _numpy_training(w, v, *batch),
    }


def _numpy_training(w: Any, v: Any, x: Any, y: Any) -> Callable[[], float]:
    w, v = w.copy(), v.copy()

    def run() -> float:
        preactivation = x @ w
        h = np.maximum(preactivation, 0.0)
        z = h @ v
        p = _numpy_softmax(z)
        g = (p - y) / np.float32(len(x))
        hidden_grad = (g @ v.T) * (preactivation > 0)
        v[...] -= RATE * (h.T @ g)
        w[...] -= RATE * (x.T @ hidden_grad)
        return float(-np.mean(np.sum(np.log(p) * y, axis=-1)))

    return run
