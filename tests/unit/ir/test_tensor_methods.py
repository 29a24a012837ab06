"""Tensor's methods that have NumPy's names give what the graph's methods give."""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import UnknownName

X = np.random.default_rng(5).uniform(0.2, 2.0, (3, 4)).astype(np.float32)
UNARY = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "tanh": np.tanh,
    "abs": np.abs,
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", UNARY)
def test_methods_match_numpy(name: str) -> None:
    graph = rlx.Graph("method")
    graph.set_outputs([getattr(graph.input("x", X.shape), name)()])
    with rlx.Session("cpu") as session:
        got = session.compile(graph)(X)
    np.testing.assert_allclose(got, UNARY[name](X), rtol=1e-5)


def test_reductions_axes_and_the_transpose() -> None:
    graph = rlx.Graph("method")
    x = graph.input("x", X.shape)
    outs = [
        x.max(1),
        x.min(0),
        x.prod(1, True),
        x.cumsum(1),
        x.softmax(1),
        x.T,
        x.gelu(),
    ]
    graph.set_outputs(outs)
    largest, smallest, product, cumulative, probabilities, transposed, _ = rlx.Session(
        "cpu"
    ).compile(graph)(X)
    np.testing.assert_array_equal(largest, X.max(1))
    np.testing.assert_array_equal(smallest, X.min(0))
    np.testing.assert_allclose(product, X.prod(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(cumulative, X.cumsum(1), rtol=1e-6)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(transposed, X.T)


def test_a_compiled_graph_is_called_with_arrays() -> None:
    """A compiled graph takes arrays in the order of its inputs or by name."""
    graph = rlx.Graph("call")
    x, y = graph.input("x", (2,)), graph.input("y", (2,))
    graph.set_outputs([x - y])
    compiled = rlx.Session("cpu").compile(graph)
    a, b = np.array([3, 5], np.float32), np.array([1, 7], np.float32)
    for got in (compiled(a, b), compiled(a, y=b), compiled(y=b, x=a)):
        np.testing.assert_array_equal(got, a - b)
    with pytest.raises(TypeError, match="'call' takes at most 2 inputs, got 3 arrays"):
        compiled(a, b, a)
    with pytest.raises(TypeError, match="'call' got input 'x' twice"):
        compiled(a, x=b)
    with pytest.raises(UnknownName, match="z"):
        compiled(a, b, z=a)


def test_read_opens_a_recording(tmp_path: object) -> None:
    path = f"{tmp_path}/x.npy"
    np.save(path, X)
    with rlx.read(path, fs=10, stop="0.3") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X[:, :3])
