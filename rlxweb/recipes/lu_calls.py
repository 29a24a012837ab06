"""How systems of equations and determinants run on a device: elimination in place.

A matrix lies with what stands on its right as [n, width] in a temporary; a workgroup
goes through it, or, where there are few rows, an invocation. Column by column the
largest element below is brought up and the rows under it are made zero there; then, of
a system, the unknowns come one by one from the last. Where loops end columns are cut,
and the temporary is all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.recipes.remap_calls import MAIN

LANES = 64
FEW = 8
"""Rows of a matrix up to which one invocation has it to itself."""
_WORK, _SIGN = Ref("scratch", 0), Ref("scratch", 1)


def solve_recipe(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> Recipe:
    """Both operands side by side, eliminated, and the unknowns where the right was."""
    n, k = out.shape[-2:]
    count = numel(out.shape[:-2])
    width = n + k
    calls = (
        _laid(0, (count, n, n), width, 0),
        _laid(1, (count, n, k), width, n),
        _eliminate(count, n, width),
        _substitute(count, n, k),
        _solved(count, n, k),
    )
    return Recipe(calls, (Scratch(count * n * width), Scratch(count)))


def det_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """The product of what elimination leaves on the diagonal, and its sign.

    None for matrices of nothing: there is nothing to walk over.
    """
    count, n = out.numel, inputs[0].shape[-1]
    if not n:
        return None
    calls = (
        _laid(0, (count, n, n), n, 0),
        _eliminate(count, n, n),
        _product(count, n),
    )
    return Recipe(calls, (Scratch(count * n * n), Scratch(count)))


def _laid(at: int, size: tuple[int, int, int], width: int, offset: int) -> Call:
    """An operand into its columns of the temporary."""
    count, n, columns = size
    body = (
        "  let j = item % u.j;",
        "  let line = item / u.j;",
        "  st1(line * u.width + j, ld0(line * u.columns + j));",
    )
    return Call(
        "lu_lay",
        axes=(Axis("line", count * n), Axis("j", columns)),
        accesses=(
            Access(Ref("in", at), (columns, 1)),
            Access(_WORK, (width, 1), "write", offset),
        ),
        grid=(("line", 1), ("j", 1)),
        values={"width": width, "columns": columns},
        source="\n".join((*MAIN, *body, "}")),
    )


def _eliminate(count: int, n: int, width: int) -> Call:
    few = n <= FEW
    lanes = 1 if few else LANES
    # The rows below, the swap, the search of every lane, and the ends of loops.
    each = (n * width + n + width) / lanes + n + 8
    return Call(
        "lu_eliminate_few" if few else "lu_eliminate",
        axes=(
            Axis("matrix", count),
            Axis("column", n, "serial"),
            Axis("n", n, "whole"),
            Axis("width", width, "whole"),
        ),
        accesses=(
            Access(_WORK, (n * width, 0, width, 1), "update"),
            Access(_SIGN, (1, 0, 0, 0), "update"),
        ),
        grid=(("matrix", 1),),
        per="invocation" if few else "workgroup",
        workgroup=LANES,
        turns=each / max(1, n * width),
    )


def _substitute(count: int, n: int, k: int) -> Call:
    width = n + k
    return Call(
        "lu_substitute",
        axes=(
            Axis("matrix", count),
            Axis("j", k, "whole"),
            Axis("column", n, "serial"),
            Axis("n", n, "whole"),
        ),
        # The columns of the matrix itself are read too: what is behind the last one.
        accesses=(Access(_WORK, (n * width, 1, 0, width), "update", span=n + 1),),
        grid=(("matrix", 1), ("j", 1)),
        values={"width": width, "each": n * width},
        turns=1.0 + 2.0 / max(1, n),
    )


def _solved(count: int, n: int, k: int) -> Call:
    """The unknowns; NaN in place of what a singular matrix gave."""
    body = (
        "  let j = item % u.j;",
        "  let row = item / u.j % u.row;",
        "  let matrix = item / u.j / u.row;",
        "  let v = ld0(matrix * u.w_matrix + row * u.w_row + j);",
        "  let bad = ld1(matrix) == 0.0;",
        "  st2(matrix * u.y_matrix + row * u.y_row + j, nan_where(bad, v));",
    )
    return Call(
        "lu_solved",
        axes=(Axis("matrix", count), Axis("row", n), Axis("j", k)),
        accesses=(
            Access(_WORK, (n * (n + k), n + k, 1), offset=n),
            Access(_SIGN, (1, 0, 0)),
            Access(Ref("out"), (n * k, k, 1), "write"),
        ),
        grid=(("matrix", 1), ("row", 1), ("j", 1)),
        values={
            "w_matrix": n * (n + k),
            "w_row": n + k,
            "y_matrix": n * k,
            "y_row": k,
        },
        uses=("nan",),
        source="\n".join((*MAIN, *body, "}")),
    )


def _product(count: int, n: int) -> Call:
    body = (
        "  var v = ld1(item);",
        "  for (var i = 0u; i < u.n; i++) { v *= ld0(item * u.each + i * u.step); }",
        "  st2(item, v);",
    )
    return Call(
        "lu_product",
        axes=(Axis("matrix", count), Axis("n", n, "whole")),
        accesses=(
            Access(_WORK, (n * n, n + 1)),
            Access(_SIGN, (1, 0)),
            Access(Ref("out"), (1, 0), "write"),
        ),
        grid=(("matrix", 1),),
        values={"each": n * n, "step": n + 1},
        source="\n".join((*MAIN, *body, "}")),
        turns=1.0,
    )
