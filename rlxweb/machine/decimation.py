"""A low-pass filter that gives every so manieth sample, as machine code.

A stretch of the signal is first dealt out to as many arrays as a step has samples, so
that what a tap meets in neighbouring outputs lies side by side. Then every tap is one
product and sum of whole vectors, several of them abreast: none waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import SIZE, Real, Shape, Value, Whole, Writer

NAME: Final = "decimate"
SIGNATURE: Final = (
    "void @decimate(ptr %x, ptr %y, ptr %taps, i64 %count, i64 %rows, i64 %width, "
    "i64 %pitch, i64 %parts, i64 %share, ptr %taken)"
)
_ABREAST: Final = 4
_STRETCH: Final = 8
"""Blocks of a stretch: it stays in the first-level cache."""


@dataclass(frozen=True, slots=True)
class Decimation:
    """@decimate: y[j] is the sum of taps[t] x[j step + t], of some rows.

    step    samples of x for one of y
    taps    how many there are
    nbytes  of a vector

    Its arguments, as SIGNATURE has them: `count` of y, a multiple of `block`; from one
    row of x to the next `width` elements, of y `pitch`. Threads that call it together
    take `share` stretches of a row at a time, `parts` to a row, and count them in
    `taken`. x is read `beyond` samples behind the last that the taps meet, at most.
    """

    real: Real
    step: int
    taps: int
    nbytes: int

    @property
    def lanes(self) -> int:
        return self.nbytes // SIZE[self.real]

    @property
    def block(self) -> int:
        """Outputs that are made at once."""
        return _ABREAST * self.lanes

    @property
    def reach(self) -> int:
        """Samples of one array that the taps of an output meet, in whole vectors."""
        own = -(-self.taps // self.step)
        return -(-own // self.lanes) * self.lanes

    @property
    def beyond(self) -> int:
        return self.reach * self.step

    @property
    def _pitch(self) -> int:
        """From one array to the next; not so that all lie on the same cache lines."""
        return _STRETCH * self.block + self.reach + self.lanes

    @property
    def stretch(self) -> int:
        """Outputs of a stretch."""
        return _STRETCH * self.block

    def text(self) -> str:
        """The module."""
        w = Writer(SIGNATURE, Shape(self.real, self.lanes))
        scratch = self.step * self._pitch
        w.say(f"%scratch = alloca [{scratch} x {self.real}], align 64")
        blocks = w.let(f"udiv i64 %count, {self.block}")
        up = w.let(f"add i64 {blocks}, {_STRETCH - 1}")
        stretches = w.let(f"udiv i64 {up}, {_STRETCH}")

        def some(unit: Value) -> None:
            row = w.let(f"udiv i64 {unit}, %parts")
            part = w.let(f"urem i64 {unit}, %parts")
            x = w.at("%x", w.multiple(row, "%width"))
            y = w.at("%y", w.multiple(row, "%pitch"))
            first = w.multiple(part, "%share")
            own = w.least("%share", w.difference(stretches, first))

            def stretch(i: Whole) -> None:
                at = w.multiple(w.sum(first, i), _STRETCH)
                self._stretch(w, (x, y), at, blocks)

            w.loop(own, stretch)

        w.claimed("%taken", 1, w.multiple("%rows", "%parts"), some)
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _stretch(
        self, w: Writer, row: tuple[Value, Value], first: Whole, blocks: Value
    ) -> None:
        """Some blocks, from block `first` on."""
        own = w.least(_STRETCH, w.difference(blocks, first))
        start = w.multiple(first, self.block)
        x = w.at(row[0], w.multiple(start, self.step))
        vectors = w.sum(w.multiple(own, _ABREAST), self.reach // self.lanes)
        w.loop(vectors, lambda i: self._deal(w, x, i))
        y = w.at(row[1], start)
        w.loop(own, lambda i: self._block(w, w.multiple(i, self.block), y))

    def _deal(self, w: Writer, x: Value, i: Whole) -> None:
        """A vector for each of the arrays."""
        wide = f"<{self.lanes * self.step} x {self.real}>"
        at = w.at(x, w.multiple(i, self.lanes * self.step))
        given = w.let(f"load {wide}, ptr {at}, align {SIZE[self.real]}")
        for phase in range(self.step):
            picks = ", ".join(f"i32 {phase + e * self.step}" for e in range(self.lanes))
            mask = f"<{self.lanes} x i32> <{picks}>"
            part = w.let(f"shufflevector {wide} {given}, {wide} poison, {mask}")
            place = w.sum(w.multiple(i, self.lanes), phase * self._pitch)
            w.store(part, w.at("%scratch", place))

    def _block(self, w: Writer, first: Whole, y: Value) -> None:
        sums: Sequence[Value] = ["zeroinitializer"] * _ABREAST
        for tap in range(self.taps):
            factor = w.spread(w.one("%taps", tap))
            later, phase = divmod(tap, self.step)
            array = w.at("%scratch", w.sum(first, phase * self._pitch + later))
            sums = [
                w.plus(total, w.times(factor, w.load(w.at(array, n * self.lanes))))
                for n, total in enumerate(sums)
            ]
        out = w.at(y, first)
        for n, total in enumerate(sums):
            w.store(total, w.at(out, n * self.lanes))
