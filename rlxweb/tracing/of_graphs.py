"""Derivatives and maps of whole graphs: a graph in, a graph out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.arguments import whole
from rlxweb.errors import GraphError, ShapeError, UsageError, did_you_mean, shown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import must_be_graph

TANGENT = "d_"
"""What the name of an input's tangent begins with."""


def gradient_graph(
    graph: Graph, wrt: str | Sequence[str] | None, with_value: bool, doing: str
) -> Graph:
    """The gradients of a graph's one output by inputs and params of these names.

    wrt         None: its params, or its float inputs where it has none
    with_value  the graph's own outputs come first
    """
    made = graph.copy()
    outputs = [made.tensor(i) for i in made.outputs]
    if len(outputs) != 1 or outputs[0].shape != ():
        raise _no_number(outputs, doing)
    by = _named(made, wrt, doing)
    grads = made.gradients(outputs, by)
    made.set_outputs([*outputs, *grads] if with_value else grads)
    return made


def tangent_graph(graph: Graph, wrt: str | Sequence[str] | None, doing: str) -> Graph:
    """A graph's outputs, and how they move: it has an input more for each of `wrt`, the
    tangent, named d_NAME.
    """
    made = graph.copy()
    outputs = [made.tensor(i) for i in made.outputs]
    by = _named(made, wrt, doing)
    names = [made.node(x.id).name for x in by]
    along = [
        made.input(f"{TANGENT}{name}", x.shape, x.dtype)
        for name, x in zip(names, by, strict=True)
    ]
    made.set_outputs([*outputs, *made.tangents(outputs, by, along)])
    return made


def hessian_product_graph(
    graph: Graph, wrt: str | Sequence[str] | None, doing: str
) -> Graph:
    """Return the graph of value, gradients, and the tangents of both.

    The tangents of the gradients are Hessian-vector products. The graph has one more
    input for each of `wrt`, named d_NAME.
    """
    return tangent_graph(gradient_graph(graph, wrt, True, doing), wrt, doing)


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
    doing = f"nth_order_grad of graph '{graph.name}'"
    made, y, x = _scalar_of(graph, wrt_name, order, doing)
    for _ in range(order):
        (y,) = made.gradients([y], [x])
    made.set_outputs([y])
    return made


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
    doing = f"directional_nth_grad of graph '{graph.name}'"
    made, y, x = _scalar_of(graph, wrt_name, order, doing)
    for at in range(order):
        direction = made.input(f"dir_{at}", x.shape, x.dtype)
        (slope,) = made.gradients([y], [x])
        y = made.sum(slope * direction, tuple(range(x.rank)))
    made.set_outputs([y])
    return made


def _scalar_of(
    graph: Graph, wrt_name: str, order: int, doing: str
) -> tuple[Graph, Tensor, Tensor]:
    """Return a copy of the graph, its scalar output, and the named input or param.

    Raises UsageError for an order below 1, ShapeError, GraphError.
    """
    if whole("order", order, doing) < 1:
        raise UsageError(doing, f"order is {order}", "at least 1")
    must_be_graph(graph, doing)
    made = graph.copy()
    outputs = [made.tensor(i) for i in made.outputs]
    if len(outputs) != 1 or any(size != 1 for size in outputs[0].shape):
        raise _no_number(outputs, doing)
    (x,) = _named(made, wrt_name, doing)
    return made, made.reshape(outputs[0], ()), x


def _no_number(outputs: Sequence[Tensor], doing: str) -> ShapeError:
    each = ", ".join(show(y.shape) for y in outputs) or "none"
    return ShapeError(
        doing,
        f"its outputs are {each}",
        "a gradient is that of one float",
        "sum or average it in the graph, or use Graph.gradients",
    )


def mapped_graph(
    graph: Graph, count: int, inputs: str | Sequence[str] | None, doing: str
) -> Graph:
    """A graph for many examples: these inputs, and all outputs, have an axis more.

    inputs  None: all of them; params are the same for all examples
    """
    names = list(graph.named("input")) if inputs is None else inputs
    examples = _known(graph, [names] if isinstance(names, str) else names, doing)
    out = Graph(graph.name)
    made: dict[int, Tensor] = {}
    wholes, ones = [], []
    for node in graph.nodes():
        if node.op == "input" and node.name in examples:
            whole = out.input(node.name, (count, *node.type.shape), node.type.dtype)
            zero = out.cast(out.constant(0), node.type.dtype)
            made[node.id] = out.identity(out.expand(zero, node.type.shape))
            wholes.append(whole)
            ones.append(made[node.id])
        else:
            made[node.id] = out.copied(node, [made[i] for i in node.inputs])
    ends = [made[i] for i in graph.outputs]
    out.set_outputs(out.vectorized(ends, ones, wholes))
    return out


def _named(graph: Graph, wrt: str | Sequence[str] | None, doing: str) -> list[Tensor]:
    """The inputs and params of these names. Errors  GraphError."""
    if wrt is None:
        leaves = graph.named("param") or graph.named("input")
        found = {n: node for n, node in leaves.items() if node.type.dtype.is_float}
        if not found:
            raise GraphError(doing, "it has no float params or inputs")
    else:
        found = _known(graph, [wrt] if isinstance(wrt, str) else wrt, doing)
    return [graph.tensor(node.id) for node in found.values()]


def _known(graph: Graph, names: Sequence[str], doing: str) -> dict[str, Node]:
    every: dict[str, Any] = {**graph.named("input"), **graph.named("param")}
    for name in names:
        if name not in every:
            raise GraphError(
                doing,
                f"{shown(name)} was named",
                f"its inputs and params are {', '.join(every) or 'none'}",
                did_you_mean(str(name), every),
            )
    return {name: every[name] for name in names}
