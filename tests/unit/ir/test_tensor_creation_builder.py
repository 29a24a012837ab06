"""Graph methods that create arrays by a rule (ranges, fills, triangles, one-hot rows),
compared with NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.graph import Graph
from tests.unit.ir.reference_graph_runner import run_graph

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1


def test_sequences_and_filled_arrays_equal_numpy() -> None:
    got = run_graph(
        lambda g, x: [
            g.zeros((2, 3)),
            g.ones(4, "i32"),
            g.full((2, 2), 2.5),
            g.full((3,), x[0, 0, 1], "i32"),
            g.full_like(x, 7),
            g.ones_like(x, "bool"),
            g.zeros_like(x),
            g.arange(5),
            g.arange(9, -2, -3),
            g.arange(0, 1, 0.1),
            g.arange(1, 4, dtype="f64"),
            g.linspace(0, 1, 7),
            g.linspace(2, 3, 4, endpoint=False, dtype="f64"),
            g.arange(3, 3),
        ],
        X,
    )
    f4, i4 = np.float32, np.int32
    want: list[Any] = [
        np.zeros((2, 3), f4),
        np.ones(4, i4),
        np.full((2, 2), 2.5, f4),
        np.full(3, 2, i4),
        np.full_like(X, 7),
        np.ones_like(X, bool),
        np.zeros_like(X),
        np.arange(5, dtype=i4),
        np.arange(9, -2, -3, dtype=i4),
        np.arange(0, 1, 0.1).astype(f4),
        np.arange(1.0, 4.0),
        np.linspace(0, 1, 7, dtype=f4),
        np.linspace(2, 3, 4, endpoint=False),
        np.arange(0, dtype=i4),
    ]
    for array, expected in zip(got, want, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("k", [-9, -2, 0, 1, 3, 9, 1 << 40])
def test_triangles_and_diagonals_equal_numpy(k: int) -> None:
    """Triangles and diagonals equal NumPy's, with a constant and with a computed
    offset.
    """
    clipped_k = max(min(k, 1 << 20), -(1 << 20))
    got = run_graph(
        lambda g, x, by: [
            g.tril(x, k),
            g.triu(x > 3, k),
            g.tril(x, by),
            g.triu(x, by),
            g.eye(3, 4, k, "i32"),
            g.eye(3),
        ],
        X,
        np.array([clipped_k]),
    )
    want = [np.tril(X, k), np.triu(X > 3, k), np.tril(X, k), np.triu(X, k)]
    for array, expected in zip(
        got, [*want, np.eye(3, 4, clipped_k), np.eye(3)], strict=True
    ):
        np.testing.assert_array_equal(array, expected)


def test_one_hot_rows() -> None:
    """Negative indices count from the end; indices out of range give no one."""
    indices = np.array([[0, 3], [-1, 7], [-4, -5]])
    want = np.eye(6)[[[0, 3], [3, 5], [0, 5]]][..., :4]
    got = run_graph(
        lambda g, x, on: [
            g.one_hot(x, 4),
            g.one_hot(x, 4, axis=0),
            g.one_hot(x, 4, 5, -1, dtype="i64"),
            g.one_hot(x, 4, on, g.constant(np.array([0.5])), axis=1),
        ],
        indices,
        np.array([2.5]),
    )
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_array_equal(got[1], np.moveaxis(want, -1, 0))
    np.testing.assert_array_equal(got[2], np.where(want, 5, -1))
    np.testing.assert_array_equal(got[3], np.moveaxis(np.where(want, 2.5, 0.5), -1, 1))
    assert [array.dtype.name for array in got] == [
        "float32",
        "float32",
        "int64",
        "float64",
    ]


def test_invalid_creation_arguments_are_refused() -> None:
    g = Graph()
    x, number = g.input("x", (2, 3)), g.input("n", 2, "i32")
    for call, kind, message in (
        (lambda: g.arange(1, 2, 0), AttributeRefused, "sequence is infinite"),
        (lambda: g.arange(0, np.inf), AttributeRefused, "sequence is infinite"),
        (lambda: g.arange(0, 1e12), AttributeRefused, "at most 2,147,483,648"),
        (lambda: g.arange(0, 1 << 33, 1 << 32), DTypeError, "out of range"),
        (lambda: g.full((2,), x), ShapeError, "expected a scalar"),
        (lambda: g.tril(number), ShapeError, "at least rank 2"),
        (lambda: g.tril(x, number), ShapeError, "k must be a single integer"),
        (lambda: g.one_hot(x, 3), ShapeError, "indices must be integers"),
        (lambda: g.linspace(0, 1, -1), ShapeError, "num=-1"),
    ):
        with pytest.raises(kind, match=message):
            call()
