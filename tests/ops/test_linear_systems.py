"""Compare systems of equations, inverses and determinants with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import RlxError
from tests.conftest import ADAPTERS
from tests.engines_under_test import engine
from tests.ops.torch_comparison import random_array, run_on_cpu

SHAPES = {
    "one": ((4, 4), (4, 2)),
    "a vector": ((4, 4), (4,)),
    "a vector for many": ((3, 4, 4), (4,)),
    "batches broadcast": ((2, 1, 4, 4), (3, 4, 2)),
    "one matrix, many sides": ((4, 4), (2, 4, 3)),
}


@pytest.mark.parametrize("shapes", SHAPES)
def test_systems(shapes: str) -> None:
    a, b = (random_array(shape, n) for n, shape in enumerate(SHAPES[shapes]))
    want = np.linalg.solve(a.astype(float), b.astype(float))
    np.testing.assert_allclose(
        run_on_cpu(lambda g, *t: g.solve(*t), a, b), want, rtol=1e-4, atol=1e-4
    )


def test_inverses_and_determinants() -> None:
    a = random_array((3, 5, 5)) + 2 * np.eye(5, dtype=np.float32)
    wide = a.astype(float)
    np.testing.assert_allclose(
        run_on_cpu(lambda g, a: g.inv(a), a), np.linalg.inv(wide), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        run_on_cpu(lambda g, a: g.det(a), a), np.linalg.det(wide), rtol=1e-4
    )


@pytest.mark.parametrize("adapter_name", [None, *ADAPTERS])
def test_solve_large_batch_with_a_singular_matrix(adapter_name: str | None) -> None:
    """Systems with more rows than lanes are solved, one of them singular."""
    a, b = random_array((3, 130, 130)) / 8, random_array((3, 130, 3), 1)
    a[1, 7] = 0.0
    g = rlx.Graph("systems")
    x = g.input("a", a.shape)
    g.set_outputs([g.solve(x, g.input("b", b.shape)), g.det(x)])
    runner = engine(ADAPTERS[adapter_name] if adapter_name else None)
    solutions, det = runner.run(g, {"a": a, "b": b})
    regular = [0, 2]
    wide = a[regular].astype(float)
    want = np.linalg.solve(wide, b[regular].astype(float))
    max_value = np.abs(want).max()
    np.testing.assert_allclose(solutions[regular], want, atol=1e-4 * max_value)
    np.testing.assert_allclose(det[regular], np.linalg.det(wide), rtol=1e-3)
    assert np.isnan(solutions[1]).all()
    assert det[1] == 0


@pytest.mark.parametrize("adapter_name", [None, *ADAPTERS])
def test_cholesky_triangular_solves_and_slogdet(adapter_name: str | None) -> None:
    """Factors and triangular solves with more rows than lanes are right.

    A matrix among them has no answer.
    """
    a, b = random_array((3, 130, 130)) / 8, random_array((130, 3), 1)
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
    runner = engine(ADAPTERS[adapter_name] if adapter_name else None)
    feeds = {"a": definite.astype(np.float32), "t": triangles.astype(np.float32)}
    outputs = runner.run(g, {**feeds, "s": scaled})
    for output in outputs[:3]:
        assert np.isnan(output[1]).all()
    assert (outputs[4][1], outputs[5][1]) == (0, -np.inf)
    unit_triangles = triangles - np.eye(130) * triangles + np.eye(130)
    for n in (0, 2):
        transposed = factors[n].T
        wants = (
            factors[n],
            np.linalg.solve(factors[n], b),
            np.linalg.solve(transposed, b),
            np.linalg.solve(unit_triangles[n], b),
            *np.linalg.slogdet(scaled[n].astype(float)),
        )
        for output, want in zip(outputs, wants, strict=True):
            max_value = np.abs(want).max()
            np.testing.assert_allclose(
                output[n], want, rtol=2e-5, atol=2e-5 * max_value
            )


def test_unused_triangle_is_not_read() -> None:
    """The unused triangle of a matrix is not read: here it is NaN.

    The arguments are SciPy's and NumPy's.
    """
    a = np.tril(random_array((4, 4)) + 3 * np.eye(4, dtype=np.float32))
    b = random_array((4,), 1)
    with_nan_triangle = a + np.triu(np.full((4, 4), np.nan, np.float32), 1)
    matrices = {"lower": with_nan_triangle, "upper": with_nan_triangle.T.copy()}
    want = {"lower": np.linalg.solve(a, b), "upper": np.linalg.solve(a.T, b)}
    for half, matrix in matrices.items():
        for trans in (False, True):
            got = run_on_cpu(
                lambda g, x, y, half=half, trans=trans: g.solve_triangular(
                    x, y, lower=half == "lower", trans=trans
                ),
                matrix,
                b,
            )
            is_transposed = (half == "upper") != trans
            np.testing.assert_allclose(
                got, want["upper" if is_transposed else "lower"], rtol=1e-5
            )
        got = run_on_cpu(
            lambda g, x, half=half: g.cholesky(x, upper=half == "upper"),
            matrix,
        )
        factor = np.linalg.cholesky(np.tril(a) + np.tril(a, -1).T)
        np.testing.assert_allclose(
            got, factor if half == "lower" else factor.T, rtol=1e-5
        )


INVALID_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "matrices must be square": lambda g, x: g.det(x),
    "a must be [..., n, n] and b": lambda g, x: g.solve(g.reshape(x, (12,)), x),
    "with the same batch axes": lambda g, x: g.solve(
        g.constant(np.eye(2, dtype=np.float32)), x
    ),
    "operands are f32 and f64": lambda g, x: g.solve(
        g.constant(np.eye(3)).cast("f32"), g.cast(x, "f64")
    ),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_operands_are_rejected(message: str) -> None:
    g = rlx.Graph("no")
    with pytest.raises(RlxError) as caught:
        INVALID_CALLS[message](g, g.input("x", (3, 4)))
    assert message in str(caught.value)
