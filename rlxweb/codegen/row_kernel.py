"""Row kernel: what a fused row reduction computes, walk by walk, before it is written
in any language.

A row is walked once for every reduction that needs the one before it, and once more to
store a value for each element. Between the walks stand values that are one for the
whole row. `row_reduction_wgsl.py`, `row_reduction_llvm.py` and `row_reduction_wasm.py`
write kernels from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from rlxweb.core.errors import GraphError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import View
from rlxweb.ir.op import registry
from rlxweb.ir.row_reduction_pattern import (
    RowReduction,
    RowReductionLevel,
    external_reads,
    find_row_reduction,
)

JOB_WORDS: Final = 4
"""Words of a kernel's job before its addresses: rows, elements of a row, address of the
counter of rows that threads have claimed, rows that a thread claims at a time.
"""
# By name, as no field of an op's record says that its result is never below 0. One that
# is missing here is only summed more slowly.
_NONNEGATIVE_OPS = ("abs", "exp", "exp2", "sqrt")


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Nodes that are computed along the rows of one shape, with the walk of each.

    nodes   in order; the last is the result
    reads   the nodes they read from memory, each with whether its values, one for a
            row, lack the axes of a row
    levels  whether a node has a value for each element ("line"), for each row ("row"),
            or is the reduction from one to the other ("fold")
    depths  how many walks are over before a node is known; a reduction includes its own
    """

    graph: Graph
    rows: RowReduction
    nodes: tuple[Node, ...]
    reads: tuple[tuple[int, bool], ...]
    levels: dict[int, RowReductionLevel]
    depths: dict[int, int]

    @classmethod
    def from_nodes(cls, graph: Graph, ids: Sequence[int]) -> RowKernel:
        """Return the kernel of these nodes of a graph.

        Errors   GraphError for a node that is not computed along the rows.
        """
        rows = find_row_reduction(graph, ids)
        nodes = tuple(graph.node(i) for i in ids)
        levels: dict[int, RowReductionLevel] = {}
        depths: dict[int, int] = {}
        for node in nodes:
            level = rows.node_level(graph, node)
            if level is None:
                raise GraphError(str(node), "the op cannot be part of a row reduction")
            levels[node.id] = level
            before = max((depths.get(i, 0) for i in node.inputs), default=0)
            depths[node.id] = before + (level == "fold")
        return cls(graph, rows, nodes, external_reads(graph, rows, ids), levels, depths)

    def __str__(self) -> str:
        """Return the kernel as text: a line for each walk, with the ops that it
        evaluates for an element, those that reduce, and those of one value for the row.
        """
        lines = [f"rows of {self.rows.row_length} in {list(self.rows.shape)}"]
        known = [node.id for node in self.row_nodes(0)]
        for walk in range(1, self.walk_count + 1):
            folds, after = self.fold_nodes(walk), self.row_nodes(walk)
            elements, _ = self.element_nodes([node.inputs[0] for node in folds], known)
            known += [node.id for node in (*folds, *after)]
            text = f"walk {walk}: {_op_names(elements)} → {_op_names(folds)}"
            lines.append(f"{text}; then {_op_names(after)}" if after else text)
        if not self.is_per_element:
            return "\n".join([*lines, "store the row's value"])
        stored = self.stored_value
        known += [stored.id] if stored else []
        elements, _ = self.element_nodes([self.result.id], known)
        note = f", {stored.op} as stored by walk {self.walk_count}" if stored else ""
        return "\n".join([*lines, f"store each element: {_op_names(elements)}{note}"])

    @property
    def result(self) -> Node:
        """The node whose values are stored."""
        return self.nodes[-1]

    @property
    def is_per_element(self) -> bool:
        """True if the result has a value for each element, not for each row."""
        return self.result.type.shape == self.rows.shape

    @property
    def walk_count(self) -> int:
        """Number of walks over a row that reduce."""
        return max(self.depths.values())

    def row_nodes(self, walk: int) -> list[Node]:
        """Return the nodes of one value for each row that are known after so many
        walks; a view of such a value is one of them.
        """
        return [
            node
            for node in self.nodes
            if self.depths[node.id] == walk
            and (self.levels[node.id] == "row" or is_view(node))
        ]

    def fold_nodes(self, walk: int) -> list[Node]:
        """Return the reductions of a walk, counted from 1."""
        return [
            node
            for node in self.nodes
            if self.levels[node.id] == "fold" and self.depths[node.id] == walk
        ]

    def element_nodes(
        self, requested: Sequence[int], known: Collection[int]
    ) -> tuple[list[Node], set[int]]:
        """Return the nodes to evaluate for one element so that the requested ones are
        known there, in order, and the nodes that they and the request read beside them.

        known   nodes whose values are at hand
        """
        needed, pending = set[int](), list(requested)
        used = set(requested)
        while pending:
            node_id = pending.pop()
            is_element = self.levels.get(node_id) == "line"
            if is_element and node_id not in needed and node_id not in known:
                needed.add(node_id)
                inputs = self.graph.node(node_id).inputs
                pending += inputs
                used.update(inputs)
        return [node for node in self.nodes if node.id in needed], used - needed

    @property
    def stored_value(self) -> Node | None:
        """The node whose values are best stored in the result's place on the last walk
        that reduces, and read there by the walk that stores; None to compute all anew.

        That of a softmax is the exponential, which is summed and then divided.
        """
        if not self.is_per_element:
            return None
        (fold, *others) = self.fold_nodes(self.walk_count)
        value = self.graph.node(fold.inputs[0])
        is_element = self.levels.get(value.id) == "line" and not is_view(value)
        if others or not is_element or value.type.dtype is not self.result.type.dtype:
            return None
        known = [node.id for node in self.nodes if self.levels[node.id] != "line"]
        anew = self.element_nodes([self.result.id], known)[0]
        after = self.element_nodes([self.result.id], [*known, value.id])[0]
        return value if len(after) < len(anew) else None

    def is_nonnegative(self, node: Node) -> bool:
        """Tell whether a node has no value below 0, so that nothing cancels in its
        sum.
        """
        is_square = node.op == "mul" and node.inputs[0] == node.inputs[1]
        return is_square or node.op in _NONNEGATIVE_OPS

    def is_nonpositive(self, node_id: int) -> bool:
        """Tell whether a value of an element is that less the largest of its row."""
        # "sub" and "max" by name: it is what they compute that no result exceeds 0, and
        # no field of a record says so.
        node = self.graph.node(node_id)
        if node.op != "sub":
            return False
        largest = self.graph.node(node.inputs[1])
        while largest.id in self.levels and is_view(largest):
            largest = self.graph.node(largest.inputs[0])
        is_largest = self.levels.get(largest.id) == "fold" and largest.op == "max"
        return is_largest and largest.inputs[0] == node.inputs[0]

    def read_index(self, reader: Node, node_id: int) -> int:
        """Return which of `reads` a node reads another as."""
        return self.reads.index((node_id, self.rows.has_no_unit_axes(reader)))


def is_view(node: Node) -> bool:
    """Tell whether a node only names the values of another."""
    return isinstance(registry.get(node.op).lower, View)


def _op_names(nodes: Sequence[Node]) -> str:
    return " ".join(node.op for node in nodes) or "(read)"
