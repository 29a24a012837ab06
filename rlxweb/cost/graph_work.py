"""Nodes as items of work: kind and size by the op's own record. Names no op."""

from __future__ import annotations

from collections.abc import Mapping

from rlxweb.cost.work import Item, Work
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry


def is_free(node: Node) -> bool:
    """A leaf or a view: it moves nothing."""
    op = registry.get(node.op)
    return op.has("leaf") or op.has("view")


def asked_of(graph: Graph, node: Node) -> tuple[Op, Types, TensorType, Attrs]:
    """Op, input types, output type and attributes: what the rules of ops are asked."""
    inputs = tuple(graph.node(i).type for i in node.inputs)
    return registry.get(node.op), inputs, node.type, node.attrs


def flops_of(graph: Graph, node: Node) -> float:
    """Arithmetic operations of one node, by its op's count; none for leaves, views."""
    op, inputs, out, attrs = asked_of(graph, node)
    return 0.0 if is_free(node) else float(op.flops(inputs, out, attrs))


def bytes_of(graph: Graph, node: Node) -> int:
    """Bytes of the distinct inputs and of the output."""
    read = sum(graph.node(i).type.nbytes for i in set(node.inputs))
    return read + node.type.nbytes


def item_of(graph: Graph, node: Node, launches: int = 1) -> Item:
    """One node as one step."""
    op, inputs, out, attrs = asked_of(graph, node)
    kind = "elementwise" if op.has("elementwise") else "other"
    size: Mapping[str, int] = {}
    if op.work is not None:
        kind, size = op.work(inputs, out, attrs)
    label = f"{node.op} '{node.name}'" if node.name else node.op
    flops = flops_of(graph, node)
    return Item(kind, label, launches, flops, bytes_of(graph, node), dict(size))


def work_of_graph(graph: Graph) -> Work:
    """The graph as it is written: one kernel a node, views free, nothing fused."""
    nodes = [node for node in graph.nodes() if not is_free(node)]
    given = sum(n.type.nbytes for n in graph.nodes() if n.op == "input")
    back = sum(graph.node(i).type.nbytes for i in graph.outputs)
    return Work(tuple(item_of(graph, node) for node in nodes), given, back)
