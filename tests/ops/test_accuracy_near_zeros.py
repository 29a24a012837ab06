"""Test accuracy of functions near their zeros and on denormals: float32 on every
adapter against float64. An absolute error there is a large relative one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from tests.engines_under_test import engine

ONE = 0x3F800000
NEIGHBOURS_OF_ONE = np.arange(ONE - 300, ONE + 300, dtype=np.uint32).view(np.float32)
STEPS = np.float32(2) ** -np.arange(1, 24, dtype=np.float32)
NEAR_ONE = np.concatenate(
    [NEIGHBOURS_OF_ONE, 1 + STEPS, 1 - STEPS, np.linspace(0.5, 2, 2001)]
)
SMALL = np.geomspace(1.2e-38, 0.5, 2000)
NEAR_ZERO = np.concatenate([SMALL, -SMALL])
POSITIVE = np.concatenate([np.geomspace(1.2e-38, 3.4e38, 2000), NEAR_ONE])
DENORMAL = np.array(
    [1, 2, 3, 100, 0x1234, 0x3FFFFF, 0x400000, 0x7FFFFF], np.uint32
).view(np.float32)

# Of each: the values, the true function, and how many units in the last place.
CASES: dict[str, tuple[Any, Callable[[Any], Any], float]] = {
    "log": (POSITIVE, np.log, 3),
    "log2": (POSITIVE, np.log2, 3),
    "log1p": (NEAR_ZERO, np.log1p, 3),
    "expm1": (NEAR_ZERO, np.expm1, 3),
    "sinh": (NEAR_ZERO, np.sinh, 3),
    "tanh": (NEAR_ZERO, np.tanh, 3),
    "asinh": (NEAR_ZERO, np.arcsinh, 3),
    "acosh": (NEAR_ONE[NEAR_ONE >= 1], np.arccosh, 4),
    "atanh": (NEAR_ZERO, np.arctanh, 3),
    "sin": (NEAR_ZERO, np.sin, 3),
    "asin": (NEAR_ZERO, np.arcsin, 3),
    "acos": (NEAR_ONE[NEAR_ONE <= 1], np.arccos, 3),
    "atan": (NEAR_ZERO, np.arctan, 3),
    "sqrt": (POSITIVE, np.sqrt, 3),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x), 4),
}


def ulp_distance(got: Any, want: Any) -> Any:
    """Return the distance in units in the last place (ULP) of the true value in
    float32.
    """
    return np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))


@pytest.mark.parametrize("name", CASES)
def test_values_near_a_zero(name: str, adapter: AdapterRequest) -> None:
    values, true_function, max_ulps = CASES[name]
    x = values.astype(np.float32)
    graph = Graph(name)
    graph.set_outputs([getattr(graph, name)(graph.input("x", x.size))])
    (got,) = engine(adapter).run(graph, {"x": x})
    want = true_function(x.astype(np.float64))
    ulps = ulp_distance(got.astype(np.float64), want)
    is_normal = np.abs(want) >= 1.2e-38
    worst = np.argmax(np.where(is_normal, ulps, 0))
    assert ulps[worst] <= max_ulps, (
        f"{name}({x[worst]}) is {got[worst]}, not {want[worst]}"
    )
    assert (got[want == 0] == 0).all()


LOGARITHMS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "log": (lambda g, x: g.log(x), np.log),
    "log2": (lambda g, x: g.log2(x), np.log2),
    "pow": (lambda g, x: g.pow(x, 0.3125), lambda x: x**0.3125),
    "reciprocal power": (lambda g, x: g.pow(x, -0.25), lambda x: x**-0.25),
}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_and_powers_of_denormal_numbers(
    name: str, adapter: AdapterRequest
) -> None:
    """Logarithms and powers of denormal numbers are exact: they go by bits.

    A device may take denormal operands for zero.
    """
    build, true_function = LOGARITHMS[name]
    graph = Graph(name)
    graph.set_outputs([build(graph, graph.input("x", DENORMAL.size))])
    (got,) = engine(adapter).run(graph, {"x": DENORMAL})
    np.testing.assert_allclose(
        got, true_function(DENORMAL.astype(np.float64)), rtol=1e-6
    )


def test_logarithms_of_negative_denormal_numbers(adapter: AdapterRequest) -> None:
    graph = Graph("negative")
    x = graph.input("x", DENORMAL.size)
    graph.set_outputs([graph.log(x), graph.log2(x)])
    for got in engine(adapter).run(graph, {"x": -DENORMAL}):
        assert np.isnan(got).all()
