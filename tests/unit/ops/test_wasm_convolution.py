"""Convolutions by WebAssembly im2col give the same results as by NumPy.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlxweb.ir.op import registry
from rlxweb.ops.conv.cpu.numpy import NumpyConvolution
from rlxweb.ops.conv.cpu.wasm import WasmConvolution
from rlxweb.ops.conv.wgsl.plan import convolution_shape

IN_WASM = sys.platform == "emscripten"
CONV = registry.get("conv")
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable compilation, which is off in other tests."""
    monkeypatch.setenv("RLX_FAST", "background")


def check_convolution(x: Shape, w: Shape, **options: Any) -> bool:
    """Check a convolution against its float64 reference; return whether WebAssembly ran
    it.
    """
    attrs = CONV.check_attrs(options)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (x, w))
    conv = convolution_shape(x, w, attrs)
    actual = NumpyConvolution(conv)(a.reshape(*x[:2], *conv.windows.spatial_shape), b)
    expected = CONV.reference(np, attrs, a.astype(np.float64), b.astype(np.float64))
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual.reshape(expected.shape), expected, 1e-4, 1e-4)
    return WasmConvolution.can_run(conv)


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
def test_wasm_runs_only_in_wasm(x: Shape, w: Shape, attrs: Any) -> None:
    assert check_convolution(x, w, **attrs) == IN_WASM


@settings(max_examples=60)
@given(st.data())
def test_convolutions_of_any_size(data: st.DataObject) -> None:
    def draw_integer(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    groups, c, m = draw_integer(1, 3), draw_integer(1, 9), draw_integer(1, 14)
    kernel = draw_integer(1, 5), draw_integer(1, 5)
    strides = (draw_integer(1, 3), draw_integer(1, 3))
    dilations = (draw_integer(1, 2), draw_integer(1, 2))
    pads = draw_integer(0, 2)
    size = draw_integer(3, 20), draw_integer(3, 24)
    dilated_kernel = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assume(all(n + 2 * pads >= r for n, r in zip(size, dilated_kernel, strict=True)))
    attrs = {"groups": groups, "pads": pads}
    check_convolution(
        (draw_integer(1, 3), groups * c, *size),
        (groups * m, c, *kernel),
        **attrs,
        strides=strides,
        dilations=dilations,
    )
