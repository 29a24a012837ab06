"""Corner points where the right derivative is not JAX's, by function, with the reason.

Where PyTorch and JAX differ, ours is that of one of them. Where JAX has NaN because a
square overflows or vanishes, the closed form says what is right.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.gradients.corners import Array, Otherwise


def everywhere(*x: Array) -> Array:
    return np.ones(x[0].shape, bool)


def zero(x: Array, *_: Array) -> Array:
    return x == 0


def equal(x: Array, y: Array) -> Array:
    return x == y


def far_equal(x: Array, y: Array) -> Array:
    return (x == y) & (np.abs(x) > 1e100)


def origin(x: Array, y: Array) -> Array:
    return (x == 0) & (y == 0)


def polar(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return cosine and sine of a point's angle, 0 at the origin, and its radius."""
    r = np.hypot(x, y)
    r = np.where(r == 0, 1.0, r)
    return x / r, y / r, r


def turned(x: int, y: int) -> dict[str, Any]:
    """Return the derivatives of the angle of a point, x and y being these operands."""

    def at_angle(how: Any) -> Any:
        return lambda *p: how(*polar(p[x], p[y]))

    mixed = at_angle(lambda c, s, r: (s * s - c * c) / r / r)
    return {
        f"{x}": at_angle(lambda c, s, r: -s / r),
        f"{y}": at_angle(lambda c, s, r: c / r),
        f"{x} {x}": at_angle(lambda c, s, r: 2 * s * c / r / r),
        f"{y} {y}": at_angle(lambda c, s, r: -2 * s * c / r / r),
        f"{x} {y}": mixed,
        f"{y} {x}": mixed,
    }


def of_hypot(how: Any) -> Any:
    return lambda x, y: how(*polar(x, y))


HYPOT = {
    "0": of_hypot(lambda c, s, r: c),
    "1": of_hypot(lambda c, s, r: s),
    "0 0": of_hypot(lambda c, s, r: s * s / r),
    "1 1": of_hypot(lambda c, s, r: c * c / r),
    "0 1": of_hypot(lambda c, s, r: -c * s / r),
    "1 0": of_hypot(lambda c, s, r: -c * s / r),
}
FLAT_AT_0 = Otherwise(zero, {"0": 0.0}, "|x| has slope 0 at 0, as in PyTorch")
SHARED = Otherwise(
    equal, {"0": 0.5, "1": 0.5}, "equal operands share, as those of maximum do"
)
OVERFLOWS = "JAX's own square overflows or vanishes"
POWER = (
    Otherwise(
        origin,
        dict.fromkeys(("0", "0 0", "0 1", "1 0"), 0.0),
        "x ** 0 is 1 for every x; first derivatives as in PyTorch",
    ),
    Otherwise(
        lambda x, y: (x == 0) & (y < 0),
        {
            "1": lambda x, y: -np.inf * np.power(x, y),
            "1 1": lambda x, y: np.inf * np.power(x, y),
            "0 1": np.inf,
            "1 0": np.inf,
        },
        "infinite, as in PyTorch",
    ),
    Otherwise(
        lambda x, y: (x == 0) & (y == 1),
        {"0 0": 0.0},
        "x ** 1 is a line, as in PyTorch",
    ),
    Otherwise(
        lambda x, y: (x == 0) & (y > 0) & (y < 1),
        {"1 0": 0.0},
        "the slope by the exponent is 0 at x = 0; JAX and PyTorch have NaN",
    ),
)


def softplus_mixed(by: float) -> dict[str, float]:
    return {
        **{"0": 0.5, "1": 0.5, "0 0": 0.25 * by, "1 1": 0.25 * by},
        **{"0 1": -0.25 * by, "1 0": -0.25 * by},
    }


ENDS = "PyTorch's slope at the ends"
EXCEPTIONS: dict[str, tuple[Otherwise, ...]] = {
    "np.absolute": (FLAT_AT_0,),
    "np.fabs": (FLAT_AT_0,),
    "np.fmax": (SHARED,),
    "np.fmin": (SHARED,),
    "np.power": POWER,
    "np.float_power": POWER,
    "np.arctan2": (Otherwise(everywhere, turned(1, 0), OVERFLOWS),),
    "np.angle of complex numbers": (Otherwise(everywhere, turned(0, 1), OVERFLOWS),),
    "np.angle": (Otherwise(everywhere, {"0": 0.0, "0 0": 0.0}, OVERFLOWS),),
    "np.hypot": (
        Otherwise(
            everywhere,
            HYPOT,
            "JAX has 0 at equal operands, and overflows; 0 at the origin as |z| has",
        ),
    ),
    "np.arctanh": (
        Otherwise(lambda x: np.abs(x) == 1, {"0 0": lambda x: x * np.inf}, "the limit"),
    ),
    "np.divide": (
        Otherwise(
            lambda x, y: (x == 0) & (np.abs(y) == 1e-300),
            {"1": 0.0, "1 1": 0.0},
            OVERFLOWS,
        ),
    ),
    "np.copysign": (
        Otherwise(
            zero,
            {"0": lambda x, y: np.where(np.signbit(x) == np.signbit(y), 1.0, -1.0)},
            "the operand or its negative, by the signs of both; JAX takes -0 for 0",
        ),
    ),
    "np.ldexp": (Otherwise(zero, {"0": 8.0}, "a product with 8"),),
    "np.logaddexp": (
        Otherwise(far_equal, softplus_mixed(1.0), "equal operands, however large"),
    ),
    "np.logaddexp2": (
        Otherwise(
            far_equal, softplus_mixed(math.log(2)), "equal operands, however large"
        ),
    ),
    "np.sinc": (
        Otherwise(
            lambda x: (x != 0) & (np.abs(x) <= 1e-8),
            {"0": lambda x: -(np.pi**2) / 3 * x, "0 0": -(np.pi**2) / 3},
            "the series; JAX's quotient has no digits left",
        ),
    ),
    "np.absolute of complex numbers": (
        Otherwise(
            origin, {"0 0": 0.0, "1 1": 0.0}, "|z| has slope 0 at 0, its slope too"
        ),
    ),
    "np.sqrt of complex numbers": (Otherwise(origin, {"0": np.inf}, "the limit"),),
    "nn.elu": (Otherwise(zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.celu": (Otherwise(zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.selu": (Otherwise(zero, {"0 0": 0.0}, "as in PyTorch"),),
    "nn.softsign": (Otherwise(zero, {"0 0": 0.0}, "|x| has slope 0 at 0"),),
    "nn.leaky_relu": (Otherwise(zero, {"0": 0.01}, "as in PyTorch"),),
    "nn.gelu_approx": (
        Otherwise(
            lambda x: np.abs(x) == 1e300,
            {"0": lambda x: np.where(x > 0, 1.0, 0.0), "0 0": 0.0},
            "JAX's cube overflows",
        ),
    ),
    "nn.hard_sigmoid": (Otherwise(lambda x: np.abs(x) == 2.5, {"0": 0.0}, ENDS),),
    "nn.prelu": (
        Otherwise(
            zero,
            {"0": lambda x, y: y, "1": 0.0, "0 1": 1.0, "1 0": 1.0},
            "the slope at 0 is that below, as in PyTorch",
        ),
    ),
}
