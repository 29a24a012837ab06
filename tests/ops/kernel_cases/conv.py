"""Convolutions: any window geometry, channels and rows left over, epilogues."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import KernelCase, kernel_case

COMPILED, IN_CACHE = "conv, compiled", "conv, windows in cache"
BY_WASM = "conv, by WebAssembly"
IN_PROGRAM = "conv, in a native program"
GEOMETRIES: list[tuple[str, Shape, Shape, dict[str, Any]]] = [
    ("one axis", (2, 3, 2000), (8, 3, 9), {"strides": 2, "pads": 4}),
    ("three axes", (1, 2, 7, 8, 40), (5, 2, 3, 2, 3), {"pads": 1}),
    ("many channels", (1, 40, 14, 14), (70, 40, 3, 3), {"pads": 1}),
    ("a group a channel", (3, 24, 56, 56), (24, 1, 3, 3), {"pads": 1, "groups": 24}),
    (
        "two channels made of each",
        *((1, 24, 30, 30), (48, 1, 5, 5)),
        {"strides": 2, "groups": 24},
    ),
    ("windows of one element", (1, 64, 20, 20), (64, 64, 1, 1), {}),
    ("channels and rows left over", (2, 3, 5, 70), (11, 3, 2, 3), {"pads": 1}),
    ("few channels", (1, 4, 30, 40), (6, 4, 3, 3), {}),
    ("sixteen channels", (2, 16, 9, 30), (16, 16, 3, 3), {"pads": 1}),
    ("few terms for blocks of windows", (1, 30, 8, 8), (20, 30, 3, 3), {}),
]
LARGE_GEOMETRIES: list[tuple[str, Shape, Shape, dict[str, Any]]] = [
    ("few channels of long rows", (1, 8, 30, 40), (32, 8, 3, 3), {"pads": 1}),
    ("images of few columns", (3, 8, 5, 6), (14, 8, 3, 3), {"pads": 1}),
    (
        "two groups, other steps on each axis",
        *((2, 12, 20, 21), (8, 6, 5, 3)),
        {"groups": 2, "strides": (2, 3), "pads": 2},
    ),
    ("dilated windows", (2, 9, 200), (7, 9, 9), {"dilations": 3}),
    (
        "three axes with steps",
        *((1, 4, 7, 8, 9), (5, 4, 3, 2, 3)),
        {"pads": 1, "strides": (1, 2, 1)},
    ),
    ("many small images", (40, 30, 4, 4), (20, 30, 3, 3), {}),
    ("long windows, wide steps", (2, 1, 3000), (36, 1, 256), {"strides": 8}),
    ("one channel of one", (1, 1, 3001), (1, 1, 256), {"strides": 2}),
    ("one channel of three", (2, 3, 9, 50), (1, 3, 5, 5), {"pads": 2}),
    (
        "steps and dilations of the last axis",
        *((1, 4, 6, 75), (7, 4, 3, 4)),
        {"strides": (1, 3), "dilations": (1, 2)},
    ),
    (
        "steps wider than the window",
        *((1, 3, 16, 60), (20, 3, 3, 3)),
        {"strides": 4, "pads": 1},
    ),
]
"""Geometries of which each is large enough for WebAssembly."""
# Whole and cut tiles of rows, columns and terms for products without padding.
POINTWISE = {
    "conv, blocks of 128": ((1, 20, 64, 64), (260, 20, 1, 1)),
    "conv, blocks of 64": ((2, 70, 10, 13), (67, 70, 1, 1)),
    "conv, shared tiles": ((1, 33, 6, 7), (34, 33, 1, 1)),
    "conv, blocks of 128 windows": ((1, 8, 130, 131), (258, 8, 3, 3)),
}


def odd_value(value: float, at: tuple[int, ...]) -> Any:
    def edit(arrays: list[Array]) -> None:
        arrays[0][at] = value

    return edit


def residual_after(g: Any, x: Any, w: Any, r: Any, **attrs: Any) -> Any:
    return g.relu(g.apply("conv", x, w, **attrs) * 0.5 + r)


def number_after(g: Any, x: Any, w: Any, r: Any, **attrs: Any) -> Any:
    return g.tanh(g.apply("conv", x, w, **attrs)) * r + 1.0


def bias_after(g: Any, x: Any, w: Any, b: Any, **attrs: Any) -> Any:
    return g.gelu(g.apply("conv", x, w, **attrs) + b)


def activated_twice_read(g: Any, x: Any, w: Any, b: Any, **attrs: Any) -> Any:
    conv = g.apply("conv", x, w, **attrs)
    return g.relu(conv + b) + conv


EPILOGUE_CASES = [
    kernel_case(
        "conv",
        f"{groups} group(s), {why} after it",
        (2, 24, 20, 21),
        (groups * 20, 24 // groups, 3, 3),
        {"residual": (2, groups * 20, 20, 21), "number": (1,)}.get(
            why, (groups * 20, 1, 1)
        ),
        build=build,
        kernels=IN_CACHE,
        pads=1,
        groups=groups,
    )
    for groups in (1, 2)
    for why, build in (
        ("residual", residual_after),
        ("number", number_after),
        ("bias", bias_after),
    )
]
CASES = [
    *(
        kernel_case("conv", why, x, w, kernels=kernels, **attrs)
        for kernels, geometries in (
            (IN_CACHE, GEOMETRIES),
            ((IN_CACHE, BY_WASM), LARGE_GEOMETRIES),
        )
        for why, x, w, attrs in geometries
    ),
    *(
        kernel_case("conv", f"seams of {kernel}", *shapes, kernels=kernel)
        for kernel, shapes in POINTWISE.items()
    ),
    kernel_case(
        "conv",
        "seams of blocks of windows",
        *((1, 30, 18, 18), (70, 30, 3, 3)),
        kernels="conv, blocks of 64 windows",
    ),
    *EPILOGUE_CASES,
    *(
        kernel_case(
            "conv",
            f"{value} in one window",
            *shapes,
            edit=odd_value(value, at),
            kernels=(IN_CACHE, COMPILED),
            pads=1,
        )
        for value in (np.nan, np.inf)
        for shapes, at in (
            (((1, 2, 12, 33), (3, 2, 3, 3)), (0, 1, 5, 20)),
            (((2, 16, 9, 30), (16, 16, 3, 3)), (1, 3, 4, 20)),
        )
    ),
    *(
        kernel_case(
            "conv",
            "a small one whose result is read twice",
            *((2, 10, 7, 12), (2 * m, 5, 3, 3), (2 * m, 1, 1)),
            build=activated_twice_read,
            params=params,
            kernels=IN_PROGRAM,
            pads=1,
            groups=2,
        )
        for m in (1, 20)
        for params in ((), (1, 2))
    ),
    *(
        kernel_case(
            "conv",
            why,
            *(Drawn((1, 4, 9, 20), dtype), Drawn((5, 4, 3, 3), dtype)),
            kernels=kernel,
            pads=1,
        )
        for why, dtype, kernel in (
            ("doubles", "f64", IN_CACHE),
            ("halves", "f16", "conv, of halves"),
        )
    ),
]


@st.composite
def drawn_cases(draw: st.DrawFn) -> KernelCase:
    """Draw a convolution of any window geometry, over few or many channels."""

    def pair(min_value: int, max_value: int) -> tuple[int, int]:
        number = st.integers(min_value, max_value)
        return draw(number), draw(number)

    groups = draw(st.sampled_from([1, 1, 2, 3, 5]))
    is_wide = draw(st.booleans())
    channels = draw(st.integers(1, 40 if is_wide else 5))
    made = draw(st.integers(16, 40) if is_wide else st.integers(1, 14))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 6)))
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    dilations = (draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    pads = (*pair(0, 4), *pair(0, 4))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = (
        max(draw(st.integers(1, 18)), extents[0] - pads[0] - pads[2], 1),
        max(draw(st.integers(1, 44)), extents[1] - pads[1] - pads[3], 1),
    )
    return kernel_case(
        "conv",
        "any geometry",
        (draw(st.integers(1, 3)), groups * channels, *size),
        (groups * made, channels, *kernel),
        params=draw(st.sampled_from([(), (1,)])),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=groups,
    )
