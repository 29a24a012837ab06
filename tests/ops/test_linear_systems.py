"""Systems of equations, inverses and determinants, by the methods, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import RlxError
from tests.agreement import engine
from tests.conftest import ADAPTERS
from tests.ops.test_windows_by_torch import drawn, ours

SHAPES = {
    "one": ((4, 4), (4, 2)),
    "a vector": ((4, 4), (4,)),
    "a vector for many": ((3, 4, 4), (4,)),
    "batches broadcast": ((2, 1, 4, 4), (3, 4, 2)),
    "one matrix, many sides": ((4, 4), (2, 4, 3)),
}


@pytest.mark.parametrize("how", SHAPES)
def test_systems(how: str) -> None:
    a, b = (drawn(shape, n) for n, shape in enumerate(SHAPES[how]))
    want = np.linalg.solve(a.astype(float), b.astype(float))
    np.testing.assert_allclose(
        ours(lambda g, *t: g.solve(*t), a, b), want, rtol=1e-4, atol=1e-4
    )


def test_inverses_and_determinants() -> None:
    a = drawn((3, 5, 5)) + 2 * np.eye(5, dtype=np.float32)
    wide = a.astype(float)
    np.testing.assert_allclose(
        ours(lambda g, a: g.inv(a), a), np.linalg.inv(wide), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        ours(lambda g, a: g.det(a), a), np.linalg.det(wide), rtol=1e-4
    )


@pytest.mark.parametrize("on", [None, *ADAPTERS])
def test_many_rows_and_one_that_is_singular(on: str | None) -> None:
    """More rows than lanes, exchanges of rows, and a matrix of rank 129 among them."""
    a, b = drawn((3, 130, 130)) / 8, drawn((3, 130, 3), 1)
    a[1, 7] = 0.0
    g = rlx.Graph("systems")
    x = g.input("a", a.shape)
    g.set_outputs([g.solve(x, g.input("b", b.shape)), g.det(x)])
    one = engine(ADAPTERS[on] if on else None)
    found, det = one.run(g, {"a": a, "b": b})
    regular = [0, 2]
    wide = a[regular].astype(float)
    want = np.linalg.solve(wide, b[regular].astype(float))
    most = np.abs(want).max()
    np.testing.assert_allclose(found[regular], want, atol=1e-4 * most)
    np.testing.assert_allclose(det[regular], np.linalg.det(wide), rtol=1e-3)
    assert np.isnan(found[1]).all()
    assert det[1] == 0


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "matrices are square": lambda g, x: g.det(x),
    "a is [..., n, n] and b": lambda g, x: g.solve(g.reshape(x, (12,)), x),
    "of one batch": lambda g, x: g.solve(g.constant(np.eye(2, dtype=np.float32)), x),
    "operands are f32 and f64": lambda g, x: g.solve(
        g.constant(np.eye(3)).cast("f32"), g.cast(x, "f64")
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_does_not_fit_is_refused(says: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        REFUSED[says](g, g.input("x", (3, 4)))
    assert says in str(caught.value)
