"""Reference evaluator: computes a graph node by node by the ops' reference functions
over any NumPy-like namespace; the oracle of tests and checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.core.bfloat16 import from_float32, widen_bfloat16
from rlxweb.core.errors import InputError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ops.elementwise.cast import round_to_bfloat16

_PROMOTED_DTYPES = (DType.BF16, DType.F16, DType.F32)


def evaluate(
    graph: Graph,
    feeds: Mapping[str, Any],
    xp: Any = np,
    *,
    promote: bool = False,
) -> list[Any]:
    """Return every output of a graph, computed node by node.

    feeds    inputs and params by name
    promote  compute in float64: floats in are promoted and casts to floats stay there
    """
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node.id] = _node_value(node, values, feeds, xp, promote)
    return [_output_value(graph.node(i), values[i], xp, promote) for i in graph.outputs]


def _output_value(node: Node, value: Any, xp: Any, promote: bool) -> Any:
    """Return an output in its own type, or in float64 if values are promoted."""
    if node.type.dtype is DType.BF16 and xp is np and not promote:
        return from_float32(value)
    return value


def _node_value(
    node: Node,
    values: Mapping[int, Any],
    feeds: Mapping[str, Any],
    xp: Any,
    promote: bool,
) -> Any:
    """Compute the value of one node from the values of its inputs."""
    if node.op in ("input", "param"):
        if node.name not in feeds:
            raise InputError(f"evaluate {node}", "no value was passed")
        value = xp.asarray(widen_bfloat16(feeds[node.name]))
    else:
        attrs = dict(node.attrs)
        if promote and attrs.get("to") in _PROMOTED_DTYPES:
            attrs["to"] = DType.F64
        op = registry.get(node.op)
        value = op.reference(xp, attrs, *(values[i] for i in node.inputs))
    if node.type.dtype is DType.BF16 and not promote:
        value = round_to_bfloat16(xp, value)
    if promote and node.type.dtype.is_float:
        value = xp.asarray(value, dtype=xp.float64)
    return value
