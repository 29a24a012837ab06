"""Graph verifier: checks the rules that a graph must satisfy before it is compiled.

The types of nodes that came in by another way than `apply` are inferred again and
compared, never believed, so a graph built by hand is held to the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import GraphError, VerifyError
from rlxweb.ir.graph import Graph, Node, infer_type
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor


def verify(graph: Graph) -> None:
    """Raise VerifyError (or the op's own error) for the first rule a graph breaks."""
    require_graph(graph)
    require_bound(graph)
    nodes = graph.nodes()
    context = f"graph '{graph.name}'"
    if not graph.outputs:
        raise VerifyError(
            context,
            "the graph has no outputs",
            hint="call set_outputs([...]) before compiling",
        )
    for index, node in enumerate(nodes):
        if node.id != index:
            raise VerifyError(
                context,
                f"node %{node.id} is at position {index}, expected position {node.id}",
            )
        later_inputs = [i for i in node.inputs if not 0 <= i < index]
        if later_inputs:
            raise VerifyError(
                context,
                f"{node} reads node %{later_inputs[0]}, which does not come before it",
                "a node must come after its inputs",
            )
        if graph.is_checked:
            continue
        op = registry.get(node.op)
        if op.has_trait("leaf"):
            continue
        types = tuple(nodes[i].type for i in node.inputs)
        _, inferred_type = infer_type(op, types, node.attrs, node.name)
        if inferred_type != node.type:
            raise VerifyError(
                context,
                f"{node} declares {node.type}",
                f"the shape rule of the op returns {inferred_type}",
            )
    for i in graph.outputs:
        if not 0 <= i < len(nodes):
            raise VerifyError(context, f"output %{i} is not a node of the graph")


def result_type_error(node: Node, shape: Sequence[int], dtype: object) -> GraphError:
    """Return the error of an op whose reference makes another type than its shape rule
    says.

    dtype   in the words of the library that made the result
    """
    return GraphError(
        str(node),
        f"the reference function returned {list(shape)} {dtype}",
        f"the shape rule returns {node.type}",
        "correct the reference function or the shape rule of the op",
    )


def check_result(node: Node, result: npt.NDArray[Any]) -> None:
    """Check that a reference's result has the node's type. Errors  GraphError of
    `result_type_error`.
    """
    if result.shape != node.type.shape or result.dtype != node.type.dtype.numpy:
        raise result_type_error(node, result.shape, result.dtype)


def require_graph(value: object, context: str = "compile") -> None:
    """Check that a value is a Graph. Errors  VerifyError naming the value."""
    if isinstance(value, Graph):
        return
    hint = "build one: g = rlxweb.Graph(); …; g.set_outputs([…])"
    if isinstance(value, Tensor):
        hint = "call t.graph.set_outputs([t]) and pass t.graph"
    elif isinstance(value, type) and issubclass(value, Graph):
        hint = "create an instance: Graph()"
    elif isinstance(getattr(value, "graph", None), Graph):
        hint = "pass the attribute .graph of this object"
    raise VerifyError(context, f"got {describe_type(value)}", "expected a Graph", hint)


def require_bound(graph: Graph, context: str = "") -> None:
    """Check that a graph has no dims. Errors  VerifyError for a graph whose sizes
    vary.
    """
    if graph.dims:
        dim_arguments = ", ".join(f"{name}=…" for name in graph.dims)
        raise VerifyError(
            context or f"graph '{graph.name}'",
            f"the graph has variable sizes ({', '.join(graph.dims)})",
            "fixed sizes are required here",
            f"call graph.bind({dim_arguments}); Session.compile accepts variable sizes",
        )
