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
    """Systems of more rows than lanes are solved, a singular one among them."""
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


@pytest.mark.parametrize("on", [None, *ADAPTERS])
def test_factors_triangles_and_logarithms(on: str | None) -> None:
    """Factors and triangles of more rows than lanes are right in place.

    A matrix among them has no answer.
    """
    a, b = drawn((3, 130, 130)) / 8, drawn((130, 3), 1)
    wide = a.astype(float)
    definite = wide @ wide.swapaxes(1, 2) + np.eye(130)
    factors = np.linalg.cholesky(definite)
    definite[1, 100, 100] = -3.0
    triangles = factors.copy()
    triangles[1, 129, 129] = 0.0
    scaled = (wide * 100).astype(np.float32)
    scaled[1, 7] = 0.0
    g = rlx.Graph("factors")
    x, t, s = (g.input(name, a.shape) for name in ("a", "t", "s"))
    y = g.constant(b)
    lower = g.solve_triangular(t, y, lower=True)
    upper = g.solve_triangular(t, y, lower=True, trans=True)
    ones = g.solve_triangular(t, y, lower=True, unit_diagonal=True)
    g.set_outputs([g.cholesky(x), lower, upper, ones, *g.slogdet(s)])
    one = engine(ADAPTERS[on] if on else None)
    feeds = {"a": definite.astype(np.float32), "t": triangles.astype(np.float32)}
    found = one.run(g, {**feeds, "s": scaled})
    for made in found[:3]:
        assert np.isnan(made[1]).all()
    assert (found[4][1], found[5][1]) == (0, -np.inf)
    flat = triangles - np.eye(130) * triangles + np.eye(130)
    for n in (0, 2):
        transposed = factors[n].T
        wants = (
            factors[n],
            np.linalg.solve(factors[n], b),
            np.linalg.solve(transposed, b),
            np.linalg.solve(flat[n], b),
            *np.linalg.slogdet(scaled[n].astype(float)),
        )
        for made, want in zip(found, wants, strict=True):
            most = np.abs(want).max()
            np.testing.assert_allclose(made[n], want, rtol=2e-5, atol=2e-5 * most)


def test_the_other_half_is_not_read() -> None:
    """The half of a matrix that is not named is not read: here it is NaN.

    The arguments are SciPy's and NumPy's.
    """
    a = np.tril(drawn((4, 4)) + 3 * np.eye(4, dtype=np.float32))
    b = drawn((4,), 1)
    odd = a + np.triu(np.full((4, 4), np.nan, np.float32), 1)
    spoilt = {"lower": odd, "upper": odd.T.copy()}
    want = {"lower": np.linalg.solve(a, b), "upper": np.linalg.solve(a.T, b)}
    for half, one in spoilt.items():
        for trans in (False, True):
            made = ours(
                lambda g, x, y, half=half, trans=trans: g.solve_triangular(
                    x, y, lower=half == "lower", trans=trans
                ),
                one,
                b,
            )
            is_turned = (half == "upper") != trans
            np.testing.assert_allclose(
                made, want["upper" if is_turned else "lower"], rtol=1e-5
            )
        made = ours(
            lambda g, x, half=half: g.cholesky(x, upper=half == "upper"),
            one,
        )
        factor = np.linalg.cholesky(np.tril(a) + np.tril(a, -1).T)
        np.testing.assert_allclose(
            made, factor if half == "lower" else factor.T, rtol=1e-5
        )


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
