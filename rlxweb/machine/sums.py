"""Sums of |Z|² over the pairs of a row's segments, by the way that suits a length.

Two segments go through one complex transform, one as its real and one as its imaginary
part: |Z(k)|² + |Z(n-k)|² is twice the sum of their powers, so nothing else of a pair
has to be kept. `RowByRow` takes one pair after the other, directly or as a convolution
with a chirp (Bluestein); `SideBySide` a pair in each lane, where no row can be cut into
lanes of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd
from typing import Final

from rlxweb.machine.text import Shape, Value, Whole, Writer, transposed
from rlxweb.machine.transforms import (
    LaneTransform,
    Memory,
    RowTransform,
    Tables,
    is_direct,
    row_transform,
)
from rlxweb.recipes.butterfly import Pair
from rlxweb.recipes.fft_plan import chirp, chirp_filter, good_length

JOB: Final = (
    "window",
    "weights",
    "ramp",
    "reals",
    "counts",
    "nperseg",
    "hop",
    "k",
    "together",
    "size",
)
"""What a job holds, 8 bytes each: five addresses, then whole numbers.

weights   (bins) turn sums of |Z|², both ends of them added, into power
together  rows that are summed at once
size      bytes of a sample
"""
ADDRESSES: Final = JOB.index("nperseg")
NAME: Final = "@sums"
ARGUMENTS: Final = (
    "ptr {}%job, ptr {}%x, i64 %stride, i64 %rows, i64 %segments, ptr %offsets, "
    "ptr {}%sums, ptr {}%scratch"
)


def job_field(w: Writer, name: str) -> Value:
    """A field of %job."""
    at = JOB.index(name)
    return w.one("%job", at, "ptr" if at < ADDRESSES else "i64")


class Sums(ABC):
    """@sums: rows x, so many bytes apart → their sums, `pitch` elements apart.

    n         length of the transform; segments are padded with zeros up to it
    integers  are the samples such, with an offset for each row?
    """

    def __init__(self, n: int, shape: Shape, tables: Tables, integers: bool) -> None:
        self.n, self.shape, self.tables = n, shape, tables
        self.integers = integers

    @property
    @abstractmethod
    def pitch(self) -> int:
        """Elements from one row's sums to the next one's, n + 1 at least."""

    @property
    @abstractmethod
    def scratch(self) -> int:
        """Elements of scratch."""

    @abstractmethod
    def together(self, segments: int) -> int:
        """Rows that are best summed at once."""

    @abstractmethod
    def _body(self, w: Writer) -> None:
        """From the rows to their sums, which are 0 at the start."""

    def room(self, rows: int) -> int:
        """Elements for the sums of so many rows, and of what fills the last lanes."""
        return (rows + 1) * self.pitch

    def text(self) -> str:
        arguments = ARGUMENTS.format(*["noalias "] * 4)
        w = Writer(f"void {NAME}({arguments})", self.shape)
        count = w.multiple(w.sum("%rows", 1), self.pitch)
        w.sweep(count, lambda i: _zero(w, w.at("%sums", i)))
        self._body(w)
        w.say("ret void")
        return w.text

    def _memory(self, w: Writer, first: int) -> Memory:
        scratch = w.at("%scratch", first)
        return Memory(scratch, job_field(w, "reals"), job_field(w, "counts"))

    def _segment(self, w: Writer, row: Whole, segment: Whole, out: Value) -> None:
        """One segment of a row, ready for its transform."""
        size = job_field(w, "size")
        start = w.multiple(w.multiple(segment, job_field(w, "hop")), size)
        x = w.at("%x", w.sum(w.multiple(row, "%stride"), start), "i8")
        offset = w.one("%offsets", row) if self.integers else "0.0"
        window, ramp, n = (job_field(w, one) for one in ("window", "ramp", "nperseg"))
        real = self.shape.real
        w.say(
            f"call void @segment(ptr {x}, ptr {out}, ptr {window}, ptr {ramp}, "
            f"i64 {n}, {real} {offset}, i64 {size})"
        )

    def _pair(
        self, w: Writer, row: Whole, pair: Whole, out: tuple[Value, Value]
    ) -> None:
        """Two segments of a row; zeros stand for a second that there is not."""
        first = w.multiple(pair, 2)
        self._segment(w, row, first, out[0])
        second = w.sum(first, 1)
        there = w.let(f"icmp ult i64 {second}, %segments")
        w.when(there, lambda: self._segment(w, row, second, out[1]))
        missing = w.let(f"xor i1 {there}, true")
        nperseg = job_field(w, "nperseg")
        w.when(missing, lambda: clear(w, out[1], nperseg))


def pairs_of(w: Writer) -> Whole:
    """How many pairs %segments make."""
    return w.let(f"lshr i64 {w.sum('%segments', 1)}, 1")


def clear(w: Writer, base: Value, count: Whole) -> None:
    """Zeros from `base` on."""
    w.sweep(count, lambda i: _zero(w, w.at(base, i)))


def _zero(w: Writer, where: Value) -> None:
    w.store(w.shape.splat(0.0), where)


class RowByRow(Sums):
    """A pair at a time, its transform's own lanes side by side."""

    def __init__(self, n: int, shape: Shape, tables: Tables, integers: bool) -> None:
        super().__init__(n, shape, tables, integers)
        lanes = shape.lanes
        self.direct = RowTransform.fits(n, lanes)
        self.length = n
        if not self.direct:
            least = -(-(2 * n - 1) // lanes)
            self.length = lanes * good_length(max(lanes, least))
        self.transform = row_transform(self.length, lanes, tables)
        if not self.direct:
            turns, filter_ = chirp(n), chirp_filter(n, self.length)
            self._turns = [tables.put(part) for part in (turns.real, turns.imag)]
            self._filter = [tables.put(part) for part in (filter_.real, filter_.imag)]

    @property
    def pitch(self) -> int:
        lanes = self.shape.lanes
        return -(-(self.length + 1) // lanes) * lanes

    @property
    def scratch(self) -> int:
        return 2 * self.length + self.transform.scratch

    def together(self, segments: int) -> int:
        return 1

    def _body(self, w: Writer) -> None:
        row = "%scratch", w.at("%scratch", self.length)
        memory = self._memory(w, 2 * self.length)
        clear(w, "%scratch", 2 * self.length)
        pairs = pairs_of(w)

        def each_row(at: Whole) -> None:
            sums = w.at("%sums", w.multiple(at, self.pitch))

            def add(index: Whole, y: Pair) -> None:
                there = w.at(sums, index)
                w.store(w.square(y, w.load(there)), there)

            def each_pair(pair: Whole) -> None:
                self._pair(w, at, pair, row)
                if not self.direct:
                    self._convolve(w, row, memory)
                self.transform.write(w, row, memory, add)

            w.loop(pairs, each_pair)

        w.loop("%rows", each_row)

    def _convolve(self, w: Writer, row: tuple[Value, Value], memory: Memory) -> None:
        """The pair times the chirp, transformed, times the filter; parts exchanged.

        A second transform of that is the inverse one, its parts exchanged again; what
        is left of Bluestein's formula is a factor of magnitude 1.
        """

        def turned(i: Whole) -> None:
            here = w.at(row[0], i), w.at(row[1], i)
            turn = [w.load(w.at(memory.reals, w.sum(i, at))) for at in self._turns]
            y = w.product((w.load(here[0]), w.load(here[1])), (turn[0], turn[1]))
            w.store(y[0], here[0])
            w.store(y[1], here[1])

        nperseg = job_field(w, "nperseg")
        w.sweep(nperseg, turned)
        for part in row:
            clear(w, w.at(part, nperseg), w.difference(self.length, nperseg))

        def filtered(index: Whole, y: Pair) -> None:
            by = [w.load(w.at(memory.reals, w.sum(index, at))) for at in self._filter]
            made = w.product(y, (by[0], by[1]))
            w.store(made[1], w.at(row[0], index))
            w.store(made[0], w.at(row[1], index))

        self.transform.write(w, row, memory, filtered)


class SideBySide(Sums):
    """A pair in each lane: of several rows, where a row has too few."""

    def __init__(self, n: int, shape: Shape, tables: Tables, integers: bool) -> None:
        super().__init__(n, shape, tables, integers)
        self.transform = LaneTransform(n, shape.lanes, tables)
        self.width = -(-n // shape.lanes) * shape.lanes

    @property
    def pitch(self) -> int:
        lanes = self.shape.lanes
        return -(-(self.n + 1) // lanes) * lanes

    @property
    def scratch(self) -> int:
        """Pairs as they come, the transform's own, and the squares of its results."""
        lanes = self.shape.lanes
        return 3 * lanes * self.width + self.transform.scratch

    def together(self, segments: int) -> int:
        lanes, pairs = self.shape.lanes, (segments + 1) // 2
        return lanes // gcd(lanes, pairs)

    def _body(self, w: Writer) -> None:
        lanes, each = self.shape.lanes, 2 * self.width
        squares = w.at("%scratch", lanes * each)
        memory = self._memory(w, (lanes + (lanes + 1) // 2) * each)
        clear(w, "%scratch", 3 * lanes * self.width)
        pairs = pairs_of(w)
        all_ = w.multiple("%rows", pairs)
        groups = w.let(f"udiv i64 {w.sum(all_, lanes - 1)}, {lanes}")

        def group(at: Whole) -> None:
            first = w.multiple(at, lanes)
            here = w.least(lanes, w.difference(all_, first))

            def fill(lane: Whole) -> None:
                number = w.sum(first, lane)
                row = w.let(f"udiv i64 {number}, {pairs}")
                pair = w.let(f"urem i64 {number}, {pairs}")
                out = w.at("%scratch", w.multiple(lane, each))
                self._pair(w, row, pair, (out, w.at(out, self.width)))

            w.loop(here, fill)
            self._spread(w, memory, each)
            self.transform.write(
                w,
                memory,
                lambda index, y: w.store(
                    w.square(y, self.shape.splat(0.0)), w.at(squares, index)
                ),
            )
            owners = [
                self._owner(w, w.sum(first, i), all_, pairs) for i in range(lanes)
            ]
            self._gather(w, squares, owners)

        w.loop(groups, group)

    def _spread(self, w: Writer, memory: Memory, each: int) -> None:
        """The pairs, one in each lane."""
        lanes = self.shape.lanes

        def block(at: Whole) -> None:
            # What does not come out even is moved twice.
            first = w.least(w.multiple(at, lanes), max(0, self.n - lanes))
            for part in (0, 1):
                base = w.at("%scratch", w.sum(first, part * self.width))
                rows = [w.load(w.at(base, lane * each)) for lane in range(lanes)]
                for i, one in enumerate(transposed(w, rows)[: self.n]):
                    spots = self.transform.spot(w, memory, w.sum(first, i))
                    w.store(one, spots[part])

        w.loop(-(-self.n // lanes), block)

    def _owner(self, w: Writer, number: Whole, all_: Whole, pairs: Whole) -> Value:
        """The sums that a pair's squares belong to; those of nobody lie behind."""
        inside = w.let(f"icmp ult i64 {number}, {all_}")
        row = w.let(f"udiv i64 {number}, {pairs}")
        own = w.let(f"select i1 {inside}, i64 {row}, i64 %rows")
        return w.at("%sums", w.multiple(own, self.pitch))

    def _gather(self, w: Writer, squares: Value, owners: list[Value]) -> None:
        lanes = self.shape.lanes

        def block(at: Whole) -> None:
            first = w.multiple(at, lanes)
            base = w.at(squares, w.multiple(first, lanes))
            rows = [w.load(w.at(base, i * lanes)) for i in range(lanes)]
            for one, owner in zip(transposed(w, rows), owners, strict=True):
                there = w.at(owner, first)
                w.store(w.plus(w.load(there), one), there)

        w.loop(self.width // lanes, block)


def sums_for(n: int, widths: tuple[Shape, ...], tables: Tables, integers: bool) -> Sums:
    """The way for a length: the widest vectors, of `widths`, that a row can be cut to.

    Half of the widest are still faster than pairs side by side; odd lengths go so, and
    lengths with a large prime factor by a chirp.
    """
    for shape in widths:
        if RowTransform.fits(n, shape.lanes):
            return RowByRow(n, shape, tables, integers)
    way = SideBySide if is_direct(n) else RowByRow
    return way(n, widths[0], tables, integers)
