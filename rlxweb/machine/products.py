"""Products of float32 matrices as machine code, some columns of the result at a time.

A task is a panel, so many columns of b, and a block of rows of a: some of them meet the
panel's vectors in registers, term by term. What is done with each element of the result
is done while the panel's part of it lies in the nearest caches. What is left of rows or
columns is done with some of what was done before: the same numbers again.

Nothing is laid out anew here: with tiles this large, b is read from the second cache as
fast as it is needed, however far apart its rows lie. Where few rows meet it, it comes
from memory, which likes panels that lie side by side: so it may come as such. Only the
windows of a convolution are no matrix: those of a panel are gathered by tables of
places, some terms at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rlxweb.machine import functions
from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import Shape, Value, Whole, Writer

SIGNATURE: Final = "void @product(ptr %job, ptr %room, i64 %floats, ptr %taken)"
"""job     `FIELDS`, 64 bits each
room    `floats` for each thread, `room_for` at least
taken   where the threads that call it together count the tasks they took, and behind
        it how many they are
"""
_TABLES: Final = ("terms_at", "columns_at", "out_at")
_ADDRESSES: Final = ("a", "b", "out", "tail", "operands", *_TABLES)
FIELDS: Final = (
    *_ADDRESSES,
    *("count", "tasks", "panels", "blocks", "each"),
    *("rows", "columns", "terms", "a_row", "b_row", "out_row"),
    *("a_batch", "b_batch", "out_batch", "b_panel"),
)
"""Addresses of floats, of the function that does the rest with them (0: there is none;
it takes a job, rows and columns) and of its operands, and of tables (i32) where b is
gathered: element (t, c) lies terms_at[t] + columns_at[c] behind b, and column c of the
result begins out_at[c] behind it; how many operands there are; tasks, panels, blocks of
rows and rows of a block; sizes; elements from one row and one matrix to the next, and
from one panel of b to the next (0: its panels are no memory of their own).

An operand of the rest: its address, and bytes from one row, one column and one matrix
to the next. The first is its result, which lies where the product does where b is
gathered. The product itself is the second, and lies in the thread's own room.
"""
AHEAD: Final = 24
"""Rows of b that are asked for before they are met: rows lie in pages of their own, and
no processor foresees those.
"""
PART: Final = 512
"""Terms that are gone through at a time: as many rows of a panel stay in the second
cache until all rows of a block have met them.
"""
OPERAND: Final = 4
"""Words of an operand."""
MOST_OPERANDS: Final = 16


class Tile(NamedTuple):
    """What is done in registers: rows, and vectors of columns."""

    rows: int
    vectors: int


def tiles(nbytes: int) -> tuple[Tile, ...]:
    """Those that leave registers for what they meet, for vectors of so many bytes; the
    last ones for few rows or columns.
    """
    few = Tile(4, 2), Tile(8, 1), Tile(4, 1), Tile(2, 4), Tile(1, 8), Tile(1, 4)
    if nbytes == 64:  # which come with twice as many registers
        return Tile(8, 3), Tile(6, 4), Tile(4, 4), *few
    return Tile(6, 2), Tile(4, 3), *few


def room_for(tile: Tile, lanes: int, each: int, *, gathered: bool = False) -> int:
    """Floats for a panel's part of the result and of b, and the rest's operands."""
    rows = each + (PART if gathered else 0)
    return tile.vectors * lanes * rows + 4 * MOST_OPERANDS


def product_text(tile: Tile, nbytes: int, *, gathered: bool = False) -> str:
    """The function for a tile and vectors of so many bytes: rows and columns are no
    fewer than the tile's, nor are those of a block.

    gathered  b by tables of places
    """
    return _Product(tile, Shape("float", nbytes // 4), gathered).text()


class _Product:
    def __init__(self, tile: Tile, shape: Shape, gathered: bool) -> None:
        w = self.w = Writer(SIGNATURE, shape)
        self.tile, self.width = tile, tile.vectors * shape.lanes
        self.gathered = gathered
        self.of = w.fields(FIELDS, _ADDRESSES)
        self.own = self.operands = self.panel = ""

    def text(self) -> str:
        w, of = self.w, self.of
        mine = w.let(f"atomicrmw add ptr {w.at('%taken', 1, 'i64')}, i64 1 monotonic")
        self.operands = w.at("%room", w.multiple(mine, "%floats"))
        self.panel = w.at(self.operands, 4 * MOST_OPERANDS)
        gone = PART * self.width if self.gathered else 0
        self.own = w.at(self.panel, gone)
        w.claimed("%taken", 1, of["tasks"], self._task)
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _task(self, task: Value) -> None:
        w, of = self.w, self.of
        panel = w.let(f"urem i64 {task}, {of['panels']}")
        rest = w.let(f"udiv i64 {task}, {of['panels']}")
        block = w.let(f"urem i64 {rest}, {of['blocks']}")
        batch = w.let(f"udiv i64 {rest}, {of['blocks']}")
        last = w.difference(of["columns"], self.width)
        column = w.least(w.multiple(panel, self.width), last)
        row = w.multiple(block, of["each"])
        # The last block has what is left.
        is_last = w.let(f"icmp eq i64 {w.sum(block, 1)}, {of['blocks']}")
        left = w.difference(of["rows"], row)
        count = w.let(f"select i1 {is_last}, i64 {left}, i64 {of['each']}")

        a = w.at(of["a"], w.multiple(batch, of["a_batch"]))
        a = w.at(a, w.multiple(row, of["a_row"]))
        b = w.at(of["b"], w.multiple(batch, of["b_batch"]))
        out = w.at(of["out"], w.multiple(batch, of["out_batch"]))
        out = w.at(out, w.multiple(row, of["out_row"]))
        no_tail = w.let(f"icmp eq ptr {of['tail']}, null")
        if self.gathered:
            self._parts(a, (b, column), (self.own, str(self.width)), count)
            has_tail = w.let(f"xor i1 {no_tail}, true")
            w.when(has_tail, lambda: self._rest(batch, row, column, count))
            self._scatter(out, column, count)
            return

        out = w.at(out, column)
        is_laid = w.let(f"icmp ne i64 {of['b_panel']}, 0")
        there = w.multiple(panel, of["b_panel"])
        begin = w.let(f"select i1 {is_laid}, i64 {there}, i64 {column}")
        one_part = w.let(f"icmp ule i64 {of['terms']}, {PART}")
        plain = w.let(f"and i1 {no_tail}, {one_part}")
        to = w.let(f"select i1 {plain}, ptr {out}, ptr {self.own}")
        to_row = w.let(f"select i1 {plain}, i64 {of['out_row']}, i64 {self.width}")
        self._parts(a, (b, begin), (to, to_row), count)
        has_tail = w.let(f"xor i1 {no_tail}, true")
        w.when(has_tail, lambda: self._rest(batch, row, column, count))
        is_apart = w.let(f"icmp ult i1 {plain}, {no_tail}")
        w.when(is_apart, lambda: self._out(out, count))

    def _parts(
        self, a: Value, b: tuple[Value, Whole], to: tuple[Value, Value], count: Value
    ) -> None:
        """All sums, some terms at a time."""
        w, of = self.w, self.of

        def part(i: Whole) -> None:
            term = w.multiple(i, PART)
            terms = w.least(w.difference(of["terms"], term), PART)
            if self.gathered:
                self._gather(b, term, terms)
                panel = self.panel, str(self.width)
            else:
                line = w.at(w.at(b[0], b[1]), w.multiple(term, of["b_row"]))
                panel = line, of["b_row"]
            self._rows(w.at(a, term), panel, to, count, (i, terms))

        w.loop(w.let(f"udiv i64 {w.sum(of['terms'], PART - 1)}, {PART}"), part)

    def _gather(self, b: tuple[Value, Whole], term: Whole, terms: Whole) -> None:
        """Some terms of a panel into the thread's own room, vector by vector."""
        w, lanes = self.w, self.w.shape.lanes
        wide = f"<{lanes} x i32>"
        first = w.at(self.of["terms_at"], term, "i32")
        for v in range(self.tile.vectors):
            where = w.at(self.of["columns_at"], w.sum(b[1], v * lanes), "i32")
            places = w.let(f"load {wide}, ptr {where}, align 4")
            begin = w.at(b[0], w.count(where, 0))
            there = w.at(self.panel, v * lanes)

            def near(k: Whole, begin: Value = begin, there: Value = there) -> None:
                line = w.at(begin, w.count(first, k))
                w.store(w.load(line), w.at(there, w.multiple(k, self.width)))

            def far(k: Whole, places: Value = places, there: Value = there) -> None:
                line = w.at(b[0], w.count(first, k))
                w.store(
                    w.gathered(line, places), w.at(there, w.multiple(k, self.width))
                )

            self._by_way(where, terms, near, far)

    def _by_way(
        self,
        where: Value,
        turns: Whole,
        near: Callable[[Whole], None],
        far: Callable[[Whole], None],
    ) -> None:
        """So many turns of `near` where a vector of places follow each other, else of
        `far`.
        """
        w, lanes = self.w, self.w.shape.lanes
        last = w.difference(w.count(where, lanes - 1), w.count(where, 0))
        together = w.let(f"icmp eq i64 {last}, {lanes - 1}")
        w.when(together, lambda: w.loop(turns, near))
        w.when(w.let(f"xor i1 {together}, true"), lambda: w.loop(turns, far))

    def _scatter(self, out: Value, column: Whole, count: Value) -> None:
        """What lies in the thread's own room, to where its columns begin."""
        w, lanes = self.w, self.w.shape.lanes
        for v in range(self.tile.vectors):
            where = w.at(self.of["out_at"], w.sum(column, v * lanes), "i32")
            there = w.at(self.own, v * lanes)
            begin = w.at(out, w.count(where, 0))

            def near(i: Whole, there: Value = there, begin: Value = begin) -> None:
                made = w.load(w.at(there, w.multiple(i, self.width)))
                w.store(made, w.at(begin, w.multiple(i, self.of["out_row"])))

            def far(i: Whole, there: Value = there, where: Value = where) -> None:
                line = w.at(there, w.multiple(i, self.width))
                row = w.at(out, w.multiple(i, self.of["out_row"]))

                def one(c: Whole) -> None:
                    place = w.at(row, w.count(where, c))
                    w.say(f"store float {w.one(line, c)}, ptr {place}, align 4")

                w.loop(lanes, one)

            self._by_way(where, count, near, far)

    def _out(self, out: Value, count: Value) -> None:
        """What lies in the thread's own room, to where it belongs."""
        w, lanes = self.w, self.w.shape.lanes

        def row(i: Whole) -> None:
            line = w.at(self.own, w.multiple(i, self.width))
            there = w.at(out, w.multiple(i, self.of["out_row"]))
            for v in range(self.tile.vectors):
                w.store(w.load(w.at(line, v * lanes)), w.at(there, v * lanes))

        w.loop(count, row)

    def _rows(
        self,
        a: Value,
        b: tuple[Value, Value],
        to: tuple[Value, Value],
        count: Value,
        part: tuple[Whole, Whole],
    ) -> None:
        """All rows of a block, with the terms of one part."""
        w, each = self.w, self.tile.rows
        turns = w.let(f"udiv i64 {w.sum(count, each - 1)}, {each}")
        last = w.difference(count, each)

        def some(i: Whole) -> None:
            first = w.least(w.multiple(i, each), last)
            self._some(
                w.at(a, w.multiple(first, self.of["a_row"])),
                b,
                (w.at(to[0], w.multiple(first, to[1])), to[1]),
                part,
                w.difference(w.multiple(i, each), first),
            )

        w.loop(turns, some)

    def _some(
        self,
        a: Value,
        b: tuple[Value, Value],
        to: tuple[Value, Value],
        part: tuple[Whole, Whole],
        done: Whole,
    ) -> None:
        """The tile's rows from there on, of which some were done before."""
        w, (rows, vectors) = self.w, self.tile
        lanes = w.shape.lanes
        ours = [w.at(a, w.multiple(r, self.of["a_row"])) for r in range(rows)]
        lines = [w.at(to[0], w.multiple(r, to[1])) for r in range(rows)]
        places = [w.at(line, v * lanes) for line in lines for v in range(vectors)]
        vector = w.shape.vector

        def turn(k: Whole, *so_far: Value) -> list[Value]:
            line = w.at(b[0], w.multiple(k, b[1]))
            if not self.gathered:
                ahead = w.at(line, w.multiple(AHEAD, b[1]))
                for v in range(vectors):
                    w.prefetch(w.at(ahead, v * lanes))
            given = [w.load(w.at(line, v * lanes)) for v in range(vectors)]
            made = []
            for r, own in enumerate(ours):
                number = w.spread(w.one(own, k))
                made += [
                    functions.fused(w, number, one, so_far[r * vectors + v])
                    for v, one in enumerate(given)
                ]
            return made

        nothing = (vector, "zeroinitializer")
        sums = w.loop(part[1], turn, [nothing] * len(places))
        # A sum of parts is nearer to what is right than one long sum.
        more = w.either(
            w.let(f"icmp eq i64 {part[0]}, 0"),
            lambda: [(vector, one) for one in sums],
            lambda: [
                (vector, w.plus(w.load(place), one))
                for place, one in zip(places, sums, strict=True)
            ],
        )
        for r in range(rows):
            own = slice(r * vectors, (r + 1) * vectors)

            def stored(own: slice = own) -> None:
                for made, place in zip(more[own], places[own], strict=True):
                    w.store(made, place)

            w.when(w.let(f"icmp ule i64 {done}, {r}"), stored)

    def _rest(self, batch: Value, row: Whole, column: Whole, count: Value) -> None:
        """What is done with the panel's part of the result."""
        w, of = self.w, self.of

        def operand(i: Whole) -> None:
            words = w.at(of["operands"], w.multiple(i, OPERAND), "i64")
            begin = w.one(words, 0, "i64")
            steps = [w.one(words, at, "i64") for at in (1, 2, 3)]
            for place, step in zip((row, column, batch), steps, strict=True):
                begin = w.let(f"add i64 {begin}, {w.multiple(place, step)}")
            self._tell(i, begin, steps[0])

        w.loop(of["count"], operand)
        own = w.let(f"ptrtoint ptr {self.own} to i64")
        for at in (0, 1) if self.gathered else (1,):
            self._tell(at, own, str(4 * self.width))
        given = f"ptr {self.operands}, i64 {count}, i64 {self.width}"
        w.say(f"call void {of['tail']}({given})")

    def _tell(self, i: Whole, begin: Value, step: Value) -> None:
        w = self.w
        there = w.at(self.operands, i, "i64")
        w.say(f"store i64 {begin}, ptr {there}, align 4")
        there = w.at(self.operands, w.sum(i, self.of["count"]), "i64")
        w.say(f"store i64 {step}, ptr {there}, align 4")
