"""Graph families of the placement benchmark for linear algebra: solves, determinants,
Cholesky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor

BuildOutput = Callable[[Graph, Shape], Tensor]

SYSTEM_SHAPES = ((16, 4), (64, 16), (64, 64))
"""(matrices, rows)."""


def _matrices(g: Graph, s: Shape) -> Tensor:
    count, n = s
    return g.input("a", (count, n, n))


def _solve(g: Graph, s: Shape) -> Tensor:
    return g.solve(_matrices(g, s), g.input("b", (*s, 2)))


def _det(g: Graph, s: Shape) -> Tensor:
    return g.det(_matrices(g, s))


def _slogdet(g: Graph, s: Shape) -> Tensor:
    return g.slogdet(_matrices(g, s))[1]


def _solve_triangular(g: Graph, s: Shape) -> Tensor:
    return g.solve_triangular(_matrices(g, s), g.input("b", (*s, 2)))


def _cholesky(g: Graph, s: Shape) -> Tensor:
    return g.cholesky(_matrices(g, s) + np.eye(s[-1], dtype=np.float32) * s[-1])


LINEAR_ALGEBRA: Mapping[str, tuple[BuildOutput, tuple[Shape, ...]]] = {
    "solve": (_solve, SYSTEM_SHAPES),
    "det": (_det, SYSTEM_SHAPES),
    "slogdet": (_slogdet, SYSTEM_SHAPES),
    "solve_triangular": (_solve_triangular, SYSTEM_SHAPES),
    "cholesky": (_cholesky, SYSTEM_SHAPES),
}
