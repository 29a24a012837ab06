"""Groups elementwise nodes into regions that become one pass over memory.

A producer joins its consumer when nothing else needs it, both have the same shape, and
the region still fits the device's bindings. Joining saves a write, a read and a launch
and costs nothing, so no cost model is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlxweb.compile.target import Target
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry

# Longer shaders stop gaining and start costing the driver's compiler.
MAX_NODES = 160


@dataclass(slots=True)
class Region:
    """Nodes evaluated together; `reads` are the distinct values they need."""

    nodes: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


def is_elementwise(node: Node) -> bool:
    """True when one element of the result needs one element of each operand."""
    return isinstance(registry.get(node.op).lower, Expr)


def regions(graph: Graph, target: Target, fuse: bool) -> dict[int, Region]:
    """Last node → its region, for every elementwise node that is not inside another."""
    uses: dict[int, int] = {}
    for node in graph.nodes():
        for i in node.inputs:
            uses[i] = uses.get(i, 0) + 1
    for i in graph.outputs:
        uses[i] = uses.get(i, 0) + 1

    found: dict[int, Region] = {}
    for node in graph.nodes():
        if not is_elementwise(node):
            continue
        region = Region([node.id], _outside(graph, node))
        for i in node.inputs:
            inner = found.get(i)
            if inner is None or not fuse:
                continue
            reads = [r for r in region.reads if r != i]
            reads += [r for r in inner.reads if r not in reads]
            if (
                node.inputs.count(i) == uses[i]
                and graph.node(i).type.shape == node.type.shape
                and len(region.nodes) + len(inner.nodes) <= MAX_NODES
                and len(reads) + 1 <= target.max_operands
            ):
                region = Region(sorted({*inner.nodes, *region.nodes}), reads)
                del found[i]
        found[node.id] = region
    return found


def _outside(graph: Graph, node: Node) -> list[int]:
    reads: list[int] = []
    for i in node.inputs:
        if i not in reads and not graph.node(i).is_literal:
            reads.append(i)
    return reads
