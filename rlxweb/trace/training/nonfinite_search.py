"""Search for the first op of a graph that produced NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.core.errors import RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.reference_evaluation import evaluate_reference
from rlxweb.ir.shape_arithmetic import format_shape


def describe_first_nonfinite(graph: Graph, feeds: Mapping[str, Any]) -> str:
    """Describe the first node of a graph whose value, computed by NumPy, is not finite.

    feeds   of inputs and params by name. "" where all are finite there
    """
    values: dict[int, Any] = {}
    remaining_uses = [len(graph.users(n.id)) for n in graph.nodes()]
    for node in graph.nodes():
        try:
            values[node.id] = _evaluate_node(node, values, feeds)
        except RlxError as error:
            return f"{node} rejected its operands ({error})"
        result = values[node.id]
        if result.dtype.kind == "f" and not np.isfinite(result).all():
            return _describe_nonfinite_node(graph, node, values)
        for i in node.inputs:
            remaining_uses[i] -= 1
            if not remaining_uses[i]:  # nobody needs it any more
                values.pop(i, None)
    return ""


def _evaluate_node(
    node: Node, values: Mapping[int, Any], feeds: Mapping[str, Any]
) -> Any:
    if node.op in ("input", "param"):
        return np.asarray(feeds[node.name])
    if node.op == "constant":
        return node.attrs["value"].array
    with np.errstate(all="ignore"):
        return evaluate_reference(node, [values[i] for i in node.inputs])


def _describe_nonfinite_node(
    graph: Graph, node: Node, values: Mapping[int, Any]
) -> str:
    result = values[node.id]
    is_nonfinite = ~np.isfinite(result)
    position = tuple(int(i) for i in np.argwhere(is_nonfinite)[0])
    facts = [
        f"{int(is_nonfinite.sum()):,} of {result.size:,} elements, the first at "
        f"{list(position)}"
    ]
    for i in node.inputs:
        if i in values and values[i].dtype.kind == "f" and values[i].size:
            x, operand = values[i], graph.node(i)
            low, high = float(x.min()), float(x.max())
            label = operand.name or f"%{i} {operand.op}"
            facts.append(
                f"{label} {format_shape(x.shape)} ranges from {low:.3g} to {high:.3g}"
            )
    label = f"'{node.name}'" if node.name else f"%{node.id}"
    return f"{node.op} {label} produced {result[position]} in {'; '.join(facts)}"
