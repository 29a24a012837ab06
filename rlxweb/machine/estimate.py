"""A Welch estimate as one module: rows of samples in, powers or strongest bins out.

Sums of |Z|² (`sums.py`) are folded at the end of each row, where both ends of them are
added, and searched while they lie in the cache. Everything is computed in double
precision and rounded once, into the answer. A module exports @sums, whose arguments are
`sums.ARGUMENTS`, and

power(job, x, stride, rows, segments, offsets, gains, out, scratch, limits)
    → how many rows need a second look
peaks(job, x, stride, rows, segments, offsets, gains, places, powers, scratch, limits)
    → how many rows need a second look (`clearance.py`), or have fewer than k bins that
    are numbers; what is told of those is not to be used
fold(job, sums, gain, out)

stride   bytes from one row to the next
gains    of integer samples, (rows) squared factors on the power
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlxweb.forked import cached_property
from rlxweb.machine.clearance import Clearance, energy_of, is_above, is_within
from rlxweb.machine.search import Search
from rlxweb.machine.segments import Sample, Segment, Trend
from rlxweb.machine.sums import Sums, job_field, sums_for
from rlxweb.machine.text import SIZE, Real, Shape, Value, Whole, Writer
from rlxweb.machine.transforms import Tables

_FRONT: Final = (
    "ptr %job, ptr noalias %x, i64 %stride, i64 %rows, i64 %segments, "
    "ptr noalias %offsets, ptr noalias %gains"
)
_Each: TypeAlias = Callable[[Writer, Whole, Value, Value, Value], Value]
"""(writer, row, its sums, memory behind them, rows failed so far) → rows failed."""


@dataclass(frozen=True)
class Estimate:
    """What is compiled for; everything else of an estimate is told by its job.

    n          transform length; segments are padded with zeros up to it
    nbytes     of the widest vector
    answer     the kind of number of the powers
    registers  of the search; 0: there is none
    """

    n: int
    nbytes: int
    sample: Sample
    trend: Trend
    answer: Real
    registers: int = 0

    @cached_property
    def tables(self) -> Tables:
        return Tables()

    @cached_property
    def sums(self) -> Sums:
        most = self.nbytes // SIZE["double"]
        widths = tuple(Shape("double", most >> at) for at in (0, 1) if most >> at > 1)
        return sums_for(self.n, widths, self.tables, self._integers)

    @property
    def _integers(self) -> bool:
        return self.sample == "int"

    @property
    def bins(self) -> int:
        return self.n // 2 + 1

    @property
    def _search(self) -> Search:
        lanes = self.nbytes // SIZE[self.answer]
        return Search(Shape(self.answer, lanes), self.registers)

    def scratch(self, segments: int) -> int:
        """Bytes that a call needs, aligned to 64."""
        rows = self.sums.together(segments)
        reals = self.sums.scratch + self.sums.room(rows) + self.bins
        return 8 * reals + 2 * self.registers * self.nbytes + 128

    def text(self) -> str:
        """The module."""
        sums = self.sums
        parts = [
            Segment(self.sample, self.trend).text(sums.shape),
            sums.text(),
            self._fold(),
            Clearance(self.sample).text(sums.shape),
            self._rows("i64 @power", "ptr noalias %out", self._powers),
        ]
        if self.registers:
            parts.append(self._search.text())
            more = "ptr noalias %places, ptr noalias %powers"
            parts.append(self._rows("i64 @peaks", more, self._peaks))
        return "\n".join(parts)

    def _fold(self) -> str:
        shape, answer = self.sums.shape, self.answer
        signature = "void @fold(ptr %job, ptr %sums, double %gain, ptr noalias %out)"
        w = Writer(signature, shape)
        weights, n = job_field(w, "weights"), self.n
        # The last of one end stands opposite the first of the other.
        first = w.one("%sums", 0)
        w.say(f"store double {first}, ptr {w.at('%sums', n)}, align 8")

        def bins(k: Whole) -> None:
            lanes = w.shape.lanes
            there = w.load(w.at("%sums", k))
            back = w.load(w.at("%sums", w.difference(n - lanes + 1, k)))
            if lanes > 1:
                back = w.shuffled(back, back, range(lanes)[::-1])
            power = w.times(w.plus(there, back), w.load(w.at(weights, k)))
            if self._integers:
                power = w.times(power, w.spread("%gain"))
            kind = f"<{lanes} x {answer}>"
            if answer != w.shape.real:
                power = w.let(f"fptrunc {w.shape.vector} {power} to {kind}")
            where = w.at("%out", k, answer)
            w.say(f"store {kind} {power}, ptr {where}, align {SIZE[answer]}")

        w.sweep(self.bins, bins)
        w.say("ret void")
        return w.text

    def _rows(self, head: str, more: str, each: _Each) -> str:
        """All rows, some at a time; `each` takes the sums of one."""
        last = "ptr noalias %scratch, ptr noalias %limits"
        w = Writer(f"{head}({_FRONT}, {more}, {last})", self.sums.shape)
        together = job_field(w, "together")
        some = w.sum(w.sum("%rows", together), -1)
        blocks = w.let(f"udiv i64 {some}, {together}")
        sums = w.at("%scratch", self.sums.scratch)
        behind = w.at(sums, w.multiple(w.sum(together, 1), self.sums.pitch))

        def block(at: Whole, failed: Value) -> list[Value]:
            first = w.multiple(at, together)
            here = w.least(together, w.difference("%rows", first))
            x = w.at("%x", w.multiple(first, "%stride"), "i8")
            offsets = w.at("%offsets", first) if self._integers else "null"
            w.say(
                f"call void @sums(ptr %job, ptr {x}, i64 %stride, i64 {here}, "
                f"i64 %segments, ptr {offsets}, ptr {sums}, ptr %scratch)"
            )

            def row(i: Whole, failed: Value) -> list[Value]:
                own = w.at(sums, w.multiple(i, self.sums.pitch))
                return [each(w, w.sum(first, i), own, behind, failed)]

            return w.loop(here, row, [("i64", failed)])

        (failed,) = w.loop(blocks, block, [("i64", "0")])
        w.say(f"ret i64 {failed}")
        return w.text

    def _powers(
        self, w: Writer, row: Whole, sums: Value, behind: Value, failed: Value
    ) -> Value:
        out = w.at("%out", w.multiple(row, self.bins), self.answer)
        self._folded(w, row, sums, out)
        return _plus_one_unless(w, failed, is_within(w, self._energy(w, row)))

    def _peaks(
        self, w: Writer, row: Whole, sums: Value, behind: Value, failed: Value
    ) -> Value:
        self._folded(w, row, sums, behind)
        spare, k = w.at(behind, self.bins), job_field(w, "k")
        start = w.multiple(row, k)
        places = w.at("%places", start, "i64")
        powers = w.at("%powers", start, self.answer)
        short = w.let(
            f"call i64 @search(ptr {behind}, i64 {self.bins}, i64 {k}, "
            f"ptr {places}, ptr {powers}, ptr {spare})"
        )
        weakest = w.one(powers, w.sum(k, -1), self.answer)
        if self.answer != w.shape.real:
            weakest = w.let(f"fpext {self.answer} {weakest} to {w.shape.real}")
        energy = self._energy(w, row)
        within, above = is_within(w, energy), is_above(w, energy, weakest)
        found = w.let(f"icmp eq i64 {short}, 0")
        clear = w.let(f"and i1 {w.let(f'and i1 {within}, {above}')}, {found}")
        return _plus_one_unless(w, failed, clear)

    def _energy(self, w: Writer, row: Whole) -> Value:
        x = w.at("%x", w.multiple(row, "%stride"), "i8")
        return energy_of(w, x, SIZE.get(self.sample, 0))

    def _folded(self, w: Writer, row: Whole, sums: Value, out: Value) -> None:
        gain = w.one("%gains", row) if self._integers else "1.0"
        w.say(f"call void @fold(ptr %job, ptr {sums}, double {gain}, ptr {out})")


def _plus_one_unless(w: Writer, count: Value, holds: Value) -> Value:
    more = w.let(f"add i64 {count}, 1")
    return w.let(f"select i1 {holds}, i64 {count}, i64 {more}")
