"""No-op elimination: nodes that change nothing, and chains of one op that equal a
single node.

Exporters and decompositions write many: a cast to the dtype there is, a reshape of a
reshape, axes turned and turned back. Which ops have such cases is said on their
records; none is named here.
"""

from __future__ import annotations

from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, registry


def skip_noops(graph: Graph, node: Node, operand: int) -> tuple[int, Attrs | None]:
    """Return the earliest value from which the node's op makes the same result, and the
    op's attributes there; the attributes are None if that value is the result.

    operand  the node's only one, in that graph; the node itself need not be in it
    """
    op = registry.get(node.op)
    if op.merge_attrs is None and op.is_noop is None:
        return operand, node.attrs
    source, attrs = graph.node(operand), node.attrs
    while op.merge_attrs is not None and source.op == node.op:
        attrs = op.merge_attrs(source.attrs, attrs, node.type)
        source = graph.node(source.inputs[0])
    if op.is_noop is not None and op.is_noop((source.type,), node.type, attrs):
        return source.id, None
    return source.id, attrs


def is_noop(graph: Graph, node: Node) -> bool:
    """Return whether a node changes nothing or can be merged with its predecessor."""
    if len(node.inputs) != 1:
        return False
    source, attrs = skip_noops(graph, node, node.inputs[0])
    return attrs is None or source != node.inputs[0]


def simplify_node(graph: Graph, node: Node, operands: tuple[int, ...]) -> int | None:
    """Return a value equal to the node's that takes fewer steps; None if there is none.

    graph     the graph that gets the value
    operands  the node's operands there, by their numbers
    """
    if len(operands) != 1:
        return None
    source, attrs = skip_noops(graph, node, operands[0])
    if attrs is None:
        return source
    if source == operands[0]:
        return None
    return graph.apply(node.op, graph.tensor(source), name=node.name, **attrs).id
