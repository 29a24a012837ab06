"""Conversion of a model with free dims into one graph with symbolic sizes.

What a conversion decides by sizes, it decides for each binding anew; the graph's inputs
and params are there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlxweb.core.errors import ModelError, RlxError, Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.symbolic_dim import Dim
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converted_model import ComputedOutput, ConvertedModel
from rlxweb.onnx.model_records import Weight
from rlxweb.onnx.model_signature import ModelPort

ConvertModel = Callable[[dict[str, Any]], ConvertedModel]
"""Function that converts the model for arrays of the given types."""


def build_dynamic_graph(
    name: str,
    ports: Mapping[str, ModelPort],
    dims: Mapping[str, Dim | int],
    convert: ConvertModel,
    context: str,
) -> tuple[Graph, dict[str, Weight]]:
    """Return the graph with symbolic dims, and its params. Raises Unsupported,
    ModelError, and the errors of the conversion.
    """
    graph = Graph(name)
    inputs = {n: _add_input(graph, port, dims, context) for n, port in ports.items()}
    size_trace = graph.recording
    trial_inputs = (
        inputs
        if size_trace is None
        else _inputs_of_graph(size_trace.trials[0].graph, inputs)
    )
    try:
        converted_model = _convert_for_types(convert, trial_inputs, context)
    except RlxError as error:
        if size_trace is not None:
            error.doing = (
                f"{error.doing} (tried with {size_trace.trials[0].sizes_text})"
            )
            error.hint = (
                "use graph_over(…) to declare which sizes are allowed and which dims "
                "are equal"
            )
        raise
    params = {
        n: graph.param(n, weight.shape, weight.dtype)
        for n, weight in converted_model.params.items()
    }

    def build_outputs(g: Graph, inputs: Any, params: Any) -> dict[str, Tensor]:
        return _inline_nodes(
            g, _convert_for_types(convert, inputs, context), inputs, params, context
        )

    graph.set_outputs(list(graph.build(build_outputs, inputs, params).values()))
    return graph, converted_model.params


def _inputs_of_graph(graph: Graph, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of another graph's inputs of the same names."""
    input_nodes = graph.named("input")
    return {name: graph.tensor(input_nodes[name].id) for name in inputs}


def free_dim_names(ports: Mapping[str, ModelPort]) -> list[str]:
    """Return the names of all free dims; an unnamed one is called by its input and
    axis.
    """
    names = (
        _dim_name(d, port, axis)
        for port in ports.values()
        for axis, d in enumerate(port.dims or ())
        if not isinstance(d, int)
    )
    return list(dict.fromkeys(names))


def _dim_name(dim: str | None, port: ModelPort, axis: int) -> str:
    """Return a free dim's name, or `input_axis` if it has none."""
    return dim or f"{port.name}_{axis}"


def _add_input(
    graph: Graph, port: ModelPort, dims: Mapping[str, Dim | int], context: str
) -> Tensor:
    """Add the graph's input for a port; its free dims become symbolic."""
    if port.kind != "tensor" or port.dims is None or not isinstance(port.dtype, DType):
        raise Unsupported(
            context,
            f"an input has an unsupported type: {port}",
            "a graph input must be a tensor of known rank and supported dtype",
            "use graph_for({...}) to get the graph for given arrays",
        )
    shape: list[Any] = []
    for axis, dim in enumerate(port.dims):
        name = None if isinstance(dim, int) else _dim_name(dim, port, axis)
        shape.append(dim if name is None else dims.get(name, name))
    return graph.input(port.name, shape, port.dtype)


def _convert_for_types(
    convert: ConvertModel, inputs: Mapping[str, Tensor], context: str
) -> ConvertedModel:
    """Convert the model for zeros of these tensors' types. Raises Unsupported if an
    input's values matter.
    """
    try:
        zeros = {
            name: np.broadcast_to(np.zeros((), tensor.dtype.numpy), tensor.shape)
            for name, tensor in inputs.items()
        }
    except ValueError as error:
        raise ModelError(
            context,
            f"an input is too large ({error})",
            "an array must have fewer than 2^63 bytes",
        ) from error
    converted_model = convert(zeros)
    if converted_model.deciding_values:
        raise Unsupported(
            context,
            f"the values of input '{min(converted_model.deciding_values)}' determine "
            f"shapes",
            "shapes in a graph may depend on the sizes of its inputs, not on their "
            "values",
            "use graph_for({...}) to get the graph for given values",
        )
    return converted_model


def _inline_nodes(
    graph: Graph,
    converted_model: ConvertedModel,
    inputs: Mapping[str, Tensor],
    params: Mapping[str, Tensor],
    context: str,
) -> dict[str, Tensor]:
    """Copy the nodes of a conversion into a graph, over the graph's inputs and
    params.
    """
    tensors: dict[int, Tensor] = {}
    leaf_tensors = {"input": inputs, "param": params}
    for node in converted_model.graph.nodes():
        if node.op not in leaf_tensors:
            operands = [tensors[i] for i in node.inputs]
            tensors[node.id] = graph.copied(node, operands)
        elif node.name in leaf_tensors[node.op]:
            tensors[node.id] = leaf_tensors[node.op][node.name]
        else:
            problem = f"weight '{node.name}' is used only for some input sizes"
            raise ModelError(
                context,
                problem,
                "a graph must have the same params for all input sizes",
            )
    outputs = [tensors[i] for i in converted_model.graph.outputs]
    named_outputs: dict[str, Tensor] = {}
    for name, output in converted_model.outputs.items():
        if isinstance(output, ComputedOutput):
            named_outputs[name] = outputs[output.index]
        elif isinstance(output, np.ndarray):
            named_outputs[name] = graph.constant(output)
        else:
            problem = f"output '{name}' is not a tensor"
            raise Unsupported(context, problem, "graph outputs must be tensors")
    return named_outputs
