"""Runs a plan, or a bare graph, over any NumPy-like namespace by the ops' references.

This is the meaning of every op put to work: the CPU backend runs plans with it, and
the tests evaluate graphs with it in float64 as their oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlxweb.errors import InputError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry

Reference = Callable[..., Any]


def evaluate(
    graph: Graph,
    feeds: Mapping[str, Any],
    xp: Any = np,
    *,
    promote: bool = False,
) -> list[Any]:
    """Every output of a graph, node by node.

    feeds    inputs and params by name
    promote  compute in float64: floats in are promoted and casts to floats stay there
    """
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.id] = _value(node, values, feeds, xp, promote)
    return [values[i] for i in graph.outputs]


def _value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Any],
    xp: Any,
    promote: bool,
) -> Any:
    if node.op in ("input", "param"):
        if node.name not in feeds:
            raise InputError(f"evaluate {node}", "no value was given for it")
        value = xp.asarray(feeds[node.name])
    elif node.op == "constant":
        value = xp.asarray(node.attrs["value"].array)
    else:
        attrs = dict(node.attrs)
        if promote and attrs.get("to") in (DType.F16, DType.F32):
            attrs["to"] = DType.F64
        op = registry.get(node.op)
        value = op.reference(xp, attrs, *(values[i] for i in node.inputs))
    if promote and node.type.dtype.is_float:
        value = xp.asarray(value, dtype=np.float64)
    return value


def order_of_release(steps: Sequence[Sequence[int]], keep: set[int]) -> list[list[int]]:
    """For each step (ids it reads), the values no later step needs."""
    last: dict[int, int] = {}
    for at, reads in enumerate(steps):
        for value in reads:
            last[value] = at
    out: list[list[int]] = [[] for _ in steps]
    for value, at in last.items():
        if value not in keep:
            out[at].append(value)
    return out
