"""Kernel plans of triangular solves and Cholesky factorisations: in place, by columns.

Both work in a temporary as elimination does, and mark the matrices that have no answer.
A lower triangle is laid turned by half a turn, which makes it an upper one: the
unknowns come out of `lu_substitute` in turned order, and go back that way.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from rlxweb.ops.linalg.wgsl.plan import (
    MAX_ROWS_PER_INVOCATION,
    SIGNS,
    WORK_MATRICES,
    WORKGROUP_SIZE,
    result_dispatch,
    substitution_dispatch,
)


def plan_solve_triangular(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan:
    """Return the plan that copies both operands side by side, as an upper triangle, and
    substitutes.
    """
    n, k = out.shape[-2:]
    count, is_lower = numel(out.shape[:-2]), attrs["lower"]
    width = n + k
    diagonal_wgsl = "select({}, 1.0, row == j)" if attrs["unit_diagonal"] else "{}"
    dispatches = (
        _copy_operand_dispatch(
            0, (count, n, n), width, 0, (is_lower, is_lower), diagonal_wgsl
        ),
        _copy_operand_dispatch(1, (count, n, k), width, n, (is_lower, False)),
        _nonsingular_mask_dispatch(count, n, width),
        substitution_dispatch(count, n, k),
        _solution_dispatch(count, n, k, is_lower),
    )
    return KernelPlan(
        dispatches, (ScratchBuffer(count * n * width), ScratchBuffer(count))
    )


def plan_cholesky(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan:
    """Return the plan that factors a copy in place and then clears what is above the
    diagonal.
    """
    n, count = out.shape[-1], numel(out.shape[:-2])
    dispatches = (
        _copy_operand_dispatch(0, (count, n, n), n, 0, (False, False)),
        _factorize_dispatch(count, n),
        _factor_output_dispatch(count, n),
    )
    return KernelPlan(dispatches, (ScratchBuffer(count * n * n), ScratchBuffer(count)))


def _copy_operand_dispatch(
    operand: int,
    size: tuple[int, int, int],
    width: int,
    first_column: int,
    is_reversed: tuple[bool, bool],
    value_wgsl: str = "{}",
) -> KernelDispatch:
    """Return the dispatch that copies an operand to its columns of the work buffer,
    with rows or columns in reverse order if `is_reversed` says so.
    """
    count, n, columns = size
    strides = (-width if is_reversed[0] else width, -1 if is_reversed[1] else 1)
    offset = (
        first_column + width * (n - 1) * is_reversed[0] + (columns - 1) * is_reversed[1]
    )
    read = value_wgsl.format("ld0(matrix * u.x_matrix + row * u.x_row + j)")
    body = (
        "  let j = item % u.j;",
        "  let row = item / u.j % u.row;",
        "  let matrix = item / u.j / u.row;",
        f"  let v = {read.replace('row == j', 'u.at_row + row == u.at_j + j')};",
        "  st1(matrix * u.w_matrix + row * u.w_row + j * u.w_j, v);",
    )
    return KernelDispatch(
        "triangle_lay",
        axes=(
            IterationAxis("matrix", count),
            IterationAxis("row", n),
            IterationAxis("j", columns),
        ),
        accesses=(
            OperandAccess(BufferRef("in", operand), (n * columns, columns, 1)),
            OperandAccess(
                WORK_MATRICES, (n * width, *strides), "write", max(0, offset)
            ),
        ),
        grid=(("matrix", 1), ("row", 1), ("j", 1)),
        uniforms={
            "x_matrix": n * columns,
            "x_row": columns,
            "w_matrix": n * width,
            "w_row": wrap_u32(strides[0]),
            "w_j": wrap_u32(strides[1]),
        },
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _nonsingular_mask_dispatch(count: int, n: int, width: int) -> KernelDispatch:
    """Return the dispatch that marks matrices with a 0 on the diagonal by 0, all others
    by 1.
    """
    body = (
        "  var v = 1.0;",
        "  for (var i = 0u; i < u.n; i++) {",
        "    if (ld0(item * u.each + i * u.step) == 0.0) { v = 0.0; }",
        "  }",
        "  st1(item, v);",
    )
    return KernelDispatch(
        "triangle_mark",
        axes=(IterationAxis("matrix", count), IterationAxis("n", n, "whole")),
        accesses=(
            OperandAccess(WORK_MATRICES, (n * width, width + 1)),
            OperandAccess(SIGNS, (1, 0), "write"),
        ),
        grid=(("matrix", 1),),
        uniforms={"each": n * width, "step": width + 1},
        source="\n".join((*MAIN_LINES, *body, "}")),
        iterations=1.0,
    )


def _solution_dispatch(count: int, n: int, k: int, is_reversed: bool) -> KernelDispatch:
    """Return the dispatch that writes the unknowns in their own order, NaN for a matrix
    with a 0 on the diagonal.
    """
    row_stride = -(n + k) if is_reversed else n + k
    offset = n + (n + k) * (n - 1) * is_reversed
    value_wgsl = "nan_where(ld1(matrix) == 0.0, v)"
    return result_dispatch(
        "triangle_found",
        (count, n, k),
        (n * (n + k), row_stride),
        max(0, offset),
        value_wgsl,
    )


def _factor_output_dispatch(count: int, n: int) -> KernelDispatch:
    """Return the dispatch that writes the factor with 0 above the diagonal, NaN for a
    matrix that is not positive definite.
    """
    value_wgsl = (
        "nan_where(ld1(matrix) == 0.0, select(v, 0.0, u.at_j + j > u.at_row + row))"
    )
    return result_dispatch("cholesky_factor", (count, n, n), (n * n, n), 0, value_wgsl)


def _factorize_dispatch(count: int, n: int) -> KernelDispatch:
    """Return the dispatch that factors the matrices in place."""
    is_small = n <= MAX_ROWS_PER_INVOCATION
    lanes = 1 if is_small else WORKGROUP_SIZE
    return KernelDispatch(
        "cholesky_few" if is_small else "cholesky",
        axes=(
            IterationAxis("matrix", count),
            IterationAxis("column", n, "serial"),
            IterationAxis("n", n, "whole"),
            IterationAxis("j", n, "whole"),
        ),
        accesses=(
            OperandAccess(WORK_MATRICES, (n * n, 0, n, 1), "update"),
            OperandAccess(SIGNS, (1, 0, 0, 0), "update"),
        ),
        grid=(("matrix", 1),),
        item_unit="invocation" if is_small else "workgroup",
        workgroup_size=WORKGROUP_SIZE,
        uses=("nan",),
        # The rows below, the root, and the ends of loops.
        iterations=((n * n + n) / lanes + 8) / max(1, n * n),
    )
