"""Range analysis: bounds on the values of every node of a graph, by the records of the
ops.

Constants say it themselves, inputs and params are told; from there on the `Bounds` of
each op is asked. An op without one that is built of others is asked by its
decomposition, and all that lies in there must fit too. Names no op.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlxweb.core.bfloat16 import widen_bfloat16
from rlxweb.core.errors import RlxError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import ConcatLowering, Expr, Kernel, View
from rlxweb.ir.op import registry
from rlxweb.ir.value_range_rules import Interval, dtype_interval, hull, is_subinterval

EMPTY_RANGE: Interval = (0, 0)
"""Range of an array without values."""
_MAX_DEPTH = 8


@dataclass(slots=True)
class RangeAnalysis:
    """Ranges of the values of a graph's nodes, as far as they are known.

    input_ranges  what inputs and params hold, by name; others may be anything of their
                  type
    dtype_limits  type → what its values must lie in
    node_ids  the nodes that are asked for; None: all
    node_ranges  the interval of each node
    first_overflow  the first node that reaches further, or of whose inside nothing is
                    known
    """

    graph: Graph
    input_ranges: Mapping[str, Interval]
    dtype_limits: Mapping[DType, Interval]
    node_ids: Collection[int] | None = None
    node_ranges: list[Interval] = field(default_factory=list)
    first_overflow: tuple[Node, Interval] | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        for node in self.graph.nodes():
            if self.node_ids is not None and node.id not in self.node_ids:
                self.node_ranges.append(dtype_interval(node.type.dtype))
                continue
            node_range = self._node_range(node)
            self.node_ranges.append(node_range)
            limit = self.dtype_limits.get(node.type.dtype)
            if (
                limit is not None
                and not is_subinterval(node_range, limit)
                and self.first_overflow is None
            ):
                self.first_overflow = node, node_range

    def _node_range(self, node: Node) -> Interval:
        dtype_range = dtype_interval(node.type.dtype)
        if node.op == "constant":
            return _constant_range(node)
        if node.op in ("input", "param"):
            return self.input_ranges.get(node.name, dtype_range)
        if not node.type.numel:
            return EMPTY_RANGE
        result_range = self._result_range(
            node, [self.node_ranges[i] for i in node.inputs]
        )
        if result_range is None:
            return dtype_range
        # What leaves its type wraps, and may then be anywhere.
        return (
            result_range if is_subinterval(result_range, dtype_range) else dtype_range
        )

    def _result_range(
        self, node: Node, operand_ranges: Sequence[Interval]
    ) -> Interval | None:
        """Return the range of a node's result by its op's range rule; None where
        nothing is known.
        """
        op = registry.get(node.op)
        types = tuple(self.graph.node(i).type for i in node.inputs)
        has_limited_operand = any(t.dtype in self.dtype_limits for t in types)
        dtype = node.type.dtype
        if op.has_trait("custom"):
            if has_limited_operand:
                self._mark_unknown(node)
            return None
        if op.range_rule is not None:
            # The ends of a sum of floats would have to be rounded outward.
            if dtype.is_float and op.range_rule.float_behavior == "rounded":
                return None
            return op.range_rule.transfer(operand_ranges, types, node.type, node.attrs)
        if isinstance(op.lower, View | ConcatLowering):
            return hull(*operand_ranges)
        if isinstance(op.lower, Expr) and dtype is DType.BOOL:
            return 0, 1
        if not has_limited_operand and dtype not in self.dtype_limits:
            return None
        return self._decomposition_range(node, operand_ranges)

    def _decomposition_range(
        self, node: Node, operand_ranges: Sequence[Interval]
    ) -> Interval | None:
        """Return the range of a node's result by the decomposition of its op."""
        op = registry.get(node.op)
        parts = None if isinstance(op.lower, Kernel) else op.decomposition
        if parts is None or self.depth == _MAX_DEPTH:
            self._mark_unknown(node)
            return None
        part_graph = Graph(node.op)
        types = (self.graph.node(i).type for i in node.inputs)
        inputs = [
            part_graph.input(f"x{n}", t.shape, t.dtype) for n, t in enumerate(types)
        ]
        try:
            part_graph.set_outputs([parts.build(part_graph, node.attrs, *inputs)])
        except RlxError:
            self._mark_unknown(node)
            return None
        input_ranges = {
            f"x{n}": operand_range for n, operand_range in enumerate(operand_ranges)
        }
        inner = RangeAnalysis(
            part_graph, input_ranges, self.dtype_limits, depth=self.depth + 1
        )
        if inner.first_overflow is not None and self.first_overflow is None:
            self.first_overflow = node, inner.first_overflow[1]
        return inner.node_ranges[part_graph.outputs[0]]

    def _mark_unknown(self, node: Node) -> None:
        """Note a node whose values are not bounded, if it is the first."""
        if self.first_overflow is None:
            self.first_overflow = node, dtype_interval(node.type.dtype)


def related_nodes(graph: Graph, types: Collection[DType]) -> set[int]:
    """Return the nodes of these types, the nodes they are computed from, and their
    readers.
    """
    nodes = graph.nodes()
    node_ids = {n.id for n in nodes if n.type.dtype in types}
    for node in reversed(nodes):
        if node.id in node_ids:
            node_ids.update(node.inputs)
    readers = (
        n.id for n in nodes if any(nodes[i].type.dtype in types for i in n.inputs)
    )
    return node_ids | set(readers)


def _constant_range(node: Node) -> Interval:
    """Return the range of a constant's values; NaN is ignored."""
    array = widen_bfloat16(node.attrs["value"].array)
    if not array.size:
        return EMPTY_RANGE
    if not node.type.dtype.is_float:
        return int(array.min()), int(array.max())
    numbers = array[~np.isnan(array)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else EMPTY_RANGE
