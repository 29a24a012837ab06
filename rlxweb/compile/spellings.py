"""Puts one op in the place of several that spell it out, where the device gains by it.

How an op is spelled is said on its record (`Op.spelled`). Names no op.
"""

from __future__ import annotations

from collections import Counter

from rlxweb.compile.rewrites import drop_dead, rebuild
from rlxweb.compile.target import Target
from rlxweb.errors import RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.spelled import Found
from rlxweb.ir.tensor import Tensor


def joined(graph: Graph, target: Target) -> tuple[Graph, int]:
    """The graph with every such op that the target wants (`joins`), and how many.

    Errors   VerifyError for a spelling that changes a node's type.
    """
    ops = [op for op in registry if op.spelled is not None]
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
    found = {
        node.id: one
        for node in graph.nodes()
        if (one := _of(graph, node, uses, ops, target)) is not None
    }
    if not found:
        return graph, 0
    made: dict[int, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        one = found.get(node.id)
        if one is None:
            new = out.copied(node, operands)
        else:
            new = one.build(out, tuple(made[i] for i in one.reads))
        made[node.id] = new
        return new

    return drop_dead(rebuild(graph, rewrite), target), len(found)


def _of(
    graph: Graph, node: Node, uses: Counter[int], ops: list[Op], target: Target
) -> Found | None:
    for op in ops:
        found = op.spelled(graph, node, uses) if op.spelled is not None else None
        if found is None:
            continue
        try:
            attrs = op.check_attrs(found.attrs)
            out = op.output_type(found.types, attrs)
        except RlxError:  # it only looked like it
            continue
        if target.joins(op, found.types, out, attrs):
            return found
    return None
