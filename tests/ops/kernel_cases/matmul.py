"""Matrix products: tails of tiles, sums in parts, batches, epilogues, weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import KernelCase, kernel_case

BLOCKS_64, BLOCKS_128 = "matmul, blocks of 64", "matmul, blocks of 128"
COMPILED, IN_PROGRAM = "matmul, compiled", "matmul, in a native program"
SMALL: dict[str, tuple[Shape, Shape]] = {
    "tails of rows, columns and terms": ((97, 101), (101, 89)),
    "less than a block and one": ((33, 16), (16, 33)),
    "whole blocks": ((64, 64), (64, 64)),
    "loads by fours": ((96, 100), (100, 88)),
    "a sum in parts": ((34, 1000), (1000, 66)),
    "a sum in parts with a short last one": ((34, 997), (997, 67)),
    "a batch": ((3, 65, 72), (3, 72, 68)),
    "batches of either side": ((2, 1, 70, 40), (5, 40, 60)),
}
LARGE: dict[str, tuple[Shape, Shape]] = {
    "few terms, odd": ((1025, 37), (37, 1031)),
    "few terms, by fours": ((1028, 72), (72, 1032)),
    "a batch that shares the right matrix": ((40, 129, 20), (20, 130)),
}
EPILOGUE_SHAPES: dict[str, tuple[Shape, ...]] = {
    "a bias": ((90,),),
    "a bias and a residual": ((90,), (3, 40, 90)),
    "a number for each row": ((3, 40, 1),),
    "a number for all": ((1,),),
    "a residual": ((3, 40, 90),),
    "nothing": (),
}


def whole_numbers(shape: Shape, dtype: str) -> Drawn:
    return Drawn(shape, dtype, -1e9, 1e9)


def nonfinite_values(arrays: list[Array]) -> None:
    """NaN and infinities in the first and last terms, rows and columns."""
    x, y = arrays
    x[3, -2], x[-1, 0], y[5, -2], y[7, 2] = np.nan, np.inf, np.nan, -np.inf


def gelu_after(g: Any, x: Any, y: Any, *operands: Any) -> Any:
    value = x @ y
    for operand in operands:
        value = value * 0.5 + operand
    return g.gelu(value)


def times_transposed(g: Any, x: Any, y: Any) -> Any:
    return x @ g.transpose(y, (1, 0))


def tanh_of_times_transposed(g: Any, x: Any, y: Any) -> Any:
    return g.tanh(times_transposed(g, x, y) * 0.1)


def transposed_operands(g: Any, x: Any, y: Any) -> Any:
    return g.transpose(x, (1, 0)) @ g.transpose(y, (1, 0)) + 1.0


def plus_one(g: Any, x: Any, y: Any) -> Any:
    return x @ y + 1.0


def other_readers(readers: Callable[[Any, Any, Any, Any], Any]) -> Callable[..., Any]:
    """Return a builder whose product is read by others than the region after it."""
    return lambda g, x, y: readers(g, x, y, x @ y)


OTHER_READERS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "is an output": lambda g, x, y, xy: [g.tanh(xy) * 2.0, xy],
    "is read twice": lambda g, x, y, xy: [g.tanh(xy) * 2.0, g.sum(xy, (0,))],
    "meets another": lambda g, x, y, xy: (
        g.tanh(g.reshape(xy, (40, 1, 90))) * g.exp(x @ y)
    ),
    "is raised to a power": lambda g, x, y, xy: g.pow(g.abs(xy) + 1.0, 1.5),
    "is multiplied by itself": lambda g, x, y, xy: (
        (g.tanh(xy) * 2.0) @ g.transpose(g.tanh(xy) * 2.0, (1, 0))
    ),
}


def laid_out(
    x_of: Callable[[Array], Array], y_of: Callable[[Array], Array]
) -> Callable[[list[Array]], None]:
    """Return an edit that makes the operands views of what is drawn."""

    def edit(arrays: list[Array]) -> None:
        arrays[:] = x_of(arrays[0]), y_of(arrays[1])

    return edit


LAYOUTS: dict[str, tuple[Shape, Shape, Callable[[list[Array]], None]]] = {
    "both transposed": ((30, 40), (50, 30), laid_out(lambda x: x.T, lambda y: y.T)),
    "every other row and column": (
        *((80, 30), (30, 100)),
        laid_out(lambda x: x[::2], lambda y: y[:, ::2]),
    ),
    "rows and columns reversed": (
        *((40, 30), (30, 50)),
        laid_out(lambda x: x[::-1], lambda y: y[:, ::-1]),
    ),
    "one row for all": (
        *((30,), (30, 50)),
        laid_out(lambda x: np.broadcast_to(x, (40, 30)), lambda y: y),
    ),
    "parts of larger arrays": (
        *((40, 60), (30, 80)),
        laid_out(lambda x: x[:, :30], lambda y: y[:, 7:57]),
    ),
}

EPILOGUE_CASES = [
    *(
        kernel_case(
            "matmul",
            f"{why} after it, {'a batch' if is_batched else 'one matrix'}",
            *((3, 40, 70), (3, 70, 90) if is_batched else (70, 90), *shapes),
            build=gelu_after,
            kernels=COMPILED,
        )
        for why, shapes in EPILOGUE_SHAPES.items()
        for is_batched in (False, True)
    ),
    kernel_case(
        "matmul",
        "a choice after it",
        *((80, 70), (70, 120), Drawn((80, 120), "bool")),
        build=lambda g, x, y, truth: g.where(truth, x @ y, -1.0),
        kernels=COMPILED,
    ),
]
CASES = [
    *(
        kernel_case("matmul", why, *shapes, kernels=BLOCKS_64)
        for why, shapes in SMALL.items()
    ),
    *(
        kernel_case("matmul", why, *shapes, kernels=BLOCKS_128)
        for why, shapes in LARGE.items()
    ),
    *(
        kernel_case(
            "matmul",
            f"integers that wrap, {why}",
            *(whole_numbers(shape, "i32") for shape in shapes),
            kernels=kernel,
            is_full=why != "tails of rows, columns and terms",
        )
        for kernel, table in ((BLOCKS_64, SMALL), (BLOCKS_128, LARGE))
        for why, shapes in table.items()
    ),
    *(
        kernel_case(
            "matmul",
            f"halves, {why}",
            *(Drawn(shape, "f16") for shape in shapes),
            # On the CPU both sides have the same batches, or the right one none.
            kernels=kernel
            if why == "batches of either side"
            else (kernel, "matmul, of halves"),
            is_full=why != "tails of rows, columns and terms",
        )
        for kernel, table in ((BLOCKS_64, SMALL), (BLOCKS_128, LARGE))
        for why, shapes in table.items()
    ),
    *(
        kernel_case(
            "matmul",
            "values that are not finite, a sum in parts",
            *shapes,
            edit=nonfinite_values,
            kernels=(BLOCKS_64, COMPILED),
        )
        for shapes in (
            ((70, 600), (600, 68)),
            ((70, 601), (601, 67)),
            ((50, 600), (600, 100)),
        )
    ),
    kernel_case(
        "matmul",
        "values that are not finite, few rows",
        *((20, 40), (40, 60)),
        edit=nonfinite_values,
        kernels=(COMPILED, IN_PROGRAM),
    ),
    kernel_case("matmul", "two rows", (2, 900), (900, 300)),
    kernel_case("matmul", "eight columns", (200, 900), (900, 8)),
    kernel_case("matmul", "three terms", (200, 3), (3, 300), kernels=COMPILED),
    kernel_case("matmul", "long rows", (200, 3000), (3000, 70), kernels=COMPILED),
    kernel_case("matmul", "no terms", (4, 0), (0, 9)),
    kernel_case(
        "matmul",
        "doubles",
        *(Drawn((40, 90), "f64"), Drawn((90, 50), "f64")),
    ),
    *(
        kernel_case("matmul", why, x, y, edit=edit, kernels=COMPILED)
        for why, (x, y, edit) in LAYOUTS.items()
    ),
    *EPILOGUE_CASES,
    *(
        kernel_case(
            "matmul",
            f"a product that {why}",
            *(Drawn((40, 70), low=-0.2, high=0.2), (70, 90)),
            build=other_readers(readers),
            kernels=COMPILED,
        )
        for why, readers in OTHER_READERS.items()
    ),
    *(
        kernel_case(
            "matmul", f"weights for {rows} rows", (rows, 200), (200, 250), params=(1,)
        )
        for rows in (1, 32, 200)
    ),
    *(
        kernel_case(
            "matmul",
            f"{what} transposed by the graph",
            *((200, 150), (250, 150)),
            build=build,
            params=params,
        )
        for what, build, params in (
            ("weights", times_transposed, (1,)),
            ("an input", tanh_of_times_transposed, ()),
        )
    ),
    *(
        kernel_case(
            "matmul",
            f"a dense layer for {rows} row(s)",
            *((rows, 24), (24, 40), (40,)),
            build=lambda g, x, w, b: g.relu(x @ w + b),
            params=(1, 2),
            kernels=IN_PROGRAM,
        )
        for rows in (1, 32)
    ),
    kernel_case(
        "matmul",
        "tiles across pieces of both sides",
        *((150, 250), (250, 204)),
        kernels=BLOCKS_64,
        is_split=True,
    ),
    *(
        kernel_case(
            "fused_matmul_bias_act",
            f"then {act}",
            (33, 40),
            (40, 57),
            (57,),
            activation=act,
        )
        for act in (None, "relu", "gelu")
    ),
    kernel_case(
        "quantized_matmul",
        "more rows and columns than whole blocks",
        (1030, 64),
        Drawn((1034, 8), "i32", -(2**31), 2**31 - 1),
        Drawn((1034, 2), low=0.03, high=0.13),
        kernels="quantized_matmul, blocks of 128",
        bits=4,
        group_size=32,
    ),
]


@st.composite
def drawn_cases(draw: st.DrawFn) -> KernelCase:
    """Draw a product of any size, with operands that are params or transposed."""
    rows, columns = draw(st.integers(1, 200)), draw(st.integers(1, 200))
    terms = draw(
        st.one_of(
            st.integers(1, 700), st.sampled_from([1, 63, 511, 512, 513, 1024, 1300])
        )
    )
    is_transposed = draw(st.booleans())
    alone_or_not = st.sampled_from([None, plus_one])
    shapes = [(rows, terms), (terms, columns)]
    if is_transposed:
        shapes = [shape[::-1] for shape in shapes]
    return kernel_case(
        "matmul",
        "any size",
        *shapes,
        build=transposed_operands if is_transposed else draw(alone_or_not),
        params=draw(st.sampled_from([(), (0,), (1,), (0, 1)])),
    )
