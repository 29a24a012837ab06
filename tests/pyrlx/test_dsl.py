"""Graphs built in pyrlx's `with` blocks, with operators and plain numbers as
operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.pyrlx import shim as rlx

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
Y = np.array([[2.0, 2.0, 2.0], [1.0, 4.0, 3.0]], np.float32)


def run_block(build: Callable[[Any, Any, Any], Any], x: Any = X, y: Any = Y) -> Any:
    """Return the CPU's result of a block over two inputs."""
    with rlx.graph("block") as g:
        nodes = [
            g.input(n, list(a.shape), rlx.dtype_str(a.dtype))
            for n, a in (("x", x), ("y", y))
        ]
        result = build(g, *nodes)
        assert isinstance(result, rlx.Node)
        g.outputs = [result]
    compiled = rlx.Session("cpu").compile(g.raw)
    (out,) = rlx.run(compiled, x=x, y=y)
    assert result.shape == out.shape
    assert result.dtype == rlx.dtype_str(out.dtype)
    return out


BLOCKS = {
    "sum": (lambda g, x, y: x + y, X + Y),
    "chain": (lambda g, x, y: (x + y) * x - y, (X + Y) * X - Y),
    "number on the right": (lambda g, x, y: (x + 1.0) / 2.0, (X + 1) / 2),
    "number on the left": (lambda g, x, y: 3.0 - x, 3 - X),
    "over a number": (lambda g, x, y: 1.0 / y, 1 / Y),
    "power": (lambda g, x, y: x**2.0, X**2),
    "negative": (lambda g, x, y: -x, -X),
    "product": (lambda g, x, y: x @ y.T, X @ Y.T),
    "product with a number": (lambda g, x, y: x @ 2.0, X * 2),
    "less": (lambda g, x, y: x < y, X < Y),
    "at most": (lambda g, x, y: x <= 1.0, X <= 1),
    "equal": (lambda g, x, y: x == y, X == Y),
    "unequal": (lambda g, x, y: x != 0.5, X != 0.5),
    "more": (lambda g, x, y: x > y, X > Y),
    "at least": (lambda g, x, y: x >= y, X >= Y),
    "where": (lambda g, x, y: (x < y).where_(x, y), np.where(X < Y, X, Y)),
    "where of numbers": (lambda g, x, y: (x < 0.0).where_(0.0, x), np.maximum(X, 0)),
    "activation": (lambda g, x, y: x.relu(), np.maximum(X, 0)),
    "softmax": (
        lambda g, x, y: x.softmax(),
        np.exp(X) / np.exp(X).sum(-1, keepdims=True),
    ),
    "reduced": (lambda g, x, y: x.sum([0]), X.sum(0)),
    "averaged": (lambda g, x, y: x.mean([1], keep_dim=True), X.mean(1, keepdims=True)),
    "running": (lambda g, x, y: x.cumsum(axis=-1), X.cumsum(-1)),
    "a number before a product": (lambda g, x, y: 2.0 @ x, X * 2),
    "transposed by a list": (lambda g, x, y: x.transpose([1, 0]), X.T),
    "turned around": (lambda g, x, y: x.transpose(), X.T),
    "reshaped by a list": (lambda g, x, y: x.reshape([3, 2]), X.reshape(3, 2)),
    "equal to a number": (lambda g, x, y: g.eq_(x, 4.0), X == 4),
    "transposed": (lambda g, x, y: x.transpose(1, 0), X.T),
    "reshaped": (lambda g, x, y: x.reshape(3, 2), X.reshape(3, 2)),
    "narrowed": (lambda g, x, y: x.narrow(1, 0, 2), X[:, :2]),
    "cast": (lambda g, x, y: x.cast("f16"), X.astype(np.float16)),
    "by the block": (lambda g, x, y: g.concat([x, y], axis=1), np.hstack([X, Y])),
    "number by the block": (lambda g, x, y: g.add(x, 1.0), X + 1),
    "constant": (lambda g, x, y: x * g.constant(0.5), X / 2),
    "condition of numbers": (
        lambda g, x, y: y.where_(x > 0.0, x),
        np.where(Y != 0, (X > 0).astype(np.float32), X),
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_agrees_with_numpy(name: str) -> None:
    build, want = BLOCKS[name]
    np.testing.assert_allclose(run_block(build), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.float64])
def test_numbers_take_the_dtype_of_the_other_operand(dtype: type) -> None:
    """Whole numbers, written as int or float, take the dtype of the other operand."""
    x = np.array([4, 10]).astype(dtype)
    for build in (lambda g, x, y: x + 1, lambda g, x, y: x + 1.0):
        got = run_block(build, x, x)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, [5, 11])


def test_unrepresentable_numbers_are_rejected() -> None:
    with rlx.graph("misfits") as g:
        i32, i64 = g.input("a", [2], "i32"), g.input("b", [2], "i64")
        for build, message in (
            (lambda: i32 + 2.5, "not an integer"),
            (lambda: i32 + 3_000_000_000, "out of range"),
            (lambda: i64 + 10**30, r"2\*\*53"),
        ):
            with pytest.raises(ValueError, match=message):
                build()


def test_node_has_shape_dtype_and_id() -> None:
    with rlx.graph("nodes") as g:
        x = g.input("x", [3, 5], "f32")
        w = g.param("w", [5, 2], "f32")
        y = x @ w
        assert (y.shape, y.dtype) == ((3, 2), "f32")
        assert int(x) == x.id
        assert isinstance(g.raw.relu(x), int)
        assert "id=" in repr(x)
        assert "(3, 5), dtype=f32" in repr(x)
        g.outputs = [y]
        with pytest.raises(AttributeError, match="write-only"):
            _ = g.outputs


def test_complex_results_are_pairs_of_nodes() -> None:
    with rlx.graph("spectra") as g:
        x = g.input("x", [8], "f32")
        re, im = g.fft_real(x, norm="forward")
        assert re.shape == im.shape == (8,)
        half = g.rfft(x, norm="forward")
        assert [n.shape for n in half] == [(5,), (5,)]
        back = g.irfft(*half, 8, norm="forward")
        assert g.fftfreq(8).dtype == g.rfftfreq(8).dtype == "f64"
        g.outputs = [back, g.rfftfreq(8)]
    signal = np.arange(8, dtype=np.float32)
    outs = rlx.run(rlx.Session("cpu").compile(g.raw), x=signal)
    np.testing.assert_allclose(outs[0], signal, atol=1e-5)
    np.testing.assert_array_equal(outs[1], np.fft.rfftfreq(8))


def test_set_param_takes_flat_or_shaped_arrays() -> None:
    with rlx.graph("layer") as g:
        x, w = g.input("x", [2, 3], "f64"), g.param("w", [3, 2], "f64")
        gamma, beta = g.param("gamma", [2], "f64"), g.param("beta", [2], "f64")
        g.outputs = [(x @ w).layer_norm(gamma, beta)]
    compiled = rlx.Session(device="cpu").compile(g.raw)
    w = np.arange(6.0)
    rlx.set_param(compiled, "w", w)
    for name, value in (("gamma", [2.0, 2.0]), ("beta", [0.5, 0.5])):
        rlx.set_param(compiled, name, np.array(value))
    (out,) = rlx.run(compiled, x=X.astype(float))
    h = X.astype(float) @ w.reshape(3, 2)
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, 2 * h + 0.5, rtol=1e-9)


@pytest.mark.parametrize("name", ["bool", "f16", "i32", "u32", "i64", "f32", "f64"])
def test_dtype_names_round_trip(name: str) -> None:
    assert rlx.dtype_str(rlx.numpy_dtype(name)) == name
    assert rlx.dtype_str(rlx.numpy_dtype(name).type) == name
