"""Vector-Jacobian products of linear systems, determinants and the Cholesky factor.

Formulas: Giles, "An extended collection of matrix derivative results" (2008); of the
factor Murray, "Differentiation of the Cholesky decomposition" (2016). Where a solution,
a factor or a logarithm is NaN or infinite, because there is no inverse, so is its
gradient. A determinant has one everywhere: the cofactors.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.norm.op import widen_float16_tensors


def _transpose(x: Tensor) -> Tensor:
    """Transpose the last two axes."""
    return x.graph.swapaxes(x, -1, -2)


def solve_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `solve`: y solves aᵀ · y = grad, which is the gradient of b; that of a is
    -y · xᵀ.
    """
    right_grad = ctx.g.solve(_transpose(ctx.x), ctx.grad)
    return [
        -(right_grad @ _transpose(ctx.out)) if ctx.needs_grad[0] else None,
        right_grad,
    ]


def solve_triangular_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `solve_triangular`: as of `solve`, restricted to the triangle that is
    read.
    """
    g, lower, unit_diagonal = ctx.g, ctx.attrs["lower"], ctx.attrs["unit_diagonal"]
    right_grad = g.solve_triangular(
        ctx.x, ctx.grad, lower=lower, trans=True, unit_diagonal=unit_diagonal
    )
    if not ctx.needs_grad[0]:
        return [None, right_grad]
    matrix_grad = -(right_grad @ _transpose(ctx.out))
    return [
        g.tril(matrix_grad, -int(unit_diagonal))
        if lower
        else g.triu(matrix_grad, int(unit_diagonal)),
        right_grad,
    ]


def _inverse(a: Tensor) -> Tensor:
    # Of `a` as it is, so that its pivots are those of which the determinant is made:
    # of a nearly singular matrix the two belong together.
    g = a.graph
    return g.solve(a, g.expand(g.eye(a.shape[-1], dtype=a.dtype), a.shape))


def det_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `det`: the cofactors, also where the determinant is 0.

    Up to three rows they are products of elements, and so are their own derivatives.
    Of more they come by an inverse: second derivatives are right of regular matrices,
    and where the determinant is exactly 0 and the rank one less than the rows.
    """
    g, n = ctx.g, ctx.x.shape[-1]
    if not n:
        return [None]
    a, grad, det = widen_float16_tensors(g, ctx.x, ctx.grad, ctx.out)
    matrix_grad = g.reshape(grad, (*grad.shape, 1, 1)) * _cofactors(a, det)
    return [matrix_grad if a is ctx.x else g.cast(matrix_grad, ctx.x.dtype)]


def _cofactors(a: Tensor, det: Tensor) -> Tensor:
    """Return the cofactors of matrices: directly up to three rows, by an inverse
    above.
    """
    g, n = a.graph, a.shape[-1]
    if n == 1:
        return g.expand(g.constant(1.0, a.dtype), a.shape)
    if n > 3:
        return _cofactors_by_inverse(a, det)

    def roll_by(rows: int, columns: int) -> Tensor:
        return g.roll(a, (-rows, -columns), (-2, -1))

    if n == 2:
        return roll_by(1, 1) * g.constant([[1.0, -1.0], [-1.0, 1.0]], a.dtype)
    # Round the ends the signs come by themselves.
    return roll_by(1, 1) * roll_by(2, 2) - roll_by(1, 2) * roll_by(2, 1)


def _cofactors_by_inverse(a: Tensor, det: Tensor) -> Tensor:
    """Return the cofactors as the determinant times the transposed inverse.

    Where the determinant is 0 that of m = a + u · wᵀ, from which the cofactors of `a`
    follow: with B the inverse of m they are those of
    det m · ((1 - wᵀ · B · u) · B + B · u · wᵀ · B), turned, whatever u and w are. There
    w is as large as `a`; elsewhere 0, and m is `a`.
    """
    g, n = a.graph, a.shape[-1]
    is_singular = g.eq(g.reshape(det, (*det.shape, 1, 1)), 0.0)
    # Vectors that no matrix of somebody's is likely to have to do with.
    numbers = np.arange(1.0, n + 1)
    u = g.constant((1.0 + 0.5 * np.cos(numbers * numbers))[:, None], a.dtype)
    w = g.constant(
        (1.0 + 0.5 * np.cos(np.sqrt(2.0) * numbers * numbers + 1.0)) / n, a.dtype
    )
    magnitude = g.max(abs(g.stop_gradient(a)), (-2, -1), keep_dim=True)
    w = g.where(is_singular, magnitude * w, 0.0)
    m = a + u * w
    det = g.reshape(g.det(m), (*det.shape, 1, 1))
    # Of a rank of n - 2 or less all cofactors are 0.
    is_rank_deficient = is_singular & g.eq(det, 0.0)
    inverse = _inverse(g.where(is_rank_deficient, g.eye(n, dtype=a.dtype), m))
    inverse_magnitude = g.max(abs(g.stop_gradient(inverse)), (-2, -1), keep_dim=True)
    limit = 1.0 / (n * float(np.finfo(a.dtype.numpy).eps))
    is_rank_deficient = is_rank_deficient | (
        is_singular & g.gt(magnitude * inverse_magnitude, limit)
    )
    left = w @ inverse
    ratio = 1.0 - left @ u
    # The one determinant over the other: 0, with a derivative.
    ratio = g.where(is_singular, ratio - g.stop_gradient(ratio), ratio)
    transposed = ratio * inverse + (inverse @ u) * left
    return _transpose(g.where(is_rank_deficient, 0.0, det * transposed))


def slogdet_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `slogdet`: the transposed inverse for the logarithm; the sign has
    derivative zero.
    """
    grad = ctx.g.reshape(ctx.grad[1], (*ctx.x.shape[:-2], 1, 1))
    return [grad * _transpose(_inverse(ctx.x))]


def cholesky_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `cholesky`: L⁻ᵀ · Φ(Lᵀ · grad) · L⁻¹ for the half that is read, where Φ
    takes the lower half with half its diagonal. Elements off the diagonal count twice.
    """
    g = ctx.g
    factor, grad = widen_float16_tensors(g, ctx.out, ctx.grad)
    inner = _lower_half(_transpose(factor) @ g.tril(grad))
    for _ in range(2):
        inner = g.solve_triangular(factor, _transpose(inner), lower=True, trans=True)
    matrix_grad = _lower_half(inner + _transpose(inner))
    return [matrix_grad if factor is ctx.out else g.cast(matrix_grad, ctx.x.dtype)]


def _lower_half(x: Tensor) -> Tensor:
    """Return the lower half of a matrix with half its diagonal."""
    g = x.graph
    return (g.tril(x) + g.tril(x, -1)) * 0.5
