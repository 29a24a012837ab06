"""Rebuilding a graph node by node: the one mechanism every rewrite uses.

A rewrite is a function that is shown each node with its already rewritten operands and
answers with the tensor that takes its place. Inputs and params are always kept, so the
names a caller may set never depend on optimisation.
"""

from __future__ import annotations

from collections.abc import Callable

from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.tensor import Tensor

Rewrite = Callable[[Graph, Node, tuple[Tensor, ...]], Tensor]


def copy_node(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
    """The node as it stands, on its new operands."""
    if node.op in ("input", "param"):
        make = out.input if node.op == "input" else out.param
        return make(node.name, node.type.shape, node.type.dtype)
    if node.op == "constant":
        return out.constant(node.attrs["value"].array)
    made: Tensor = out.apply(node.op, *operands, name=node.name, **node.attrs)
    return made


def rebuild(graph: Graph, rewrite: Rewrite, keep: set[int] | None = None) -> Graph:
    """A new graph with each node (of `keep`, if given) passed through `rewrite`."""
    out = Graph(graph.name)
    made: dict[int, Tensor] = {}
    for node in graph.nodes():
        if keep is not None and node.id not in keep:
            continue
        operands = tuple(made[i] for i in node.inputs)
        made[node.id] = rewrite(out, node, operands)
    out.set_outputs([made[i] for i in graph.outputs])
    return out
