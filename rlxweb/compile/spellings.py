"""Puts one op in the place of several that spell it out, where the device gains by it.

How an op is spelled is said on its record (`Op.spelled`). Names no op.
"""

from __future__ import annotations

from collections import Counter

from rlxweb.compile.rewrites import drop_dead
from rlxweb.compile.target import Target
from rlxweb.errors import RlxError, VerifyError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.spelled import Found
from rlxweb.ir.tensor import Tensor


def joined(graph: Graph, target: Target) -> tuple[Graph, int]:
    """The graph with every such op that the target wants (`joins`), and how many."""
    ops = [op for op in registry if op.spelled]
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
    out, made, count = Graph(graph.name), dict[int, Tensor](), 0
    for node in graph.nodes():
        found = _of(graph, node, uses, ops, target)
        if found is None:
            operands = tuple(made[i] for i in node.inputs)
            made[node.id] = out.copied(node, operands)
            continue
        made[node.id] = new = found.build(out, tuple(made[i] for i in found.reads))
        if out.node(new.id).type != node.type:
            raise VerifyError(
                f"joining what ends in {node}",
                f"it became {out.node(new.id).type}",
                f"its type is {node.type}",
                "mend how the op is spelled",
            )
        count += 1
    if not count:
        return graph, 0
    out.set_outputs([made[i] for i in graph.outputs])
    return drop_dead(out, target), count


def _of(
    graph: Graph, node: Node, uses: Counter[int], ops: list[Op], target: Target
) -> Found | None:
    for op in ops:
        assert op.spelled is not None
        found: Found | None = op.spelled(graph, node, uses)
        if found is None:
            continue
        try:
            out = op.output_type(found.types, found.attrs)
        except RlxError:  # it only looked like it
            continue
        if target.joins(op, found.types, out, found.attrs):
            return found
    return None
