"""Builder methods of numpy.linalg: systems of equations, inverses, determinants.

Batches are broadcast and vectors made columns, which the ops leave to others. Nothing
is computed here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rlxweb.errors import ShapeError
from rlxweb.ir.shape import broadcast, show
from rlxweb.ir.tensor import Tensor


class LinalgBuilder(ABC):
    """Builder methods over `apply`; mixed into Graph."""

    @abstractmethod
    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """Add a node; see Graph.apply."""

    @abstractmethod
    def constant(self, value: Any, dtype: Any = None) -> Tensor:
        """See Graph.constant."""

    def solve(self, a: Tensor, b: Tensor) -> Tensor:
        """The x of a · x = b, as numpy.linalg.solve.

        A matrix with a pivot of exactly 0, where NumPy raises LinAlgError, gives NaN
        everywhere; the others of a batch are right all the same.
        Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
                 axes of the batches broadcast
        Errors   ShapeError, DTypeError
        """
        g: Any = self
        given = b
        if b.rank == 1:
            b = g.reshape(b, (*b.shape, 1))
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(
                "solve",
                f"a {show(a.shape)} and b {show(given.shape)}",
                "a is [..., n, n] and b [n] or [..., n, k]",
            )
        lead = broadcast(a.shape[:-2], b.shape[:-2])
        a, b = (
            one if one.shape[:-2] == lead else g.expand(one, (*lead, *one.shape[-2:]))
            for one in (a, b)
        )
        made = self.apply("solve", a, b)
        if given.rank > 1:
            return made
        return self.apply("reshape", made, shape=made.shape[:-1])

    def inv(self, a: Tensor) -> Tensor:
        """The inverses of matrices [..., n, n]; of a singular one all is NaN.

        Errors   ShapeError, DTypeError. To multiply by one use `solve`.
        """
        one = self.constant(np.eye(a.shape[-1] if a.rank else 0), a.dtype)
        return self.solve(a, one)

    def det(self, a: Tensor) -> Tensor:
        """The determinants of matrices [..., n, n]: [...]. Errors  ShapeError."""
        return self.apply("det", a)
