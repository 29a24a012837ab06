"""The verifier: what a graph must satisfy before it is compiled.

The types of nodes that came in by another way than `apply` are inferred again and
compared, never believed, so a graph built by hand is held to the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from rlxweb.errors import GraphError, VerifyError
from rlxweb.given import named
from rlxweb.ir.graph import Graph, Node, typed
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor


def verify(graph: Graph) -> None:
    """Raise VerifyError (or the op's own error) for the first rule a graph breaks."""
    must_be_graph(graph)
    must_be_bound(graph)
    nodes = graph.nodes()
    where = f"graph '{graph.name}'"
    if not graph.outputs:
        raise VerifyError(
            where, "it has no outputs", hint="call set_outputs([...]) before compiling"
        )
    for at, node in enumerate(nodes):
        if node.id != at:
            raise VerifyError(where, f"node %{node.id} stands at position {at}")
        late = [i for i in node.inputs if not 0 <= i < at]
        if late:
            raise VerifyError(
                where,
                f"{node} reads node %{late[0]}, which does not come before it",
                "not a DAG in insertion order",
            )
        if graph.is_checked:
            continue
        op = registry.get(node.op)
        if op.has("leaf"):
            continue
        types = tuple(nodes[i].type for i in node.inputs)
        _, kind = typed(op, types, node.attrs, node.name)
        if kind != node.type:
            raise VerifyError(
                where, f"{node} declares {node.type}", f"its shape rule gives {kind}"
            )
    for i in graph.outputs:
        if not 0 <= i < len(nodes):
            raise VerifyError(where, f"output %{i} does not exist")


def wrong_result(node: Node, shape: Sequence[int], dtype: object) -> GraphError:
    """The error of an op whose reference makes another type than its shape rule says.

    dtype   in the words of the library that made the result
    """
    return GraphError(
        str(node),
        f"its reference returned {list(shape)} {dtype}",
        f"its shape rule says {node.type}",
        "mend the op's record",
    )


def check_result(node: Node, made: npt.NDArray[Any]) -> None:
    """Errors  GraphError of `wrong_result`, if it is one."""
    if made.shape != node.type.shape or made.dtype != node.type.dtype.numpy:
        raise wrong_result(node, made.shape, made.dtype)


def must_be_graph(given: object, doing: str = "compile") -> None:
    """Errors  VerifyError naming what was given in place of a Graph."""
    if isinstance(given, Graph):
        return
    hint = "build one: g = rlxweb.Graph(); …; g.set_outputs([…])"
    if isinstance(given, Tensor):
        hint = "its graph is t.graph; name it as a result with t.graph.set_outputs([t])"
    elif isinstance(given, type) and issubclass(given, Graph):
        hint = "make one of it: Graph()"
    elif isinstance(getattr(given, "graph", None), Graph):
        hint = "it was compiled from its .graph"
    raise VerifyError(doing, f"{named(given)} was given", "a Graph is wanted", hint)


def must_be_bound(graph: Graph, doing: str = "") -> None:
    """Errors  VerifyError for a graph whose sizes vary."""
    if graph.dims:
        these = ", ".join(f"{name}=…" for name in graph.dims)
        raise VerifyError(
            doing or f"graph '{graph.name}'",
            f"its sizes vary: {', '.join(graph.dims)}",
            "numbers are wanted here",
            f"graph.bind({these}) gives them; Session.compile takes it as it is",
        )
