"""Arrays in their padding, sorted by the phases of strides, as machine code.

A channel is so many lines, each some zeros, elements of the array a stride apart, and
zeros again. Which, a table says; it is the same for all channels.
"""

from __future__ import annotations

from typing import Final

from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import Shape, Value, Whole, Writer

SIGNATURE: Final = "void @phases(ptr %job, ptr %taken)"
"""job     `FIELDS`, 64 bits each
taken   where the threads that call it together count the channels they took
"""
_ADDRESSES: Final = ("x", "out", "table")
FIELDS: Final = (
    *_ADDRESSES,
    *("channels", "each", "given", "lines", "length", "stride"),
)
"""Addresses of numbers of 32 bits, and of the table (i32); channels, and how many a
thread takes at once; elements of a channel of x; lines of one of the result, elements
of a line, and elements of x from one of them to the next.
"""
LINE: Final = 3
"""Numbers of the table for a line: its first element in the channel of x, zeros in
front of it, how many elements of x there are.
"""
STRIDES: Final = (1, 2)
"""What is copied by vectors; others one by one."""


def phases_text(stride: int, nbytes: int) -> str:
    """The function for one of `STRIDES`, or 0 for all, and vectors of so many bytes."""
    return _Phases(stride, Shape("float", nbytes // 4)).text()


class _Phases:
    def __init__(self, stride: int, shape: Shape) -> None:
        w = self.w = Writer(SIGNATURE, shape)
        self.stride = stride
        self.of = w.fields(FIELDS, _ADDRESSES)

    def text(self) -> str:
        w, of = self.w, self.of
        w.shared_out(of["each"], of["channels"], self._channel)
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _channel(self, at: Whole) -> None:
        w, of = self.w, self.of
        x = w.at(of["x"], w.multiple(at, of["given"]))
        size = w.multiple(of["lines"], of["length"])
        out = w.at(of["out"], w.multiple(at, size))

        def line(i: Whole) -> None:
            told = w.multiple(i, LINE)
            first, front, count = (
                w.count(of["table"], w.sum(told, k)) for k in range(LINE)
            )
            to = w.at(out, w.multiple(i, of["length"]))
            self._zeros(to, front)
            there = w.at(to, front)
            self._elements(w.at(x, first), there, count)
            done = w.sum(front, count)
            self._zeros(w.at(to, done), w.difference(of["length"], done))

        w.loop(of["lines"], line)

    def _zeros(self, to: Value, count: Whole) -> None:
        w = self.w

        def some(i: Whole) -> None:
            w.store("zeroinitializer", w.at(to, i))

        w.sweep(count, some)

    def _elements(self, x: Value, to: Value, count: Whole) -> None:
        w, stride = self.w, self.stride or self.of["stride"]

        def alone(i: Whole) -> None:
            number = w.one(x, w.multiple(i, stride))
            w.say(f"store float {number}, ptr {w.at(to, i)}, align 4")

        def some(i: Whole) -> None:
            lanes = w.shape.lanes
            here = w.at(x, w.multiple(i, stride))
            made = w.load(here)
            if lanes > 1 and self.stride == 2:
                # The second begins one early: behind the last there may be nothing.
                more = w.load(w.at(here, lanes - 1))
                half = range(0, lanes, 2)
                made = w.shuffled(made, more, [*half, *(lanes + 1 + k for k in half)])
            w.store(made, w.at(to, i))

        if self.stride in STRIDES:
            w.sweep(count, some)
        else:
            w.loop(count, alone)
