"""Families of graphs that language models are made of beside attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

Build = Callable[[Graph, Shape], Tensor]

ROWS = ((16, 64), (128, 256), (512, 1024))
"""(places, width)."""


def _rope(g: Graph, s: Shape) -> Tensor:
    length, size = s
    return g.rope(g.input("x", s), *g.rope_table(length, size))


def _swiglu(g: Graph, s: Shape) -> Tensor:
    return g.swiglu(g.input("x", s))


def _lora(g: Graph, s: Shape) -> Tensor:
    n = s[1]
    w, a, b = g.input("w", (n, n)), g.input("a", (n, 8)), g.input("b", (8, n))
    return g.lora_matmul(g.input("x", s), w, a, b)


LANGUAGE: Mapping[str, tuple[Build, tuple[Shape, ...]]] = {
    "rope": (_rope, ROWS),
    "swiglu": (_swiglu, ROWS),
    "lora_matmul": (_lora, ROWS),
}
