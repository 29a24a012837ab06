"""A model with free dims as one graph: converted for the sizes of each binding.

What a conversion decides by sizes, it decides for each binding anew; the graph's inputs
and params are there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlxweb.errors import ModelError, RlxError, Unsupported
from rlxweb.ir.dim import Dim
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.imported import Computed, Imported
from rlxweb.onnx.records import Weight
from rlxweb.onnx.signature import Port

Convert = Callable[[dict[str, Any]], Imported]
"""Arrays by input → the model converted for arrays like these."""


def varying_graph(
    name: str,
    ports: Mapping[str, Port],
    dims: Mapping[str, Dim | int],
    convert: Convert,
    doing: str,
) -> tuple[Graph, dict[str, Weight]]:
    """The graph and its params. Errors  Unsupported, ModelError, and those of the
    conversion.
    """
    graph = Graph(name)
    inputs = {n: _input(graph, port, dims, doing) for n, port in ports.items()}
    log = graph.recording
    first = inputs if log is None else _of(log.tries[0].graph, inputs)
    try:
        made = _converted(convert, first, doing)
    except RlxError as error:
        if log is not None:
            error.doing = f"{error.doing} (tried with {log.tries[0].said})"
            error.hint = "graph_over(…) says what its dims may be, and which are one"
        raise
    params = {
        n: graph.param(n, weight.shape, weight.dtype)
        for n, weight in made.params.items()
    }

    def how(g: Graph, inputs: Any, params: Any) -> dict[str, Tensor]:
        return _inlined(g, _converted(convert, inputs, doing), inputs, params, doing)

    graph.set_outputs(list(graph.build(how, inputs, params).values()))
    return graph, made.params


def _of(graph: Graph, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same inputs of another graph."""
    found = graph.named("input")
    return {name: graph.tensor(found[name].id) for name in inputs}


def free_dims(ports: Mapping[str, Port]) -> list[str]:
    """The names of all free dims; of those without one their input and axis."""
    every = (
        _called(d, port, at)
        for port in ports.values()
        for at, d in enumerate(port.dims or ())
        if not isinstance(d, int)
    )
    return list(dict.fromkeys(every))


def _called(dim: str | None, port: Port, axis: int) -> str:
    return dim or f"{port.name}_{axis}"


def _input(
    graph: Graph, port: Port, dims: Mapping[str, Dim | int], doing: str
) -> Tensor:
    if port.kind != "tensor" or port.dims is None or not isinstance(port.dtype, DType):
        raise Unsupported(
            doing,
            f"input {port} is no tensor of a known rank and type",
            "an input of a graph is one",
            "graph_for({...}) gives the graph for arrays",
        )
    shape: list[Any] = []
    for at, one in enumerate(port.dims):
        name = None if isinstance(one, int) else _called(one, port, at)
        shape.append(one if name is None else dims.get(name, name))
    return graph.input(port.name, shape, port.dtype)


def _converted(convert: Convert, inputs: Mapping[str, Tensor], doing: str) -> Imported:
    """For arrays of the types of these tensors, whose values must not matter."""
    try:
        zeros = {
            name: np.broadcast_to(np.zeros((), one.dtype.numpy), one.shape)
            for name, one in inputs.items()
        }
    except ValueError as error:
        raise ModelError(
            doing, f"an input is too large ({error})", "an array has 2^63 bytes at most"
        ) from error
    made = convert(zeros)
    if made.decided:
        raise Unsupported(
            doing,
            f"the values of input '{min(made.decided)}' decide shapes",
            "sizes alone decide them in a graph",
            "graph_for({...}) gives the graph for its values",
        )
    return made


def _inlined(
    graph: Graph,
    made: Imported,
    inputs: Mapping[str, Tensor],
    params: Mapping[str, Tensor],
    doing: str,
) -> dict[str, Tensor]:
    """The nodes of a conversion, over inputs and params of a graph."""
    tensors: dict[int, Tensor] = {}
    leaves = {"input": inputs, "param": params}
    for node in made.graph.nodes():
        if node.op not in leaves:
            operands = [tensors[i] for i in node.inputs]
            tensors[node.id] = graph.copied(node, operands)
        elif node.name in leaves[node.op]:
            tensors[node.id] = leaves[node.op][node.name]
        else:
            problem = f"weight '{node.name}' is used for some sizes alone"
            raise ModelError(doing, problem, "a graph has the same params for all")
    outputs = [tensors[i] for i in made.graph.outputs]
    found: dict[str, Tensor] = {}
    for name, one in made.outputs.items():
        if isinstance(one, Computed):
            found[name] = outputs[one.at]
        elif isinstance(one, np.ndarray):
            found[name] = graph.constant(one)
        else:
            problem = f"output '{name}' is no tensor"
            raise Unsupported(doing, problem, "an output of a graph is one")
    return found
