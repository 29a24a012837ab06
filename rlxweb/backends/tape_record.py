"""What the ops of a small network become on a tape: entries, their jobs, an arena.

Addresses in the arena are told from its beginning, so that one record serves as many
arenas as there are runs at the same time. Operands that no run changes are laid out
once, however the products like them best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_regions import Region, RegionCode
from rlxweb.backends.tape_views import (
    PADDING,
    Memory,
    Places,
    Seen,
    joined,
    moved,
    seen_by,
    values_of,
)
from rlxweb.host.compiled import address
from rlxweb.host.convolution import side_by_side
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.shape import normal_axes
from rlxweb.machine.jobs import WORD
from rlxweb.machine.tape import Tile, tiles
from rlxweb.recipes.conv_calls import convolution

ELEMENT: Final = 4
"""Bytes of a number in the arena."""


class There(NamedTuple):
    """Where something begins: an address, or bytes from where something else does."""

    at: int
    base: Literal["", "arena", "words"] = ""


class Functions(NamedTuple):
    """Addresses of functions of a job.

    regions  by what they are compiled for
    """

    move: int
    products: Mapping[Tile, int]
    regions: Mapping[Region, RegionCode]


class Record:
    """A tape in the making.

    words    64 bits each: the jobs one behind the other
    told     by base, which of them are bytes from its beginning
    entries  (address of a function, its job's first word)
    size     of the arena, in elements
    """

    def __init__(self, graph: Graph, functions: Functions, lanes: int) -> None:
        self.graph, self.functions, self.lanes = graph, functions, lanes
        self.words: list[int] = []
        self.told: dict[str, list[int]] = {"arena": [], "words": []}
        self.entries: list[tuple[int, int]] = []
        self.size = PADDING
        self.seen: dict[int, Seen] = {}
        self.kept: list[NDArray[Any]] = []
        self._laid: dict[int, tuple[Seen, There]] = {}

    # --- memory

    def room(self, size: int) -> Memory:
        """Some of the arena, with room for a whole vector behind it."""
        made = Memory(size, self.size)
        self.size += -(-(size + PADDING) // PADDING) * PADDING
        return made

    def given(self, at: int) -> Memory:
        """A value that each run brings along."""
        kind = self.graph.node(at).type
        memory = self.room(kind.numel)
        self.seen[at] = Seen(memory, kind.shape)
        return memory

    def fixed(self, at: int, value: NDArray[Any]) -> None:
        """A value that runs do not change, as long as it is this array."""
        flat = np.ascontiguousarray(value).reshape(-1)
        self.kept.append(flat)
        memory = Memory(flat.size, fixed=flat)
        self.seen[at] = Seen(memory, self.graph.node(at).type.shape)

    def _keep(self, values: NDArray[Any]) -> There:
        """A copy with room for a whole vector behind it."""
        made = np.zeros(values.size + PADDING, values.dtype)
        made[: values.size] = values.reshape(-1)
        self.kept.append(made)
        return There(address(made))

    def laid(self, seen: Seen) -> There:
        """Where a value lies element by element; moved there if it does not yet."""
        known = self._laid.get(id(seen))
        if known is not None:
            return known[1]
        made = self._lay(seen)
        self._laid[id(seen)] = seen, made
        return made

    def _lay(self, seen: Seen) -> There:
        fixed = seen.memory.fixed
        if fixed is not None and seen.places is None and prod(seen.shape) >= self.lanes:
            return There(address(fixed) + seen.first * ELEMENT)
        if fixed is not None:
            return self._keep(values_of(seen, fixed))
        if seen.places is None:
            return There((seen.memory.at + seen.first) * ELEMENT, "arena")
        to = self.room(prod(seen.shape))
        self._move(seen, to, 0)
        return There(to.at * ELEMENT, "arena")

    # --- entries

    def _entry(self, function: int, *job: int | There) -> None:
        self.entries.append((function, len(self.words)))
        self._say(job)

    def _say(self, job: Sequence[int | There]) -> None:
        for word in job:
            if isinstance(word, There):
                if word.base:
                    self.told[word.base].append(len(self.words))
                word = word.at
            self.words.append(word)

    def _move(self, seen: Seen, to: Memory, first: int) -> None:
        """A value into some of the arena."""
        assert seen.memory.fixed is None
        table = np.ascontiguousarray(seen.table.reshape(-1), np.int32)
        self.kept.append(table)
        self._entry(
            self.functions.move,
            There(seen.memory.at * ELEMENT, "arena"),
            There((to.at + first) * ELEMENT, "arena"),
            There(address(table)),
            table.size,
        )

    # --- ops

    def moves(self, node: Node) -> None:
        self.seen[node.id] = moved(self.graph, node, self.seen[node.inputs[0]])

    def joins(self, node: Node) -> None:
        """All operands into one memory, of which the result is a table."""
        sizes = [self.graph.node(i).type.numel for i in node.inputs]
        to, first = self.room(sum(sizes)), 0
        tables = []
        for i, size in zip(node.inputs, sizes, strict=True):
            if size:
                self._into(self.seen[i], to, first)
            numbers = np.arange(first + 1, first + size + 1, dtype=np.intp)
            tables.append(numbers.reshape(self.graph.node(i).type.shape))
            first += size
        self.seen[node.id] = seen_by(to, joined(self.graph, node, tables))

    def _into(self, seen: Seen, to: Memory, first: int) -> None:
        fixed = seen.memory.fixed
        if fixed is None:
            self._move(seen, to, first)
            return
        there, size = self.laid(seen), prod(seen.shape)
        table = np.arange(1, size + 1, dtype=np.int32)
        self.kept.append(table)
        self._entry(
            self.functions.move,
            there,
            There((to.at + first) * ELEMENT, "arena"),
            There(address(table)),
            size,
        )

    def region(self, key: Region) -> None:
        """Elementwise work, in the order in which its largest operand lies."""
        out = self.graph.node(key.ids[-1])
        shape = out.type.shape
        seen = {i: self.seen[i] for i in key.reads}
        spread = dict(zip(key.reads, key.spread, strict=True))
        order = _order(list(seen.values()), shape)
        given: list[There] = []
        for i, one in seen.items():
            if not spread[i]:
                table = np.broadcast_to(one.table, shape).reshape(-1)
                table = table if order is None else table[order]
                one = self._again(one, table)
            given.append(self.laid(one))
        size = out.type.numel
        to = self.room(size)
        # Of fewer elements than a vector all of it is done: there is room behind each.
        count = max(size, self.lanes)
        operands = [There(to.at * ELEMENT, "arena"), *given]
        job = len(self.words) + 3
        self._entry(
            self.functions.regions[key].job, There(job * WORD, "words"), 1, count
        )
        self._say([*operands, *[0] * len(operands)])
        if order is None:
            self.seen[out.id] = Seen(to, shape)
        else:
            table = np.empty(size, np.intp)
            table[order] = np.arange(1, size + 1)
            self.seen[out.id] = seen_by(to, table.reshape(shape))

    def _again(self, seen: Seen, table: Places) -> Seen:
        """A value by another table; itself where that is its own."""
        if seen.places is None and table.size == prod(seen.shape):
            same = (table == seen.table.reshape(-1)).all()
            if same:
                return seen
        return seen_by(seen.memory, table)

    def sums(self, node: Node) -> None:
        """Sums or means, as products with ones."""
        seen = self.seen[node.inputs[0]]
        axes = normal_axes(node.attrs["axes"], len(seen.shape))
        rest = [at for at in range(len(seen.shape)) if at not in axes]
        count = prod(seen.shape[at] for at in axes)
        table = seen.table.transpose(*rest, *axes).reshape(-1, count)
        each = 1.0 / count if node.op == "mean" else 1.0
        ones = np.full(count, each, np.float32)
        weights = Seen(Memory(count, fixed=ones), (count, 1))
        to = self.room(node.type.numel)
        made = self._product(seen_by(seen.memory, table), weights, to, 0)
        self.seen[node.id] = seen_by(to, made.reshape(node.type.shape))

    def matmul(self, node: Node) -> None:
        x, y = (self.seen[i] for i in node.inputs)
        a, b = x.table, y.table
        if b.ndim == 2:
            a = a.reshape(1, -1, a.shape[-1])
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = np.broadcast_to(a, (*shape, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
        b = np.broadcast_to(b, (*shape, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
        to = self.room(node.type.numel)
        each = to.size // max(1, len(a))
        parts = [
            self._product(
                seen_by(x.memory, one), seen_by(y.memory, other), to, at * each
            )
            for at, (one, other) in enumerate(zip(a, b, strict=True))
        ]
        table = np.stack(parts).reshape(node.type.shape)
        self.seen[node.id] = seen_by(to, table)

    def conv(self, node: Node) -> None:
        """Weights times windows laid side by side, of every image and group."""
        x, w = (self.seen[i] for i in node.inputs)
        one = convolution(x.shape, w.shape, node.attrs)
        c, m = one.channels
        images = x.table.reshape(one.batch, one.groups, c, *one.windows.size)
        weights = w.table.reshape(one.groups, m, -1)
        to = self.room(node.type.numel)
        each = to.size // (one.batch * one.groups)
        parts = []
        for at in range(one.batch * one.groups):
            n, g = divmod(at, one.groups)
            windows = side_by_side(one.windows, images[n, g], 0)
            parts.append(
                self._product(
                    seen_by(w.memory, weights[g]),
                    seen_by(x.memory, windows),
                    to,
                    at * each,
                )
            )
        table = np.stack(parts).reshape(node.type.shape)
        self.seen[node.id] = seen_by(to, table)

    def _product(self, a: Seen, b: Seen, to: Memory, first: int) -> Places:
        """Into a memory from `first` on; the table of the result, [rows, columns]."""
        rows, columns = a.shape[0], b.shape[1]
        there = There((to.at + first) * ELEMENT, "arena")
        numbers = np.arange(first + 1, first + 1 + rows * columns, dtype=np.intp)
        is_laid, two = a.memory.fixed is not None, 2 * self.lanes
        # For one vector of columns each number of a is loaded once a product; the other
        # way round it meets two.
        if columns >= self.lanes and not (is_laid and columns < two <= rows):
            self._lines(a, b, there)
        elif rows >= self.lanes and (is_laid or rows < columns):
            # The result lies the other way round: its rows are b's columns.
            self._lines(_turned(b), _turned(a), there)
            return numbers.reshape(columns, rows).T
        else:
            self._dots(a, b, there)
        return numbers.reshape(rows, columns)

    def _lines(self, a: Seen, b: Seen, out: There) -> None:
        (rows, terms), columns = a.shape, b.shape[1]
        tile = next(
            one
            for one in tiles(self.lanes * ELEMENT)
            if one.kind == "lines"
            and one.rows <= rows
            and one.across * self.lanes <= columns
        )
        sizes, steps = (rows, columns, terms), (terms, columns, columns, 1)
        operands = self.laid(a), self.laid(b), out
        self._entry(self.functions.products[tile], *operands, *sizes, *steps)

    def _dots(self, a: Seen, b: Seen, out: There) -> None:
        """Terms up to a whole vector, with zeros."""
        rows, columns = a.shape[0], b.shape[1]
        whole = -(-a.shape[1] // self.lanes) * self.lanes
        a, b = _filled(a, whole), _filled(_turned(b), whole)
        steps = (whole, whole, columns, 1)
        turned = rows < columns
        if turned:  # more rows than columns meet in registers
            a, b, rows, columns = b, a, columns, rows
            steps = (whole, whole, 1, rows)
        tile = next(
            one
            for one in tiles(self.lanes * ELEMENT)
            if one.kind == "dots" and one.rows <= rows and one.across <= columns
        )
        operands = self.laid(a), self.laid(b), out
        sizes = rows, columns, whole
        self._entry(self.functions.products[tile], *operands, *sizes, *steps)


def _turned(seen: Seen) -> Seen:
    return seen_by(seen.memory, np.ascontiguousarray(seen.table.T))


def _filled(seen: Seen, whole: int) -> Seen:
    """Rows with zeros up to a length."""
    more = whole - seen.shape[1]
    if not more:
        return seen
    return seen_by(seen.memory, np.pad(seen.table, ((0, 0), (0, more))))


def _order(all_seen: Sequence[Seen], shape: tuple[int, ...]) -> Places | None:
    """The order in which an operand of that shape lies, all of it behind each other;
    None where it is the order of the elements, or there is none.
    """
    for seen in all_seen:
        if seen.memory.fixed is not None or seen.shape != shape:
            continue
        if seen.places is None:
            return None
        flat = seen.places.reshape(-1)
        order = np.argsort(flat)
        first = flat[order[0]]
        if first > 0 and (flat[order] == np.arange(first, first + flat.size)).all():
            return order
    return None


Recorder = Callable[[Record, Node], None]
"""How one node is put on a tape."""
RECORDERS: Final[Mapping[str, Recorder]] = {
    "matmul": Record.matmul,
    "conv": Record.conv,
    "sum": Record.sums,
    "mean": Record.sums,
}
