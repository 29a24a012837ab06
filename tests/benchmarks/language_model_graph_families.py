"""Graph families of the placement benchmark for language models, attention aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor

BuildOutput = Callable[[Graph, Shape], Tensor]

ROW_SHAPES = ((16, 64), (128, 256), (512, 1024))
"""(length, width)."""


def _rope(g: Graph, s: Shape) -> Tensor:
    length, size = s
    return g.rope(g.input("x", s), *g.rope_table(length, size))


def _add_norm(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    normalized, total = g.add_rms_norm(x, y, g.input("gamma", s[1:]))
    return normalized * total


def _swiglu(g: Graph, s: Shape) -> Tensor:
    return g.swiglu(g.input("x", s))


def _lora(g: Graph, s: Shape) -> Tensor:
    n = s[1]
    w, a, b = g.input("w", (n, n)), g.input("a", (n, 8)), g.input("b", (8, n))
    return g.lora_matmul(g.input("x", s), w, a, b)


def _grouped_matmul(g: Graph, s: Shape) -> Tensor:
    n = s[1]
    offsets = np.arange(1, 5, dtype=np.int32) * (s[0] // 4)
    w = g.input("w", (4, n, n))
    return g.grouped_matmul(g.input("x", s), w, offsets=g.constant(offsets))


def _quantized_matmul(g: Graph, s: Shape) -> Tensor:
    """Multiply by weights of four bits in groups of 32."""
    n = s[1]
    words = g.input("words", (n, n // 8), "i32")
    scales = g.input("scales", (n, n // 32))
    return g.quantized_matmul(g.input("x", s), words, scales, bits=4, group_size=32)


def _selective_scan(g: Graph, s: Shape) -> Tensor:
    """Build a selective scan with 16 states per channel, as in Mamba."""
    length, width = s
    x, delta = g.input("x", (1, *s)), g.input("delta", (1, *s)) * 0.1
    a = -g.input("a", (width, 16))
    b, c = g.input("b", (1, length, 16)), g.input("c", (1, length, 16))
    return g.selective_scan(x, delta, a, b, c)[0]


LANGUAGE: Mapping[str, tuple[BuildOutput, tuple[Shape, ...]]] = {
    "rope": (_rope, ROW_SHAPES),
    "add_norm": (_add_norm, ROW_SHAPES),
    "swiglu": (_swiglu, ROW_SHAPES),
    "lora_matmul": (_lora, ROW_SHAPES),
    "grouped_matmul": (_grouped_matmul, ROW_SHAPES),
    "quantized_matmul": (_quantized_matmul, ROW_SHAPES),
    "selective_scan": (_selective_scan, ROW_SHAPES),
}
