"""Activation and other unary ops: references against SciPy in float64, dtypes,
refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import rlxweb.ops  # noqa: F401
from rlxweb.core.errors import DTypeError
from rlxweb.ops.elementwise.activation import erfc
from tests.unit.ops.single_op_runner import build_op, run


def normal_gelu(x: Any) -> Any:
    return 0.5 * x * special.erfc(-x / np.sqrt(2))


EXPECTED: dict[str, Callable[..., Any]] = {
    "gelu": normal_gelu,
    "gelu_approx": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x * special.expit(x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "exp": np.exp,
    "neg": np.negative,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "round": np.round,
}
POSITIVE: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
FLOATS_ONLY = sorted((set(EXPECTED) | set(POSITIVE)) - {"relu", "neg", "abs"})


def sample_points(name: str) -> Any:
    return np.linspace(0.01 if name in POSITIVE else -12, 12, 3001)


@pytest.mark.parametrize("name", sorted(EXPECTED | POSITIVE))
def test_double_precision_is_kept(name: str) -> None:
    x = sample_points(name)
    want = (EXPECTED | POSITIVE)[name](x)
    got = run(name, x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=2e-13, atol=1e-15)


@pytest.mark.parametrize("name", sorted(EXPECTED | POSITIVE))
def test_single_precision_stays_single(name: str) -> None:
    x = sample_points(name).astype(np.float32)
    want = (EXPECTED | POSITIVE)[name](x.astype(np.float64))
    got = run(name, x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("name", sorted(EXPECTED | POSITIVE))
def test_half_precision_is_computed_in_single(name: str) -> None:
    x = np.linspace(0.25, 3, 200).astype(np.float16)
    want = run(name, x.astype(np.float32)).astype(np.float16)
    got = run(name, x)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, want)


def test_erfc_is_relative_in_its_tail() -> None:
    z = np.linspace(0, 26, 2001)
    np.testing.assert_allclose(erfc(np, z), special.erfc(z), rtol=5e-14)
    single = z[z < 9].astype(np.float32)
    want = special.erfc(single.astype(np.float64))
    np.testing.assert_allclose(erfc(np, single), want, rtol=2e-5)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "tanh", "gelu", "gelu_approx"])
def test_large_arguments_do_not_overflow(name: str) -> None:
    x = np.array([-1e4, -1e3, 1e3, 1e4], np.float32)
    with np.errstate(over="raise", invalid="raise"):
        got = run(name, x)
    top = x[2:] if name in ("silu", "gelu", "gelu_approx") else np.ones(2)
    bottom = [-1.0, -1.0] if name == "tanh" else [0.0, 0.0]
    np.testing.assert_allclose(got, [*bottom, *top])


def test_round_takes_halves_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert run("round", x).tolist() == [-2, -2, -0.0, 0, 2, 2]


def test_integers_pass_where_nothing_is_rounded() -> None:
    x = np.array([-3, 0, 4], np.int32)
    assert run("relu", x).tolist() == [0, 0, 4]
    assert run("abs", x).tolist() == [3, 0, 4]
    assert run("neg", x).tolist() == [3, 0, -4]
    assert run("abs", x).dtype == np.int32


FLOATS_ONLY_MESSAGE = (
    "the op accepts only floats; expected bf16, f16, f32 or f64; "
    "cast the operand first$"
)


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        *(
            (name, "i32", rf"^{name} of \[3\] i32: {FLOATS_ONLY_MESSAGE}")
            for name in FLOATS_ONLY
        ),
        *((name, "bool", "operand 0 is bool") for name in ("relu", "neg", "abs")),
        ("neg", "u32", "operand 0 is u32; expected f16, i32, i64"),
    ],
)
def test_unsupported_dtypes_are_refused(name: str, dtype: str, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        build_op(name, ((3,), dtype))
