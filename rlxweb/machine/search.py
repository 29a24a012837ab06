"""The strongest bins of a row in one walk: sorted registers and a threshold.

A few registers hold the strongest bins so far in falling order, equal ones in the order
they came. Whole vectors of the row are compared with the least of them; only a lane
above it is put in its place, by one comparison and one shift of all registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from rlxweb.machine.text import SIZE, Shape, Value, Whole, Writer

MOST_REGISTERS: Final = 4
"""Searches for more than these hold are left to others."""
_LEAST: Final = -math.inf


def registers_for(k: int, lanes: int) -> int:
    """How many registers hold k bins: a power of two; 0 where they are too many."""
    count = 1
    while count * lanes < k:
        count *= 2
    return count if count <= MOST_REGISTERS else 0


@dataclass(frozen=True, slots=True)
class Search:
    """@search: the k strongest of `bins` powers at p → bins (i64) and powers.

    It gives 1 where fewer than k of them are numbers above -infinity, else 0. `spare`
    is memory for 2 · registers vectors.
    """

    shape: Shape
    registers: int

    @property
    def index(self) -> str:
        """The kind of integer that is as wide as a power."""
        return "i32" if self.shape.real == "float" else "i64"

    @property
    def _counts(self) -> str:
        return f"<{self.shape.lanes} x {self.index}>"

    @property
    def signature(self) -> str:
        return (
            "internal i64 @search(ptr noalias %p, i64 %bins, i64 %k, "
            "ptr noalias %places, ptr noalias %powers, ptr noalias %spare)"
        )

    def text(self) -> str:
        w = Writer(self.signature, self.shape)
        vector, lanes = self.shape.vector, self.shape.lanes
        counts = self._counts
        least = self.shape.splat(_LEAST)
        nothing = f"<{', '.join([f'{self.index} -1'] * lanes)}>"
        state = [(vector, least)] * self.registers + [
            (counts, nothing)
        ] * self.registers
        state.append(("i64", "0"))
        whole = w.let(f"udiv i64 %bins, {lanes}")

        def full(i: Whole, *kept: Value) -> list[Value]:
            return self._vector(w, w.load(w.at("%p", w.multiple(i, lanes))), kept)

        kept = w.loop(whole, full, state)
        rest = w.let(f"urem i64 %bins, {lanes}")
        some = w.let(f"icmp ne i64 {rest}, 0")
        once = w.let(f"zext i1 {some} to i64")

        def last(_: Whole, *kept: Value) -> list[Value]:
            there = w.at("%p", w.multiple(whole, lanes))
            return self._vector(w, self._part(w, there, rest, least), kept)

        with_kinds = [(kind, now) for (kind, _), now in zip(state, kept, strict=True)]
        kept = w.loop(once, last, with_kinds)
        self._write(w, kept)
        return w.text

    def _part(self, w: Writer, where: Value, count: Value, least: Value) -> Value:
        """The first `count` elements there, the least of all numbers behind them."""
        lanes, vector = self.shape.lanes, self.shape.vector
        own = self._short(w, count)
        numbers = f"<{', '.join(f'{self.index} {i}' for i in range(lanes))}>"
        every = w.spread(own, self.index)
        inside = w.let(f"icmp ult {self._counts} {numbers}, {every}")
        size = SIZE[self.shape.real]
        name = f"@llvm.masked.load.v{lanes}f{8 * size}.p0"
        return w.let(
            f"call {vector} {name}(ptr {where}, i32 {size}, "
            f"{self.shape.mask} {inside}, {vector} {least})"
        )

    def _vector(self, w: Writer, values: Value, kept: tuple[Value, ...]) -> list[Value]:
        """The state after a vector; its last part is the number of the next bin."""
        lanes, vector, mask = self.shape.lanes, self.shape.vector, self.shape.mask
        kinds = [vector] * self.registers + [self._counts] * self.registers
        *held, bin_ = kept
        threshold = self._last(w, held[self.registers - 1])
        above = w.let(f"fcmp ogt {vector} {values}, {threshold}")
        bits = w.let(f"bitcast {mask} {above} to i{lanes}")

        def put(_: Whole, left: Value, *held: Value) -> list[Value]:
            lane = w.let(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {left}, i1 true)")
            at = w.let(f"zext i{lanes} {lane} to i64")
            own = str(w.sum(bin_, at))
            fewer = w.let(f"sub i{lanes} {left}, 1")
            less = w.let(f"and i{lanes} {left}, {fewer}")
            # From memory: to take a lane whose number is not known goes there, too.
            return [less, *self._placed(w, w.one("%p", own), own, held)]

        many = w.let(f"call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} {bits})")
        turns = w.let(f"zext i{lanes} {many} to i64")
        first = [(f"i{lanes}", bits), *zip(kinds, held, strict=True)]
        _, *held = w.loop(turns, put, first)
        return [*held, str(w.sum(bin_, lanes))]

    def _short(self, w: Writer, count: Value) -> Value:
        """A count as an index."""
        return count if self.index == "i64" else w.let(f"trunc i64 {count} to i32")

    def _last(self, w: Writer, values: Value) -> Value:
        """The last lane in every lane."""
        lanes = self.shape.lanes
        return w.shuffled(values, values, [lanes - 1] * lanes)

    def _placed(
        self, w: Writer, power: Value, bin_: Value, held: tuple[Value, ...]
    ) -> list[Value]:
        """The registers with a bin in its place; what falls out at the end is gone."""
        lanes, vector, mask = self.shape.lanes, self.shape.vector, self.shape.mask
        counts, new = self._counts, w.spread(power)
        its = w.spread(self._short(w, bin_), self.index)
        powers, bins = held[: self.registers], held[self.registers :]
        new_powers: list[Value] = []
        new_bins: list[Value] = []
        above, before = self.shape.splat(math.inf), its
        for values, numbers in zip(powers, bins, strict=True):
            # Where this register's own lane stays, and where the one before it does:
            # compared after the shift, as shifting masks takes longer.
            moved = _shifted(w, vector, lanes, above, values)
            along = _shifted(w, counts, lanes, before, numbers)
            stays = w.let(f"fcmp oge {vector} {values}, {new}")
            here = w.let(f"fcmp oge {vector} {moved}, {new}")
            for made, kind, own, one, shifted in (
                (new_powers, vector, values, new, moved),
                (new_bins, counts, numbers, its, along),
            ):
                put = w.let(f"select {mask} {here}, {kind} {one}, {kind} {shifted}")
                made.append(w.let(f"select {mask} {stays}, {kind} {own}, {kind} {put}"))
            above, before = values, numbers
        return [*new_powers, *new_bins]

    def _write(self, w: Writer, kept: list[Value]) -> None:
        lanes, real, size = self.shape.lanes, self.shape.real, SIZE[self.shape.real]
        counts = self._counts
        spare = w.at("%spare", self.registers * lanes)
        for at in range(self.registers):
            w.store(kept[at], w.at("%spare", at * lanes))
            where = w.at(spare, at * lanes)
            value = kept[self.registers + at]
            w.say(f"store {counts} {value}, ptr {where}, align {size}")

        def copy(i: Whole) -> None:
            power = w.one("%spare", i)
            w.say(f"store {real} {power}, ptr {w.at('%powers', i)}, align {size}")
            bin_ = w.one(spare, i, self.index)
            if self.index != "i64":
                bin_ = w.let(f"sext {self.index} {bin_} to i64")
            w.say(f"store i64 {bin_}, ptr {w.at('%places', i, 'i64')}, align 8")

        w.loop("%k", copy)
        end = w.one(spare, w.let("sub i64 %k, 1"), self.index)
        missing = w.let(f"icmp slt {self.index} {end}, 0")
        w.say(f"ret i64 {w.let(f'zext i1 {missing} to i64')}")


def _shifted(w: Writer, kind: str, lanes: int, before: Value, values: Value) -> Value:
    """One lane further up; the last of what comes before is the first."""
    picks = ", ".join(f"i32 {i}" for i in (lanes - 1, *range(lanes, 2 * lanes - 1)))
    return w.let(
        f"shufflevector {kind} {before}, {kind} {values}, <{lanes} x i32> <{picks}>"
    )
