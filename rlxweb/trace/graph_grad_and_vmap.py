"""Derivatives and batching of whole graphs: each takes a graph and returns a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.errors import GraphError, ShapeError, UsageError, did_you_mean, shown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import require_graph

TANGENT_PREFIX = "d_"
"""Prefix of the name of an input's tangent."""


def gradient_graph(
    graph: Graph, wrt: str | Sequence[str] | None, with_value: bool, context: str
) -> Graph:
    """Return the graph of the gradients of a graph's one output by the named inputs and
    params.

    wrt         None: its params, or its float inputs where it has none
    with_value  the graph's own outputs come first
    """
    result = graph.copy()
    outputs = [result.tensor(i) for i in result.outputs]
    if len(outputs) != 1 or outputs[0].shape != ():
        raise _scalar_output_error(outputs, context)
    variables = _differentiated_tensors(result, wrt, context)
    grads = result.gradients(outputs, variables)
    result.set_outputs([*outputs, *grads] if with_value else grads)
    return result


def tangent_graph(graph: Graph, wrt: str | Sequence[str] | None, context: str) -> Graph:
    """Return the graph of a graph's outputs and their tangents; it has one more input
    for each of `wrt`, its tangent, named d_NAME.
    """
    result = graph.copy()
    outputs = [result.tensor(i) for i in result.outputs]
    variables = _differentiated_tensors(result, wrt, context)
    names = [result.node(x.id).name for x in variables]
    directions = [
        result.input(f"{TANGENT_PREFIX}{name}", x.shape, x.dtype)
        for name, x in zip(names, variables, strict=True)
    ]
    result.set_outputs([*outputs, *result.tangents(outputs, variables, directions)])
    return result


def hessian_product_graph(
    graph: Graph, wrt: str | Sequence[str] | None, context: str
) -> Graph:
    """Return the graph of value, gradients, and the tangents of both.

    The tangents of the gradients are Hessian-vector products. The graph has one more
    input for each of `wrt`, named d_NAME.
    """
    return tangent_graph(gradient_graph(graph, wrt, True, context), wrt, context)


def nth_order_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    """Return the graph of the n-th derivative by one input or param.

    Parameters
    ----------
    graph
        A graph with one output of one float.
    wrt_name
        The input or param.
    order
        The order n of the derivative, at least 1.

    Returns
    -------
    Graph
        Its only output has the shape of the input. For a scalar input it is the n-th
        derivative. For an array, each order is the gradient of the sum over the order
        before, so that a sum of f(x) over elements gives the derivatives of f.
    """
    context = f"nth_order_grad of graph '{graph.name}'"
    result, y, x = _prepare_scalar_graph(graph, wrt_name, order, context)
    for _ in range(order):
        (y,) = result.gradients([y], [x])
    result.set_outputs([y])
    return result


def directional_nth_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    """Return the graph of the n-th derivative along n directions.

    Parameters
    ----------
    graph
        A graph with one output of one float.
    wrt_name
        The input or param.
    order
        The order n of the derivative, at least 1.

    Returns
    -------
    Graph
        It has the inputs dir_0, dir_1, … of the shape of the input, and a scalar
        output: for order 2 it is dir_1 · H · dir_0, with H the second derivatives.
    """
    context = f"directional_nth_grad of graph '{graph.name}'"
    result, y, x = _prepare_scalar_graph(graph, wrt_name, order, context)
    for direction_index in range(order):
        direction = result.input(f"dir_{direction_index}", x.shape, x.dtype)
        (gradient,) = result.gradients([y], [x])
        y = result.sum(gradient * direction, tuple(range(x.rank)))
    result.set_outputs([y])
    return result


def _prepare_scalar_graph(
    graph: Graph, wrt_name: str, order: int, context: str
) -> tuple[Graph, Tensor, Tensor]:
    """Return a copy of the graph, its scalar output, and the named input or param.

    Raises UsageError for an order below 1, ShapeError, GraphError.
    """
    if coerce_integer("order", order, context) < 1:
        raise UsageError(context, f"order is {order}", "order must be >= 1")
    require_graph(graph, context)
    result = graph.copy()
    outputs = [result.tensor(i) for i in result.outputs]
    if len(outputs) != 1 or any(size != 1 for size in outputs[0].shape):
        raise _scalar_output_error(outputs, context)
    (x,) = _differentiated_tensors(result, wrt_name, context)
    return result, result.reshape(outputs[0], ()), x


def _scalar_output_error(outputs: Sequence[Tensor], context: str) -> ShapeError:
    shapes = ", ".join(format_shape(y.shape) for y in outputs)
    return ShapeError(
        context,
        f"the outputs have shapes {shapes}" if outputs else "the graph has no outputs",
        "a gradient requires exactly one output, with one element and a floating-point "
        "dtype",
        "sum or average the output in the graph, or use Graph.gradients",
    )


def vmap_graph(
    graph: Graph, count: int, inputs: str | Sequence[str] | None, context: str
) -> Graph:
    """Return a graph for many examples: these inputs, and all outputs, get one more
    axis.

    inputs  None: all of them; params are the same for all examples
    """
    names = list(graph.named("input")) if inputs is None else inputs
    batched_names = _find_leaf_nodes(
        graph, [names] if isinstance(names, str) else names, context
    )
    batched_graph = Graph(graph.name)
    tensors: dict[int, Tensor] = {}
    batches, placeholders = [], []
    for node in graph.nodes():
        if node.op == "input" and node.name in batched_names:
            batch = batched_graph.input(
                node.name, (count, *node.type.shape), node.type.dtype
            )
            zero = batched_graph.cast(batched_graph.constant(0), node.type.dtype)
            tensors[node.id] = batched_graph.identity(
                batched_graph.expand(zero, node.type.shape)
            )
            batches.append(batch)
            placeholders.append(tensors[node.id])
        else:
            tensors[node.id] = batched_graph.copied(
                node, [tensors[i] for i in node.inputs]
            )
    output_tensors = [tensors[i] for i in graph.outputs]
    batched_graph.set_outputs(
        batched_graph.vectorized(output_tensors, placeholders, batches)
    )
    return batched_graph


def _differentiated_tensors(
    graph: Graph, wrt: str | Sequence[str] | None, context: str
) -> list[Tensor]:
    """Return the inputs and params with these names. Errors  GraphError."""
    if wrt is None:
        leaves = graph.named("param") or graph.named("input")
        selected = {n: node for n, node in leaves.items() if node.type.dtype.is_float}
        if not selected:
            raise GraphError(
                context, "the graph has no floating-point params or inputs"
            )
    else:
        selected = _find_leaf_nodes(
            graph, [wrt] if isinstance(wrt, str) else wrt, context
        )
    return [graph.tensor(node.id) for node in selected.values()]


def _find_leaf_nodes(
    graph: Graph, names: Sequence[str], context: str
) -> dict[str, Node]:
    leaf_nodes: dict[str, Any] = {**graph.named("input"), **graph.named("param")}
    for name in names:
        if name not in leaf_nodes:
            raise GraphError(
                context,
                f"the graph has no input or param {shown(name)}",
                f"its inputs and params are {', '.join(leaf_nodes)}"
                if leaf_nodes
                else "it has no inputs or params",
                did_you_mean(str(name), leaf_nodes),
            )
    return {name: leaf_nodes[name] for name in names}
