"""`tensor[…]` equals NumPy's indexing, key by key; impossible keys are refused with a
hint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import DTypeError, IndexRefused, ShapeError, UsageError
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph

X = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
KEYS: list[Any] = [
    *(np.s_[::-1], np.s_[1], np.s_[-1, ..., None], np.s_[...], np.s_[()]),
    *(np.s_[None, ::2, 1:4:2, ::-2], np.s_[3:0:-2, 4::-1, 10:2:-3]),
    *(np.s_[2:2:-1], np.s_[0:0], np.s_[5:1:-1], np.s_[-2:-10:-1], np.s_[::7]),
    *(np.s_[[0, -1]], np.s_[:, [1, 2, -1]], np.s_[0, :, [1, 2]], np.s_[[]]),
    *(np.s_[..., np.array([[1, 2], [0, -3]])], np.s_[0, None, [0, 1]]),
    *(np.s_[[0, 1], :, 2], np.s_[0, [0, 1], 0], np.s_[:, None, [0, 1]]),
    *(X[:, :, 0] > 50, X > 50, np.s_[:, X[0, :, 0] > 7]),
    np.s_[[True, False, True, False], 0],
]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_indexing_equals_numpy(key: Any) -> None:
    g = Graph()
    g.set_outputs([g.input("x", X.shape)[key]])
    (got,) = evaluate(g, {"x": X})
    np.testing.assert_array_equal(got, X[key], strict=True)


def test_slice_bounds_equal_python() -> None:
    """Slices have Python's bounds: beyond the ends, backwards and empty."""
    line = np.arange(5, dtype=np.float32)
    bounds, steps = (None, -7, -6, -5, -1, 0, 2, 5, 8), (None, -7, -2, -1, 1, 2, 7)
    keys = [slice(a, b, c) for a in bounds for b in bounds for c in steps]
    g = Graph()
    x = g.input("x", line.shape)
    g.set_outputs([x[key] for key in keys])
    for key, got in zip(keys, evaluate(g, {"x": line}), strict=True):
        np.testing.assert_array_equal(got, line[key], str(key), strict=True)


def test_an_integer_tensor_selects_rows() -> None:
    """An integer tensor selects rows; negative indices count from the end."""
    g = Graph()
    indices = g.input("at", (3,), "i32")
    g.set_outputs([g.input("x", X.shape)[:, indices]])
    rows = np.array([4, -5, -1], np.int32)
    (got,) = evaluate(g, {"x": X, "at": rows})
    np.testing.assert_array_equal(got, X[:, rows])


def test_invalid_keys_are_refused() -> None:
    g = Graph()
    x = g.input("x", (4, 5))
    with pytest.raises(IndexRefused, match=r"index 5 at position \[1\]"):
        x[:, [0, 5]]
    with pytest.raises(ShapeError, match="the mask has shape"):
        x[np.ones(3, bool)]
    with pytest.raises(UsageError, match="2 axes are indexed by arrays"):
        x[[0, 1], [0, 1]]
    with pytest.raises(UsageError, match=r"graph\.where"):
        x[g.gt(x, 0)]
    with pytest.raises(ShapeError, match="2 ellipses"):
        x[..., ...]
    with pytest.raises(DTypeError, match="row 0 has 2 values, row 1 has 1 value"):
        x[[[0, 1], [1]]]
    with pytest.raises(ShapeError, match=r"\[4, 5\] f32\): indices must be integers"):
        x[[1.5]]
