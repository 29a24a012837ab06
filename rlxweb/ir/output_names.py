"""What the outputs of a graph are called where results come by name."""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.errors import UsageError, shown
from rlxweb.ir.graph import Graph


def own_names(graph: Graph) -> tuple[str, ...]:
    """The names of their nodes; out0, out1 … where a node has none of its own."""
    nodes = [graph.node(i) for i in graph.outputs]
    own = [n.name for n in nodes if n.op not in ("input", "param")]
    numbered = {f"out{at}" for at in range(len(nodes))}
    return tuple(
        node.name
        if own.count(node.name) == 1 and node.name and node.name not in numbered
        else f"out{at}"
        for at, node in enumerate(nodes)
    )


def output_names(
    graph: Graph, given: Sequence[str] | None, doing: str
) -> tuple[str, ...]:
    """A name for each output. Errors  UsageError for a wrong number, twice the same."""
    if not graph.outputs:
        raise UsageError(doing, "the graph has no outputs", hint="call set_outputs")
    if given is None:
        return own_names(graph)
    try:
        names = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        problem = f"outputs are {shown(given)}"
        raise UsageError(doing, problem, "a list of names is wanted") from None
    wanted = len(graph.outputs)
    if len(names) != wanted or len(set(names)) != wanted:
        raise UsageError(
            doing,
            f"outputs are {shown(names)}",
            f"{wanted} different names are wanted, {len(set(names))} were given",
        )
    return names
