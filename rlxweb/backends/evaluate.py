"""A bare graph over any NumPy-like namespace, by the ops' references: the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.bfloat16 import from_float32, held
from rlxweb.errors import InputError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ops.cast import as_bfloat16

_ROUNDED = (DType.BF16, DType.F16, DType.F32)


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
    return [_given(graph.node(i), values[i], xp, promote) for i in graph.outputs]


def _given(node: Node, value: Any, xp: Any, promote: bool) -> Any:
    """An output in its own type, or in float64."""
    if node.type.dtype is DType.BF16 and xp is np and not promote:
        return from_float32(value)
    return value


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
        value = xp.asarray(held(feeds[node.name]))
    else:
        attrs = dict(node.attrs)
        if promote and attrs.get("to") in _ROUNDED:
            attrs["to"] = DType.F64
        op = registry.get(node.op)
        value = op.reference(xp, attrs, *(values[i] for i in node.inputs))
    if node.type.dtype is DType.BF16 and not promote:
        value = as_bfloat16(xp, value)
    if promote and node.type.dtype.is_float:
        value = xp.asarray(value, dtype=xp.float64)
    return value
