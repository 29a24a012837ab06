"""Corner points where JAX's derivative is not the correct one, by function, with the
reason.

Where PyTorch and JAX differ, ours is that of one of them. Where JAX has NaN because a
square overflows or vanishes, the closed form says what is right.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.gradients.derivative_comparison import Array, ReferenceOverride


def is_any_point(*x: Array) -> Array:
    return np.ones(x[0].shape, bool)


def is_zero(x: Array, *_: Array) -> Array:
    return x == 0


def is_tie(x: Array, y: Array) -> Array:
    return x == y


def is_large_tie(x: Array, y: Array) -> Array:
    return (x == y) & (np.abs(x) > 1e100)


def is_origin(x: Array, y: Array) -> Array:
    return (x == 0) & (y == 0)


def polar_coordinates(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return cosine and sine of a point's angle, 0 at the origin, and its radius."""
    r = np.hypot(x, y)
    r = np.where(r == 0, 1.0, r)
    return x / r, y / r, r


def angle_derivatives(x: int, y: int) -> dict[str, Any]:
    """Return the derivatives of a point's angle by operands x and y, given as their
    positions.
    """

    def polar_function(formula: Any) -> Any:
        return lambda *p: formula(*polar_coordinates(p[x], p[y]))

    mixed = polar_function(lambda c, s, r: (s * s - c * c) / r / r)
    return {
        f"{x}": polar_function(lambda c, s, r: -s / r),
        f"{y}": polar_function(lambda c, s, r: c / r),
        f"{x} {x}": polar_function(lambda c, s, r: 2 * s * c / r / r),
        f"{y} {y}": polar_function(lambda c, s, r: -2 * s * c / r / r),
        f"{x} {y}": mixed,
        f"{y} {x}": mixed,
    }


def hypot_derivative(formula: Any) -> Any:
    return lambda x, y: formula(*polar_coordinates(x, y))


HYPOT_DERIVATIVES = {
    "0": hypot_derivative(lambda c, s, r: c),
    "1": hypot_derivative(lambda c, s, r: s),
    "0 0": hypot_derivative(lambda c, s, r: s * s / r),
    "1 1": hypot_derivative(lambda c, s, r: c * c / r),
    "0 1": hypot_derivative(lambda c, s, r: -c * s / r),
    "1 0": hypot_derivative(lambda c, s, r: -c * s / r),
}
ABS_AT_ZERO = ReferenceOverride(
    is_zero, {"0": 0.0}, "|x| has slope 0 at 0, as in PyTorch"
)
TIES_SHARE_GRADIENT = ReferenceOverride(
    is_tie, {"0": 0.5, "1": 0.5}, "equal operands share, as those of maximum do"
)
OVERFLOW_REASON = "JAX's own square overflows or vanishes"
POWER_OVERRIDES = (
    ReferenceOverride(
        is_origin,
        dict.fromkeys(("0", "0 0", "0 1", "1 0"), 0.0),
        "x ** 0 is 1 for every x; first derivatives as in PyTorch",
    ),
    ReferenceOverride(
        lambda x, y: (x == 0) & (y < 0),
        {
            "1": lambda x, y: -np.inf * np.power(x, y),
            "1 1": lambda x, y: np.inf * np.power(x, y),
            "0 1": np.inf,
            "1 0": np.inf,
        },
        "infinite, as in PyTorch",
    ),
    ReferenceOverride(
        lambda x, y: (x == 0) & (y == 1),
        {"0 0": 0.0},
        "x ** 1 is a line, as in PyTorch",
    ),
    ReferenceOverride(
        lambda x, y: (x == 0) & (y > 0) & (y < 1),
        {"1 0": 0.0},
        "the slope by the exponent is 0 at x = 0; JAX and PyTorch have NaN",
    ),
)


def logaddexp_tie_derivatives(scale: float) -> dict[str, float]:
    return {
        **{"0": 0.5, "1": 0.5, "0 0": 0.25 * scale, "1 1": 0.25 * scale},
        **{"0 1": -0.25 * scale, "1 0": -0.25 * scale},
    }


ENDPOINT_REASON = "PyTorch's slope at the ends"
REFERENCE_OVERRIDES: dict[str, tuple[ReferenceOverride, ...]] = {
    "np.absolute": (ABS_AT_ZERO,),
    "np.fabs": (ABS_AT_ZERO,),
    "np.fmax": (TIES_SHARE_GRADIENT,),
    "np.fmin": (TIES_SHARE_GRADIENT,),
    "np.power": POWER_OVERRIDES,
    "np.float_power": POWER_OVERRIDES,
    "np.arctan2": (
        ReferenceOverride(is_any_point, angle_derivatives(1, 0), OVERFLOW_REASON),
    ),
    "np.angle of complex numbers": (
        ReferenceOverride(is_any_point, angle_derivatives(0, 1), OVERFLOW_REASON),
    ),
    "np.angle": (
        ReferenceOverride(is_any_point, {"0": 0.0, "0 0": 0.0}, OVERFLOW_REASON),
    ),
    "np.hypot": (
        ReferenceOverride(
            is_any_point,
            HYPOT_DERIVATIVES,
            "JAX has 0 at equal operands, and overflows; 0 at the origin as |z| has",
        ),
    ),
    "np.arctanh": (
        ReferenceOverride(
            lambda x: np.abs(x) == 1, {"0 0": lambda x: x * np.inf}, "the limit"
        ),
    ),
    "np.divide": (
        ReferenceOverride(
            lambda x, y: (x == 0) & (np.abs(y) == 1e-300),
            {"1": 0.0, "1 1": 0.0},
            OVERFLOW_REASON,
        ),
    ),
    "np.copysign": (
        ReferenceOverride(
            is_zero,
            {"0": lambda x, y: np.where(np.signbit(x) == np.signbit(y), 1.0, -1.0)},
            "the operand or its negative, by the signs of both; JAX takes -0 for 0",
        ),
    ),
    "np.ldexp": (ReferenceOverride(is_zero, {"0": 8.0}, "a product with 8"),),
    "np.logaddexp": (
        ReferenceOverride(
            is_large_tie,
            logaddexp_tie_derivatives(1.0),
            "equal operands, however large",
        ),
    ),
    "np.logaddexp2": (
        ReferenceOverride(
            is_large_tie,
            logaddexp_tie_derivatives(math.log(2)),
            "equal operands, however large",
        ),
    ),
    "np.sinc": (
        ReferenceOverride(
            lambda x: (x != 0) & (np.abs(x) <= 1e-8),
            {"0": lambda x: -(np.pi**2) / 3 * x, "0 0": -(np.pi**2) / 3},
            "the series; JAX's quotient has no digits left",
        ),
    ),
    "np.absolute of complex numbers": (
        ReferenceOverride(
            is_origin, {"0 0": 0.0, "1 1": 0.0}, "|z| has slope 0 at 0, its slope too"
        ),
    ),
    "np.sqrt of complex numbers": (
        ReferenceOverride(is_origin, {"0": np.inf}, "the limit"),
    ),
    "nn.elu": (ReferenceOverride(is_zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.celu": (ReferenceOverride(is_zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.selu": (ReferenceOverride(is_zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.softsign": (ReferenceOverride(is_zero, {"0 0": 0.0}, "|x| has slope 0 at 0"),),
    "nn.leaky_relu": (ReferenceOverride(is_zero, {"0": 0.01}, "as in PyTorch"),),
    "nn.gelu_approx": (
        ReferenceOverride(
            lambda x: np.abs(x) == 1e300,
            {"0": lambda x: np.where(x > 0, 1.0, 0.0), "0 0": 0.0},
            "JAX's cube overflows",
        ),
    ),
    "nn.hard_sigmoid": (
        ReferenceOverride(lambda x: np.abs(x) == 2.5, {"0": 0.0}, ENDPOINT_REASON),
    ),
    "nn.prelu": (
        ReferenceOverride(
            is_zero,
            {"0": lambda x, y: y, "1": 0.0, "0 1": 1.0, "1 0": 1.0},
            "the slope at 0 is that below, as in PyTorch",
        ),
    ),
}
