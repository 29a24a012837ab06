"""Graph methods of numpy.linalg: linear systems, inverses, determinants,
factorizations.

Batches are broadcast and vectors made columns, which the ops leave to others. Nothing
is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import ShapeError
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import broadcast, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.methods import unstack

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def solve(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Solve a · x = b for x, as numpy.linalg.solve.

    A matrix with a pivot of exactly 0, where NumPy raises LinAlgError, gives NaN
    everywhere; the others of a batch are right all the same.
    Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
             axes of the batches broadcast
    Errors   ShapeError, DTypeError
    """
    return _apply_solver(g, "solve", a, b)


@graph_method
def inv(g: Graph, a: Tensor) -> Tensor:
    """Return the inverses of matrices [..., n, n]; all NaN for a singular one.

    Errors   ShapeError, DTypeError. To multiply by one use `solve`.
    """
    identity = g.constant(np.eye(a.shape[-1] if a.rank else 0), a.dtype)
    return g.solve(a, identity)


@graph_method
def det(g: Graph, a: Tensor) -> Tensor:
    """Return the determinants [...] of matrices [..., n, n]. Errors  ShapeError."""
    return g.apply("det", a)


@graph_method
def slogdet(g: Graph, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the signs of the determinants of matrices [..., n, n] and the
    logarithms of their absolute values, as numpy.linalg.slogdet: two tensors [...],
    in range even where the determinant itself is not.

    Of a singular matrix they are 0 and -infinity. Errors  ShapeError, DTypeError.
    """
    sign, log = unstack(g, g.apply("slogdet", a))
    return sign, log


@graph_method
def cholesky(g: Graph, a: Tensor, *, upper: bool = False) -> Tensor:
    """Return the lower triangle L of L · Lᵀ = a for symmetric positive definite
    matrices; as in numpy.linalg.cholesky only the lower half is read.

    A matrix that is not positive definite, where NumPy raises LinAlgError, gives
    NaN everywhere; the others of a batch are right all the same.
    Shapes   a [..., n, n] → [..., n, n]
    upper    read the upper half, and give Lᵀ
    Errors   ShapeError, DTypeError
    """
    if not upper:
        return g.apply("cholesky", a)
    return g.swapaxes(g.cholesky(g.swapaxes(a, -1, -2)), -1, -2)


@graph_method
def solve_triangular(
    g: Graph,
    a: Tensor,
    b: Tensor,
    *,
    lower: bool = False,
    trans: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    """Solve a · x = b for triangular matrices, as scipy.linalg.solve_triangular.

    The other half of `a` is not read. A 0 on the diagonal, where SciPy raises
    LinAlgError, makes all of that matrix' unknowns NaN.
    Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
             axes of the batches broadcast
    lower    `a` is a lower triangle, otherwise an upper one
    trans    solve aᵀ · x = b
    unit_diagonal  the diagonal is taken for 1 and not read
    Errors   ShapeError, DTypeError
    """
    if trans and a.rank > 1:
        a, lower = g.swapaxes(a, -1, -2), not lower
    return _apply_solver(
        g, "solve_triangular", a, b, lower=lower, unit_diagonal=unit_diagonal
    )


def _apply_solver(g: Graph, op_name: str, a: Tensor, b: Tensor, **attrs: Any) -> Tensor:
    """Apply a solver op to operands broadcast to one batch; a vector is passed as a
    column and returned as a vector.
    """
    original_b = b
    if b.rank == 1:
        b = g.reshape(b, (*b.shape, 1))
    if a.rank < 2 or b.rank < 2:
        raise ShapeError(
            op_name,
            f"a has shape {format_shape(a.shape)}, b {format_shape(original_b.shape)}",
            "a must be [..., n, n] and b [n] or [..., n, k]",
        )
    batch_shape = broadcast(a.shape[:-2], b.shape[:-2])
    a, b = (
        operand
        if operand.shape[:-2] == batch_shape
        else g.expand(operand, (*batch_shape, *operand.shape[-2:]))
        for operand in (a, b)
    )
    solution = g.apply(op_name, a, b, **attrs)
    if original_b.rank > 1:
        return solution
    return g.apply("reshape", solution, shape=solution.shape[:-1])
