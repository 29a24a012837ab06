"""Products of float32 matrices as machine code, some columns of the result at a time.

A task is a panel, so many columns of b, and a block of rows of a: some of them meet the
panel's vectors in registers, term by term. What is done with each element of the result
is done while the panel's part of it lies in the nearest caches. What is left of rows or
columns is done with some of what was done before: the same numbers again.

Nothing is laid out anew: with tiles this large, b is read from the second cache as fast
as it is needed, however far apart its rows lie.
"""

from __future__ import annotations

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
_ADDRESSES: Final = ("a", "b", "out", "tail", "operands")
FIELDS: Final = (
    *_ADDRESSES,
    *("count", "tasks", "panels", "blocks", "each"),
    *("rows", "columns", "terms", "a_row", "b_row", "out_row"),
    *("a_batch", "b_batch", "out_batch"),
)
"""Addresses of floats, of the function that does the rest with them (0: there is none;
it takes a job, rows and columns) and of its operands; how many those are; tasks,
panels, blocks of rows and rows of a block; sizes; elements from one row and one matrix
to the next.

An operand of the rest: its address, and bytes from one row, one column and one matrix
to the next. The first is its result. The product itself is the second, and lies in the
thread's own room.
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
    last one for few columns.
    """
    if nbytes == 64:  # which come with twice as many registers
        return Tile(8, 3), Tile(6, 4), Tile(4, 4), Tile(8, 1)
    return Tile(6, 2), Tile(4, 3), Tile(4, 2), Tile(8, 1)


def room_for(tile: Tile, lanes: int, each: int) -> int:
    """Floats for a panel's part of the result, and the operands of the rest."""
    return tile.vectors * lanes * each + 4 * MOST_OPERANDS


def product_text(tile: Tile, nbytes: int) -> str:
    """The function for a tile and vectors of so many bytes: rows and columns are no
    fewer than the tile's, nor are those of a block.
    """
    return _Product(tile, Shape("float", nbytes // 4)).text()


class _Product:
    def __init__(self, tile: Tile, shape: Shape) -> None:
        w = self.w = Writer(SIGNATURE, shape)
        self.tile, self.width = tile, tile.vectors * shape.lanes
        self.of = {
            name: w.one("%job", at, "ptr" if name in _ADDRESSES else "i64")
            for at, name in enumerate(FIELDS)
        }
        self.own = self.operands = ""

    def text(self) -> str:
        w, of = self.w, self.of
        mine = w.let(f"atomicrmw add ptr {w.at('%taken', 1, 'i64')}, i64 1 monotonic")
        self.operands = w.at("%room", w.multiple(mine, "%floats"))
        self.own = w.at(self.operands, 4 * MOST_OPERANDS)
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
        b = w.at(w.at(of["b"], w.multiple(batch, of["b_batch"])), column)

        out = w.at(of["out"], w.multiple(batch, of["out_batch"]))
        out = w.at(w.at(out, w.multiple(row, of["out_row"])), column)
        no_tail = w.let(f"icmp eq ptr {of['tail']}, null")
        one_part = w.let(f"icmp ule i64 {of['terms']}, {PART}")
        plain = w.let(f"and i1 {no_tail}, {one_part}")
        to = w.let(f"select i1 {plain}, ptr {out}, ptr {self.own}")
        to_row = w.let(f"select i1 {plain}, i64 {of['out_row']}, i64 {self.width}")

        def part(i: Whole) -> None:
            """Some terms of all the sums."""
            term = w.multiple(i, PART)
            terms = w.least(w.difference(of["terms"], term), PART)
            line = w.at(b, w.multiple(term, of["b_row"]))
            self._rows(w.at(a, term), line, (to, to_row), count, (i, terms))

        w.loop(w.let(f"udiv i64 {w.sum(of['terms'], PART - 1)}, {PART}"), part)
        has_tail = w.let(f"xor i1 {no_tail}, true")
        w.when(has_tail, lambda: self._rest(batch, row, column, count))
        is_apart = w.let(f"icmp ult i1 {plain}, {no_tail}")
        w.when(is_apart, lambda: self._out(out, count))

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
        b: Value,
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
        b: Value,
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
            line = w.at(b, w.multiple(k, self.of["b_row"]))
            ahead = w.at(line, w.multiple(AHEAD, self.of["b_row"]))
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
        self._tell(1, own, str(4 * self.width))
        given = f"ptr {self.operands}, i64 {count}, i64 {self.width}"
        w.say(f"call void {of['tail']}({given})")

    def _tell(self, i: Whole, begin: Value, step: Value) -> None:
        w = self.w
        there = w.at(self.operands, i, "i64")
        w.say(f"store i64 {begin}, ptr {there}, align 4")
        there = w.at(self.operands, w.sum(i, self.of["count"]), "i64")
        w.say(f"store i64 {step}, ptr {there}, align 4")
