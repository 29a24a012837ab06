"""Nodes that change nothing, and chains of one op that are one of it.

Exporters and compositions write many: a cast to the dtype there is, a reshape of a
reshape, axes turned and turned back. Which ops have such cases is said on their
records; none is named here.
"""

from __future__ import annotations

from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Attrs, registry
from rlxweb.ir.tensor import Tensor


def shortened(graph: Graph, node: Node, operand: int) -> tuple[int, Attrs | None]:
    """An earlier value, and the attributes with which the node's op makes its result
    of it; None where it is that result.

    operand  the node's only one, in that graph; the node itself need not be in it
    """
    op = registry.get(node.op)
    first, attrs = graph.node(operand), node.attrs
    while op.joined is not None and first.op == node.op:
        attrs = op.joined(first.attrs, attrs, node.type)
        first = graph.node(first.inputs[0])
    if op.unchanged is not None and op.unchanged((first.type,), node.type, attrs):
        return first.id, None
    return first.id, attrs


def is_needless(graph: Graph, node: Node) -> bool:
    """Does it change nothing, or stand behind one with which it is one?"""
    if len(node.inputs) != 1:
        return False
    first, attrs = shortened(graph, node, node.inputs[0])
    return attrs is None or first != node.inputs[0]


def simpler(graph: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor | None:
    """What gives a node's values with fewer steps; None where nothing does.

    graph  the one that the operands are of, and the answer
    """
    if len(operands) != 1:
        return None
    first, attrs = shortened(graph, node, operands[0].id)
    if attrs is None:
        return graph.tensor(first)
    if first == operands[0].id:
        return None
    return graph.apply(node.op, graph.tensor(first), name=node.name, **attrs)
