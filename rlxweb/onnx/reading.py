"""From the messages of a model's file to plain records.

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

from rlxweb.errors import ModelError, shown
from rlxweb.ir.shape import show
from rlxweb.onnx import library
from rlxweb.onnx.draft import MOST_BYTES
from rlxweb.onnx.records import (
    Declared,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    Ref,
    ValueType,
    Weight,
)
from rlxweb.onnx.weights import weight_of

DEEPEST = 32
"""Graphs within graphs, at most."""


def plain_domain(domain: str) -> str:
    """The domain's name; "" for ONNX's own, under either of its names."""
    return "" if domain == "ai.onnx" else domain


def read_model(model: Any, folder: Path | None, doing: str) -> ModelRecord:
    """The records of a model's message. Errors  ModelError."""
    reader = Reader(folder, doing)
    functions = [read_function(f, folder, doing) for f in model.functions]
    return ModelRecord(
        graph=reader.graph(model.graph),
        opsets=_opsets(model.opset_import),
        functions={(f.domain, f.name): f for f in functions},
        producer=f"{model.producer_name} {model.producer_version}".strip(),
    )


def read_function(function: Any, folder: Path | None, doing: str) -> FunctionRecord:
    """The record of a function's message."""
    reader = Reader(folder, f"{doing}, function {shown(function.name)}")
    defaults = {a.name: reader.attribute(a, "", 0) for a in function.attribute_proto}
    return FunctionRecord(
        name=function.name,
        domain=plain_domain(function.domain),
        inputs=tuple(function.input),
        outputs=tuple(function.output),
        attrs={**dict.fromkeys(function.attribute), **defaults},
        opsets=_opsets(function.opset_import),
        nodes=reader.nodes(function.node, f"function '{function.name}', ", 0),
    )


def _opsets(imports: Any) -> dict[str, int]:
    return {plain_domain(o.domain): int(o.version) for o in imports}


def value_type(message: Any) -> ValueType | None:
    """What a type's message says; None where it says nothing."""
    kind = message.WhichOneof("value")
    if kind is None:
        return None
    if kind == "tensor_type":
        tensor = message.tensor_type
        dims = None
        if tensor.HasField("shape"):
            dims = tuple(_dim(d) for d in tensor.shape.dim)
        return ValueType("tensor", library.dtype_of(tensor.elem_type), dims)
    if kind == "sequence_type":
        return ValueType(
            "sequence", element=value_type(message.sequence_type.elem_type)
        )
    if kind == "optional_type":
        return ValueType(
            "optional", element=value_type(message.optional_type.elem_type)
        )
    return ValueType("other")


_NO_NAMES = ("", "?", "-1", "None")
"""What exporters write of a dim they know nothing of: two such are not the same."""


def _dim(dim: Any) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    named = kind == "dim_param" and dim.dim_param not in _NO_NAMES
    return str(dim.dim_param) if named else None


@dataclass(frozen=True)
class Reader:
    """Reads the messages of one model.

    folder  where the model lies; None for one that came as bytes
    """

    folder: Path | None
    doing: str

    def graph(self, graph: Any, within: str = "", deep: int = 0) -> GraphRecord:
        if deep > DEEPEST:
            raise ModelError(
                self.doing, f"{deep} graphs within each other", f"at most {DEEPEST}"
            )
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelError(
                self.doing, f"tensor {shown(name)} is sparse", "dense ones are read"
            )
        weights = {
            t.name: weight_of(t, self.folder, self.doing) for t in graph.initializer
        }
        return GraphRecord(
            name=graph.name,
            inputs=tuple(self._declared(v) for v in graph.input),
            outputs=tuple(self._declared(v) for v in graph.output),
            weights=weights,
            nodes=self.nodes(graph.node, within, deep),
        )

    def _declared(self, value: Any) -> Declared:
        try:
            return Declared(value.name, value_type(value.type))
        except ModelError as error:
            error.doing = f"{self.doing}, value {shown(value.name)}"
            raise

    def nodes(self, nodes: Any, within: str, deep: int) -> tuple[NodeRecord, ...]:
        return tuple(self._node(n, at, within, deep) for at, n in enumerate(nodes))

    def _node(self, node: Any, at: int, within: str, deep: int) -> NodeRecord:
        name = f" '{node.name}'" if node.name else ""
        place = f"{within}node {at}{name}"
        for word in (node.op_type, node.domain):
            if isinstance(word, bytes):  # protobuf's answer to what is not UTF-8
                problem = f"{shown(word)} is the name of an op or a domain"
                raise ModelError(f"{self.doing}, {place}", problem, "it is no UTF-8")
        return NodeRecord(
            op=node.op_type,
            domain=plain_domain(node.domain),
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attrs={a.name: self.attribute(a, place, deep) for a in node.attribute},
            place=place,
            written=node,
        )

    def attribute(self, attr: Any, place: str, deep: int) -> Any:
        """An attribute's value: numbers, text, tuples, Weights, graphs, types."""
        if attr.ref_attr_name:
            return Ref(attr.ref_attr_name)
        kind = library.package().top.AttributeProto.AttributeType.Name(attr.type)
        if kind in _PLAIN:
            return _PLAIN[kind](attr)
        doing = f"{self.doing}, {place}" if place else self.doing
        if kind == "TENSOR":
            return weight_of(attr.t, self.folder, doing)
        if kind == "TENSORS":
            return tuple(weight_of(t, self.folder, doing) for t in attr.tensors)
        if kind == "GRAPH":
            return self.graph(attr.g, f"{place}, {attr.name}, ", deep + 1)
        if kind == "SPARSE_TENSOR":
            return self._sparse(attr.sparse_tensor, doing)
        raise ModelError(doing, f"attribute {attr.name!r} is of kind {kind}", "unknown")

    def _sparse(self, sparse: Any, doing: str) -> Weight:
        """A sparse tensor as a dense one."""
        values = weight_of(sparse.values, self.folder, doing)
        indices = weight_of(sparse.indices, self.folder, doing)
        shape = tuple(int(d) for d in sparse.dims)
        nbytes = math.prod(shape) * values.dtype.itemsize
        if nbytes > MOST_BYTES or any(d < 0 for d in shape):
            raise ModelError(
                f"{doing}, sparse tensor {shown(values.name)}",
                f"it is {show(shape)} {values.dtype}",
                f"a constant of a model takes 0 to {MOST_BYTES:,} bytes",
            )
        return Weight(
            values.name, shape, values.dtype, lambda: _dense(values, indices, shape)
        )


def _dense(values: Weight, indices: Weight, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, values.dtype)
    at = indices.array
    try:
        if at.ndim == 1:
            out.reshape(-1)[at] = values.array
        else:
            out[tuple(at.T)] = values.array
    except IndexError as error:
        raise ModelError(f"sparse tensor {shown(values.name)}", str(error)) from None
    return out


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "FLOAT": lambda a: float(a.f),
    "INT": lambda a: int(a.i),
    "STRING": lambda a: _text(a.s),
    "FLOATS": lambda a: tuple(map(float, a.floats)),
    "INTS": lambda a: tuple(map(int, a.ints)),
    "STRINGS": lambda a: tuple(map(_text, a.strings)),
    "TYPE_PROTO": lambda a: value_type(a.tp),
}
