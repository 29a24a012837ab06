"""Nodes as items of work: kind and size by the op's own record. Names no op."""

from __future__ import annotations

from rlxweb.cost.work import Item, Work
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry


def is_free(node: Node) -> bool:
    """A leaf or a view: it moves nothing."""
    op = registry.get(node.op)
    return op.has("leaf") or op.has("view")


def flops_of(graph: Graph, node: Node) -> float:
    """Arithmetic operations of one node, by its op's count; none for leaves, views."""
    if is_free(node):
        return 0.0
    inputs = tuple(graph.node(i).type for i in node.inputs)
    return float(registry.get(node.op).flops(inputs, node.type, node.attrs))


def bytes_of(graph: Graph, node: Node) -> int:
    """Bytes of the distinct inputs and of the output."""
    read = sum(graph.node(i).type.nbytes for i in set(node.inputs))
    return read + node.type.nbytes


def item_of(graph: Graph, node: Node, launches: int = 1) -> Item:
    """One node as one step."""
    op = registry.get(node.op)
    inputs = tuple(graph.node(i).type for i in node.inputs)
    kind = "elementwise" if op.has("elementwise") else "other"
    size = {}
    if op.work is not None:
        kind, found = op.work(inputs, node.type, node.attrs)
        size = dict(found)
    label = f"{node.op} '{node.name}'" if node.name else node.op
    flops = flops_of(graph, node)
    return Item(kind, label, launches, flops, bytes_of(graph, node), size)


def work_of_graph(graph: Graph) -> Work:
    """The graph as it is written: one kernel a node, views free, nothing fused."""
    nodes = [node for node in graph.nodes() if not is_free(node)]
    given = sum(n.type.nbytes for n in graph.nodes() if n.op == "input")
    back = sum(graph.node(i).type.nbytes for i in graph.outputs)
    return Work(tuple(item_of(graph, node) for node in nodes), given, back)
