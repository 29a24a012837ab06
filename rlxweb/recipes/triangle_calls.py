"""How triangular systems and Cholesky factors run on a device: in place, by columns.

Both work in a temporary as elimination does, and mark the matrices that have no answer.
A lower triangle is laid turned by half a turn, which makes it an upper one: the
unknowns come out of `lu_substitute` in turned order, and go back that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, wrapped
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.recipes.entry import MAIN_LINES
from rlxweb.recipes.lu_calls import FEW, LANES, SIGN, WORK, answered, substitute


def solve_triangular_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe:
    """Both operands side by side, as an upper triangle, and substitution."""
    n, k = out.shape[-2:]
    count, lower = numel(out.shape[:-2]), attrs["lower"]
    width = n + k
    unit = "select({}, 1.0, row == j)" if attrs["unit_diagonal"] else "{}"
    calls = (
        _laid(0, (count, n, n), width, 0, (lower, lower), unit),
        _laid(1, (count, n, k), width, n, (lower, False)),
        _marked(count, n, width),
        substitute(count, n, k),
        _found(count, n, k, lower),
    )
    return Recipe(calls, (Scratch(count * n * width), Scratch(count)))


def cholesky_recipe(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> Recipe:
    """A copy that becomes the factor, and the factor without what lay above it."""
    n, count = out.shape[-1], numel(out.shape[:-2])
    calls = (
        _laid(0, (count, n, n), n, 0, (False, False)),
        _factored(count, n),
        _factor(count, n),
    )
    return Recipe(calls, (Scratch(count * n * n), Scratch(count)))


def _laid(
    at: int,
    size: tuple[int, int, int],
    width: int,
    first: int,
    turned: tuple[bool, bool],
    value: str = "{}",
) -> Call:
    """An operand into its columns of the temporary, rows or columns turned round."""
    count, n, columns = size
    step = (-width if turned[0] else width, -1 if turned[1] else 1)
    offset = first + width * (n - 1) * turned[0] + (columns - 1) * turned[1]
    read = value.format("ld0(matrix * u.x_matrix + row * u.x_row + j)")
    body = (
        "  let j = item % u.j;",
        "  let row = item / u.j % u.row;",
        "  let matrix = item / u.j / u.row;",
        f"  let v = {read.replace('row == j', 'u.at_row + row == u.at_j + j')};",
        "  st1(matrix * u.w_matrix + row * u.w_row + j * u.w_j, v);",
    )
    return Call(
        "triangle_lay",
        axes=(Axis("matrix", count), Axis("row", n), Axis("j", columns)),
        accesses=(
            Access(Ref("in", at), (n * columns, columns, 1)),
            Access(WORK, (n * width, *step), "write", max(0, offset)),
        ),
        grid=(("matrix", 1), ("row", 1), ("j", 1)),
        values={
            "x_matrix": n * columns,
            "x_row": columns,
            "w_matrix": n * width,
            "w_row": wrapped(step[0]),
            "w_j": wrapped(step[1]),
        },
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _marked(count: int, n: int, width: int) -> Call:
    """0 for the matrices that have a 0 on the diagonal, 1 for the others."""
    body = (
        "  var v = 1.0;",
        "  for (var i = 0u; i < u.n; i++) {",
        "    if (ld0(item * u.each + i * u.step) == 0.0) { v = 0.0; }",
        "  }",
        "  st1(item, v);",
    )
    return Call(
        "triangle_mark",
        axes=(Axis("matrix", count), Axis("n", n, "whole")),
        accesses=(Access(WORK, (n * width, width + 1)), Access(SIGN, (1, 0), "write")),
        grid=(("matrix", 1),),
        values={"each": n * width, "step": width + 1},
        source="\n".join((*MAIN_LINES, *body, "}")),
        turns=1.0,
    )


def _found(count: int, n: int, k: int, turned: bool) -> Call:
    """The unknowns in their own order; NaN for a matrix with a 0 on the diagonal."""
    step = -(n + k) if turned else n + k
    offset = n + (n + k) * (n - 1) * turned
    value = "nan_where(ld1(matrix) == 0.0, v)"
    return answered(
        "triangle_found", (count, n, k), (n * (n + k), step), max(0, offset), value
    )


def _factor(count: int, n: int) -> Call:
    """0 above the diagonal; NaN for a matrix that is not positive definite."""
    value = "nan_where(ld1(matrix) == 0.0, select(v, 0.0, u.at_j + j > u.at_row + row))"
    return answered("cholesky_factor", (count, n, n), (n * n, n), 0, value)


def _factored(count: int, n: int) -> Call:
    few = n <= FEW
    lanes = 1 if few else LANES
    return Call(
        "cholesky_few" if few else "cholesky",
        axes=(
            Axis("matrix", count),
            Axis("column", n, "serial"),
            Axis("n", n, "whole"),
            Axis("j", n, "whole"),
        ),
        accesses=(
            Access(WORK, (n * n, 0, n, 1), "update"),
            Access(SIGN, (1, 0, 0, 0), "update"),
        ),
        grid=(("matrix", 1),),
        per="invocation" if few else "workgroup",
        workgroup=LANES,
        uses=("nan",),
        # The rows below, the root, and the ends of loops.
        turns=((n * n + n) / lanes + 8) / max(1, n * n),
    )
