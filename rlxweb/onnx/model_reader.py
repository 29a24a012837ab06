"""Read the protobuf messages of an ONNX file into plain records.

Every name, type and size is looked at once, here; what does not hold together is
refused with its place, before anything is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.core.errors import ModelError, shown
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import MAX_CONSTANT_NBYTES
from rlxweb.onnx.model_records import (
    AttributeRef,
    DeclaredValue,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    ValueType,
    Weight,
)
from rlxweb.onnx.weight_loading import weight_from_message

MAX_GRAPH_DEPTH = 32
"""Maximum nesting depth of graphs within graphs."""


def normalize_domain(domain: str) -> str:
    """Return a domain's name, with "" for ONNX's own domain under either of its
    names.
    """
    return "" if domain == "ai.onnx" else domain


def read_model(model: Any, folder: Path | None, context: str) -> ModelRecord:
    """Return the records of a model's message. Raises ModelError if the message is
    invalid.
    """
    reader = ModelReader(folder, context)
    functions = [
        read_function(function, folder, context) for function in model.functions
    ]
    return ModelRecord(
        graph=reader.read_graph(model.graph),
        opsets=_opset_versions(model.opset_import),
        functions={
            (function.domain, function.name): function for function in functions
        },
        producer=f"{model.producer_name} {model.producer_version}".strip(),
    )


def read_function(function: Any, folder: Path | None, context: str) -> FunctionRecord:
    """Return the record of a function's message."""
    reader = ModelReader(folder, f"{context}, function {shown(function.name)}")
    defaults = {
        a.name: reader.read_attribute(a, "", 0) for a in function.attribute_proto
    }
    return FunctionRecord(
        name=function.name,
        domain=normalize_domain(function.domain),
        inputs=tuple(function.input),
        outputs=tuple(function.output),
        attrs={**dict.fromkeys(function.attribute), **defaults},
        opsets=_opset_versions(function.opset_import),
        nodes=reader.read_nodes(function.node, f"function '{function.name}', ", 0),
    )


def _opset_versions(imports: Any) -> dict[str, int]:
    """Return the opset version of each imported domain."""
    return {normalize_domain(opset.domain): int(opset.version) for opset in imports}


def read_value_type(message: Any) -> ValueType | None:
    """Return the value type that a type's message declares, or None if it declares
    nothing.
    """
    kind = message.WhichOneof("value")
    if kind is None:
        return None
    if kind == "tensor_type":
        tensor = message.tensor_type
        dims = None
        if tensor.HasField("shape"):
            dims = tuple(_read_dim(d) for d in tensor.shape.dim)
        return ValueType(
            "tensor", onnx_library_access.dtype_from_onnx(tensor.elem_type), dims
        )
    if kind == "sequence_type":
        return ValueType(
            "sequence", element=read_value_type(message.sequence_type.elem_type)
        )
    if kind == "optional_type":
        return ValueType(
            "optional", element=read_value_type(message.optional_type.elem_type)
        )
    return ValueType("other")


_UNKNOWN_DIM_NAMES = ("", "?", "-1", "None")
"""Placeholders that exporters write for unknown dims; two dims called so are not the
same.
"""


def _read_dim(dim: Any) -> int | str | None:
    """Return a dimension's size, its name, or None if it is unknown."""
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    is_named = kind == "dim_param" and dim.dim_param not in _UNKNOWN_DIM_NAMES
    return str(dim.dim_param) if is_named else None


@dataclass(frozen=True)
class ModelReader:
    """Reader for the messages of one model.

    folder  where the model lies; None for one that came as bytes
    """

    folder: Path | None
    context: str

    def read_graph(
        self, graph: Any, location_prefix: str = "", depth: int = 0
    ) -> GraphRecord:
        """Return the record of a graph's message, including its nested graphs."""
        if depth > MAX_GRAPH_DEPTH:
            raise ModelError(
                self.context,
                f"graphs are nested {depth} deep",
                f"at most {MAX_GRAPH_DEPTH} levels are supported",
            )
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelError(
                self.context,
                f"initializer {shown(name)} is sparse",
                "only dense initializers are supported",
            )
        weights = {
            t.name: weight_from_message(t, self.folder, self.context)
            for t in graph.initializer
        }
        return GraphRecord(
            name=graph.name,
            inputs=tuple(self._read_declaration(v) for v in graph.input),
            outputs=tuple(self._read_declaration(v) for v in graph.output),
            weights=weights,
            nodes=self.read_nodes(graph.node, location_prefix, depth),
        )

    def _read_declaration(self, value: Any) -> DeclaredValue:
        """Return the name and declared type of a graph's input or output."""
        try:
            return DeclaredValue(value.name, read_value_type(value.type))
        except ModelError as error:
            error.doing = f"{self.context}, value {shown(value.name)}"
            raise

    def read_nodes(
        self, nodes: Any, location_prefix: str, depth: int
    ) -> tuple[NodeRecord, ...]:
        """Return the records of a graph's nodes, in order."""
        return tuple(
            self._read_node(n, index, location_prefix, depth)
            for index, n in enumerate(nodes)
        )

    def _read_node(
        self, node: Any, index: int, location_prefix: str, depth: int
    ) -> NodeRecord:
        """Return the record of one node's message."""
        name = f" '{node.name}'" if node.name else ""
        location = f"{location_prefix}node {index}{name}"
        for part, identifier in (("op type", node.op_type), ("domain", node.domain)):
            if isinstance(identifier, bytes):  # protobuf's answer to what is not UTF-8
                problem = f"the {part} is {shown(identifier)}"
                raise ModelError(
                    f"{self.context}, {location}", problem, "must be UTF-8"
                )
        return NodeRecord(
            op=node.op_type,
            domain=normalize_domain(node.domain),
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attrs={
                a.name: self.read_attribute(a, location, depth) for a in node.attribute
            },
            location=location,
            message=node,
        )

    def read_attribute(self, attr: Any, location: str, depth: int) -> Any:
        """Return an attribute's value: a number, text, a tuple, a Weight, a graph or a
        type.
        """
        if attr.ref_attr_name:
            return AttributeRef(attr.ref_attr_name)
        kind = onnx_library_access.import_onnx().top.AttributeProto.AttributeType.Name(
            attr.type
        )
        if kind in _ATTRIBUTE_READERS:
            return _ATTRIBUTE_READERS[kind](attr)
        context = f"{self.context}, {location}" if location else self.context
        if kind == "TENSOR":
            return weight_from_message(attr.t, self.folder, context)
        if kind == "TENSORS":
            return tuple(
                weight_from_message(t, self.folder, context) for t in attr.tensors
            )
        if kind == "GRAPH":
            return self.read_graph(attr.g, f"{location}, {attr.name}, ", depth + 1)
        if kind == "SPARSE_TENSOR":
            return self._read_sparse(attr.sparse_tensor, context)
        raise ModelError(
            context,
            f"attribute {attr.name!r} has kind {kind}",
            "this kind is not supported",
        )

    def _read_sparse(self, sparse: Any, context: str) -> Weight:
        """Return the dense record of a sparse tensor."""
        values = weight_from_message(sparse.values, self.folder, context)
        indices = weight_from_message(sparse.indices, self.folder, context)
        shape = tuple(int(d) for d in sparse.dims)
        nbytes = math.prod(shape) * values.dtype.itemsize
        context = f"{context}, sparse tensor {shown(values.name)}"
        if any(d < 0 for d in shape):
            raise ModelError(
                context,
                f"the shape is {format_shape(shape)}",
                "dimensions must be >= 0",
            )
        if nbytes > MAX_CONSTANT_NBYTES:
            raise ModelError(
                context,
                f"the dense tensor {format_shape(shape)} {values.dtype} would take "
                f"{nbytes:,} bytes",
                f"a constant can have at most {MAX_CONSTANT_NBYTES:,} bytes",
            )
        return Weight(
            values.name, shape, values.dtype, lambda: _to_dense(values, indices, shape)
        )


def _to_dense(values: Weight, indices: Weight, shape: tuple[int, ...]) -> Any:
    """Return the dense array of a sparse tensor's values and indices."""
    dense = np.zeros(shape, values.dtype)
    index_array = indices.array
    try:
        if index_array.ndim == 1:
            dense.reshape(-1)[index_array] = values.array
        else:
            dense[tuple(index_array.T)] = values.array
    except IndexError as error:
        raise ModelError(f"sparse tensor {shown(values.name)}", str(error)) from None
    return dense


def _decode_text(data: bytes) -> str:
    """Decode UTF-8 text, replacing invalid bytes."""
    return data.decode("utf-8", "replace")


_ATTRIBUTE_READERS: dict[str, Callable[[Any], Any]] = {
    "FLOAT": lambda a: float(a.f),
    "INT": lambda a: int(a.i),
    "STRING": lambda a: _decode_text(a.s),
    "FLOATS": lambda a: tuple(map(float, a.floats)),
    "INTS": lambda a: tuple(map(int, a.ints)),
    "STRINGS": lambda a: tuple(map(_decode_text, a.strings)),
    "TYPE_PROTO": lambda a: read_value_type(a.tp),
}
