"""Dead nodes, common subexpressions and constant folding."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.compile.passes.rebuild import copy_node, rebuild
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor

# Folding trades device work for buffer space; beyond this it stops being a bargain.
FOLD_ELEMENTS = 1 << 14


def drop_dead(graph: Graph) -> Graph:
    """Without the nodes no output depends on; inputs and params stay."""
    alive = {n.id for n in graph.nodes() if n.op in ("input", "param")}
    todo = list(graph.outputs)
    while todo:
        at = todo.pop()
        if at not in alive or graph.node(at).op in ("input", "param"):
            alive.add(at)
            todo.extend(i for i in graph.node(at).inputs if i not in alive)
    return graph if len(alive) == len(graph) else rebuild(graph, copy_node, alive)


def share_common(graph: Graph) -> Graph:
    """Equal op, attributes and operands → one node."""
    seen: dict[Any, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if node.op in ("input", "param"):
            return copy_node(out, node, operands)
        ids = tuple(t.id for t in operands)
        try:
            key = (node.op, ids, tuple(sorted(node.attrs.items(), key=_by_name)))
            if key not in seen:
                seen[key] = copy_node(out, node, operands)
        except TypeError:  # an attribute of a custom op that cannot be hashed
            return copy_node(out, node, operands)
        return seen[key]

    return rebuild(graph, rewrite)


def _by_name(item: tuple[str, Any]) -> str:
    return item[0]


def fold_constants(graph: Graph) -> Graph:
    """Small nodes over constants alone become constants."""
    known: dict[int, Any] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if node.op == "constant":
            made = copy_node(out, node, operands)
            known[made.id] = node.attrs["value"].array
            return made
        ready = bool(operands) and all(t.id in known for t in operands)
        if not ready or node.type.numel > FOLD_ELEMENTS:
            return copy_node(out, node, operands)
        op = registry.get(node.op)
        with np.errstate(all="ignore"):
            value = op.reference(np, node.attrs, *(known[t.id] for t in operands))
        made = out.constant(np.asarray(value, dtype=node.type.dtype.numpy))
        known[made.id] = out.node(made.id).attrs["value"].array
        return made

    return rebuild(graph, rewrite)
