"""How far the values of every node of a graph can lie, by the records of the ops.

Constants say it themselves, inputs and params are told; from there on the `Bounds` of
each op is asked. An op without one that is built of others is asked by its composition,
and all that lies in there must fit too. Names no op.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlxweb.bfloat16 import held
from rlxweb.compile.rewrites import composition
from rlxweb.errors import RlxError
from rlxweb.ir.bounds import Interval, hull, whole, within
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr, Join, Kernel, View
from rlxweb.ir.op import registry

NOTHING: Interval = (0, 0)
"""Where there is no value."""
_DEEP = 8


@dataclass(slots=True)
class Intervals:
    """The values of a graph, as far as they are known.

    given   what inputs and params hold, by name; others may be anything of their type
    fits    type → what its values must lie in
    asked   the nodes that are asked for; None: all
    of      the interval of each node
    beyond  the first node that reaches further, or of whose inside nothing is known
    """

    graph: Graph
    given: Mapping[str, Interval]
    fits: Mapping[DType, Interval]
    asked: Collection[int] | None = None
    of: list[Interval] = field(default_factory=list)
    beyond: tuple[Node, Interval] | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        for node in self.graph.nodes():
            if self.asked is not None and node.id not in self.asked:
                self.of.append(whole(node.type.dtype))
                continue
            found = self._interval(node)
            self.of.append(found)
            limit = self.fits.get(node.type.dtype)
            if limit is not None and not within(found, limit) and self.beyond is None:
                self.beyond = node, found

    def _interval(self, node: Node) -> Interval:
        every = whole(node.type.dtype)
        if node.op == "constant":
            return _held(node)
        if node.op in ("input", "param"):
            return self.given.get(node.name, every)
        if not node.type.numel:
            return NOTHING
        found = self._reached(node, [self.of[i] for i in node.inputs])
        if found is None:
            return every
        # What leaves its type wraps, and may then be anywhere.
        return found if within(found, every) else every

    def _reached(self, node: Node, given: Sequence[Interval]) -> Interval | None:
        """None where nothing is known."""
        op = registry.get(node.op)
        types = tuple(self.graph.node(i).type for i in node.inputs)
        touched = any(t.dtype in self.fits for t in types)
        dtype = node.type.dtype
        if op.has("custom"):
            if touched:
                self._unknown(node)
            return None
        if op.bounds is not None:
            # The ends of a sum of floats would have to be rounded outward.
            if dtype.is_float and op.bounds.floats == "rounded":
                return None
            return op.bounds.rule(given, types, node.type, node.attrs)
        if isinstance(op.lower, View | Join):
            return hull(*given)
        if isinstance(op.lower, Expr) and dtype is DType.BOOL:
            return 0, 1
        if not touched and dtype not in self.fits:
            return None
        return self._inside(node, given)

    def _inside(self, node: Node, given: Sequence[Interval]) -> Interval | None:
        """By what the op is built of."""
        op = registry.get(node.op)
        how = None if isinstance(op.lower, Kernel) else composition(op)
        if how is None or self.depth == _DEEP:
            self._unknown(node)
            return None
        part = Graph(node.op)
        types = (self.graph.node(i).type for i in node.inputs)
        inputs = [part.input(f"x{n}", t.shape, t.dtype) for n, t in enumerate(types)]
        try:
            part.set_outputs([how.build(part, node.attrs, *inputs)])
        except RlxError:
            self._unknown(node)
            return None
        named = {f"x{n}": one for n, one in enumerate(given)}
        inner = Intervals(part, named, self.fits, depth=self.depth + 1)
        if inner.beyond is not None and self.beyond is None:
            self.beyond = node, inner.beyond[1]
        return inner.of[part.outputs[0]]

    def _unknown(self, node: Node) -> None:
        if self.beyond is None:
            self.beyond = node, whole(node.type.dtype)


def concerned(graph: Graph, types: Collection[DType]) -> set[int]:
    """The nodes of such types, what they are made of, and who reads them."""
    nodes = graph.nodes()
    found = {n.id for n in nodes if n.type.dtype in types}
    for node in reversed(nodes):
        if node.id in found:
            found.update(node.inputs)
    readers = (
        n.id for n in nodes if any(nodes[i].type.dtype in types for i in n.inputs)
    )
    return found | set(readers)


def _held(node: Node) -> Interval:
    """What a constant holds; NaN says nothing."""
    array = held(node.attrs["value"].array)
    if not array.size:
        return NOTHING
    if not node.type.dtype.is_float:
        return int(array.min()), int(array.max())
    told = array[~np.isnan(array)]
    return (float(told.min()), float(told.max())) if told.size else NOTHING
