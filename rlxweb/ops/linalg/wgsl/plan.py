"""Kernel plans of solve, det and slogdet: Gaussian elimination in place.

A matrix lies with what stands on its right as [n, width] in a temporary; a workgroup
goes through it, or, where there are few rows, an invocation. Column by column the
largest element below is brought up and the rows under it are made zero there; then, of
a system, the unknowns come one by one from the last. Where loops end columns are cut,
and the temporary is all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
    wrap_u32,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import numel

WORKGROUP_SIZE = 64
MAX_ROWS_PER_INVOCATION = 8
"""Number of rows of a matrix up to which one invocation processes it alone."""
WORK_MATRICES, SIGNS = BufferRef("scratch", 0), BufferRef("scratch", 1)


def plan_solve(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> KernelPlan:
    """Plan a system: lay both operands side by side, eliminate, and substitute the
    unknowns on the right.
    """
    n, k = out.shape[-2:]
    count = numel(out.shape[:-2])
    width = n + k
    dispatches = (
        _copy_operand(0, (count, n, n), width, 0),
        _copy_operand(1, (count, n, k), width, n),
        _elimination_dispatch(count, n, width),
        substitution_dispatch(count, n, k),
        _solution_dispatch(count, n, k),
    )
    return KernelPlan(
        dispatches, (ScratchBuffer(count * n * width), ScratchBuffer(count))
    )


def plan_det(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Plan a determinant: the product of the diagonal after elimination, and its sign.

    None for matrices of nothing: there is nothing to walk over.
    """
    return _plan_from_diagonals(inputs[0], _product_dispatch)


def plan_slogdet(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Plan the signs of all determinants, then the logarithms of all. None for empty
    matrices.
    """
    return _plan_from_diagonals(inputs[0], _sign_dispatch, _logarithm_dispatch)


def _plan_from_diagonals(
    a: TensorType, *result_dispatches: Callable[[int, int], KernelDispatch]
) -> KernelPlan | None:
    count, n = numel(a.shape[:-2]), a.shape[-1]
    if not n:
        return None
    dispatches = (
        _copy_operand(0, (count, n, n), n, 0),
        _elimination_dispatch(count, n, n),
        *(dispatch(count, n) for dispatch in result_dispatches),
    )
    return KernelPlan(dispatches, (ScratchBuffer(count * n * n), ScratchBuffer(count)))


def _copy_operand(
    input_index: int, size: tuple[int, int, int], width: int, offset: int
) -> KernelDispatch:
    """Copy an operand into its columns of the scratch matrices."""
    count, n, columns = size
    body = (
        "  let j = item % u.j;",
        "  let line = item / u.j;",
        "  st1(line * u.width + j, ld0(line * u.columns + j));",
    )
    return KernelDispatch(
        "lu_lay",
        axes=(IterationAxis("line", count * n), IterationAxis("j", columns)),
        accesses=(
            OperandAccess(BufferRef("in", input_index), (columns, 1)),
            OperandAccess(WORK_MATRICES, (width, 1), "write", offset),
        ),
        grid=(("line", 1), ("j", 1)),
        uniforms={"width": width, "columns": columns},
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _elimination_dispatch(count: int, n: int, width: int) -> KernelDispatch:
    is_small = n <= MAX_ROWS_PER_INVOCATION
    lanes = 1 if is_small else WORKGROUP_SIZE
    # The rows below, the swap, the search of every lane, and the ends of loops.
    iterations = (n * width + n + width) / lanes + n + 8
    return KernelDispatch(
        "lu_eliminate_few" if is_small else "lu_eliminate",
        axes=(
            IterationAxis("matrix", count),
            IterationAxis("column", n, "serial"),
            IterationAxis("n", n, "whole"),
            IterationAxis("width", width, "whole"),
        ),
        accesses=(
            OperandAccess(WORK_MATRICES, (n * width, 0, width, 1), "update"),
            OperandAccess(SIGNS, (1, 0, 0, 0), "update"),
        ),
        grid=(("matrix", 1),),
        item_unit="invocation" if is_small else "workgroup",
        workgroup_size=WORKGROUP_SIZE,
        iterations=iterations / max(1, n * width),
    )


def substitution_dispatch(count: int, n: int, k: int) -> KernelDispatch:
    """Return the dispatch that solves upper triangles in place of the columns on their
    right.
    """
    width = n + k
    return KernelDispatch(
        "lu_substitute",
        axes=(
            IterationAxis("matrix", count),
            IterationAxis("j", k, "whole"),
            IterationAxis("column", n, "serial"),
            IterationAxis("n", n, "whole"),
        ),
        # The columns of the matrix itself are read too: what is behind the last one.
        accesses=(
            OperandAccess(
                WORK_MATRICES, (n * width, 1, 0, width), "update", span=n + 1
            ),
        ),
        grid=(("matrix", 1), ("j", 1)),
        uniforms={"width": width, "each": n * width},
        iterations=1.0 + 2.0 / max(1, n),
    )


def _solution_dispatch(count: int, n: int, k: int) -> KernelDispatch:
    """Return the dispatch that writes the unknowns, or NaN for a singular matrix."""
    value = "nan_where(ld1(matrix) == 0.0, v)"
    return result_dispatch("lu_solved", (count, n, k), (n * (n + k), n + k), n, value)


def result_dispatch(
    name: str,
    size: tuple[int, int, int],
    strides: tuple[int, int],
    offset: int,
    value: str,
) -> KernelDispatch:
    """Return the dispatch that writes columns of the scratch matrices to the result;
    `strides` are those of matrix and row.
    """
    count, n, k = size
    body = (
        "  let j = item % u.j;",
        "  let row = item / u.j % u.row;",
        "  let matrix = item / u.j / u.row;",
        "  let v = ld0(matrix * u.w_matrix + row * u.w_row + j);",
        f"  st2(matrix * u.y_matrix + row * u.y_row + j, {value});",
    )
    return KernelDispatch(
        name,
        axes=(
            IterationAxis("matrix", count),
            IterationAxis("row", n),
            IterationAxis("j", k),
        ),
        accesses=(
            OperandAccess(WORK_MATRICES, (*strides, 1), offset=offset),
            OperandAccess(SIGNS, (1, 0, 0)),
            OperandAccess(BufferRef("out"), (n * k, k, 1), "write"),
        ),
        grid=(("matrix", 1), ("row", 1), ("j", 1)),
        uniforms={
            "w_matrix": strides[0],
            "w_row": wrap_u32(strides[1]),
            "y_matrix": n * k,
            "y_row": k,
        },
        uses=("nan",),
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _product_dispatch(count: int, n: int) -> KernelDispatch:
    body = (
        "  var v = ld1(item);",
        "  for (var i = 0u; i < u.n; i++) { v *= ld0(item * u.each + i * u.step); }",
        "  st2(item, v);",
    )
    return _diagonal_dispatch("lu_product", count, n, body)


def _sign_dispatch(count: int, n: int) -> KernelDispatch:
    """Return the dispatch of the signs: -1, 0, 1, or NaN if the diagonal has one."""
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
    return _diagonal_dispatch("lu_sign", count, n, body, uses=("nan",))


def _logarithm_dispatch(count: int, n: int) -> KernelDispatch:
    body = (
        "  var v = 0.0;",
        "  for (var i = 0u; i < u.n; i++) {",
        "    v += precise_log(abs(ld0(item * u.each + i * u.step)));",
        "  }",
        "  let none = ld1(item) == 0.0;",
        "  st2(item, select(v, -inf_where(none, 0.0), none));",
    )
    return _diagonal_dispatch(
        "lu_logarithm", count, n, body, uses=("logarithms",), offset=count
    )


def _diagonal_dispatch(
    name: str,
    count: int,
    n: int,
    body: tuple[str, ...],
    uses: tuple[str, ...] = (),
    offset: int = 0,
) -> KernelDispatch:
    """Return the dispatch that writes one number per diagonal, to the result's elements
    from `offset` on.
    """
    return KernelDispatch(
        name,
        axes=(IterationAxis("matrix", count), IterationAxis("n", n, "whole")),
        accesses=(
            OperandAccess(WORK_MATRICES, (n * n, n + 1)),
            OperandAccess(SIGNS, (1, 0)),
            OperandAccess(BufferRef("out"), (1, 0), "write", offset),
        ),
        grid=(("matrix", 1),),
        uniforms={"each": n * n, "step": n + 1},
        uses=uses,
        source="\n".join((*MAIN_LINES, *body, "}")),
        iterations=1.0,
    )
