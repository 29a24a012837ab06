"""Gradients of systems of equations, determinants and Cholesky's factor.

Formulas: Giles, "An extended collection of matrix derivative results" (2008); of the
factor Murray, "Differentiation of the Cholesky decomposition" (2016). Where a solution,
a factor or a logarithm is NaN or infinite, because there is no inverse, so is its
gradient. A determinant has one everywhere: the cofactors.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.derivative import Taken
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.norm import in_f32


def _turned(x: Tensor) -> Tensor:
    return x.graph.swapaxes(x, -1, -2)


def solve_back(at: Taken) -> list[Tensor | None]:
    """By b the solution of aᵀ · y = grad, by a -y · xᵀ."""
    by_b = at.g.solve(_turned(at.x), at.grad)
    return [-(by_b @ _turned(at.out)) if at.wants[0] else None, by_b]


def triangular_back(at: Taken) -> list[Tensor | None]:
    """The same, of the triangle that is read."""
    g, lower, unit = at.g, at.attrs["lower"], at.attrs["unit_diagonal"]
    by_b = g.solve_triangular(
        at.x, at.grad, lower=lower, trans=True, unit_diagonal=unit
    )
    if not at.wants[0]:
        return [None, by_b]
    whole = -(by_b @ _turned(at.out))
    return [g.tril(whole, -int(unit)) if lower else g.triu(whole, int(unit)), by_b]


def _inverse(a: Tensor) -> Tensor:
    # Of `a` as it is, so that its pivots are those of which the determinant is made:
    # of a nearly singular matrix the two belong together.
    g = a.graph
    return g.solve(a, g.expand(g.eye(a.shape[-1], dtype=a.dtype), a.shape))


def det_back(at: Taken) -> list[Tensor | None]:
    """The cofactors, where the determinant is 0 as well.

    Up to three rows they are products of elements, and so are their own derivatives.
    Of more they come by an inverse: second derivatives are right of regular matrices,
    and where the determinant is exactly 0 and the rank one less than the rows.
    """
    g, n = at.g, at.x.shape[-1]
    if not n:
        return [None]
    a, grad, det = in_f32(g, at.x, at.grad, at.out)
    made = g.reshape(grad, (*grad.shape, 1, 1)) * _cofactors(a, det)
    return [made if a is at.x else g.cast(made, at.x.dtype)]


def _cofactors(a: Tensor, det: Tensor) -> Tensor:
    g, n = a.graph, a.shape[-1]
    if n == 1:
        return g.expand(g.constant(1.0, a.dtype), a.shape)
    if n > 3:
        return _many_cofactors(a, det)

    def on(rows: int, columns: int) -> Tensor:
        return g.roll(a, (-rows, -columns), (-2, -1))

    if n == 2:
        return on(1, 1) * g.constant([[1.0, -1.0], [-1.0, 1.0]], a.dtype)
    # Round the ends the signs come by themselves.
    return on(1, 1) * on(2, 2) - on(1, 2) * on(2, 1)


def _many_cofactors(a: Tensor, det: Tensor) -> Tensor:
    """The determinant times the inverse, turned.

    Where the determinant is 0 that of m = a + u · wᵀ, from which the cofactors of `a`
    follow: with B the inverse of m they are those of
    det m · ((1 - wᵀ · B · u) · B + B · u · wᵀ · B), turned, whatever u and w are. There
    w is as large as `a`; elsewhere 0, and m is `a`.
    """
    g, n = a.graph, a.shape[-1]
    zero = g.eq(g.reshape(det, (*det.shape, 1, 1)), 0.0)
    # Vectors that no matrix of somebody's is likely to have to do with.
    at = np.arange(1.0, n + 1)
    u = g.constant((1.0 + 0.5 * np.cos(at * at))[:, None], a.dtype)
    w = g.constant((1.0 + 0.5 * np.cos(np.sqrt(2.0) * at * at + 1.0)) / n, a.dtype)
    size = g.max(abs(g.stop_gradient(a)), (-2, -1), keep_dim=True)
    w = g.where(zero, size * w, 0.0)
    m = a + u * w
    det = g.reshape(g.det(m), (*det.shape, 1, 1))
    # Of a rank of n - 2 or less all cofactors are 0.
    gone = zero & g.eq(det, 0.0)
    inverse = _inverse(g.where(gone, g.eye(n, dtype=a.dtype), m))
    most = g.max(abs(g.stop_gradient(inverse)), (-2, -1), keep_dim=True)
    limit = 1.0 / (n * float(np.finfo(a.dtype.numpy).eps))
    gone = gone | (zero & g.gt(size * most, limit))
    left = w @ inverse
    rest = 1.0 - left @ u
    # The one determinant over the other: 0, with a derivative.
    rest = g.where(zero, rest - g.stop_gradient(rest), rest)
    made = rest * inverse + (inverse @ u) * left
    return _turned(g.where(gone, 0.0, det * made))


def slogdet_back(at: Taken) -> list[Tensor | None]:
    """Of the logarithm the inverse, turned; the sign is flat."""
    grad = at.g.reshape(at.grad[1], (*at.x.shape[:-2], 1, 1))
    return [grad * _turned(_inverse(at.x))]


def cholesky_back(at: Taken) -> list[Tensor | None]:
    """L⁻ᵀ · Φ(Lᵀ · grad) · L⁻¹ of the half that is read, where Φ is the lower half
    with half its diagonal. What is not on the diagonal is there twice.
    """
    g = at.g
    factor, grad = in_f32(g, at.out, at.grad)
    half = _halved(_turned(factor) @ g.tril(grad))
    for _ in range(2):
        half = g.solve_triangular(factor, _turned(half), lower=True, trans=True)
    made = _halved(half + _turned(half))
    return [made if factor is at.out else g.cast(made, at.x.dtype)]


def _halved(x: Tensor) -> Tensor:
    g = x.graph
    return (g.tril(x) + g.tril(x, -1)) * 0.5
