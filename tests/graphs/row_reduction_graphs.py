"""Graphs of reductions along rows and elementwise ops: random trees, and formulas as
people write them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

REDUCTIONS = ("sum", "max", "min", "prod")


@dataclass(frozen=True)
class RowReductionTree:
    """Graph over rows, grown one value after another.

    shape   of the elements, the last `axes` of them a line
    ops     what is put on top: (what, which values)
    output_indices  which values are outputs
    """

    shape: tuple[int, ...]
    axes: int
    is_transposed: bool
    ops: tuple[tuple[int, int, int], ...]
    output_indices: tuple[int, ...]

    def graph(self) -> Graph:
        g = Graph("lines")
        first_row_axis = len(self.shape) - self.axes
        row_shape = (*self.shape[:first_row_axis], *(1,) * self.axes)
        matrix = g.input("x", self.shape[::-1] if self.is_transposed else self.shape)
        if self.is_transposed:
            matrix = g.transpose(matrix, tuple(range(len(self.shape)))[::-1])
        values: list[Tensor] = [
            matrix,
            g.input("along", self.shape[first_row_axis:]),
            g.input("beside", row_shape),
        ]
        row_axes = tuple(range(first_row_axis - len(self.shape), 0))
        for op, left, right in self.ops:
            x, y = values[left % len(values)], values[right % len(values)]
            values.append(self._build_value(g, op, x, y, row_axes, row_shape))
        g.set_outputs([values[i % len(values)] for i in self.output_indices])
        return g

    def _build_value(
        self, g: Graph, op: int, x: Tensor, y: Tensor, row_axes: Any, row_shape: Any
    ) -> Tensor:
        """Apply an elementwise op whose result stays small, or a reduction of a value
        of the full shape.
        """
        elementwise: list[Callable[[], Tensor]] = [
            lambda: g.tanh(x + y),
            lambda: g.tanh(x) - y * 0.5,
            lambda: g.minimum(g.abs(x), 2.0),
            lambda: g.maximum(x, y * 0.5),
            lambda: g.exp(g.neg(g.abs(x))) * g.tanh(y),
            lambda: g.sigmoid(x - y),
        ]
        if x.shape == self.shape and op % 2:
            kind = REDUCTIONS[op // 2 % len(REDUCTIONS)]
            if kind == "prod":
                x = 1.0 + g.tanh(x) * (0.5 / self.shape[-1])
            total = g.apply(kind, x, axes=row_axes, keep_dim=bool(op & 16))
            scale = 1.0 / np.sqrt(np.prod(self.shape)) if kind == "sum" else 1.0
            total = total * float(scale)
            return total if op & 16 else g.reshape(g.tanh(total), row_shape)
        return elementwise[op % len(elementwise)]()

    def feeds(self) -> dict[str, Any]:
        rng = np.random.default_rng(len(self.ops))
        shapes = {
            "x": self.shape[::-1] if self.is_transposed else self.shape,
            "along": self.shape[len(self.shape) - self.axes :],
            "beside": (
                *self.shape[: len(self.shape) - self.axes],
                *(1,) * self.axes,
            ),
        }
        return {k: rng.standard_normal(s).astype("f4") for k, s in shapes.items()}


@st.composite
def reduction_trees(draw: st.DrawFn) -> RowReductionTree:
    axes = draw(st.integers(1, 2))
    outer_shape = draw(st.lists(st.integers(1, 7), max_size=2))
    max_length = 700 if axes == 1 else 26
    row_shape = draw(st.lists(st.integers(1, max_length), min_size=axes, max_size=axes))
    number = st.integers(0, 31)
    ops = draw(st.lists(st.tuples(number, number, number), min_size=2, max_size=12))
    output_indices = draw(
        st.lists(st.integers(3, 2 + len(ops)), min_size=1, max_size=2)
    )
    is_transposed = draw(st.booleans())
    return RowReductionTree(
        (*outer_shape, *row_shape),
        axes,
        is_transposed,
        tuple(ops),
        tuple(output_indices),
    )


def relative_error(got: Any, want: Any) -> float:
    """Return the largest error relative to the largest value."""
    want, got = np.asarray(want, np.float64), np.asarray(got)
    assert got.shape == want.shape
    return float(np.abs(got - want).max() / max(1.0, np.abs(want).max()))


def handwritten_outputs(name: str, g: Graph, x: Tensor, y: Tensor) -> list[Tensor]:
    """Build softmax, norms and other formulas as people write them by hand."""
    if name == "softmax":
        e = g.exp(x - g.max(x, -1, keep_dim=True))
        return [e / g.sum(e, -1, keep_dim=True)]
    if name == "layer norm":
        centered = x - g.mean(x, -1, keep_dim=True)
        return [
            centered / g.sqrt(g.mean(centered * centered, -1, keep_dim=True) + 1e-5) * y
        ]
    if name == "ties":  # every place of the largest value, as its gradient has it
        is_max = g.cast(g.eq(x, g.max(x, -1, keep_dim=True)), "f32")
        return [is_max / g.sum(is_max, -1, keep_dim=True), g.sum(is_max * y, -1)]
    if name == "whole numbers":
        n = g.cast(x * 100.0, "i32")
        centered = n - g.min(n, -1, keep_dim=True)
        return [centered, g.max(centered * 3, -1), g.prod(g.bitwise_or(n, 1), -1)]
    if name == "unsigned":
        n = g.cast(g.abs(x) * 100.0, "u32")
        return [
            n - g.min(n, -1, keep_dim=True),
            g.max(n * n, -1),
        ]
    spread = g.max(x, -1, keep_dim=True) - g.min(x, -1, keep_dim=True)
    return [(x - g.min(x, -1, keep_dim=True)) / spread]


HANDWRITTEN = ("softmax", "layer norm", "ties", "whole numbers", "unsigned", "scaled")
