"""Check random graphs of dynamic sizes: NumPy's numbers for every binding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlxweb import Dim, Graph, Session, Tensor

OpPair = tuple[Callable[[Graph, Tensor, Any], Tensor], Callable[[Any], Any]]
MIX = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


OP_PAIRS: dict[str, OpPair] = {
    "relu": (lambda g, x, y: g.relu(x), lambda x: np.maximum(x, 0)),
    "by its size": (lambda g, x, y: x / x.shape[0], lambda x: x / x.shape[0]),
    "swapped": (
        lambda g, x, y: x.transpose(1, 0, 2),
        lambda x: x.transpose(1, 0, 2),
    ),
    "without the first": (
        lambda g, x, y: g.concat([x[1:], x[:1]], 0),
        lambda x: np.concatenate([x[1:], x[:1]]),
    ),
    "every other": (
        lambda g, x, y: g.concat([x[:, ::2], x[:, 1::2]], 1),
        lambda x: np.concatenate([x[:, ::2], x[:, 1::2]], 1),
    ),
    "backwards": (lambda g, x, y: x[:, ::-1], lambda x: x[:, ::-1]),
    "a product": (
        lambda g, x, y: g.concat(
            [(x.reshape(-1, 4) @ g.constant(MIX)).reshape(*x.shape[:2], 3), x[..., :1]],
            2,
        ),
        lambda x: np.concatenate([x @ MIX, x[..., :1]], 2),
    ),
    "squared": (
        lambda g, x, y: g.matmul(g.matmul(x, x.transpose(0, 2, 1)) / x.shape[1], x),
        lambda x: (x @ x.transpose(0, 2, 1) / x.shape[1]) @ x,
    ),
    "softmax": (lambda g, x, y: g.softmax(x, 1), lambda x: softmax(x, 1)),
    "less its mean": (
        lambda g, x, y: x - g.expand(x.mean((0, 1)), x.shape),
        lambda x: x - x.mean((0, 1)),
    ),
    "running": (
        lambda g, x, y: g.cumsum(x, 0) / (x.shape[0] * 2 - 1),
        lambda x: np.cumsum(x, 0) / (x.shape[0] * 2 - 1),
    ),
    "counted": (
        lambda g, x, y: (
            x + g.cumsum(g.expand(g.constant(0.25), (x.shape[0],)))[:, None, None]
        ),
        lambda x: x + 0.25 * np.arange(1, len(x) + 1)[:, None, None],
    ),
    "longer": (
        lambda g, x, y: g.pad(x, [(0, 0), (1, 2), (0, 0)]),
        lambda x: np.pad(x, [(0, 0), (1, 2), (0, 0)]),
    ),
    "rolled": (lambda g, x, y: g.roll(x, 2, 1), lambda x: np.roll(x, 2, 1)),
    "merged": (
        lambda g, x, y: x.reshape(x.shape[0] * x.shape[1], 1, 4),
        lambda x: x.reshape(-1, 1, 4),
    ),
    "halves": (
        lambda g, x, y: g.tile(x, (2, 1, 1))[: x.shape[0] * 2 // 2 + 1],
        lambda x: np.tile(x, (2, 1, 1))[: len(x) + 1],
    ),
}
OP_SEQUENCES = st.lists(st.sampled_from(sorted(OP_PAIRS)), min_size=1, max_size=6)
SIZES = st.tuples(st.integers(2, 9), st.integers(2, 9))


def build_graph(op_names: list[str]) -> Graph:
    g = Graph("varying")
    x = y = g.input("x", (Dim("n", min=2), Dim("m", min=2), 4))
    for name in op_names:
        y = OP_PAIRS[name][0](g, y, x)
    g.set_outputs([y, x.sum((0, 1))])
    return g


def check_device(device: str, examples: int) -> None:
    @seed(0)
    @given(OP_SEQUENCES, st.lists(SIZES, min_size=2, max_size=3), st.integers(0, 99))
    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)
    )
    def check(op_names: list[str], sizes: list[tuple[int, int]], number: int) -> None:
        compiled = Session(device).compile(build_graph(op_names))
        for n, m in sizes:
            rng = np.random.default_rng(number)
            x = rng.uniform(-1, 1, (n, m, 4)).astype(np.float32)
            want = x.astype(np.float64)
            for name in op_names:
                want = OP_PAIRS[name][1](want)
            got, total = compiled.run({"x": x})
            near = {"rtol": 2e-3, "atol": 1e-4 * (1 + np.abs(want).max())}
            np.testing.assert_allclose(got, want, err_msg=str(op_names), **near)
            np.testing.assert_allclose(total, x.sum((0, 1)), rtol=1e-3, atol=1e-4)
        compiled.close()

    check()


def test_numpy_agrees_for_every_binding() -> None:
    check_device("cpu", 40)


@pytest.mark.requires_wgpu
def test_the_adapter_agrees_for_every_binding() -> None:
    check_device("vulkan", 12)
