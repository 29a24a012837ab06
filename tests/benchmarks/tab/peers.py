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
Peers = dict[str, Callable[[], Any]]


def numbers(kind: str, n: int) -> list[Any]:
    """The operands, float32."""
    draw = np.random.default_rng(n)
    shapes = [(n, n), (n, n)] if kind == "matmul" else [(ROWS, n + n // 2)]
    return [draw.standard_normal(shape, np.float32) for shape in shapes]


def work(kind: str, n: int) -> Peers:
    """What to time: "… in+out" begins and ends with host arrays."""
    return _matmul(n) if kind == "matmul" else _welch(n)


def _matmul(n: int) -> Peers:
    a, b = numbers("matmul", n)
    whole = rlx.Graph("matmul")
    whole.set_outputs([whole.input("a", (n, n)) @ whole.input("b", (n, n))])
    one = rlx.Graph("matmul resident")
    y = one.param("a", (n, n)) @ one.param("b", (n, n))
    one.set_outputs([one.narrow(one.narrow(y, 0, 0, 1), 1, 0, 1)])
    session = rlx.Session("webgpu")
    in_out, resident = session.compile(whole), session.compile(one)
    resident.set_param("a", a)
    resident.set_param("b", b)
    return {
        "rlxweb in+out": lambda: in_out.run({"a": a, "b": b})[0],
        "rlxweb resident": lambda: resident.run()[0],
        "NumPy wasm": lambda: a @ b,
    }


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
