"""Row reductions: reductions over the last axes, and the elementwise ops before and
after them.

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
from rlxweb.ir.lowering import Compose, Expr, Kernel, View
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_sorted_axes

RowReductionLevel = Literal["line", "row", "fold"]
"""Role of a node: "line" has one value for each element, "row" one for each row, "fold"
is the reduction from elements to rows.
"""


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A shape whose last `axis_count` axes are reduced; together they form a row.

    shape   of what has a value for each element
    axis_count  how many axes at the end a line goes through
    """

    shape: Shape
    axis_count: int

    @property
    def outer_shape(self) -> Shape:
        """The axes before those of a row."""
        return self.shape[: len(self.shape) - self.axis_count]

    @property
    def row_length(self) -> int:
        """The number of elements of a row."""
        return math.prod(self.shape[len(self.outer_shape) :])

    @property
    def keepdims_shape(self) -> Shape:
        """The shape of one value for each row, with axes of 1 so that it broadcasts to
        the elements.
        """
        return (*self.outer_shape, *(1,) * self.axis_count)

    def node_level(self, graph: Graph, node: Node) -> RowReductionLevel | None:
        """Return the role of a node in this reduction, or None if it has none."""
        lower = registry.get(node.op).lower
        if isinstance(lower, Expr):
            if node.type.shape == self.shape:
                return "line"
            return (
                "row"
                if node.type.shape in (self.outer_shape, self.keepdims_shape)
                else None
            )
        if reduction_kind(node):
            return "fold" if row_reduction(graph, node) == self else None
        if isinstance(lower, View):
            return self._view_level(graph, node, lower)
        return None

    def _view_level(
        self, graph: Graph, node: Node, view: View
    ) -> RowReductionLevel | None:
        """Return the level of a view of row values: reshaped, or broadcast to the
        elements.
        """
        source_shape = graph.node(node.inputs[0]).type.shape
        result_shape = node.type.shape
        if source_shape not in (self.outer_shape, self.keepdims_shape):
            return None
        layout = view.layout(Layout.dense(source_shape), result_shape, node.attrs)
        if layout is None:
            return None
        if result_shape in (self.outer_shape, self.keepdims_shape):
            return "row" if layout.is_dense else None
        broadcast = Layout.dense(self.keepdims_shape).expand(self.shape)
        is_same = result_shape == self.shape and _nontrivial_strides(
            layout
        ) == _nontrivial_strides(broadcast)
        return "line" if is_same else None

    def is_aligned_read(self, reader: Node, operand: Node) -> bool:
        """Return whether each element or row of `reader` reads its own row's value of
        `operand`.

        A value for each line without the axes of size 1 broadcasts otherwise.
        """
        shape = operand.type.shape
        if reader.type.shape != self.shape or shape in (
            self.shape,
            self.keepdims_shape,
        ):
            return True
        lower = registry.get(reader.op).lower
        return isinstance(lower, View) or math.prod(self.outer_shape) == 1

    def has_no_unit_axes(self, reader: Node) -> bool:
        """Return whether a node with one value for each row lacks the axes of size
        1.
        """
        is_expr = isinstance(registry.get(reader.op).lower, Expr)
        return is_expr and reader.type.shape == self.outer_shape != ()

    def broadcast_layout(self, layout: Layout, without_unit_axes: bool) -> Layout:
        """Broadcast a layout to the elements; with `without_unit_axes`, first to one
        value for each row.
        """
        if without_unit_axes:
            outer_layout = layout.expand(self.outer_shape)
            strides = (*outer_layout.strides, *(0,) * self.axis_count)
            layout = Layout(self.keepdims_shape, strides, outer_layout.offset)
        return layout.expand(self.shape)

    def row_span(self, layout: Layout) -> int:
        """Return the distance in memory from the first to the last element of a row,
        inclusive, in elements.
        """
        steps = zip(self.shape, layout.strides, strict=True)
        row_steps = list(steps)[len(self.outer_shape) :]
        return 1 + sum((n - 1) * abs(stride) for n, stride in row_steps)


def _nontrivial_strides(layout: Layout) -> tuple[int, list[tuple[int, int]]]:
    """Return the offset of a layout and the strides of its axes of more than one
    element.
    """
    steps = enumerate(zip(layout.shape, layout.strides, strict=True))
    return layout.offset, [(axis, s) for axis, (d, s) in steps if d > 1]


def reduction_kind(node: Node) -> str:
    """Return the kind of reduction of a node: sum, mean, prod, max or min; "" if it
    reduces nothing.
    """
    lower = registry.get(node.op).lower
    return lower.reduction if isinstance(lower, Kernel | Compose) else ""


def row_reduction(graph: Graph, node: Node) -> RowReduction | None:
    """Return what a node reduces, if it reduces rows of two elements or more; else
    None.
    """
    if not reduction_kind(node):
        return None
    shape = graph.node(node.inputs[0]).type.shape
    axes = sorted(normalize_sorted_axes(node.attrs["axes"], len(shape)))
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return None
    reduction = RowReduction(shape, len(axes))
    return (
        reduction
        if reduction.row_length > 1 and math.prod(reduction.outer_shape) > 0
        else None
    )


def find_row_reduction(graph: Graph, ids: Sequence[int]) -> RowReduction:
    """Return the row reduction of the first of these nodes that reduces rows."""
    return next(
        reduction for i in ids if (reduction := row_reduction(graph, graph.node(i)))
    )


def external_reads(
    graph: Graph, reduction: RowReduction, ids: Sequence[int]
) -> tuple[tuple[int, bool], ...]:
    """Return the values that these nodes read from outside, each with whether its
    reader lacks the axes of size 1.
    """
    inside = set(ids)
    return tuple(
        dict.fromkeys(
            (i, reduction.has_no_unit_axes(node))
            for node in map(graph.node, ids)
            for i in node.inputs
            if i not in inside and not graph.node(i).is_literal
        )
    )
