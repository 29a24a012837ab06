"""Index tables into memory that stand for the results of data-movement ops, so that a
native program copies nothing for them.

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
from rlxweb.ir.lowering import ConcatLowering, View
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_axis

IndexTable = NDArray[np.intp]
PADDING_ELEMENTS: Final = 16
"""Elements of padding behind everything that lies in memory: lanes of the widest
vector.
"""
WORD_DTYPES: Final = frozenset({DType.F32, DType.I32, DType.U32})
_MOVEMENT_OPS: Final = frozenset({"pad", "tile", "repeat", "roll", "dilate", "remap"})
"""Ops besides views whose result takes elements by position along axes, and a value
where there is none.
"""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryBlock:
    """Contiguous numbers of 32 bits.

    offset  where they begin in the arena, in elements
    constant  the array itself, where a run does not change it
    """

    size: int
    offset: int = 0
    constant: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IndexedView:
    """Value that consists of some of a block's numbers in some order.

    first   where it begins in it, if its elements lie there as they are
    explicit_table  else the table, of the value's shape
    """

    block: MemoryBlock
    shape: Shape
    first: int = 0
    explicit_table: IndexTable | None = field(default=None, repr=False)

    @property
    def table(self) -> IndexTable:
        """Index table of the value, also for a contiguous one."""
        if self.explicit_table is not None:
            return self.explicit_table
        start = self.first + 1
        numbers = np.arange(start, start + prod(self.shape), dtype=np.intp)
        return numbers.reshape(self.shape)


def view_from_table(block: MemoryBlock, table: IndexTable) -> IndexedView:
    """Return the value of an index table, as a contiguous view if the table is
    contiguous.
    """
    flat, first = table.reshape(-1), int(table.flat[0]) - 1
    if first >= 0 and (flat == np.arange(first + 1, first + 1 + flat.size)).all():
        return IndexedView(block, table.shape, first)
    return IndexedView(block, table.shape, explicit_table=np.ascontiguousarray(table))


def is_data_movement(graph: Graph, node: Node) -> bool:
    """Return True if every element of the node's result lies in its first operand, or
    is 0.
    """
    first, *others = (graph.node(i) for i in node.inputs)
    if not _is_supported(node) or first.type.dtype is not node.type.dtype:
        return False
    if node.op == "gather":
        return others[0].op == "constant" and _has_valid_indices(first, others[0], node)
    if node.op in _MOVEMENT_OPS:
        return not node.attrs.get("value")
    return isinstance(registry.get(node.op).lower, View)


def is_concatenation(node: Node) -> bool:
    """Return True if the node lays its operands side by side."""
    return _is_supported(node) and isinstance(
        registry.get(node.op).lower, ConcatLowering
    )


def _is_supported(node: Node) -> bool:
    """Return True for our own op on numbers of 32 bits."""
    return registry.is_builtin(node.op) and node.type.dtype in WORD_DTYPES


def _has_valid_indices(table: Node, indices: Node, node: Node) -> bool:
    """Return True if every index names a row of the table; other indices are refused
    when the op is run.
    """
    rows = table.type.shape[normalize_axis(node.attrs["axis"], table.type.rank)]
    index_values = indices.attrs["value"].array
    return bool(((-rows <= index_values) & (index_values < rows)).all())


def moved_view(graph: Graph, node: Node, view: IndexedView) -> IndexedView:
    """Return the view that a data-movement op makes of a value."""
    return view_from_table(
        view.block, _apply_reference_to_tables(graph, node, [view.table])
    )


def concatenated_table(
    graph: Graph, node: Node, tables: list[IndexTable]
) -> IndexTable:
    """Return the index table of operands side by side, which lie in one block."""
    return _apply_reference_to_tables(graph, node, tables)


def _apply_reference_to_tables(
    graph: Graph, node: Node, tables: list[IndexTable]
) -> IndexTable:
    """Apply an op's reference function to index tables."""
    other_operands = [graph.node(i) for i in node.inputs[len(tables) :]]
    arguments = [*tables, *(operand.attrs["value"].array for operand in other_operands)]
    result = registry.get(node.op).reference(np, dict(node.attrs), *arguments)
    return np.asarray(result, np.intp).reshape(node.type.shape)


def gather_values(view: IndexedView, numbers: NDArray[Any]) -> NDArray[Any]:
    """Copy a value from `numbers`, its block's elements, into memory of its own."""
    if view.explicit_table is None:
        count = prod(view.shape)
        return numbers[view.first : view.first + count].reshape(view.shape).copy()
    values = numbers.take(np.maximum(view.explicit_table, 1) - 1)
    values[view.explicit_table == 0] = 0
    return values
