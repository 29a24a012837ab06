"""Save a graph as an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlxweb.compiler.rewrites import rewrite_graph
from rlxweb.core.atomic_file import open_output
from rlxweb.core.errors import InputError, Unsupported, shown
from rlxweb.ir.array_validation import coerce_to_type, unknown_name_error
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.output_names import output_names
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import verify
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.exporter_registry import OnnxGraphBuilder, find_exporter
from rlxweb.runtime.compiled_graph import CompiledGraph

Array = npt.NDArray[Any]

DEFAULT_OPSET = 21
SUPPORTED_OPSETS = (20, 25)
"""Lowest and highest opset version that can be written."""
_MAX_REWRITE_ROUNDS = 32


def save(
    graph: Graph | CompiledGraph,
    file: str | PathLike[str] | IO[bytes],
    params: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    opset: int = DEFAULT_OPSET,
) -> None:
    """Write a graph with its params as a model of ONNX.

    graph    a Graph, or a CompiledGraph, whose params are written as they are set
    file     a path, where it appears whole or not at all; or an open binary file
    params   arrays by name, for a Graph
    outputs  names of the outputs; None: out0, out1 … or what the nodes are called
    opset    the version of ONNX's ops, 20 to 25

    ONNX's checker looks at the model before it is written. Ops that ONNX has not are
    written as others; where it says nothing (a float beyond an integer type, an index
    outside its table) other programs may do otherwise than rlxweb.
    Errors   Unsupported, which names every op that has no form in ONNX, and for a graph
    of more than 2 GiB; InputError for a param without a value; UnknownName, DTypeError,
    ShapeError.

    Example  rlx.onnx.save(graph, "model.onnx", {"w": w})
    """
    if isinstance(graph, CompiledGraph):
        params = graph.params() if params is None else params
        graph = graph.graph
    context = f"save graph {shown(graph.name)} as ONNX"
    onnx_library_access.import_onnx(context)
    verify(graph)
    if not SUPPORTED_OPSETS[0] <= opset <= SUPPORTED_OPSETS[1]:
        raise Unsupported(
            context,
            f"opset {opset} is not supported",
            f"must be {SUPPORTED_OPSETS[0]} to {SUPPORTED_OPSETS[1]}",
        )
    names = output_names(graph, outputs, context)
    arrays = _check_params(graph, params or {}, context)
    data = _serialize_graph(
        _lower_to_exportable(graph, opset, context), names, arrays, opset, context
    )
    with open_output(file, context) as stream:
        stream.write(data)


def _check_params(
    graph: Graph, params: Mapping[str, Any], context: str
) -> dict[str, Array]:
    """Return an array for every param of the graph, checked against the param's
    type.
    """
    known, arrays = graph.named("param"), {}
    for name in params:
        if name not in known:
            raise unknown_name_error(context, "param", str(name), known)
    for name, node in known.items():
        param_context = f"{context}, param '{name}'"
        if name not in params:
            raise InputError(
                param_context, "no value is given", "a model must contain its weights"
            )
        arrays[name] = coerce_to_type(param_context, params[name], node.type)
    return arrays


def _lower_to_exportable(graph: Graph, opset: int, context: str) -> Graph:
    """Decompose ops until every op has an exporter. Raises Unsupported, naming all ops
    that have none.

    An op without one is replaced by those that it is composed of.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[int, ...]) -> int | None:
        expansion = registry.get(node.op).decomposition
        if node.id not in unsupported or expansion is None:
            return None
        result: Tensor = expansion.build(out, node.attrs, *map(out.tensor, operands))
        return result.id

    for _ in range(_MAX_REWRITE_ROUNDS):
        builder = OnnxGraphBuilder(graph, opset)
        unsupported = {
            n.id: n.op for n in graph.nodes() if not _is_exportable(builder, n)
        }
        decomposable = {
            op for op in unsupported.values() if registry.get(op).decomposition
        }
        if not decomposable:
            break
        graph = rewrite_graph(graph, rewrite)
    if unsupported:
        counts = Counter(unsupported.values())
        raise Unsupported(
            context,
            "these ops cannot be exported: "
            + ", ".join(f"{o} ({n})" for o, n in counts.items()),
            f"ONNX opset {opset} has no equivalent",
            "use graph.save, or move these ops to another graph",
        )
    return graph


def _is_exportable(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a node is a leaf or has an exporter."""
    return (
        registry.get(node.op).has_trait("leaf")
        or find_exporter(builder, node) is not None
    )


def _serialize_graph(
    graph: Graph,
    names: Sequence[str],
    params: Mapping[str, Array],
    opset: int,
    context: str,
) -> bytes:
    """Return the bytes of the ONNX model of an exportable graph."""
    leaf_names = {n.name for n in graph.nodes() if n.op in ("input", "param")}
    builder = OnnxGraphBuilder(
        graph, opset, reserved_names=frozenset(leaf_names | {*names})
    )
    values: dict[int, str] = {}
    for node in graph.nodes():
        operands = [values[i] for i in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = node.name
        elif node.op == "constant":
            values[node.id] = builder.add_constant(node.attrs["value"].array)
        else:
            exporter = find_exporter(builder, node)
            assert exporter is not None
            values[node.id] = exporter(builder, node, *operands)
    for name, output_id in zip(names, graph.outputs, strict=True):
        builder.nodes.append(
            onnx_library_access.make_node("Identity", [values[output_id]], [name], {})
        )
    inputs = [(n.name, n.type) for n in graph.named("input").values()]
    outs = [(n, graph.node(i).type) for n, i in zip(names, graph.outputs, strict=True)]
    weights = {**{n: np.asarray(a) for n, a in params.items()}, **builder.weights}
    return onnx_library_access.serialize_model(
        graph.name,
        builder.nodes,
        (_value_infos(inputs), _value_infos(outs)),
        weights,
        opset,
        context,
    )


def _value_infos(values: Any) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """Return (name, NumPy dtype, shape) of each value."""
    return [
        (name, tensor_type.dtype.numpy, tensor_type.shape)
        for name, tensor_type in values
    ]
