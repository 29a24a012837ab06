"""Small element types on devices that only store them: computed in wider ones.

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

from rlxweb.compile.rewrites import MAX_ROUNDS, composition
from rlxweb.compile.target import Target
from rlxweb.errors import DTypeError, RlxError
from rlxweb.ir.bounds import whole, within
from rlxweb.ir.dtype import DType, cast_to
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Join, Leaf, View
from rlxweb.ir.op import Op, TensorType, no_flops, registry
from rlxweb.ir.tensor import Tensor

# Constants up to here are widened while compiling, larger ones on the device.
WIDENED = 1 << 14
WIDER = {
    DType.I8: DType.I32,
    DType.U8: DType.I32,
    DType.I16: DType.I32,
    DType.U16: DType.I32,
    DType.BF16: DType.F32,
    DType.F16: DType.F32,
}
"""What each small type is computed in; it holds every value of it."""
# Their results are among their operands' values, and no attribute brings another in.
_KEEPS = frozenset({"maximum", "minimum", "max", "min", "where", "relu", "max_pool"})


def in_wider_types(graph: Graph, target: Target) -> Graph:
    """The graph with no small type but of leaves and casts, which the target stores.

    The graph itself where there is nothing to do.
    Errors   DTypeError for an op of which nothing is known with wider operands.
    """
    small = target.stores - target.dtypes
    concerned = (
        node
        for node in graph.nodes()
        if any(graph.node(i).type.dtype in small for i in (node.id, *node.inputs))
    )
    if all(target.has(graph, node) for node in concerned):
        return graph
    return _Widening(small).whole(_taken_apart(graph, small))


def _wider(kind: TensorType, small: frozenset[DType]) -> TensorType:
    return TensorType(kind.shape, WIDER[kind.dtype]) if kind.dtype in small else kind


def _stays_itself(graph: Graph, node: Node, small: frozenset[DType]) -> bool:
    """Gives the op of wider operands its own result, in the wider type?"""
    op = registry.get(node.op)
    if node.op == "cast" or isinstance(op.lower, Leaf):
        return True
    kinds = [graph.node(i).type for i in node.inputs]
    if not any(k.dtype in small for k in (*kinds, node.type)):
        return True
    if op.has("custom"):
        return False
    try:
        made = op.output_type([_wider(k, small) for k in kinds], node.attrs)
    except RlxError:
        return False
    return made == _wider(node.type, small)


def _taken_apart(graph: Graph, small: frozenset[DType]) -> Graph:
    """Ops whose result's type an attribute says are built from others, down to casts.

    Errors   DTypeError for one that is not built from others.
    """
    for _ in range(MAX_ROUNDS):
        odd = {n.id for n in graph.nodes() if not _stays_itself(graph, n, small)}
        if not odd:
            return graph
        out = Graph(graph.name)
        made: dict[int, Tensor] = {}
        for node in graph.nodes():
            operands = [made[i] for i in node.inputs]
            how = composition(registry.get(node.op)) if node.id in odd else None
            if node.id not in odd:
                made[node.id] = out.copied(node, operands)
            elif how is None or registry.get(node.op).has("custom"):
                raise _refused(graph, node, small)
            else:
                made[node.id] = how.build(out, node.attrs, *operands)
        out.set_outputs([made[i] for i in graph.outputs])
        graph = out
    raise AssertionError(f"an op of '{graph.name}' keeps being built of small types")


def _refused(graph: Graph, node: Node, small: frozenset[DType]) -> DTypeError:
    kinds = [graph.node(i).type for i in node.inputs]
    found = {k.dtype for k in (*kinds, node.type)} & small
    names = ", ".join(sorted(one.label for one in found))
    return DTypeError(
        f"{node} of graph '{graph.name}'",
        f"it is of {names}, which the device stores and does not compute in",
        "nothing is known of the op in a wider type",
        "cast its operands to i32 or f32 before it",
    )


class _Widening:
    """One walk over a graph.

    wide    node of the old graph → its tensor here, in the wider type
    leaves  node of the old graph → the leaf of its own small type
    """

    def __init__(self, small: frozenset[DType]) -> None:
        self.small = small
        self.wide: dict[int, Tensor] = {}
        self.leaves: dict[int, Tensor] = {}

    def whole(self, graph: Graph) -> Graph:
        self.out = out = Graph(graph.name)
        for node in graph.nodes():
            self.wide[node.id] = self._one(graph, node)
        out.set_outputs([self._result(graph.node(i)) for i in graph.outputs])
        return out

    def _result(self, node: Node) -> Tensor:
        if node.id in self.leaves:
            return self.leaves[node.id]
        wide = self.wide[node.id]
        if node.type.dtype not in self.small:
            return wide
        return self.out.cast(wide, node.type.dtype)

    def _one(self, graph: Graph, node: Node) -> Tensor:
        dtype = node.type.dtype
        operands = [self.wide[i] for i in node.inputs]
        kinds = [graph.node(i).type.dtype for i in node.inputs]
        if isinstance(registry.get(node.op).lower, Leaf):
            return self._leaf(node)
        if dtype not in self.small and not self.small.intersection(kinds):
            return self.out.copied(node, operands)
        if node.op == "cast":
            return self._cast(operands[0], dtype)
        made = self.out.apply(node.op, *operands, name=node.name, **node.attrs)
        op = registry.get(node.op)
        if dtype not in self.small or _keeps_values(op, node.attrs):
            return made
        if _stays_within(op, graph, node):
            return made
        return self._put_right(made, dtype)

    def _leaf(self, node: Node) -> Tensor:
        dtype, out = node.type.dtype, self.out
        if dtype not in self.small:
            return out.copied(node, ())
        if node.op == "constant" and node.type.numel <= WIDENED:
            value = node.attrs["value"].array
            return out.constant(cast_to(value, WIDER[dtype]))
        leaf = self.leaves[node.id] = out.copied(node, ())
        return out.cast(leaf, WIDER[dtype])

    def _put_right(self, x: Tensor, dtype: DType) -> Tensor:
        """What the small type makes of it, still in the wider one."""
        return self.out.cast(self.out.cast(x, dtype), WIDER[dtype])

    def _cast(self, x: Tensor, to: DType) -> Tensor:
        """A cast of what is in the wider type, into which a small result goes too."""
        out = self.out
        if to not in self.small:
            return out.cast(x, to) if x.dtype is not to else x
        wide = WIDER[to]
        made = out.cast(x, wide) if x.dtype is not wide else x
        if to.is_integer and x.dtype.is_float:  # which saturates
            return out.minimum(out.maximum(made, int(to.least)), int(to.most))
        if x.dtype is DType.BOOL:
            return made
        return self._put_right(made, to)


def _stays_within(op: Op, graph: Graph, node: Node) -> bool:
    """Gives an op of integers nothing that its small type does not hold?"""
    if op.bounds is None or not node.type.dtype.is_integer:
        return False
    types = tuple(graph.node(i).type for i in node.inputs)
    reach = op.bounds.rule(
        [whole(t.dtype) for t in types], types, node.type, node.attrs
    )
    return within(reach, whole(node.type.dtype))


def _keeps_values(op: Op, attrs: Mapping[str, Any]) -> bool:
    """Is every value of its result one of its operands'?"""
    if op.name in _KEEPS or isinstance(op.lower, View | Join):
        return True
    moves = op.flops is no_flops and not op.has("elementwise")
    return moves and "value" not in attrs and attrs.get("put") not in ("add", "mul")
