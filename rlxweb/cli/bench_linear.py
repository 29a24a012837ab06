"""Families of graphs of linear algebra beside products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

Build = Callable[[Graph, Shape], Tensor]

SYSTEMS = ((16, 4), (64, 16), (64, 64))
"""(matrices, rows)."""


def _matrices(g: Graph, s: Shape) -> Tensor:
    count, n = s
    return g.input("a", (count, n, n))


def _solve(g: Graph, s: Shape) -> Tensor:
    return g.solve(_matrices(g, s), g.input("b", (*s, 2)))


def _det(g: Graph, s: Shape) -> Tensor:
    return g.det(_matrices(g, s))


LINEAR: Mapping[str, tuple[Build, tuple[Shape, ...]]] = {
    "solve": (_solve, SYSTEMS),
    "det": (_det, SYSTEMS),
}
