"""Unary math ops, divisions and shifts: references against NumPy, SciPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from rlxweb.core.errors import AttributeRefused, DTypeError
from tests.unit.ops.single_op_runner import build_op, run

X = np.concatenate([np.linspace(-6, 6, 1201), [-1e-9, 1e-9, 50, -50]])
UNIT_INTERVAL = np.linspace(-1, 1, 801)
EXPECTED: dict[str, tuple[Callable[..., Any], Any]] = {
    "erf": (special.erf, X),
    "floor": (np.floor, X),
    "ceil": (np.ceil, X),
    "trunc": (np.trunc, X),
    "sign": (np.sign, X),
    "exp2": (np.exp2, X),
    "expm1": (np.expm1, X),
    "log1p": (np.log1p, UNIT_INTERVAL * 0.99),
    "log2": (np.log2, X[X > 0]),
    "sinh": (np.sinh, X),
    "cosh": (np.cosh, X),
    "asinh": (np.arcsinh, X),
    "acosh": (np.arccosh, X[X >= 1]),
    "atanh": (np.arctanh, UNIT_INTERVAL * 0.99),
    "asin": (np.arcsin, UNIT_INTERVAL),
    "acos": (np.arccos, UNIT_INTERVAL),
    "reciprocal": (np.reciprocal, X[X != 0]),
    "softplus": (lambda x: np.logaddexp(x, 0), X),
    "mish": (lambda x: x * np.tanh(np.logaddexp(x, 0)), X),
    "elu": (lambda x: np.where(x < 0, np.expm1(x), x), X),
    "celu": (lambda x: np.where(x < 0, np.expm1(x), x), X),
    "softsign": (lambda x: x / (1 + np.abs(x)), X),
    "hard_sigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), X),
    "hard_swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X),
    "leaky_relu": (lambda x: np.where(x < 0, 0.01 * x, x), X),
    "thresholded_relu": (lambda x: np.where(x > 1, x, 0), X),
    "swish": (lambda x: x * special.expit(x), X),
    "shrink": (lambda x: np.where(np.abs(x) > 0.5, x, 0), X),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_double_precision_is_kept(name: str) -> None:
    want, x = EXPECTED[name]
    np.testing.assert_allclose(run(name, x), want(x), rtol=1e-13, atol=1e-300)


EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 2.5, -2.5, 1e30, -1e-30])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("name", "want"),
    [("mod", np.mod), ("fmod", np.fmod), ("floor_divide", np.floor_divide)],
)
def test_float_division_matches_numpy(name: str, want: Any, dtype: Any) -> None:
    """Floats divide as in NumPy at edges, and where a quotient would round up."""
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(name, x, y), want(x, y))
    x, y = np.array([1, 0.3, 6, -1], dtype), np.array([0.1, 0.1, 0.2, 0.1], dtype)
    np.testing.assert_array_equal(run(name, x, y), want(x, y))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("name", "want"),
    [("mod", np.mod), ("fmod", np.fmod), ("floor_divide", np.floor_divide)],
)
def test_integer_division_matches_numpy(name: str, want: Any, dtype: Any) -> None:
    """Division by 0 gives 0, and dividing the smallest integer by -1 does not stop the
    process.
    """
    min_value = np.iinfo(dtype).min
    x, y = (a.ravel() for a in np.meshgrid(*[np.arange(-9, 10, dtype=dtype)] * 2))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(name, x, y), want(x, y))
    assert run(name, *np.array([[min_value], [-1]], dtype)) in (0, min_value)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_shifts_by_any_number(dtype: Any) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    x = np.array([1, 3, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    for shift in (0, 1, bits - 1, bits, bits + 7):
        y = np.full(4, shift, dtype)
        np.testing.assert_array_equal(run("shift_left", x, y), np.left_shift(x, y))
        np.testing.assert_array_equal(run("shift_right", x, y), np.right_shift(x, y))


def test_infinities_of_either_sign() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert run("isinf", x).tolist() == [True, True, False, False]
    assert run("isinf", x, negative=False).tolist() == [True, False, False, False]
    assert run("isinf", x, positive=False).tolist() == [False, True, False, False]
    assert not run("isinf", x, positive=False, negative=False).any()


def test_invalid_operands_are_refused() -> None:
    with pytest.raises(DTypeError):
        build_op("bitwise_and", ((3,), "f32"), ((3,), "f32"))
    with pytest.raises(DTypeError):
        build_op("logical_and", ((3,), "i32"), ((3,), "i32"))
    with pytest.raises(AttributeRefused, match="alpha=inf"):
        build_op("elu", (3,), alpha=float("inf"))
