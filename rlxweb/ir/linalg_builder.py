"""Builder methods of numpy.linalg: systems of equations, inverses, determinants.

Batches are broadcast and vectors made columns, which the ops leave to others. Nothing
is computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import ShapeError
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import broadcast, show
from rlxweb.ir.tensor import Tensor


class LinalgBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def solve(self, a: Tensor, b: Tensor) -> Tensor:
        """The x of a · x = b, as numpy.linalg.solve.

        A matrix with a pivot of exactly 0, where NumPy raises LinAlgError, gives NaN
        everywhere; the others of a batch are right all the same.
        Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
                 axes of the batches broadcast
        Errors   ShapeError, DTypeError
        """
        return self._of_systems("solve", a, b)

    def inv(self, a: Tensor) -> Tensor:
        """The inverses of matrices [..., n, n]; of a singular one all is NaN.

        Errors   ShapeError, DTypeError. To multiply by one use `solve`.
        """
        one = self.constant(np.eye(a.shape[-1] if a.rank else 0), a.dtype)
        return self.solve(a, one)

    def det(self, a: Tensor) -> Tensor:
        """The determinants of matrices [..., n, n]: [...]. Errors  ShapeError."""
        return self.apply("det", a)

    def slogdet(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """The signs of the determinants of matrices [..., n, n], and the logarithms of
        their absolute values, as numpy.linalg.slogdet: two of [...], which stay in
        range where the determinant itself does not.

        Of a singular matrix they are 0 and -infinity. Errors  ShapeError, DTypeError.
        """
        both = self.apply("slogdet", a)
        sign, logs = (
            self.apply("narrow", both, axis=0, start=at, length=1) for at in (0, 1)
        )
        shape = both.shape[1:]
        return (
            self.apply("reshape", sign, shape=shape),
            self.apply("reshape", logs, shape=shape),
        )

    def cholesky(self, a: Tensor, *, upper: bool = False) -> Tensor:
        """The lower triangle L of L · Lᵀ = a, for symmetric matrices that are positive
        definite; as numpy.linalg.cholesky only that half of them is read.

        A matrix that is not positive definite, where NumPy raises LinAlgError, gives
        NaN everywhere; the others of a batch are right all the same.
        Shapes   a [..., n, n] → [..., n, n]
        upper    read the upper half, and give Lᵀ
        Errors   ShapeError, DTypeError
        """
        g: Any = self
        if not upper:
            return self.apply("cholesky", a)
        made: Tensor = g.swapaxes(self.cholesky(g.swapaxes(a, -1, -2)), -1, -2)
        return made

    def solve_triangular(
        self,
        a: Tensor,
        b: Tensor,
        *,
        lower: bool = False,
        trans: bool = False,
        unit_diagonal: bool = False,
    ) -> Tensor:
        """The x of a · x = b for triangular matrices, as scipy.linalg.solve_triangular.

        The other half of `a` is not read. A 0 on the diagonal, where SciPy raises
        LinAlgError, makes all of that matrix' unknowns NaN.
        Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
                 axes of the batches broadcast
        lower    `a` is a lower triangle, otherwise an upper one
        trans    solve aᵀ · x = b
        unit_diagonal  the diagonal is taken for 1 and not read
        Errors   ShapeError, DTypeError
        """
        g: Any = self
        if trans and a.rank > 1:
            a, lower = g.swapaxes(a, -1, -2), not lower
        return self._of_systems(
            "solve_triangular", a, b, lower=lower, unit_diagonal=unit_diagonal
        )

    def _of_systems(self, op_name: str, a: Tensor, b: Tensor, **attrs: Any) -> Tensor:
        """Operands of one batch; a vector goes as a column, and comes back as one."""
        g: Any = self
        given = b
        if b.rank == 1:
            b = g.reshape(b, (*b.shape, 1))
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(
                op_name,
                f"a {show(a.shape)} and b {show(given.shape)}",
                "a is [..., n, n] and b [n] or [..., n, k]",
            )
        lead = broadcast(a.shape[:-2], b.shape[:-2])
        a, b = (
            one if one.shape[:-2] == lead else g.expand(one, (*lead, *one.shape[-2:]))
            for one in (a, b)
        )
        made = self.apply(op_name, a, b, **attrs)
        if given.rank > 1:
            return made
        return self.apply("reshape", made, shape=made.shape[:-1])
