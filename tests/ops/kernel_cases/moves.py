"""Copies between layouts and gathered rows: they move bits."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.ops.kernel_cases.case import KernelCase, kernel_case

BY_FOURS = "gather, rows by fours"
TILES, FOUR_BY_FOUR = "copy, tiles of 32 by 32", "copy, four by four"
# Exact tiles, tails on both sides, batches before and between.
TRANSPOSED_SHAPES: list[tuple[Shape, Shape]] = [
    *(((64, 64), (1, 0)), ((33, 65), (1, 0)), ((1, 33, 40), (0, 2, 1))),
    *(((3, 50, 47), (2, 0, 1)), ((3, 4, 37, 35), (0, 3, 1, 2))),
    *(((2, 3, 40, 32), (1, 0, 3, 2)), ((70_000, 33), (1, 0)), ((40, 5, 33), (2, 1, 0))),
]
FOURS = [(64, 64), (2, 3, 40, 32)]
"""Shapes whose last axes are whole fours before and after."""


def transposed(g: Any, x: Any, perm: Shape) -> Any:
    return g.transpose(x, perm)


def transposed_part(g: Any, x: Any) -> Any:
    return g.transpose(g.narrow(x, 1, 3, 50), (1, 0))


def copies_of(shape: Shape, dtype: str) -> tuple[str, ...]:
    """Return the kernels that have to make a transposed copy."""
    if dtype == "bool":
        return ()
    return (TILES, FOUR_BY_FOUR) if shape in FOURS and dtype != "f16" else (TILES,)


def gather_case(
    why: str,
    table: Shape,
    index: Shape,
    axis: int = 0,
    dtype: str = "f32",
    index_dtype: str = "i32",
    **options: Any,
) -> KernelCase:
    """Return a gather of random rows."""
    rows = Drawn(index, index_dtype, 0, table[axis] - 1)
    return kernel_case(
        "gather",
        why,
        *(Drawn(table, dtype), rows),
        kernels=BY_FOURS,
        axis=axis,
        **options,
    )


CASES = [
    *(
        kernel_case(
            "copy",
            f"{dtype}, axes {perm}",
            Drawn(shape, dtype, 0, 9, whole=True),
            build=transposed,
            kernels=copies_of(shape, dtype),
            perm=perm,
        )
        for dtype in ("f32", "i32", "u32", "bool", "f16")
        for shape, perm in TRANSPOSED_SHAPES
    ),
    *(
        kernel_case(
            "copy",
            f"a part, {dtype}",
            Drawn((70, 90), dtype, 0, 9, whole=True),
            build=transposed_part,
        )
        for dtype in ("f32", "i32", "u32", "bool", "f16")
    ),
    *(
        kernel_case(
            "copy",
            "matrices in pieces",
            (5, rows, 140),
            build=transposed,
            kernels=kernel,
            is_split=True,
            perm=(0, 2, 1),
        )
        for rows, kernel in ((130, TILES), (132, FOUR_BY_FOUR))
    ),
    *(
        gather_case(f"rows of {shape[-1]}", shape, index, axis)
        for index in ((3,), (2, 5))
        for shape, axis in (((7, 4), 0), ((9, 12), 0), ((4, 5, 8), 1), ((1000, 128), 0))
    ),
    gather_case("halves", (6, 8), (3,), dtype="f16", index_dtype="u32"),
    gather_case("rows in pieces", (2000, 12), (5000,), is_split=True),
]
