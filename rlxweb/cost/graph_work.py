"""Work items of a graph's nodes: the kind and size of each, by the op's own record.

An op that a device cannot be asked about as a whole is the items of its decomposition,
so that attention costs what its products and its softmax cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlxweb.cost.workload import WorkItem, Workload
from rlxweb.ir.dim_binding import OpGraph, op_graph
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node, node_signature
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Op, TensorType, Types, registry


def is_free(node: Node) -> bool:
    """Tell whether a node is a leaf or a view and so moves nothing."""
    op = registry.get(node.op)
    return op.has_trait("leaf") or op.has_trait("view")


def node_flops(graph: OpGraph, node: Node) -> float:
    """Return the arithmetic operations of one node, by its op's count; 0 for leaves and
    views.
    """
    op, inputs, out, attrs = node_signature(graph, node)
    return 0.0 if is_free(node) else float(op.flops(inputs, out, attrs))


def node_bytes(graph: OpGraph, node: Node) -> int:
    """Return the bytes of the distinct inputs and of the output."""
    read = sum(graph.node(i).type.nbytes for i in set(node.inputs))
    return read + node.type.nbytes


def node_item(graph: OpGraph, node: Node, launches: int = 1) -> WorkItem:
    """Return one node as one work item.

    The kind is the measured one its op names, or else the op itself, whose size is the
    elements of its largest operand or result, and the rows they lie in.
    """
    op, inputs, out, attrs = node_signature(graph, node)
    largest = max((*inputs, out), key=lambda t: t.numel)
    rows = largest.numel // max(1, largest.shape[-1]) if largest.rank else 1
    kind, size = op.name, {"cells": largest.numel, "rows": rows}
    if op.work is not None:
        kind, op_size = op.work(inputs, out, attrs)
        size = dict(op_size)
    label = f"{node.op} '{node.name}'" if node.name else node.op
    nbytes = size.get("bytes", node_bytes(graph, node))
    # A product that gives floats computes floats, whatever its weights are packed in.
    is_float_matmul = op.has_trait("blas") and out.dtype.is_float
    computed_types = [
        t for t in (*inputs, out) if t.dtype.is_float or not is_float_matmul
    ]
    flops, dtype_class = node_flops(graph, node), _dtype_class(computed_types)
    return WorkItem(kind, label, launches, flops, nbytes, size, dtype_class=dtype_class)


def _dtype_class(types: Sequence[TensorType]) -> str:
    """Return the dtype class of the largest operand or result: "whole", "half", or ""
    for other floats.
    """
    dtype = max(types, key=lambda t: t.numel).dtype
    return "whole" if dtype.is_integer else "half" if dtype is DType.F16 else ""


def node_items(graph: OpGraph, node: Node) -> tuple[WorkItem, ...]:
    """Return one node as the steps it takes where each op is a step of its own: NumPy,
    or no device yet.
    """
    op, inputs, out, attrs = node_signature(graph, node)
    if any(tensor_type.has_symbolic_dims for tensor_type in (*inputs, out)):
        return (_launch_item(graph, node),)
    if op.work is not None or not isinstance(op.lower, Compose):
        return (node_item(graph, node),)
    try:
        key = tuple(sorted(attrs.items()))
        return _cached_decomposition_items(op, inputs, key, registry.revision)
    except TypeError:  # an attribute of a custom op that cannot be looked up
        return _decomposition_items(op, inputs, attrs)


def _launch_item(graph: OpGraph, node: Node) -> WorkItem:
    """Return the item of a node with symbolic sizes: one launch, and the bytes that are
    known.
    """
    tensor_types = (*(graph.node(i).type for i in set(node.inputs)), node.type)
    nbytes = sum(tensor_type.known_nbytes for tensor_type in tensor_types)
    # No measured kind: each of those is priced by sizes.
    return WorkItem("varying", node.op, 1, 0.0, nbytes, {"cells": 0, "rows": 0})


@lru_cache(maxsize=512)
def _cached_decomposition_items(
    op: Op, inputs: Types, attrs: tuple[tuple[str, Any], ...], changes: int
) -> tuple[WorkItem, ...]:
    return _decomposition_items(op, inputs, dict(attrs))


def _decomposition_items(
    op: Op, inputs: Types, attrs: Mapping[str, Any]
) -> tuple[WorkItem, ...]:
    assert isinstance(op.lower, Compose)
    graph = Graph(op.name)
    operands = [
        graph.input(f"x{index}", t.shape, t.dtype) for index, t in enumerate(inputs)
    ]
    graph.set_outputs([op.lower.build(graph, attrs, *operands)])
    return graph_items(graph)


def graph_items(graph: OpGraph) -> tuple[WorkItem, ...]:
    """Return the steps of every node that some output needs and that is not free."""
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes()):
        if node.id in needed:
            needed.update(node.inputs)
            nodes.append(node)
    return tuple(
        item
        for node in reversed(nodes)
        if not is_free(node)
        for item in node_items(graph, node)
    )


def graph_workload(graph: Graph) -> Workload:
    """Return the workload of a graph as it is written: one kernel a step, views free,
    nothing fused.

    Sizes that vary count 0.
    """
    ops = op_graph(graph)
    upload_bytes = sum(n.type.known_nbytes for n in ops.nodes() if n.op == "input")
    readback_bytes = sum(ops.node(i).type.known_nbytes for i in ops.outputs)
    return Workload(graph_items(ops), upload_bytes, readback_bytes)
