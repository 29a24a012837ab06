"""Fusion of row reductions with the elementwise nodes around them into one pass.

A softmax that is written out is a maximum, a difference, an exponential, a sum and a
quotient: five passes over memory, or one that goes along each line as often as it must
and keeps what is between in registers. From each node that others read from memory, its
operands are taken in as long as they are computed along the same lines. What two such
passes need is computed in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rlxweb.compiler.target import Target
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr, View
from rlxweb.ir.op import registry
from rlxweb.ir.row_reduction_pattern import (
    RowReduction,
    RowReductionLevel,
    external_reads,
    row_reduction,
)

MAX_NODES = 64
"""Maximum number of nodes in one pass. Longer shaders cost the driver's compiler more
than they save.
"""
MAX_DEPTH = 5
"""Maximum number of reductions one after another: each is one more pass over the row.
"""
_COMPUTE_DTYPES = frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL})


@dataclass(frozen=True, slots=True)
class FusedRowReduction:
    """Row reductions and elementwise nodes that one pass over the rows computes.

    nodes   in order; the last is the result
    reads   what they read from memory, and whether values without a line's axes do
    kernel  what the target computes them by
    """

    rows: RowReduction
    nodes: tuple[int, ...]
    reads: tuple[tuple[int, bool], ...]
    kernel: object

    def read_nodes(self) -> set[int]:
        """Return the nodes that the pass reads from memory."""
        return {i for i, _ in self.reads}


def find_row_reductions(graph: Graph, target: Target) -> dict[int, FusedRowReduction]:
    """Return the fused row reductions that are profitable, by result node."""
    if not any(row_reduction(graph, node) for node in graph.nodes()):
        return {}
    reductions: dict[int, FusedRowReduction] = {}
    needed = set(graph.outputs)
    for node in reversed(graph.nodes()):
        if node.id not in needed:
            continue
        step = _fused_reduction(graph, target, node, needed)
        if step is not None:
            reductions[node.id] = step
        needed.update(node.inputs if step is None else step.read_nodes())
    return reductions


@dataclass(frozen=True, slots=True)
class RowReductionPlan:
    """Fused row reductions of a graph, and the nodes that remain outside them.

    steps  result → its pass
    alive  nodes that are computed by themselves, or by a pass as its result
    uses   how often each node is read, by a pass at most once
    """

    steps: Mapping[int, FusedRowReduction]
    alive: frozenset[int]
    uses: Mapping[int, int]

    @classmethod
    def from_steps(
        cls, graph: Graph, steps: Mapping[int, FusedRowReduction]
    ) -> RowReductionPlan:
        """Return the plan of these fused reductions with the nodes that they leave."""
        alive, uses = set(graph.outputs), Counter(graph.outputs)
        for node in reversed(graph.nodes()):
            if node.id in alive or registry.get(node.op).has_trait("leaf"):
                step = steps.get(node.id)
                operand_ids = node.inputs if step is None else tuple(step.read_nodes())
                alive.update((node.id, *operand_ids))
                uses.update(operand_ids)
        return cls(steps, frozenset(alive), uses)

    def is_standalone(self, node_id: int) -> bool:
        """Tell whether a node is computed by itself."""
        return node_id in self.alive and node_id not in self.steps


def _fused_reduction(
    graph: Graph, target: Target, node: Node, needed: Collection[int]
) -> FusedRowReduction | None:
    """Return the fused row reduction that ends with a node; None if there is none."""
    for rows in _candidate_rows(graph, node):
        if rows.row_length > target.line_length or rows.node_level(graph, node) is None:
            continue
        inside = _fusable_nodes(graph, rows, node, needed)
        if _is_profitable(graph, rows, inside):
            nodes = tuple(sorted(inside))
            reads = external_reads(graph, rows, nodes)
            if len(reads) < target.max_operands:
                kernel = target.row_kernel(graph, nodes)
                if kernel is not None:
                    return FusedRowReduction(rows, nodes, reads, kernel)
    return None


def _candidate_rows(graph: Graph, node: Node) -> Iterable[RowReduction]:
    """Return the rows that a node reduces, or those of the reductions that it is
    computed from.
    """
    if isinstance(registry.get(node.op).lower, View):
        return ()
    candidates: dict[RowReduction, None] = {}
    pending, seen = [node.id], {node.id}
    while pending and len(seen) < MAX_NODES:
        producer = graph.node(pending.pop(0))
        rows = row_reduction(graph, producer)
        if rows is not None:
            candidates[rows] = None
        elif isinstance(registry.get(producer.op).lower, Expr | View):
            new = [i for i in dict.fromkeys(producer.inputs) if i not in seen]
            seen.update(new)
            pending += new
    return candidates


def _fusable_nodes(
    graph: Graph, rows: RowReduction, last: Node, needed: Collection[int]
) -> dict[int, RowReductionLevel]:
    """Return all nodes that one pass over the rows can compute without reading them
    from memory.
    """
    from_memory = set(needed) - {last.id}
    while True:
        inside = _reachable_nodes(graph, rows, last, from_memory)
        misread = {
            i
            for node_id in inside
            for i in _memory_operands(graph, rows, node_id, inside)
        }
        if not misread:
            return inside
        from_memory |= misread


def _reachable_nodes(
    graph: Graph, rows: RowReduction, last: Node, from_memory: Collection[int]
) -> dict[int, RowReductionLevel]:
    """Return the producers of a node that are computed along the same rows, with their
    levels.
    """
    inside: dict[int, RowReductionLevel] = {}
    pending = [last.id]
    while pending:
        node_id = pending.pop()
        node = graph.node(node_id)
        level = (
            None
            if node_id in from_memory or node_id in inside
            else rows.node_level(graph, node)
        )
        if level is None or node.type.dtype not in _COMPUTE_DTYPES or node.is_literal:
            continue
        inside[node_id] = level
        pending += node.inputs
    return inside


def _memory_operands(
    graph: Graph, rows: RowReduction, node_id: int, inside: Collection[int]
) -> Iterable[int]:
    """Return the nodes that must be read from memory so that a node meets the right
    elements of them.
    """
    node = graph.node(node_id)
    is_view = isinstance(registry.get(node.op).lower, View)
    if is_view and node.inputs[0] not in inside:
        return (node_id,)
    return [
        i
        for i in node.inputs
        if i in inside and not rows.is_aligned_read(node, graph.node(i))
    ]


def _is_profitable(
    graph: Graph, rows: RowReduction, inside: dict[int, RowReductionLevel]
) -> bool:
    """Tell whether one pass replaces several. A lone reduction has better kernels, and
    so has one followed by elementwise nodes.
    """
    reduction_count = sum(level == "fold" for level in inside.values())
    view_count = sum(
        isinstance(registry.get(graph.node(i).op).lower, View) for i in inside
    )
    elementwise_count = sum(level == "line" for level in inside.values()) - view_count
    is_full_reduction = not rows.outer_shape and len(inside) > 1 + view_count
    replaces_several = reduction_count > 1 or (
        reduction_count == 1 and (elementwise_count > 0 or is_full_reduction)
    )
    return (
        replaces_several
        and len(inside) <= MAX_NODES
        and _reduction_depth(graph, inside) <= MAX_DEPTH
    )


def _reduction_depth(graph: Graph, inside: dict[int, RowReductionLevel]) -> int:
    """Return the longest chain of reductions that depend on one another."""
    depths: dict[int, int] = {}
    for node_id in sorted(inside):
        operand_depths = [depths.get(i, 0) for i in graph.node(node_id).inputs]
        depths[node_id] = max(operand_depths, default=0) + (inside[node_id] == "fold")
    return max(depths.values())
