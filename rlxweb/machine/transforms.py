"""Complex Fourier transforms over vectors of lanes: in registers, then through scratch.

`LaneTransform` makes one transform in every lane at once, of any length whose prime
factors are small: passes of butterflies over scratch, in place, whose results come in
an order of digits turned round. `RowTransform` makes one transform of a row that lies
as it came: its columns side by side first (Cooley and Tukey's four steps), each lane
then goes on by itself, and the results lie in their natural order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.machine.text import Value, Whole, Writer, transposed
from rlxweb.recipes.butterfly import Pair
from rlxweb.recipes.fft_plan import prime_factors, radices

MOST_RADIX: Final = 16
"""What 32 registers hold without much spilling."""
LONG: Final = 2048
"""From here on two walks were measured to be faster: at 4096 by a third."""
MOST_PRIME: Final = 43
"""Beyond it the detour by a chirp was measured to be as short, and sooner compiled."""

Finish = Callable[[Whole, Pair], None]
"""What becomes of the results that begin at an index: (index, values)."""
Source = Callable[[Whole], Pair]
"""Where elements come from: their number → all lanes of it."""


@dataclass(slots=True)
class Tables:
    """The numbers that kernels look up, one array of each kind for a whole function."""

    reals: list[NDArray[np.float64]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def put(self, values: NDArray[Any]) -> int:
        """Where the values begin in the array of reals."""
        first = sum(map(len, self.reals))
        self.reals.append(np.asarray(values, np.float64).reshape(-1))
        return first

    def put_counts(self, values: Sequence[int]) -> int:
        first = len(self.counts)
        self.counts += values
        return first

    def arrays(self, real: str) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Both, for kernels that compute with this kind."""
        kind = np.float32 if real == "float" else np.float64
        reals = np.concatenate([*self.reals, np.zeros(1)]).astype(kind)
        return reals, np.array([*self.counts, 0], np.int32)


@dataclass(frozen=True, slots=True)
class Memory:
    """Names of what a transform works with.

    scratch   of its own, `reals` elements
    reals, counts  the arrays of its `Tables`
    """

    scratch: Value
    reals: Value
    counts: Value


def is_direct(n: int) -> bool:
    """Do butterflies alone transform that length?"""
    return max(prime_factors(n), default=1) <= MOST_PRIME


class LaneTransform:
    """The transform of length m of every lane.

    Element i of all lanes lies in scratch at 2 · lanes · i: reals, then the imaginary
    parts.
    """

    def __init__(self, m: int, lanes: int, tables: Tables) -> None:
        self.m, self.lanes = m, lanes
        self.radices = radices(m, MOST_RADIX)
        self._roots, span = [], m
        for radix in self.radices[:-1]:
            self._roots.append(tables.put(_roots(span, radix)))
            span //= radix
        self._order = tables.put_counts(_turned_round(m, self.radices))

    @property
    def scratch(self) -> int:
        """Elements of scratch."""
        return 2 * self.lanes * self.m

    def spot(self, w: Writer, memory: Memory, index: Whole) -> tuple[Value, Value]:
        """Where the reals and the imaginary parts of an element lie."""
        re = w.at(memory.scratch, w.multiple(index, 2 * self.lanes))
        return re, w.at(re, self.lanes)

    def write(
        self, w: Writer, memory: Memory, finish: Finish, source: Source | None = None
    ) -> None:
        """All passes; `finish` gets the k-th results of all lanes at index k · lanes.

        It is called once for each value of the last butterflies, of which a loop runs
        all.

        source   gives the elements, in place of the scratch
        """

        def kept(index: Whole) -> Pair:
            return _pair(w, self.spot(w, memory, index))

        span = self.m
        for at, radix in enumerate(self.radices[:-1]):
            load = source if source and not at else kept
            self._pass(w, memory, span, radix, self._roots[at], load)
            span //= radix
        blocks, radix = self.m // span, span
        load_last = source if source and blocks == 1 else kept

        def last(block: Whole) -> None:
            first = w.multiple(block, radix)
            given = [load_last(w.sum(first, q)) for q in range(radix)]
            k = w.count(memory.counts, w.sum(block, self._order))
            for q, y in enumerate(w.dft(given)):
                index = w.sum(w.multiple(k, self.lanes), q * blocks * self.lanes)
                finish(index, y)

        w.loop(blocks, last)

    def _pass(
        self,
        w: Writer,
        memory: Memory,
        span: int,
        radix: int,
        roots: int,
        load: Source,
    ) -> None:
        stride = span // radix

        def butterfly(block: Whole, j: Whole) -> None:
            first = w.sum(w.multiple(block, span), j)
            places = [w.sum(first, q * stride) for q in range(radix)]
            turns = w.sum(w.multiple(j, 2 * (radix - 1)), roots)
            for q, y in enumerate(w.dft([load(place) for place in places])):
                if q:
                    re = w.one(memory.reals, w.sum(turns, 2 * q - 2))
                    im = w.one(memory.reals, w.sum(turns, 2 * q - 1))
                    y = w.product(y, (w.spread(re), w.spread(im)))
                spots = self.spot(w, memory, places[q])
                for value, where in zip(y, spots, strict=True):
                    w.store(value, where)

        w.loop(
            self.m // span,
            lambda block: w.loop(stride, lambda j: butterfly(block, j)),
        )


class RowTransform:
    """The transform of a row of n = lanes · m, of which `fits` says whether it can.

    The row lies as two arrays, of its reals and of its imaginary parts.
    """

    def __init__(self, n: int, lanes: int, tables: Tables) -> None:
        self.n, self.lanes = n, lanes
        self.rest = LaneTransform(n // lanes, lanes, tables)
        turn = np.outer(np.arange(1, lanes), np.arange(self.rest.m))
        angle = turn * (-2.0 * math.pi / n)
        # For each column's result the reals of all places, then the imaginary parts.
        both = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self._turns = tables.put(both)

    @staticmethod
    def fits(n: int, lanes: int) -> bool:
        return n % lanes == 0 and n >= lanes * lanes and is_direct(n)

    @property
    def scratch(self) -> int:
        return self.rest.scratch

    def write(
        self, w: Writer, row: tuple[Value, Value], memory: Memory, finish: Finish
    ) -> None:
        """`finish` gets the results from an index on, in their natural order."""
        m, lanes = self.rest.m, self.lanes

        def columns(block: Whole) -> None:
            # Where they do not come out even, the last ones are done twice.
            first = w.least(w.multiple(block, lanes), m - lanes)
            given = [
                (w.load(w.at(row[0], at)), w.load(w.at(row[1], at)))
                for at in (w.sum(first, q * m) for q in range(lanes))
            ]
            made = w.dft(given)
            turns = w.at(memory.reals, w.sum(first, self._turns))
            for q in range(1, lanes):
                at = 2 * (q - 1) * m
                turn = w.load(w.at(turns, at)), w.load(w.at(turns, at + m))
                made[q] = w.product(made[q], turn)
            parts = [transposed(w, [y[part] for y in made]) for part in (0, 1)]
            for i in range(lanes):
                spots = self.rest.spot(w, memory, w.sum(first, i))
                w.store(parts[0][i], spots[0])
                w.store(parts[1][i], spots[1])

        w.loop(-(-m // lanes), columns)
        self.rest.write(w, memory, finish)


class BlockTransform(RowTransform):
    """The same of a long row, n = rows · columns, in two walks through memory.

    A block of columns, as wide as a vector, is transformed in the nearest cache, turned
    (by two factors, as a table of all turns would be as large as the row) and twisted;
    then each block of rows.
    """

    def __init__(self, n: int, lanes: int, tables: Tables) -> None:
        self.n, self.lanes = n, lanes
        rows, columns = self.split(n, lanes)
        self.first = LaneTransform(rows, lanes, tables)
        self.rest = LaneTransform(columns, lanes, tables)
        k = np.arange(rows)
        near = np.outer(k, np.arange(lanes)) * (-2.0 * math.pi / n)
        far = np.outer(k, np.arange(columns // lanes)) * (-2.0 * math.pi * lanes / n)
        self._near = tables.put(np.stack([np.cos(near), np.sin(near)], axis=1))
        self._far = tables.put(np.stack([np.cos(far), np.sin(far)], axis=-1))

    @staticmethod
    def split(n: int, lanes: int) -> tuple[int, int]:
        """Rows and columns, multiples of the lanes, as near to each other as can be."""
        parts = [
            (rows, n // rows)
            for rows in range(lanes, math.isqrt(n) + 1, lanes)
            if n % rows == 0 and n // rows % lanes == 0
        ]
        return parts[-1] if parts else (0, 0)

    @classmethod
    def fits(cls, n: int, lanes: int) -> bool:
        return n >= LONG and bool(cls.split(n, lanes)[0]) and is_direct(n)

    @property
    def scratch(self) -> int:
        """All rows, and one block of columns twice."""
        return 2 * self.n + 2 * self.first.scratch

    def write(
        self, w: Writer, row: tuple[Value, Value], memory: Memory, finish: Finish
    ) -> None:
        """`finish` gets the results from an index on, not in order."""
        rows, columns, lanes = self.first.m, self.rest.m, self.lanes
        each = self.rest.scratch  # of a block of rows
        block = replace(memory, scratch=w.at(memory.scratch, 2 * self.n))
        made = w.at(block.scratch, self.first.scratch)

        def down(at: Whole) -> None:
            column = w.multiple(at, lanes)

            def source(i: Whole) -> Pair:
                here = w.sum(w.multiple(i, columns), column)
                return w.load(w.at(row[0], here)), w.load(w.at(row[1], here))

            def keep(index: Whole, y: Pair) -> None:
                there = w.at(made, w.multiple(index, 2))
                w.store(y[0], there)
                w.store(y[1], w.at(there, lanes))

            self.first.write(w, block, keep, source)
            w.loop(rows // lanes, lambda some: twist(some, at, column))

        def twist(some: Whole, at: Whole, column: Whole) -> None:
            results = []
            for i in range(lanes):
                k = w.sum(w.multiple(some, lanes), i)
                there = w.at(made, w.multiple(k, 2 * lanes))
                y = w.load(there), w.load(w.at(there, lanes))
                near = w.at(memory.reals, w.sum(w.multiple(k, 2 * lanes), self._near))
                y = w.product(y, (w.load(near), w.load(w.at(near, lanes))))
                place = w.sum(w.multiple(k, columns // lanes), at)
                far = w.at(memory.reals, w.sum(w.multiple(place, 2), self._far))
                turn = w.spread(w.one(far, 0)), w.spread(w.one(far, 1))
                results.append(w.product(y, turn))
            parts = [transposed(w, [y[part] for y in results]) for part in (0, 1)]
            own = w.at(memory.scratch, w.multiple(some, each))
            for i in range(lanes):
                there = w.at(own, w.multiple(w.sum(column, i), 2 * lanes))
                w.store(parts[0][i], there)
                w.store(parts[1][i], w.at(there, lanes))

        def across(some: Whole) -> None:
            own = replace(memory, scratch=w.at(memory.scratch, w.multiple(some, each)))
            first = w.multiple(some, lanes)

            def put(index: Whole, y: Pair) -> None:
                finish(w.sum(first, w.multiple(index, rows // lanes)), y)

            self.rest.write(w, own, put)

        w.loop(columns // lanes, down)
        w.loop(rows // lanes, across)


def row_transform(n: int, lanes: int, tables: Tables) -> RowTransform:
    """The way for a row that can be cut into lanes."""
    kind = BlockTransform if BlockTransform.fits(n, lanes) else RowTransform
    return kind(n, lanes, tables)


def _pair(w: Writer, spots: tuple[Value, Value]) -> Pair:
    return w.load(spots[0]), w.load(spots[1])


def _roots(span: int, radix: int) -> NDArray[np.float64]:
    """exp(-2πi jq/span) for each place j and each q but 0, as cos, sin."""
    angle = np.outer(np.arange(span // radix), np.arange(1, radix)) / span
    angle *= -2.0 * math.pi
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _turned_round(m: int, factors: Sequence[int]) -> list[int]:
    """For each block of the last pass, the number of its first result."""
    order = np.zeros(1, np.int64)
    weight = 1
    for radix in factors[:-1]:
        order = (order[:, None] + weight * np.arange(radix)).reshape(-1)
        weight *= radix
    return [int(k) for k in order]
