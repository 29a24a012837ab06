"""Values of a tape as places in some memory: what only moves numbers moves nothing.

A table says for each element where it lies: 0 is a zero that lies nowhere, p the number
at p - 1. An op that only moves is asked to move such tables by its own reference, so a
chain of them is one table in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Join, View
from rlxweb.ir.op import registry
from rlxweb.ir.shape import Shape, normal_axis

Places = NDArray[np.intp]
PADDING: Final = 16
"""Elements behind whatever lies in memory: lanes of the widest vector."""
IN_32_BITS: Final = frozenset({DType.F32, DType.I32, DType.U32})
_MOVES: Final = frozenset({"pad", "tile", "repeat", "roll", "dilate", "remap"})
"""Besides views: places along axes, and a value where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Numbers of 32 bits behind each other.

    at      where they begin in the arena, in elements
    fixed   the array itself, where a run does not change it
    """

    size: int
    at: int = 0
    fixed: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value: some of a memory's numbers in some order.

    first   where it begins in it, if its elements lie there as they are
    places  else the table, of the value's shape
    """

    memory: Memory
    shape: Shape
    first: int = 0
    places: Places | None = field(default=None, repr=False)

    @property
    def table(self) -> Places:
        """Its table in any case."""
        if self.places is not None:
            return self.places
        start = self.first + 1
        numbers = np.arange(start, start + prod(self.shape), dtype=np.intp)
        return numbers.reshape(self.shape)


def seen_by(memory: Memory, table: Places) -> Seen:
    """The value of a table, which may say that all lies as it is."""
    flat, first = table.reshape(-1), int(table.flat[0]) - 1
    if first >= 0 and (flat == np.arange(first + 1, first + 1 + flat.size)).all():
        return Seen(memory, table.shape, first)
    return Seen(memory, table.shape, places=np.ascontiguousarray(table))


def only_moves(graph: Graph, node: Node) -> bool:
    """Does every element of its result lie in its first operand, or is 0?"""
    first, *others = (graph.node(i) for i in node.inputs)
    if not _is_ours(node) or first.type.dtype is not node.type.dtype:
        return False
    if node.op == "gather":
        return others[0].op == "constant" and _is_inside(first, others[0], node)
    if node.op in _MOVES:
        return not node.attrs.get("value")
    return isinstance(registry.get(node.op).lower, View)


def joins(node: Node) -> bool:
    """Does it lay its operands side by side?"""
    return _is_ours(node) and isinstance(registry.get(node.op).lower, Join)


def _is_ours(node: Node) -> bool:
    """Of our op, and of numbers of 32 bits."""
    return registry.is_ours(node.op) and node.type.dtype in IN_32_BITS


def _is_inside(table: Node, indices: Node, node: Node) -> bool:
    """Does every index name a row? What does not is refused when it is run."""
    rows = table.type.shape[normal_axis(node.attrs["axis"], table.type.rank)]
    at = indices.attrs["value"].array
    return bool(((-rows <= at) & (at < rows)).all())


def moved(graph: Graph, node: Node, seen: Seen) -> Seen:
    """What an op that only moves makes of a value."""
    return seen_by(seen.memory, _asked(graph, node, [seen.table]))


def joined(graph: Graph, node: Node, tables: list[Places]) -> Places:
    """The table of operands side by side, which lie in one memory."""
    return _asked(graph, node, tables)


def _asked(graph: Graph, node: Node, tables: list[Places]) -> Places:
    rest = [graph.node(i) for i in node.inputs[len(tables) :]]
    given = [*tables, *(one.attrs["value"].array for one in rest)]
    made = registry.get(node.op).reference(np, dict(node.attrs), *given)
    return np.asarray(made, np.intp).reshape(node.type.shape)


def values_of(seen: Seen, numbers: NDArray[Any]) -> NDArray[Any]:
    """A value in memory of its own; `numbers` are its memory's, flat."""
    if seen.places is None:
        count = prod(seen.shape)
        return numbers[seen.first : seen.first + count].reshape(seen.shape).copy()
    made = numbers.take(np.maximum(seen.places, 1) - 1)
    made[seen.places == 0] = 0
    return made
