"""Builder of native programs: lowers the ops of a small network to entries, their jobs
and an arena.

Jobs hold addresses in the arena as offsets from its beginning, so that one program
serves several arenas, one for each concurrent run. Operands that no run changes are
packed once, in the layout that their products read fastest. How an op becomes entries
is in `cpu/program.py` of its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.data_movement_index_tables import (
    PADDING_ELEMENTS,
    IndexedView,
    IndexTable,
    MemoryBlock,
    concatenated_table,
    gather_values,
    moved_view,
    view_from_table,
)
from rlxweb.codegen.llvm_native_program import ProductTile, product_tiles
from rlxweb.codegen.native_calls import WORD_NBYTES, array_address
from rlxweb.codegen.native_elementwise import RegionCode, RegionSpec
from rlxweb.ir.graph import Graph, Node

ELEMENT_BYTES: Final = 4
"""Bytes of a number in the arena."""
MAX_ELEMENTS: Final = 1 << 14
"""Maximum elements of a value."""
MAX_MULTIPLICATIONS: Final = 3 << 17
"""Maximum multiplications of an op: a native program runs on one thread."""
MAX_BATCH: Final = 8
"""Maximum products of a batch, each an entry of its own."""


class RelocatableAddress(NamedTuple):
    """Address of something: absolute, or in bytes from the beginning of the arena or of
    the words.
    """

    offset: int
    base: Literal["", "arena", "words"] = ""


class ProgramFunctions(NamedTuple):
    """Addresses of the compiled functions that take a job.

    regions  by what they are compiled for
    """

    move: int
    products: Mapping[ProductTile, int]
    regions: Mapping[RegionSpec, RegionCode]


class NativeProgramBuilder:
    """Native program under construction.

    words    64 bits each: the jobs one behind the other
    relocations  by base, which of them are bytes from its beginning
    entries  (address of a function, its job's first word)
    arena_size  of the arena, in elements
    """

    def __init__(self, graph: Graph, functions: ProgramFunctions, lanes: int) -> None:
        self.graph, self.functions, self.lanes = graph, functions, lanes
        self.words: list[int] = []
        self.relocations: dict[str, list[int]] = {"arena": [], "words": []}
        self.entries: list[tuple[int, int]] = []
        self.arena_size = PADDING_ELEMENTS
        self.views: dict[int, IndexedView] = {}
        self.retained_arrays: list[NDArray[Any]] = []
        self._dense_addresses: dict[int, tuple[IndexedView, RelocatableAddress]] = {}

    # --- memory

    def allocate(self, size: int) -> MemoryBlock:
        """Allocate a part of the arena, with room for a whole vector behind it."""
        block = MemoryBlock(size, self.arena_size)
        self.arena_size += (
            -(-(size + PADDING_ELEMENTS) // PADDING_ELEMENTS) * PADDING_ELEMENTS
        )
        return block

    def add_input(self, node_id: int) -> MemoryBlock:
        """Add a value that each run brings along."""
        tensor_type = self.graph.node(node_id).type
        block = self.allocate(tensor_type.numel)
        self.views[node_id] = IndexedView(block, tensor_type.shape)
        return block

    def add_constant(self, node_id: int, value: NDArray[Any]) -> None:
        """Add a value that runs do not change, as long as it is this array."""
        flat = np.ascontiguousarray(value).reshape(-1)
        self.retained_arrays.append(flat)
        block = MemoryBlock(flat.size, constant=flat)
        self.views[node_id] = IndexedView(block, self.graph.node(node_id).type.shape)

    def _copy_constant(self, values: NDArray[Any]) -> RelocatableAddress:
        """Copy constant values, with room for a whole vector behind them; return the
        address.
        """
        padded = np.zeros(values.size + PADDING_ELEMENTS, values.dtype)
        padded[: values.size] = values.reshape(-1)
        self.retained_arrays.append(padded)
        return RelocatableAddress(array_address(padded))

    def dense_address(self, view: IndexedView) -> RelocatableAddress:
        """Return the address where a value lies element by element, moving it there if
        need be.
        """
        cached = self._dense_addresses.get(id(view))
        if cached is not None:
            return cached[1]
        dense = self._make_dense(view)
        self._dense_addresses[id(view)] = view, dense
        return dense

    def _make_dense(self, view: IndexedView) -> RelocatableAddress:
        constant = view.block.constant
        if (
            constant is not None
            and view.explicit_table is None
            and prod(view.shape) >= self.lanes
        ):
            return RelocatableAddress(
                array_address(constant) + view.first * ELEMENT_BYTES
            )
        if constant is not None:
            return self._copy_constant(gather_values(view, constant))
        if view.explicit_table is None:
            return RelocatableAddress(
                (view.block.offset + view.first) * ELEMENT_BYTES, "arena"
            )
        target = self.allocate(prod(view.shape))
        self._add_gather(view, target, 0)
        return RelocatableAddress(target.offset * ELEMENT_BYTES, "arena")

    # --- entries

    def _add_entry(self, function: int, *job: int | RelocatableAddress) -> None:
        """Add a call of a compiled function with its job."""
        self.entries.append((function, len(self.words)))
        self._append_job_words(job)

    def _append_job_words(self, job: Sequence[int | RelocatableAddress]) -> None:
        """Append the words of a job and note which of them need relocation."""
        for word in job:
            if isinstance(word, RelocatableAddress):
                if word.base:
                    self.relocations[word.base].append(len(self.words))
                word = word.offset
            self.words.append(word)

    def _add_gather(self, view: IndexedView, target: MemoryBlock, first: int) -> None:
        """Add a gather of a value's elements into a part of the arena."""
        assert view.block.constant is None
        table = np.ascontiguousarray(view.table.reshape(-1), np.int32)
        self.retained_arrays.append(table)
        self._add_entry(
            self.functions.move,
            RelocatableAddress(view.block.offset * ELEMENT_BYTES, "arena"),
            RelocatableAddress((target.offset + first) * ELEMENT_BYTES, "arena"),
            RelocatableAddress(array_address(table)),
            table.size,
        )

    # --- ops

    def add_data_movement(self, node: Node) -> None:
        """Add an op that only moves elements, as a new index table."""
        self.views[node.id] = moved_view(self.graph, node, self.views[node.inputs[0]])

    def add_concatenation(self, node: Node) -> None:
        """Add a concatenation: all operands in one block, of which the result is an
        index table.
        """
        sizes = [self.graph.node(i).type.numel for i in node.inputs]
        target, first = self.allocate(sum(sizes)), 0
        tables = []
        for i, size in zip(node.inputs, sizes, strict=True):
            if size:
                self._copy_into(self.views[i], target, first)
            numbers = np.arange(first + 1, first + size + 1, dtype=np.intp)
            tables.append(numbers.reshape(self.graph.node(i).type.shape))
            first += size
        self.views[node.id] = view_from_table(
            target, concatenated_table(self.graph, node, tables)
        )

    def _copy_into(self, view: IndexedView, target: MemoryBlock, first: int) -> None:
        """Copy a value, constant or not, into a block."""
        constant = view.block.constant
        if constant is None:
            self._add_gather(view, target, first)
            return
        source, size = self.dense_address(view), prod(view.shape)
        table = np.arange(1, size + 1, dtype=np.int32)
        self.retained_arrays.append(table)
        self._add_entry(
            self.functions.move,
            source,
            RelocatableAddress((target.offset + first) * ELEMENT_BYTES, "arena"),
            RelocatableAddress(array_address(table)),
            size,
        )

    def add_region(self, key: RegionSpec) -> None:
        """Add an elementwise region, computed in the order in which its largest operand
        lies.
        """
        out = self.graph.node(key.ids[-1])
        shape = out.type.shape
        operand_views = {i: self.views[i] for i in key.reads}
        is_broadcast = dict(zip(key.reads, key.is_scalar, strict=True))
        order = _storage_order(list(operand_views.values()), shape)
        operand_addresses: list[RelocatableAddress] = []
        for i, view in operand_views.items():
            if not is_broadcast[i]:
                table = np.broadcast_to(view.table, shape).reshape(-1)
                table = table if order is None else table[order]
                view = self._reindexed_view(view, table)
            operand_addresses.append(self.dense_address(view))
        size = out.type.numel
        target = self.allocate(size)
        # Of fewer elements than a vector all of it is done: there is room behind each.
        count = max(size, self.lanes)
        operands = [
            RelocatableAddress(target.offset * ELEMENT_BYTES, "arena"),
            *operand_addresses,
        ]
        job_start = len(self.words) + 3
        self._add_entry(
            self.functions.regions[key].job_address,
            RelocatableAddress(job_start * WORD_NBYTES, "words"),
            1,
            count,
        )
        self._append_job_words([*operands, *[0] * len(operands)])
        if order is None:
            self.views[out.id] = IndexedView(target, shape)
        else:
            table = np.empty(size, np.intp)
            table[order] = np.arange(1, size + 1)
            self.views[out.id] = view_from_table(target, table.reshape(shape))

    def _reindexed_view(self, view: IndexedView, table: IndexTable) -> IndexedView:
        """Return a value by another index table; the same view if the table is its
        own.
        """
        if view.explicit_table is None and table.size == prod(view.shape):
            same = (table == view.table.reshape(-1)).all()
            if same:
                return view
        return view_from_table(view.block, table)

    def add_product(
        self, a: IndexedView, b: IndexedView, target: MemoryBlock, first: int
    ) -> IndexTable:
        """Add a matrix product into a block from `first` on; return the result's index
        table, [rows, columns].
        """
        rows, columns = a.shape[0], b.shape[1]
        out = RelocatableAddress((target.offset + first) * ELEMENT_BYTES, "arena")
        numbers = np.arange(first + 1, first + 1 + rows * columns, dtype=np.intp)
        is_constant, two_vectors = a.block.constant is not None, 2 * self.lanes
        # For one vector of columns each number of a is loaded once a product; the other
        # way round it meets two.
        if columns >= self.lanes and not (
            is_constant and columns < two_vectors <= rows
        ):
            self._add_row_tile_product(a, b, out)
        elif rows >= self.lanes and (is_constant or rows < columns):
            # The result lies the other way round: its rows are b's columns.
            self._add_row_tile_product(_transposed_view(b), _transposed_view(a), out)
            return numbers.reshape(columns, rows).T
        else:
            self._add_dot_tile_product(a, b, out)
        return numbers.reshape(rows, columns)

    def _add_row_tile_product(
        self, a: IndexedView, b: IndexedView, out: RelocatableAddress
    ) -> None:
        """Add a matrix product by the tiles that compute vectors along rows."""
        (rows, terms), columns = a.shape, b.shape[1]
        tile = next(
            candidate
            for candidate in product_tiles(self.lanes * ELEMENT_BYTES)
            if candidate.kind == "lines"
            and candidate.rows <= rows
            and candidate.width * self.lanes <= columns
        )
        sizes, strides = (rows, columns, terms), (terms, columns, columns, 1)
        operands = self.dense_address(a), self.dense_address(b), out
        self._add_entry(self.functions.products[tile], *operands, *sizes, *strides)

    def _add_dot_tile_product(
        self, a: IndexedView, b: IndexedView, out: RelocatableAddress
    ) -> None:
        """Add a matrix product by the tiles of dot products; rows of terms are padded
        with zeros to whole vectors.
        """
        rows, columns = a.shape[0], b.shape[1]
        padded_terms = -(-a.shape[1] // self.lanes) * self.lanes
        a = _zero_padded_view(a, padded_terms)
        b = _zero_padded_view(_transposed_view(b), padded_terms)
        strides = (padded_terms, padded_terms, columns, 1)
        is_transposed = rows < columns
        if is_transposed:  # more rows than columns meet in registers
            a, b, rows, columns = b, a, columns, rows
            strides = (padded_terms, padded_terms, 1, rows)
        tile = next(
            candidate
            for candidate in product_tiles(self.lanes * ELEMENT_BYTES)
            if candidate.kind == "dots"
            and candidate.rows <= rows
            and candidate.width <= columns
        )
        operands = self.dense_address(a), self.dense_address(b), out
        sizes = rows, columns, padded_terms
        self._add_entry(self.functions.products[tile], *operands, *sizes, *strides)


def _transposed_view(view: IndexedView) -> IndexedView:
    """Return the view of a matrix's transpose."""
    return view_from_table(view.block, np.ascontiguousarray(view.table.T))


def _zero_padded_view(view: IndexedView, length: int) -> IndexedView:
    """Pad the rows of a view with zeros up to a length."""
    missing = length - view.shape[1]
    if not missing:
        return view
    return view_from_table(view.block, np.pad(view.table, ((0, 0), (0, missing))))


def _storage_order(
    views: Sequence[IndexedView], shape: tuple[int, ...]
) -> IndexTable | None:
    """Return the order in which an operand of that shape lies contiguously; None if
    that is the order of the elements, or there is none.
    """
    for view in views:
        if view.block.constant is not None or view.shape != shape:
            continue
        if view.explicit_table is None:
            return None
        flat = view.explicit_table.reshape(-1)
        order = np.argsort(flat)
        first = flat[order[0]]
        if first > 0 and (flat[order] == np.arange(first, first + flat.size)).all():
            return order
    return None
