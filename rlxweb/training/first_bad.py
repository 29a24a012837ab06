"""Where a number stopped being one: the first op that made NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.errors import RlxError
from rlxweb.ir.by_reference import by_reference
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.shape import show


def first_bad(graph: Graph, feeds: Mapping[str, Any]) -> str:
    """In words, the first node of a graph whose value is not finite, computed by NumPy.

    feeds   of inputs and params by name. "" where all are finite there
    """
    values: dict[int, Any] = {}
    left = [len(graph.users(n.id)) for n in graph.nodes()]
    for node in graph.nodes():
        try:
            values[node.id] = _value(node, values, feeds)
        except RlxError as error:
            return f"{node} refused its operands ({error})"
        made = values[node.id]
        if made.dtype.kind == "f" and not np.isfinite(made).all():
            return _told(graph, node, values)
        for i in node.inputs:
            left[i] -= 1
            if not left[i]:  # nobody needs it any more
                values.pop(i, None)
    return ""


def _value(node: Node, values: Mapping[int, Any], feeds: Mapping[str, Any]) -> Any:
    if node.op in ("input", "param"):
        return np.asarray(feeds[node.name])
    if node.op == "constant":
        return node.attrs["value"].array
    with np.errstate(all="ignore"):
        return by_reference(node, [values[i] for i in node.inputs])


def _told(graph: Graph, node: Node, values: Mapping[int, Any]) -> str:
    made = values[node.id]
    bad = ~np.isfinite(made)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    said = [f"{int(bad.sum()):,} of {made.size:,} elements, the first at {list(at)}"]
    for i in node.inputs:
        if i in values and values[i].dtype.kind == "f" and values[i].size:
            x, operand = values[i], graph.node(i)
            low, high = float(x.min()), float(x.max())
            label = operand.name or f"%{i} {operand.op}"
            said.append(f"{label} {show(x.shape)} lies from {low:.3g} to {high:.3g}")
    label = f"'{node.name}'" if node.name else f"%{node.id}"
    return f"{node.op} {label} made {made[at]} of {'; '.join(said)}"
