"""Lines: reductions over the last axes, and what is elementwise before and after them.

What a softmax, a norm or a loss is written of: values that are one for each element of
a line, and values that are one for each line. Told by the records of the ops; no op is
named here and no device known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Expr, Kernel, View
from rlxweb.ir.op import registry
from rlxweb.ir.shape import Shape, normal_axes

Level = Literal["line", "row", "fold"]
"""One value for each element; one for each line; that, reduced from the elements."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The elements of a shape, its last `axes` axes a line.

    shape   of what has a value for each element
    axes    how many axes at the end a line goes through
    """

    shape: Shape
    axes: int

    @property
    def kept(self) -> Shape:
        """The axes before a line's."""
        return self.shape[: len(self.shape) - self.axes]

    @property
    def length(self) -> int:
        """Elements of a line."""
        return math.prod(self.shape[len(self.kept) :])

    @property
    def beside(self) -> Shape:
        """The shape of a value for each line that broadcasts to the elements."""
        return (*self.kept, *(1,) * self.axes)

    def level(self, graph: Graph, node: Node) -> Level | None:
        """What a node is to these lines, if anything that is computed along them."""
        lower = registry.get(node.op).lower
        if isinstance(lower, Expr):
            if node.type.shape == self.shape:
                return "line"
            return "row" if node.type.shape in (self.kept, self.beside) else None
        if isinstance(lower, Kernel):
            return "fold" if lines_of(graph, node) == self else None
        if isinstance(lower, View):
            return self._of_view(graph, node, lower)
        return None

    def _of_view(self, graph: Graph, node: Node, view: View) -> Level | None:
        """A value for each line under another shape, or spread over the elements."""
        given, made = graph.node(node.inputs[0]).type.shape, node.type.shape
        if given not in (self.kept, self.beside):
            return None
        layout = view.layout(Layout.dense(given), made, node.attrs)
        if layout is None:
            return None
        if made in (self.kept, self.beside):
            return "row" if layout.is_dense else None
        spread = Layout.dense(self.beside).expand(self.shape)
        same = made == self.shape and _moves(layout) == _moves(spread)
        return "line" if same else None

    def takes(self, at: Node, operand: Node) -> bool:
        """Does each element, or line, of a node meet its own line's value of this?

        A value for each line without the axes of size 1 broadcasts otherwise.
        """
        shape = operand.type.shape
        if at.type.shape != self.shape or shape in (self.shape, self.beside):
            return True
        lower = registry.get(at.op).lower
        return isinstance(lower, View) or math.prod(self.kept) == 1

    def is_bare(self, reader: Node) -> bool:
        """Has a value for each line no axes of size 1 for the elements?"""
        is_expr = isinstance(registry.get(reader.op).lower, Expr)
        return is_expr and reader.type.shape == self.kept != ()

    def spread(self, layout: Layout, to_bare: bool) -> Layout:
        """A layout as it broadcasts to the elements; to a value for each line first."""
        if to_bare:
            kept = layout.expand(self.kept)
            strides = (*kept.strides, *(0,) * self.axes)
            layout = Layout(self.beside, strides, kept.offset)
        return layout.expand(self.shape)

    def reach(self, layout: Layout) -> int:
        """Elements from the first to the last of a line, as far as they lie apart."""
        steps = zip(self.shape, layout.strides, strict=True)
        along = list(steps)[len(self.kept) :]
        return 1 + sum((n - 1) * abs(stride) for n, stride in along)


def _moves(layout: Layout) -> tuple[int, list[tuple[int, int]]]:
    """Where a layout begins and how it walks, axes of one element apart."""
    steps = enumerate(zip(layout.shape, layout.strides, strict=True))
    return layout.offset, [(at, s) for at, (d, s) in steps if d > 1]


def lines_of(graph: Graph, node: Node) -> Lines | None:
    """What a node reduces, if that is lines of two elements or more."""
    lower = registry.get(node.op).lower
    if not isinstance(lower, Kernel) or not lower.folds:
        return None
    shape = graph.node(node.inputs[0]).type.shape
    axes = sorted(normal_axes(node.attrs["axes"], len(shape)))
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return None
    found = Lines(shape, len(axes))
    return found if found.length > 1 and math.prod(found.kept) > 0 else None


def lines_in(graph: Graph, ids: Sequence[int]) -> Lines:
    """Those that some nodes are computed along: what one of them reduces."""
    return next(found for i in ids if (found := lines_of(graph, graph.node(i))))


def reads_in(
    graph: Graph, lines: Lines, ids: Sequence[int]
) -> tuple[tuple[int, bool], ...]:
    """What some nodes read that is none of them, and whether bare values read it."""
    inside = set(ids)
    return tuple(
        dict.fromkeys(
            (i, lines.is_bare(node))
            for node in map(graph.node, ids)
            for i in node.inputs
            if i not in inside and not graph.node(i).is_literal
        )
    )
