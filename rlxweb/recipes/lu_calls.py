"""How systems of equations and determinants run on a device: elimination in place.

A matrix lies with what stands on its right as [n, width] in a temporary; a workgroup
goes through it, or, where there are few rows, an invocation. Column by column the
largest element below is brought up and the rows under it are made zero there; then, of
a system, the unknowns come one by one from the last. Where loops end columns are cut,
and the temporary is all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, wrapped
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.recipes.entry import MAIN_LINES

LANES = 64
FEW = 8
"""Rows of a matrix up to which one invocation has it to itself."""
WORK, SIGN = Ref("scratch", 0), Ref("scratch", 1)


def solve_recipe(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> Recipe:
    """Both operands side by side, eliminated, and the unknowns where the right was."""
    n, k = out.shape[-2:]
    count = numel(out.shape[:-2])
    width = n + k
    calls = (
        _laid(0, (count, n, n), width, 0),
        _laid(1, (count, n, k), width, n),
        _eliminate(count, n, width),
        substitute(count, n, k),
        _solved(count, n, k),
    )
    return Recipe(calls, (Scratch(count * n * width), Scratch(count)))


def det_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """The product of what elimination leaves on the diagonal, and its sign.

    None for matrices of nothing: there is nothing to walk over.
    """
    return _of_diagonals(inputs[0], _product)


def slogdet_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """The signs of all such products, then the logarithms of all. None as above."""
    return _of_diagonals(inputs[0], _signs, _logarithms)


def _of_diagonals(a: TensorType, *last: Callable[[int, int], Call]) -> Recipe | None:
    count, n = numel(a.shape[:-2]), a.shape[-1]
    if not n:
        return None
    calls = (
        _laid(0, (count, n, n), n, 0),
        _eliminate(count, n, n),
        *(call(count, n) for call in last),
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
            Access(WORK, (width, 1), "write", offset),
        ),
        grid=(("line", 1), ("j", 1)),
        values={"width": width, "columns": columns},
        source="\n".join((*MAIN_LINES, *body, "}")),
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
            Access(WORK, (n * width, 0, width, 1), "update"),
            Access(SIGN, (1, 0, 0, 0), "update"),
        ),
        grid=(("matrix", 1),),
        per="invocation" if few else "workgroup",
        workgroup=LANES,
        turns=each / max(1, n * width),
    )


def substitute(count: int, n: int, k: int) -> Call:
    """The unknowns of upper triangles, in place of the columns on their right."""
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
        accesses=(Access(WORK, (n * width, 1, 0, width), "update", span=n + 1),),
        grid=(("matrix", 1), ("j", 1)),
        values={"width": width, "each": n * width},
        turns=1.0 + 2.0 / max(1, n),
    )


def _solved(count: int, n: int, k: int) -> Call:
    """The unknowns; NaN in place of what a singular matrix gave."""
    value = "nan_where(ld1(matrix) == 0.0, v)"
    return answered("lu_solved", (count, n, k), (n * (n + k), n + k), n, value)


def answered(
    name: str,
    size: tuple[int, int, int],
    step: tuple[int, int],
    offset: int,
    value: str,
) -> Call:
    """Columns of the temporary into the result; `step` from matrix and row to next."""
    count, n, k = size
    body = (
        "  let j = item % u.j;",
        "  let row = item / u.j % u.row;",
        "  let matrix = item / u.j / u.row;",
        "  let v = ld0(matrix * u.w_matrix + row * u.w_row + j);",
        f"  st2(matrix * u.y_matrix + row * u.y_row + j, {value});",
    )
    return Call(
        name,
        axes=(Axis("matrix", count), Axis("row", n), Axis("j", k)),
        accesses=(
            Access(WORK, (*step, 1), offset=offset),
            Access(SIGN, (1, 0, 0)),
            Access(Ref("out"), (n * k, k, 1), "write"),
        ),
        grid=(("matrix", 1), ("row", 1), ("j", 1)),
        values={
            "w_matrix": step[0],
            "w_row": wrapped(step[1]),
            "y_matrix": n * k,
            "y_row": k,
        },
        uses=("nan",),
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _product(count: int, n: int) -> Call:
    body = (
        "  var v = ld1(item);",
        "  for (var i = 0u; i < u.n; i++) { v *= ld0(item * u.each + i * u.step); }",
        "  st2(item, v);",
    )
    return _along_diagonals("lu_product", count, n, body)


def _signs(count: int, n: int) -> Call:
    """-1, 0, 1, or NaN where there is one on the diagonal."""
    body = (
        "  var v = ld1(item);",
        "  var odd = false;",
        "  for (var i = 0u; i < u.n; i++) {",
        "    let one = ld0(item * u.each + i * u.step);",
        "    odd = odd || is_nan(one);",
        "    v = select(v, -v, one < 0.0);",
        "  }",
        "  st2(item, nan_where(odd, v));",
    )
    return _along_diagonals("lu_sign", count, n, body, uses=("nan",))


def _logarithms(count: int, n: int) -> Call:
    body = (
        "  var v = 0.0;",
        "  for (var i = 0u; i < u.n; i++) {",
        "    v += precise_log(abs(ld0(item * u.each + i * u.step)));",
        "  }",
        "  let none = ld1(item) == 0.0;",
        "  st2(item, select(v, -inf_where(none, 0.0), none));",
    )
    return _along_diagonals(
        "lu_logarithm", count, n, body, uses=("logarithms",), first=count
    )


def _along_diagonals(
    name: str,
    count: int,
    n: int,
    body: tuple[str, ...],
    uses: tuple[str, ...] = (),
    first: int = 0,
) -> Call:
    """One number of every diagonal, at the result's elements from `first` on."""
    return Call(
        name,
        axes=(Axis("matrix", count), Axis("n", n, "whole")),
        accesses=(
            Access(WORK, (n * n, n + 1)),
            Access(SIGN, (1, 0)),
            Access(Ref("out"), (1, 0), "write", first),
        ),
        grid=(("matrix", 1),),
        values={"each": n * n, "step": n + 1},
        uses=uses,
        source="\n".join((*MAIN_LINES, *body, "}")),
        turns=1.0,
    )
