"""A tape: many small pieces of work behind each other, one call for Python.

Each entry is a function of one address and the address of its job. Here are the walker
and the pieces that a small network needs beside its elementwise regions: moves by a
table, products of rows with rows and of rows with columns. What is left of a length is
done with some of what was done before: the same numbers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rlxweb.machine import functions
from rlxweb.machine.text import Shape, Value, Whole, Writer

MOVE_FIELDS: Final = ("from", "to", "table", "count")
"""Addresses of numbers of 32 bits, of as many places (i32): 0 says that 0 is stored,
p the number at p - 1.
"""
PRODUCT_FIELDS: Final = (
    *("a", "b", "out"),
    *("rows", "columns", "terms"),
    *("a_row", "b_step", "out_row", "out_column"),
)
"""Addresses of floats; rows of a, columns of the result, terms of each sum; elements
from one row to the next; from one row of b to the next, which are columns of the result
where rows meet rows and terms where they meet columns; from one row and one column of
the result to the next.
"""


class Tile(NamedTuple):
    """What a product holds in registers.

    kind     "dots": rows meet rows, vectors go along the terms; "lines": vectors go
             along the columns
    rows     of a
    across   rows of b, or vectors of its columns
    """

    kind: str
    rows: int
    across: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.rows}x{self.across}"


def tiles(nbytes: int) -> tuple[Tile, ...]:
    """Those for vectors of so many bytes, the largest first."""
    wide = nbytes == 64  # which come with twice as many registers
    return (
        *(Tile("dots", 4, n) for n in ((4, 2, 1) if wide else (2, 1))),
        *(Tile("dots", 1, 1),),
        *(Tile("lines", 4, n) for n in ((4, 2, 1) if wide else (2, 1))),
        *(Tile("lines", 1, n) for n in (8, 4, 2, 1)),
    )


def tape_text(nbytes: int) -> str:
    """@walk(entries, count), @move(job), and a product of each tile by its name."""
    shape = Shape("float", nbytes // 4)
    parts = [_walk(shape), _move(shape)]
    parts += [_product(tile, shape) for tile in tiles(nbytes)]
    return "\n".join(parts)


def _walk(shape: Shape) -> str:
    w = Writer("void @walk(ptr %entries, i64 %count)", shape)

    def one(i: Whole) -> None:
        at = w.multiple(i, 2)
        function = w.one("%entries", at, "ptr")
        job = w.one("%entries", w.sum(at, 1), "ptr")
        w.say(f"call void {function}(ptr {job})")

    w.loop("%count", one)
    w.say("ret void")
    return w.text


def _move(shape: Shape) -> str:
    w = Writer("void @move(ptr %job)", shape)
    of = w.fields(MOVE_FIELDS, MOVE_FIELDS[:3])

    def one(i: Whole) -> None:
        place = w.count(of["table"], i)
        # Place 0 reads what is there in any case, and takes 0 instead of it.
        before = w.let(f"call i64 @llvm.usub.sat.i64(i64 {place}, i64 1)")
        found = w.one(of["from"], before, "i32")
        is_there = w.let(f"icmp ne i64 {place}, 0")
        made = w.let(f"select i1 {is_there}, i32 {found}, i32 0")
        w.say(f"store i32 {made}, ptr {w.at(of['to'], i, 'i32')}, align 4")

    w.loop(of["count"], one)
    w.say("ret void")
    return w.text


def _product(tile: Tile, shape: Shape) -> str:
    return _Product(tile, shape).text()


class _Product:
    """out[r, c] = the sum over t of a[r, t] · b, for all rows and columns."""

    def __init__(self, tile: Tile, shape: Shape) -> None:
        w = self.w = Writer(f"void @{tile.name}(ptr %job)", shape)
        self.tile, self.of = tile, w.fields(PRODUCT_FIELDS, PRODUCT_FIELDS[:3])

    def text(self) -> str:
        w, of, tile = self.w, self.of, self.tile
        is_dots = tile.kind == "dots"
        each = tile.across * (1 if is_dots else w.shape.lanes)
        body = self._dots if is_dots else self._lines

        def columns(at: Whole) -> None:
            def rows(first: Whole) -> None:
                body(first, at)

            self._in_steps(of["rows"], tile.rows, rows)

        self._in_steps(of["columns"], each, columns)
        w.say("ret void")
        return w.text

    def _in_steps(
        self, count: Value, each: int, body: Callable[[Whole], object]
    ) -> None:
        """`body(first)` for so many at a time; the last ones end where all do."""
        w = self.w
        turns = w.let(f"udiv i64 {w.sum(count, each - 1)}, {each}")
        last = w.difference(count, each)

        def some(i: Whole) -> None:
            body(w.least(w.multiple(i, each), last))

        w.loop(turns, some)

    def _rows_of(self, base: str, step: str, first: Whole, count: int) -> list[Value]:
        w, of = self.w, self.of
        return [
            w.at(of[base], w.multiple(w.sum(first, r), of[step])) for r in range(count)
        ]

    def _dots(self, row: Whole, column: Whole) -> None:
        w, of, (_, height, width) = self.w, self.of, self.tile
        ours = self._rows_of("a", "a_row", row, height)
        theirs = self._rows_of("b", "b_step", column, width)
        lanes = w.shape.lanes

        def turn(i: Whole, *so_far: Value) -> list[Value]:
            at = w.multiple(i, lanes)
            given = [w.load(w.at(one, at)) for one in theirs]
            made = []
            for r, own in enumerate(ours):
                mine = w.load(w.at(own, at))
                made += [
                    functions.fused(w, mine, one, so_far[r * width + c])
                    for c, one in enumerate(given)
                ]
            return made

        turns = w.let(f"udiv i64 {of['terms']}, {lanes}")
        nothing = (w.shape.vector, "zeroinitializer")
        sums = w.loop(turns, turn, [nothing] * (height * width))
        for r, out in enumerate(self._rows_of("out", "out_row", row, height)):
            for c in range(width):
                number = w.across("float", sums[r * width + c])
                there = w.at(out, w.multiple(w.sum(column, c), of["out_column"]))
                w.say(f"store float {number}, ptr {there}, align 4")

    def _lines(self, row: Whole, column: Whole) -> None:
        w, of, (_, height, width) = self.w, self.of, self.tile
        ours = self._rows_of("a", "a_row", row, height)
        lanes = w.shape.lanes
        front = w.at(of["b"], column)

        def turn(i: Whole, *so_far: Value) -> list[Value]:
            line = w.at(front, w.multiple(i, of["b_step"]))
            given = [w.load(w.at(line, v * lanes)) for v in range(width)]
            made = []
            for r, own in enumerate(ours):
                number = w.spread(w.one(own, i))
                made += [
                    functions.fused(w, number, one, so_far[r * width + v])
                    for v, one in enumerate(given)
                ]
            return made

        nothing = (w.shape.vector, "zeroinitializer")
        sums = w.loop(of["terms"], turn, [nothing] * (height * width))
        for r, out in enumerate(self._rows_of("out", "out_row", row, height)):
            for v in range(width):
                there = w.at(out, w.sum(column, v * lanes))
                w.store(sums[r * width + v], there)
