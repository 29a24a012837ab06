"""Demotion of 64-bit values to 32 bits on devices without them, where that changes
nothing.

Integers are held as i32 or u32 where every node is proven to fit, given what inputs and
params may hold: that is checked when they are given. Where more would be too much they
are held to fewer bits. Doubles are held as f32 where nothing is computed with them that
f32 would round: they are moved, compared, chosen from, or cast. Anything else is
refused, with the node. Names no op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from rlxweb.compiler.plan import DemotedValue
from rlxweb.compiler.range_analysis import RangeAnalysis, related_nodes
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DTypeError
from rlxweb.core.message_text import Advice
from rlxweb.cost.decision import Decision
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Constant, Graph, Node
from rlxweb.ir.lowering import ConcatLowering, Expr, View
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.value_range_rules import Interval, dtype_interval, is_subinterval

MIN_BITS = 8
"""Minimum bits of magnitude that inputs may have; a device that takes fewer cannot be
used.
"""
MAX_SEPARATE_LIMITS = 16
"""Maximum number of inputs and params for which each gets a limit of its own."""
_F32_MANTISSA_BITS = 24


@dataclass(frozen=True, slots=True)
class DemotedGraph:
    """Graph demoted to types that the device has.

    demoted_inputs  inputs and params of a type that it has not
    demoted_outputs  the declared type of each, where the device has it not
    """

    graph: Graph
    demoted_inputs: Mapping[str, DemotedValue]
    demoted_outputs: tuple[DemotedValue | None, ...]
    decisions: tuple[Decision, ...] = ()


def demote_graph(graph: Graph, target: Target) -> DemotedGraph:
    """Return the graph in narrower types, where the device needs them and they suffice.

    Errors   DTypeError with the first node of which that is not known.
    """
    wide_dtypes = {n.type.dtype for n in graph.nodes()} - target.dtypes
    wide_dtypes &= target.demotions.keys()
    if not wide_dtypes:
        return DemotedGraph(graph, {}, (None,) * len(graph.outputs))
    dtype_limits = {
        d: dtype_interval(target.demotions[d]) for d in wide_dtypes if d.is_integer
    }
    ranges, limiting_nodes = _find_limits(graph, target, dtype_limits)
    doubles = (
        _DoubleAnalysis(graph, target, ranges) if DType.F64 in wide_dtypes else None
    )
    demoted_inputs = {}
    for node in _wide_inputs(graph, wide_dtypes):
        low, high = ranges.input_ranges.get(node.name, dtype_interval(node.type.dtype))
        precision = (
            doubles.precision(node)
            if doubles and node.type.dtype is DType.F64
            else "exact"
        )
        limiting_node = limiting_nodes.get(node.name, "")
        demoted_inputs[node.name] = DemotedValue(
            node.type.dtype, low, high, precision, limiting_node
        )
    outputs = tuple(
        DemotedValue(graph.node(i).type.dtype, *ranges.node_ranges[i])
        if graph.node(i).type.dtype in wide_dtypes
        else None
        for i in graph.outputs
    )
    demoted = _retype_graph(graph, target)
    return DemotedGraph(
        demoted,
        demoted_inputs,
        outputs,
        _decisions(wide_dtypes, target, demoted_inputs),
    )


def _decisions(
    wide_dtypes: set[DType], target: Target, demoted_inputs: Mapping[str, DemotedValue]
) -> tuple[Decision, ...]:
    decisions = []
    for dtype in sorted(wide_dtypes, key=str):
        numbers = {
            f"'{n}'": str(h) for n, h in demoted_inputs.items() if h.dtype is dtype
        }
        why = "all computed values fit"
        why += ", and input values are checked" if numbers else ""
        decisions.append(
            Decision(f"{dtype} stored as {target.demotions[dtype]}", why, numbers)
        )
    return tuple(decisions)


def _wide_inputs(graph: Graph, wide_dtypes: Collection[DType]) -> Iterator[Node]:
    """Yield the inputs and params of a wide type."""
    for op in ("input", "param"):
        yield from (n for n in graph.named(op).values() if n.type.dtype in wide_dtypes)


# --- integers ---------------------------------------------------------------------


def _find_limits(
    graph: Graph, target: Target, dtype_limits: Mapping[DType, Interval]
) -> tuple[RangeAnalysis, dict[str, str]]:
    """Return the ranges under the widest limits on the inputs that fit, and the node
    that set each limit.

    Errors   DTypeError.
    """
    inputs = list(_wide_inputs(graph, dtype_limits))
    node_ids = related_nodes(graph, target.demotions)

    def analyze(bits: Mapping[str, int]) -> RangeAnalysis:
        input_ranges = {
            n.name: _symmetric_limit(dtype_limits[n.type.dtype], bits[n.name])
            for n in inputs
        }
        return RangeAnalysis(graph, input_ranges, dtype_limits, node_ids)

    max_bits = {n.name: _magnitude_bits(dtype_limits[n.type.dtype]) for n in inputs}
    analysis = analyze(max_bits)
    if analysis.first_overflow is None:
        return analysis, {}
    min_analysis = analyze(dict.fromkeys(max_bits, MIN_BITS))
    if min_analysis.first_overflow is not None:
        _raise_not_demotable(*min_analysis.first_overflow, target)

    def analyze_all(count: int) -> RangeAnalysis:
        return analyze({name: min(full, count) for name, full in max_bits.items()})

    common_bits, limiting_node = _max_bits(
        analyze_all, MIN_BITS, max(max_bits.values())
    )
    bits = {name: min(full, common_bits) for name, full in max_bits.items()}
    limiting_nodes = dict.fromkeys(bits, limiting_node)
    for name in bits if len(bits) <= MAX_SEPARATE_LIMITS else ():

        def analyze_one(count: int, name: str = name) -> RangeAnalysis:
            return analyze({**bits, name: count})

        bits[name], limiting_nodes[name] = _max_bits(
            analyze_one, bits[name], max_bits[name]
        )
    return analyze(bits), limiting_nodes


def _max_bits(
    analyze: Callable[[int], RangeAnalysis], low: int, high: int
) -> tuple[int, str]:
    """Return the largest number of bits that fits, at least `low`, and the first node
    that overflows with more.
    """
    overflow = analyze(high).first_overflow
    if overflow is None:
        return high, ""
    while high - low > 1:
        middle = (low + high) // 2
        middle_overflow = analyze(middle).first_overflow
        if middle_overflow is None:
            low = middle
        else:
            high, overflow = middle, middle_overflow
    return low, str(overflow[0])


def _magnitude_bits(limit: Interval) -> int:
    return int(limit[1]).bit_length()


def _symmetric_limit(limit: Interval, bits: int) -> Interval:
    """Return a range symmetric about 0, so that negated values still fit."""
    max_magnitude = (1 << bits) - 1
    return max(limit[0], -max_magnitude), min(limit[1], max_magnitude)


def _raise_not_demotable(node: Node, value_range: Interval, target: Target) -> NoReturn:
    dtype = node.type.dtype
    if dtype not in target.demotions:
        raise DTypeError(
            f"{node} on {target.name}",
            "the device does not support 64-bit integers",
            f"'{node.op}' is not known to give the same result in 32 bits",
            Advice("cast to i32 before this op, or run with {}", device="cpu"),
        )
    narrow_dtype = target.demotions[dtype]
    if dtype.is_float:
        _raise_no_f64(node, target)
    low, high = dtype_interval(narrow_dtype)
    raise DTypeError(
        f"{node} on {target.name}",
        f"the device has no {dtype} support, and the values may not fit {narrow_dtype}",
        f"the values may range from {value_range[0]} to {value_range[1]}; "
        f"{narrow_dtype} represents {low} to {high}",
        Advice(
            f"clip the values or cast them to {narrow_dtype} before this op, or run "
            "with {}",
            device="cpu",
        ),
    )


def _raise_no_f64(node: Node, target: Target) -> NoReturn:
    raise DTypeError(
        f"{node} on {target.name}",
        "the device has no f64 support",
        "f32 would round the result",
        Advice("cast to f32 before this op, or run with {}", device="cpu"),
    )


# --- doubles ----------------------------------------------------------------------

DoublePrecision = Literal["exact", "rounded", "odd"]


class _DoubleAnalysis:
    """Analysis of f64 values: which must be exact in f32, and which may be rounded."""

    def __init__(self, graph: Graph, target: Target, ranges: RangeAnalysis) -> None:
        self._graph, self._target, self._ranges = graph, target, ranges
        self._needs: dict[int, frozenset[str]] = {}
        users: dict[int, list[Node]] = {}
        for node in graph.nodes():
            for i in dict.fromkeys(node.inputs):
                users.setdefault(i, []).append(node)
        for node in reversed(graph.nodes()):
            if node.type.dtype is DType.F64:
                needs = [self._operand_needs(user) for user in users.get(node.id, ())]
                needs += [frozenset({"exact"})] * (node.id in graph.outputs)
                self._needs[node.id] = frozenset().union(*needs)
        for node in graph.nodes():
            dtypes = {node.type.dtype, *(graph.node(i).type.dtype for i in node.inputs)}
            if DType.F64 in dtypes and not self._is_same_in_f32(node):
                _raise_no_f64(node, target)

    def _operand_needs(self, user: Node) -> frozenset[str]:
        """Return the precision that a node needs of its f64 operands."""
        bounds, result_dtype = registry.get(user.op).range_rule, user.type.dtype
        if (
            bounds is not None
            and bounds.float_behavior == "cast"
            and result_dtype is DType.F32
        ):
            return frozenset({"rounded"})
        if (
            bounds is not None
            and bounds.float_behavior == "cast"
            and result_dtype is DType.F16
        ):
            return frozenset({"odd"})
        if result_dtype is DType.F64 and _commutes_with_rounding(user):
            return self._needs[user.id]
        return frozenset({"exact"})

    def precision(self, node: Node) -> DoublePrecision:
        """Return the precision in which an f64 value must be stored as f32."""
        needs = self._needs[node.id]
        if needs <= {"rounded"}:
            return "rounded"
        return "odd" if needs == {"odd"} else "exact"

    def _is_same_in_f32(self, node: Node) -> bool:
        """Tell whether f32 gives the same result as f64 at a node."""
        op, result_dtype = registry.get(node.op), node.type.dtype
        if op.has_trait("custom"):
            return False
        if op.has_trait("leaf"):
            return node.op != "constant" or self._is_f32_constant(node)
        if any(
            isinstance(v, float) and not _is_f32_number(v) for v in node.attrs.values()
        ):
            return False
        if op.range_rule is not None and op.range_rule.float_behavior == "cast":
            return result_dtype is not DType.F64 or self._is_exact_cast(node)
        if result_dtype is DType.F64:
            return _commutes_with_rounding(node) or _is_exact_op(node)
        is_comparison = isinstance(op.lower, Expr) and result_dtype is DType.BOOL
        return is_comparison or (
            op.range_rule is not None and op.range_rule.float_behavior == "exact"
        )

    def _is_f32_constant(self, node: Node) -> bool:
        array = node.attrs["value"].array
        return self.precision(node) == "rounded" or bool(np.all(_is_f32_number(array)))

    def _is_exact_cast(self, node: Node) -> bool:
        source = self._graph.node(node.inputs[0])
        max_exact = 1 << _F32_MANTISSA_BITS
        is_small = is_subinterval(
            self._ranges.node_ranges[source.id], (-max_exact, max_exact)
        )
        return (
            not source.type.dtype.is_integer
            or self.precision(node) == "rounded"
            or is_small
        )


def _commutes_with_rounding(node: Node) -> bool:
    """Tell whether rounding before an op gives the same as rounding after it."""
    op = registry.get(node.op)
    if op.range_rule is None:
        return isinstance(op.lower, View | ConcatLowering)
    return op.range_rule.float_behavior == "monotone"


def _is_exact_op(node: Node) -> bool:
    bounds = registry.get(node.op).range_rule
    return bounds is not None and bounds.float_behavior == "exact"


def _is_f32_number(value: object) -> Any:
    """Tell whether a double is an f32 number that no device flushes to 0."""
    wide = np.asarray(value, np.float64)
    with np.errstate(all="ignore"):
        single = wide.astype(np.float32)
        is_same = (single == wide) | (single != single)
    return is_same & ((np.abs(wide) >= np.finfo(np.float32).tiny) | ~(wide != 0))


# --- the graph --------------------------------------------------------------------


def _retype_graph(graph: Graph, target: Target) -> Graph:
    """Return the graph with every node in a type that the device has. Raises DTypeError
    for a node that cannot be.
    """
    out = Graph(graph.name)

    def demoted_type(tensor_type: TensorType) -> TensorType:
        return TensorType(
            tensor_type.shape,
            target.demotions.get(tensor_type.dtype, tensor_type.dtype),
        )

    for node in graph.nodes():
        tensor_type = demoted_type(node.type)
        attrs = {
            name: target.demotions.get(value, value)
            if isinstance(value, DType)
            else value
            for name, value in node.attrs.items()
        }
        if node.op == "constant" and tensor_type != node.type:
            with np.errstate(all="ignore"):
                array = node.attrs["value"].array.astype(tensor_type.dtype.numpy)
            attrs["value"] = Constant(array)
        op = registry.get(node.op)
        if not op.has_trait("leaf"):
            types = tuple(out.node(i).type for i in node.inputs)
            if op.output_type(types, attrs) != tensor_type:
                raise DTypeError(
                    f"{node} on {target.name}",
                    f"the device has no {node.type.dtype} support",
                    "with operands of narrower dtypes this op does not return "
                    f"{tensor_type.dtype}",
                    Advice(
                        "cast the operands to narrower dtypes before this op, or run "
                        "with {}",
                        device="cpu",
                    ),
                )
        out.copied(
            node._replace(type=tensor_type, attrs=attrs),
            [out.tensor(i) for i in node.inputs],
        )
    out.set_outputs([out.tensor(i) for i in graph.outputs])
    return out
