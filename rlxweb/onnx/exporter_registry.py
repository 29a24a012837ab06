"""Registry of exporters, which write rlxweb's ops in ONNX form, and the builder of an
ONNX graph.

An op that is exactly one of ONNX needs nothing but its name there (`Op.onnx`). Any
other has a form, registered under our name in one of the files of FORMS:

    @writes("rsqrt")
    def _rsqrt(w: Writer, node: Node, x: str) -> str:
        return w.add("Reciprocal", w.add("Sqrt", x))

A form gets the names of the operands and gives the name of the result. An op without a
form is written as the ops that it is composed of; one that only moves elements, as a
table of their places. What is left cannot be written, and is told by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import View
from rlxweb.ir.op import TensorType, registry
from rlxweb.onnx import onnx_library_access

Array = npt.NDArray[Any]
NodeExporter = Callable[..., str]

EXPORTER_MODULES = (
    "export_elementwise_reductions",
    "export_data_movement",
    "export_conv_pool_norms",
    "export_quantized",
)
MAX_INDEX_TABLE_ELEMENTS = 1 << 20
"""Maximum number of elements of an index table stored in a model."""

_exporters: dict[
    str, tuple[NodeExporter, Callable[[OnnxGraphBuilder, Node], bool]]
] = {}


def register_exporter(
    *ops: str,
    condition: Callable[[OnnxGraphBuilder, Node], bool] = lambda builder, node: True,
) -> Callable[[NodeExporter], NodeExporter]:
    """Register an exporter for rlxweb's ops by name.

    condition  says of which nodes it is one, by the types of their operands and the
               version that is written
    """

    def register(exporter: NodeExporter) -> NodeExporter:
        _exporters.update(dict.fromkeys(ops, (exporter, condition)))
        return exporter

    return register


@cache
def _load_exporters() -> None:
    """Import all exporter modules, once."""
    for name in EXPORTER_MODULES:
        import_module(f"rlxweb.onnx.{name}")


@dataclass
class OnnxGraphBuilder:
    """Builder of an ONNX graph.

    graph    where the types of operands are looked up
    opset    the version that is written
    nodes    messages, in order
    weights  arrays by name
    reserved_names  names that values have already
    """

    graph: Graph
    opset: int
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    reserved_names: frozenset[str] = frozenset()
    _name_count: int = 0

    def new_name(self) -> str:
        """Return an unused name."""
        while True:
            self._name_count += 1
            name = f"v{self._name_count}"
            if name not in self.reserved_names:
                return name

    def add_node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add an ONNX node and return the name of its first output."""
        return self.add_multi_output_node(op, 1, *inputs, **attrs)[0]

    def add_multi_output_node(
        self, op: str, outputs: int, *inputs: str, **attrs: Any
    ) -> list[str]:
        """Add an ONNX node with several outputs and return their names."""
        names = [self.new_name() for _ in range(outputs)]
        self.nodes.append(onnx_library_access.make_node(op, inputs, names, attrs))
        return names

    def add_constant(self, array: Any, dtype: Any = None) -> str:
        """Add a constant array and return its name."""
        name = self.new_name()
        self.weights[name] = np.asarray(array, dtype)
        return name

    def add_int64_constant(self, *values: int) -> str:
        """Add a constant vector of int64, the type of ONNX's shapes and axes, and
        return its name.
        """
        return self.add_constant(np.array(values, np.int64))

    def add_scalar_like(self, value: float, tensor_type: TensorType) -> str:
        """Add a scalar constant of a tensor's dtype and return its name."""
        return self.add_constant(np.array(value), tensor_type.dtype.numpy)

    def add_cast(self, x: str, dtype: DType) -> str:
        """Add a Cast node and return the result's name."""
        return self.add_node(
            "Cast", x, to=onnx_library_access.onnx_element_type(dtype.numpy)
        )

    def operand_type(self, node: Node, index: int = 0) -> TensorType:
        """Return the type of a node's operand."""
        return self.graph.node(node.inputs[index]).type

    def add_reshape(self, x: str, dims: Sequence[int]) -> str:
        """Add a Reshape node, in which a 0 means size 0, and return the result's
        name.
        """
        return self.add_node("Reshape", x, self.add_int64_constant(*dims), allowzero=1)


def find_exporter(builder: OnnxGraphBuilder, node: Node) -> NodeExporter | None:
    """Return the exporter of a node, or None if it cannot be exported without
    decomposition.
    """
    _load_exporters()
    entry = _exporters.get(node.op)
    if entry is not None and entry[1](builder, node):
        return entry[0]
    op = registry.get(node.op)
    if op.onnx and onnx_library_access.has_op(op.onnx[0], "", builder.opset):
        return _export_same_op
    if isinstance(op.lower, View) and is_index_table_small(builder, node):
        return export_as_gather
    return None


def _export_same_op(builder: OnnxGraphBuilder, node: Node, *operands: str) -> str:
    """Export an op that is exactly one ONNX op."""
    name = registry.get(node.op).onnx[0]
    return builder.add_node(name, *operands, **onnx_attributes(node.attrs))


def onnx_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes in ONNX's types: bools become integers."""
    return {n: int(v) if isinstance(v, bool) else v for n, v in attrs.items()}


def is_index_table_small(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether the node's index table is small enough to be stored in a model."""
    return node.type.numel <= MAX_INDEX_TABLE_ELEMENTS


def export_as_gather(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export an op that only moves elements, as a Gather by a table of flat indices."""
    operand_type = builder.operand_type(node)
    indices = np.arange(operand_type.numel, dtype=np.int64).reshape(operand_type.shape)
    table = registry.get(node.op).reference(np, dict(node.attrs), indices)
    return builder.add_node(
        "Gather",
        builder.add_reshape(x, (-1,)),
        builder.add_constant(table, np.int64),
        axis=0,
    )


def export_as_gather_or_fill(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export an op that moves elements and fills the rest with its `value`, as a Gather
    by a table of flat indices.
    """
    operand_type = builder.operand_type(node)
    indices = np.arange(operand_type.numel, dtype=np.int64).reshape(operand_type.shape)
    attrs = {**node.attrs, "value": -1.0}
    table = np.asarray(registry.get(node.op).reference(np, attrs, indices))
    value = builder.add_reshape(
        builder.add_scalar_like(node.attrs["value"], operand_type), (1,)
    )
    flat = builder.add_node(
        "Concat", builder.add_reshape(x, (operand_type.numel,)), value, axis=0
    )
    index_table = builder.add_constant(
        np.where(table < 0, operand_type.numel, table), np.int64
    )
    return builder.add_node("Gather", flat, index_table, axis=0)
