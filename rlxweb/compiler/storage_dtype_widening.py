"""Storage-only element types: values that a device stores but cannot compute with,
computed in wider types.

Integers of 8 and 16 bits are computed in i32, bf16 (and f16 where a device has none) in
f32. Leaves keep their type, and so do results; behind each leaf stands a cast to the
wider type and before each result one back. What an op may give that the small type does
not hold is put right after it: integers wrap, as the reference's do, floats are
rounded. Both are a cast there and back, which every engine does within a region; so an
op knows nothing of small types, and has them on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.compiler.rewrites import MAX_ROUNDS
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DTypeError, RlxError
from rlxweb.ir.dtype import DType, cast_array
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import ConcatLowering, Leaf, View
from rlxweb.ir.op import Op, TensorType, no_flops, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.value_range_rules import dtype_interval, is_subinterval

# Constants up to here are widened while compiling, larger ones on the device.
MAX_WIDENED_ELEMENTS = 1 << 14
WIDER_DTYPE = {
    DType.I8: DType.I32,
    DType.U8: DType.I32,
    DType.I16: DType.I32,
    DType.U16: DType.I32,
    DType.BF16: DType.F32,
    DType.F16: DType.F32,
}
"""Wider type that each small type is computed in; it holds every value of the small
type.
"""
# Their results are among their operands' values, and no attribute brings another in.
_VALUE_PRESERVING_OPS = frozenset(
    {"maximum", "minimum", "max", "min", "where", "relu", "max_pool"}
)


def widen_storage_dtypes(graph: Graph, target: Target) -> Graph:
    """Return the graph with small types only in leaves and casts, which the target
    stores.

    The graph itself where there is nothing to do.
    Errors   DTypeError for an op of which nothing is known with wider operands.
    """
    small = target.storage_dtypes - target.dtypes
    if small.isdisjoint({node.type.dtype for node in graph.nodes()}):
        return graph
    nodes = (
        node
        for node in graph.nodes()
        if any(graph.node(i).type.dtype in small for i in (node.id, *node.inputs))
    )
    if all(target.supports_node_dtypes(graph, node) for node in nodes):
        return graph
    return _DtypeWidener(small).widen_graph(_decompose_unwidenable(graph, small))


def _widened_type(tensor_type: TensorType, small: frozenset[DType]) -> TensorType:
    """Return a type with its small element type replaced by the wider one."""
    return (
        TensorType(tensor_type.shape, WIDER_DTYPE[tensor_type.dtype])
        if tensor_type.dtype in small
        else tensor_type
    )


def _is_widenable(graph: Graph, node: Node, small: frozenset[DType]) -> bool:
    """Tell whether the op gives the same result in the wider type when its operands are
    widened.
    """
    op = registry.get(node.op)
    if node.op == "cast" or isinstance(op.lower, Leaf):
        return True
    types = [graph.node(i).type for i in node.inputs]
    if not any(tensor_type.dtype in small for tensor_type in (*types, node.type)):
        return True
    if op.has_trait("custom"):
        return False
    try:
        widened = op.output_type(
            [_widened_type(tensor_type, small) for tensor_type in types], node.attrs
        )
    except RlxError:
        return False
    return widened == _widened_type(node.type, small)


def _decompose_unwidenable(graph: Graph, small: frozenset[DType]) -> Graph:
    """Decompose ops whose result type an attribute fixes, down to casts.

    Errors   DTypeError for one that is not built from others.
    """
    for _ in range(MAX_ROUNDS):
        unwidenable = {
            n.id for n in graph.nodes() if not _is_widenable(graph, n, small)
        }
        if not unwidenable:
            return graph
        out = Graph(graph.name)
        tensors: dict[int, Tensor] = {}
        for node in graph.nodes():
            operands = [tensors[i] for i in node.inputs]
            parts = (
                registry.get(node.op).decomposition if node.id in unwidenable else None
            )
            if node.id not in unwidenable:
                tensors[node.id] = out.copied(node, operands)
            elif parts is None or registry.get(node.op).has_trait("custom"):
                raise _widening_error(graph, node, small)
            else:
                tensors[node.id] = parts.build(out, node.attrs, *operands)
        out.set_outputs([tensors[i] for i in graph.outputs])
        graph = out
    raise AssertionError(
        f"the decomposition of an op of '{graph.name}' still has small dtypes"
    )


def _widening_error(graph: Graph, node: Node, small: frozenset[DType]) -> DTypeError:
    """Return the error for an op that can be neither widened nor decomposed."""
    types = [graph.node(i).type for i in node.inputs]
    dtypes = {k.dtype for k in (*types, node.type)} & small
    names = ", ".join(sorted(dtype.label for dtype in dtypes))
    return DTypeError(
        f"{node} of graph '{graph.name}'",
        f"the op uses {names}, which the device stores but cannot compute with",
        "the op is not known to give the same result in a wider dtype",
        "cast the operands to i32 or f32 before this op",
    )


class _DtypeWidener:
    """Builder of the widened graph, used for one pass over a graph.

    wide_tensors  node of the old graph → its tensor here, in the wider type
    leaves  node of the old graph → the leaf of its own small type
    """

    def __init__(self, small: frozenset[DType]) -> None:
        self.small = small
        self.wide_tensors: dict[int, Tensor] = {}
        self.leaves: dict[int, Tensor] = {}

    def widen_graph(self, graph: Graph) -> Graph:
        """Return the graph with every small type widened."""
        self.out = out = Graph(graph.name)
        for node in graph.nodes():
            self.wide_tensors[node.id] = self._widen_node(graph, node)
        out.set_outputs([self._narrow_output(graph.node(i)) for i in graph.outputs])
        return out

    def _narrow_output(self, node: Node) -> Tensor:
        if node.id in self.leaves:
            return self.leaves[node.id]
        wide = self.wide_tensors[node.id]
        if node.type.dtype not in self.small:
            return wide
        return self.out.cast(wide, node.type.dtype)

    def _widen_node(self, graph: Graph, node: Node) -> Tensor:
        dtype = node.type.dtype
        operands = [self.wide_tensors[i] for i in node.inputs]
        operand_dtypes = [graph.node(i).type.dtype for i in node.inputs]
        if isinstance(registry.get(node.op).lower, Leaf):
            return self._widen_leaf(node)
        if dtype not in self.small and not self.small.intersection(operand_dtypes):
            return self.out.copied(node, operands)
        if node.op == "cast":
            return self._widen_cast(operands[0], dtype)
        result = self.out.apply(node.op, *operands, name=node.name, **node.attrs)
        op = registry.get(node.op)
        if dtype not in self.small or _preserves_values(op, node.attrs):
            return result
        if _fits_small_dtype(op, graph, node):
            return result
        return self._round_trip_cast(result, dtype)

    def _widen_leaf(self, node: Node) -> Tensor:
        dtype, out = node.type.dtype, self.out
        if dtype not in self.small:
            return out.copied(node, ())
        if node.op == "constant" and node.type.numel <= MAX_WIDENED_ELEMENTS:
            value = node.attrs["value"].array
            return out.constant(cast_array(value, WIDER_DTYPE[dtype]))
        leaf = self.leaves[node.id] = out.copied(node, ())
        return out.cast(leaf, WIDER_DTYPE[dtype])

    def _round_trip_cast(self, x: Tensor, dtype: DType) -> Tensor:
        """Cast to the small type and back, so that the wider value is one of the small
        type.
        """
        return self.out.cast(self.out.cast(x, dtype), WIDER_DTYPE[dtype])

    def _widen_cast(self, x: Tensor, to: DType) -> Tensor:
        """Add a cast of a widened operand; a result of small type stays in the wider
        type.
        """
        out = self.out
        if to not in self.small:
            return out.cast(x, to) if x.dtype is not to else x
        wide = WIDER_DTYPE[to]
        result = out.cast(x, wide) if x.dtype is not wide else x
        if to.is_integer and x.dtype.is_float:  # which saturates
            return out.minimum(
                out.maximum(result, int(to.min_value)), int(to.max_value)
            )
        if x.dtype is DType.BOOL:
            return result
        return self._round_trip_cast(result, to)


def _fits_small_dtype(op: Op, graph: Graph, node: Node) -> bool:
    """Tell whether an integer op gives only values that its small type holds."""
    if op.range_rule is None or not node.type.dtype.is_integer:
        return False
    types = tuple(graph.node(i).type for i in node.inputs)
    result_range = op.range_rule.transfer(
        [dtype_interval(t.dtype) for t in types], types, node.type, node.attrs
    )
    return is_subinterval(result_range, dtype_interval(node.type.dtype))


def _preserves_values(op: Op, attrs: Mapping[str, Any]) -> bool:
    """Tell whether every value of the result is one of the operands' values."""
    if op.name in _VALUE_PRESERVING_OPS or isinstance(op.lower, View | ConcatLowering):
        return True
    is_data_movement = op.flops is no_flops and not op.has_trait("elementwise")
    return (
        is_data_movement
        and "value" not in attrs
        and attrs.get("put") not in ("add", "mul")
    )
