"""Names of a graph's outputs, for results that are returned by name."""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.core.errors import UsageError, shown
from rlxweb.ir.graph import Graph


def default_output_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the output nodes; out0, out1 … where a node has no name of
    its own.
    """
    nodes = [graph.node(i) for i in graph.outputs]
    node_names = [n.name for n in nodes if n.op not in ("input", "param")]
    numbered_names = {f"out{index}" for index in range(len(nodes))}
    return tuple(
        node.name
        if node_names.count(node.name) == 1
        and node.name
        and node.name not in numbered_names
        else f"out{index}"
        for index, node in enumerate(nodes)
    )


def output_names(
    graph: Graph, requested: Sequence[str] | None, context: str
) -> tuple[str, ...]:
    """Return a name for each output. Errors  UsageError for a wrong number of names or
    a duplicate.
    """
    if not graph.outputs:
        raise UsageError(context, "the graph has no outputs", hint="call set_outputs")
    if requested is None:
        return default_output_names(graph)
    try:
        names = (requested,) if isinstance(requested, str) else tuple(requested)
    except TypeError:
        problem = f"outputs is {shown(requested)}"
        raise UsageError(context, problem, "expected a list of names") from None
    count = len(graph.outputs)
    if len(names) != count or len(set(names)) != count:
        received = "duplicates" if len(names) == count else len(names)
        raise UsageError(
            context,
            f"outputs is {shown(names)}",
            f"expected {count} different names, got {received}",
        )
    return names
