"""Nodes as items of work: kind and size by the op's own record. Names no op.

An op that a device cannot be asked about as a whole is the items of its composition, so
that attention costs what its products and its softmax cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlxweb.cost.work import Item, Work
from rlxweb.ir.binding import Ops, ops_of
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry


def is_free(node: Node) -> bool:
    """A leaf or a view: it moves nothing."""
    op = registry.get(node.op)
    return op.has("leaf") or op.has("view")


def asked_of(graph: Ops, node: Node) -> tuple[Op, Types, TensorType, Attrs]:
    """Op, input types, output type and attributes: what the rules of ops are asked."""
    inputs = tuple(graph.node(i).type for i in node.inputs)
    return registry.get(node.op), inputs, node.type, node.attrs


def flops_of(graph: Ops, node: Node) -> float:
    """Arithmetic operations of one node, by its op's count; none for leaves, views."""
    op, inputs, out, attrs = asked_of(graph, node)
    return 0.0 if is_free(node) else float(op.flops(inputs, out, attrs))


def bytes_of(graph: Ops, node: Node) -> int:
    """Bytes of the distinct inputs and of the output."""
    read = sum(graph.node(i).type.nbytes for i in set(node.inputs))
    return read + node.type.nbytes


def item_of(graph: Ops, node: Node, launches: int = 1) -> Item:
    """One node as one step.

    The kind is the measured one its op names, or else the op itself, whose size is the
    elements of its largest operand or result, and the rows they lie in.
    """
    op, inputs, out, attrs = asked_of(graph, node)
    most = max((*inputs, out), key=lambda t: t.numel)
    rows = most.numel // max(1, most.shape[-1]) if most.rank else 1
    kind, size = op.name, {"cells": most.numel, "rows": rows}
    if op.work is not None:
        kind, given = op.work(inputs, out, attrs)
        size = dict(given)
    label = f"{node.op} '{node.name}'" if node.name else node.op
    nbytes = size.get("bytes", bytes_of(graph, node))
    # A product that gives floats computes floats, whatever its weights are packed in.
    floats = op.has("blas") and out.dtype.is_float
    told = [t for t in (*inputs, out) if t.dtype.is_float or not floats]
    flops, numbers = flops_of(graph, node), _numbers(told)
    return Item(kind, label, launches, flops, nbytes, size, numbers=numbers)


def _numbers(types: Sequence[TensorType]) -> str:
    """Of the largest operand or result: "whole", "half", or "" for other floats."""
    dtype = max(types, key=lambda t: t.numel).dtype
    return "whole" if dtype.is_integer else "half" if dtype is DType.F16 else ""


def items_of(graph: Ops, node: Node) -> tuple[Item, ...]:
    """One node as the steps it takes where each op is one: NumPy, or nobody yet."""
    op, inputs, out, attrs = asked_of(graph, node)
    if any(kind.varies for kind in (*inputs, out)):
        return (_start_of(graph, node),)
    if op.work is not None or not isinstance(op.lower, Compose):
        return (item_of(graph, node),)
    try:
        key = tuple(sorted(attrs.items()))
        return _composed(op, inputs, key, registry.changes)
    except TypeError:  # an attribute of a custom op that cannot be looked up
        return _items_of_composition(op, inputs, attrs)


def _start_of(graph: Ops, node: Node) -> Item:
    """A node of sizes that vary: one launch, and the bytes that are known."""
    kinds = (*(graph.node(i).type for i in set(node.inputs)), node.type)
    nbytes = sum(kind.known_nbytes for kind in kinds)
    # No measured kind: each of those is priced by sizes.
    return Item("varying", node.op, 1, 0.0, nbytes, {"cells": 0, "rows": 0})


@lru_cache(maxsize=512)
def _composed(
    op: Op, inputs: Types, attrs: tuple[tuple[str, Any], ...], changes: int
) -> tuple[Item, ...]:
    return _items_of_composition(op, inputs, dict(attrs))


def _items_of_composition(
    op: Op, inputs: Types, attrs: Mapping[str, Any]
) -> tuple[Item, ...]:
    assert isinstance(op.lower, Compose)
    graph = Graph(op.name)
    given = [graph.input(f"x{at}", t.shape, t.dtype) for at, t in enumerate(inputs)]
    graph.set_outputs([op.lower.build(graph, attrs, *given)])
    return all_items(graph)


def all_items(graph: Ops) -> tuple[Item, ...]:
    """The steps of every node that some output needs and that is not free."""
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
        for item in items_of(graph, node)
    )


def work_of_graph(graph: Graph) -> Work:
    """The graph as it is written: one kernel a step, views free, nothing fused.

    Sizes that vary count 0.
    """
    ops = ops_of(graph)
    given = sum(n.type.known_nbytes for n in ops.nodes() if n.op == "input")
    back = sum(ops.node(i).type.known_nbytes for i in ops.outputs)
    return Work(all_items(ops), given, back)
