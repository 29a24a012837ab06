"""Convolution of float32 as machine code, a few channels of a line at a time.

The array comes in its padding and sorted by the phases of its strides, so that windows
that follow each other follow each other in memory too: a tap of the window is one
offset, for whichever line. Some channels meet some vectors of a line in registers, tap
by tap. What is left of channels or of a line is done with some of what was done before:
the same numbers again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rlxweb.machine import functions
from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import Shape, Value, Whole, Writer

SIGNATURE: Final = "void @convolution(ptr %job, ptr %taken)"
"""job     `FIELDS`, 64 bits each
taken   where the threads that call it together count the tasks they took
"""
_ADDRESSES: Final = ("x", "w", "out", "taps")
FIELDS: Final = (
    *_ADDRESSES,
    *("count", "tasks", "each", "groups", "channels", "blocks", "last"),
    *("shares", "share", "lines", "inner", "length", "turns"),
    *("x_n", "x_g", "x_0", "x_1", "out_n", "out_g", "out_m", "out_0", "out_1"),
)
"""Addresses of floats, and of the taps' offsets (64 bits); taps; tasks, and how many a
thread takes at once; groups, channels of one, blocks of them, the first channel of the
last block; tasks of a line, and blocks of a task; lines of an image and those of its
inner axis; elements of a line, and how often some vectors of it are done; elements from
one image, group, channel, line to the next.
"""


class Tile(NamedTuple):
    """What is done in registers: channels, and vectors of a line."""

    rows: int
    vectors: int


def tiles(nbytes: int) -> list[Tile]:
    """Those that leave registers for what they meet, for vectors of so many bytes."""
    wide = nbytes == 64  # which come with twice as many registers
    most = 24 if wide else 12
    return [
        Tile(rows, vectors)
        for rows in (8, 6, 4, 2, 1)
        for vectors in ((4, 3, 2) if wide else (3, 2))
        if rows * vectors <= most
    ]


def convolution_text(tile: Tile, nbytes: int) -> str:
    """The function for a tile and vectors of so many bytes: lines are no shorter than
    a vector, and channels no fewer than the tile's.
    """
    return _Convolution(tile, Shape("float", nbytes // 4)).text()


class _Convolution:
    def __init__(self, tile: Tile, shape: Shape) -> None:
        w = self.w = Writer(SIGNATURE, shape)
        self.tile = tile
        self.of = w.fields(FIELDS, _ADDRESSES)

    def text(self) -> str:
        w, of = self.w, self.of
        w.shared_out(of["each"], of["tasks"], self._line)
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _place(self, name: str, parts: tuple[Value, Value, Value, Value]) -> Value:
        """Where a line of an operand begins."""
        w = self.w
        made: Whole = 0
        for step, part in zip(("n", "g", "0", "1"), parts, strict=True):
            made = w.sum(made, w.multiple(part, self.of[f"{name}_{step}"]))
        return w.at(self.of[name], made)

    def _line(self, task: Whole) -> None:
        w, of = self.w, self.of
        share = w.let(f"urem i64 {task}, {of['shares']}")
        task = w.let(f"udiv i64 {task}, {of['shares']}")
        image = w.let(f"udiv i64 {task}, {of['lines']}")
        line = w.let(f"urem i64 {task}, {of['lines']}")
        group = w.let(f"urem i64 {image}, {of['groups']}")
        parts = (
            w.let(f"udiv i64 {image}, {of['groups']}"),
            group,
            w.let(f"udiv i64 {line}, {of['inner']}"),
            w.let(f"urem i64 {line}, {of['inner']}"),
        )
        x, out = self._place("x", parts), self._place("out", parts)
        before = w.multiple(group, of["channels"])

        begin = w.multiple(share, of["share"])
        count = w.least(of["share"], w.difference(of["blocks"], begin))

        def block(i: Whole) -> None:
            b = w.sum(begin, i)
            first = w.least(w.multiple(b, self.tile.rows), of["last"])
            own = w.multiple(w.sum(before, first), of["count"])
            weights = [
                w.at(of["w"], w.sum(own, w.multiple(r, of["count"])))
                for r in range(self.tile.rows)
            ]
            rows = w.at(out, w.multiple(first, of["out_m"]))
            w.loop(of["turns"], lambda i: self._some(x, weights, rows, i))

        w.loop(count, block)

    def _some(self, x: Value, weights: list[Value], out: Value, i: Whole) -> None:
        """The tile's vectors from the i-th on, all taps."""
        w, of, (rows, vectors) = self.w, self.of, self.tile
        lanes = w.shape.lanes
        last = w.difference(of["length"], lanes)
        begin = w.multiple(i, vectors * lanes)
        places = [w.least(w.sum(begin, v * lanes), last) for v in range(vectors)]

        def tap(t: Whole, *so_far: Value) -> list[Value]:
            there = w.at(x, w.one(of["taps"], t, "i64"))
            given = [w.load(w.at(there, place)) for place in places]
            made = []
            for r, own in enumerate(weights):
                number = w.spread(w.one(own, t))
                made += [
                    functions.fused(w, number, one, so_far[r * vectors + v])
                    for v, one in enumerate(given)
                ]
            return made

        nothing = (w.shape.vector, "zeroinitializer")
        sums = w.loop(of["count"], tap, [nothing] * (rows * vectors))
        for r in range(rows):
            row = w.at(out, w.multiple(r, of["out_m"]))
            for v, place in enumerate(places):
                w.store(sums[r * vectors + v], w.at(row, place))
