"""Convolutions by WebAssembly that gathers windows; elsewhere by NumPy, the same.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlxweb.host.convolution import Products
from rlxweb.host.wasm_windows import Windows
from rlxweb.ir.op import registry
from rlxweb.recipes.conv_calls import convolution

IN_WASM = sys.platform == "emscripten"
CONV = registry.get("conv")
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile nothing."""
    monkeypatch.setenv("RLX_FAST", "background")


def checked(x: Shape, w: Shape, **given: Any) -> bool:
    """A convolution against its reference in float64; was it one for the code?"""
    attrs = CONV.check_attrs(given)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (x, w))
    one = convolution(x, w, attrs)
    made = Products(one)(a.reshape(*x[:2], *one.windows.size), b)
    right = CONV.reference(np, attrs, a.astype(np.float64), b.astype(np.float64))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made.reshape(right.shape), right, 1e-4, 1e-4)
    return Windows.fit(one)


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 8, 30, 40), (32, 8, 3, 3), {"pads": 1}),
        ((3, 8, 5, 6), (14, 8, 3, 3), {"pads": 1}),
        ((2, 12, 20, 21), (8, 6, 5, 3), {"groups": 2, "strides": (2, 3), "pads": 2}),
        ((2, 9, 200), (7, 9, 9), {"dilations": 3}),
        ((1, 4, 7, 8, 9), (5, 4, 3, 2, 3), {"pads": 1, "strides": (1, 2, 1)}),
        ((40, 30, 4, 4), (20, 30, 3, 3), {}),
        ((2, 1, 3000), (36, 1, 256), {"strides": 8}),
        ((1, 1, 3001), (1, 1, 256), {"strides": 2}),
        ((2, 3, 9, 50), (1, 3, 5, 5), {"pads": 2}),
        ((1, 4, 6, 75), (7, 4, 3, 4), {"strides": (1, 3), "dilations": (1, 2)}),
        ((1, 3, 16, 60), (20, 3, 3, 3), {"strides": 4, "pads": 1}),
    ],
)
def test_it_is_made_where_it_belongs(x: Shape, w: Shape, attrs: Any) -> None:
    assert checked(x, w, **attrs) == IN_WASM


@settings(max_examples=60)
@given(st.data())
def test_convolutions_of_any_size(data: st.DataObject) -> None:
    def drawn(least: int, most: int) -> int:
        return data.draw(st.integers(least, most))

    groups, c, m = drawn(1, 3), drawn(1, 9), drawn(1, 14)
    kernel = drawn(1, 5), drawn(1, 5)
    strides, dilations = (drawn(1, 3), drawn(1, 3)), (drawn(1, 2), drawn(1, 2))
    pads = drawn(0, 2)
    size = drawn(3, 20), drawn(3, 24)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assume(all(n + 2 * pads >= r for n, r in zip(size, reach, strict=True)))
    attrs = {"groups": groups, "pads": pads}
    checked(
        (drawn(1, 3), groups * c, *size),
        (groups * m, c, *kernel),
        **attrs,
        strides=strides,
        dilations=dilations,
    )
