"""Fusion patterns: replace several nodes by one op where the device gains by it.

How an op is spelled is said on its record (`Op.spelled`). Names no op.
"""

from __future__ import annotations

from collections import Counter

from rlxweb.compiler.rewrites import rewrite_graph
from rlxweb.compiler.target import Target
from rlxweb.core.errors import RlxError
from rlxweb.ir.fusion_pattern import FusionMatch
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor


def apply_fusion_patterns(graph: Graph, target: Target) -> tuple[Graph, int]:
    """Return the graph with every fusion pattern that the target accepts replaced by
    its op, and their number.

    Errors   VerifyError for a spelling that changes a node's type.
    """
    ops = [op for op in registry if op.fusion_pattern is not None]
    uses = Counter(i for node in graph.nodes() for i in node.inputs)
    matches = {
        node.id: match
        for node in graph.nodes()
        if (match := _match_pattern(graph, node, uses, ops, target)) is not None
    }
    if not matches:
        return graph, 0
    tensors: dict[int, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        match = matches.get(node.id)
        if match is None:
            tensor = out.copied(node, operands)
        else:
            tensor = match.build(out, tuple(tensors[i] for i in match.input_ids))
        tensors[node.id] = tensor
        return tensor

    return rewrite_graph(graph, rewrite, target=target), len(matches)


def _match_pattern(
    graph: Graph, node: Node, uses: Counter[int], ops: list[Op], target: Target
) -> FusionMatch | None:
    """Return the first fusion pattern that matches at a node and that the target
    accepts; None without one.
    """
    for op in ops:
        match = (
            op.fusion_pattern(graph, node, uses)
            if op.fusion_pattern is not None
            else None
        )
        if match is None:
            continue
        try:
            attrs = op.check_attrs(match.attrs)
            out = op.output_type(match.types, attrs)
        except RlxError:  # it only looked like it
            continue
        if target.fuses_pattern(op, match.types, out, attrs):
            return match
    return None
