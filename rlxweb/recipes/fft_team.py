"""Transforms whose values stay in registers: a team of lanes a row, rows side by side.

Every lane of a team holds as many values of its row as the largest pass needs and meets
the others in workgroup memory between two passes only. No loops: drivers bound those.
Short rows share a workgroup, so that none of its lanes idles. Where both parts of a row
are too much for the memory they take turns in it (`split`).

The cells of workgroup memory are swizzled: cell c lies at c ^ ((c >> a) & 31) ^
((c >> b) & 31), which is one to one within every 32 cells, needs no further memory and
is linear over exclusive or, so that it costs one instruction an access. The shifts were
searched for by counting bank conflicts (tests/lanes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlxweb.limits import Limits
from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.fft_plan import F64
from rlxweb.recipes.fft_rows import FOURTH, place, powers

MOST_VALUES = 24
"""Complex values a lane holds: beyond, registers spill or too few lanes fit a core."""
MOST_RADIX = 16
LANES = 64
"""Lanes a workgroup of short rows has at least: two warps, or one wave of AMD's."""
MOST_PASSES = 4
BANK_BITS = 31
BLOCK = BANK_BITS + 1

SHIFTS: dict[tuple[int, ...], tuple[int, ...]] = {
    (4, 4): (2,),
    (8, 4): (1, 3),
    (12, 4): (2,),
    (8, 8): (3,),
    (12, 8): (3,),
    (16, 8): (1, 4),
    (12, 4, 4): (1, 4),
    (16, 16): (4,),
    (8, 8, 6): (3,),
    (8, 8, 8): (2, 4),
    (10, 4, 4, 4): (2, 6),
    (12, 8, 8): (2, 4),
    (16, 8, 8): (3, 5),
    (16, 16, 8): (3, 5),
    (8, 8, 8, 6): (4, 5),
    (16, 16, 16): (4, 7),
    (12, 8, 8, 8): (3, 9),
    (16, 8, 8, 8): (3, 8),
    (8, 8, 4): (1, 3),
    (8, 8, 4, 4): (3, 5),
    (8, 8, 8, 4): (2, 5),
    (8, 8, 8, 8): (3, 9),
}
"""Radices → shifts, found by `python -m tests.lanes.swizzles`; others gain little."""

First = Callable[[Emitter, str, int], Pair]
"""(emitter, base, offset) → names of the input at base + offset"""
Results = list[tuple[str, Pair]]
"""(bin, value) of everything a lane holds in the end."""


@lru_cache(maxsize=256)
def team_radices(n: int, most: int = MOST_RADIX) -> tuple[int, ...]:
    """The fewest passes, two or more, of which a lane can do whole butterflies, or ().

    A lane holds the least common multiple of the radices. Among as few passes, the
    least of that, then the evenest.
    """
    for count in range(2, MOST_PASSES + 1):
        found = [
            (math.lcm(*radices), radices[0], radices)
            for radices in _factors(n, count, most)
            if math.lcm(*radices) <= MOST_VALUES
        ]
        if found:
            return min(found)[2]
    return ()


def _factors(n: int, count: int, most: int) -> list[tuple[int, ...]]:
    """All ways to write n as `count` descending factors from 2 to `most`."""
    if count == 1:
        return [(n,)] if 2 <= n <= most else []
    return [
        (r, *rest)
        for r in range(min(n, most), 1, -1)
        if n % r == 0
        for rest in _factors(n // r, count - 1, r)
    ]


@dataclass(frozen=True, slots=True)
class Team:
    """How rows of length n are shared out.

    rows    of a workgroup
    split   real and imaginary parts go through the memory in turn
    shifts  of the swizzle; () is none
    """

    n: int
    radices: tuple[int, ...]
    rows: int = 1
    split: bool = False
    shifts: tuple[int, ...] = ()

    @property
    def each(self) -> int:
        """Values a lane holds."""
        return math.lcm(*self.radices)

    @property
    def lanes(self) -> int:
        """Lanes a row."""
        return self.n // self.each

    @property
    def busy(self) -> int:
        """Lanes of a workgroup that have a row."""
        return self.lanes * self.rows

    @property
    def workgroup(self) -> int:
        return max(1, 1 << (self.busy - 1).bit_length())

    @property
    def binary(self) -> bool:
        """A power of two: base + offset is base ^ offset."""
        return self.n & (self.n - 1) == 0

    @property
    def teams(self) -> int:
        """Of a workgroup, the one of the lanes left over included."""
        return -(-self.workgroup // self.lanes)

    @property
    def cells(self) -> int:
        """Of an array. Lanes without a row have a row's cells all the same."""
        cells = self.n * self.teams
        return -(-cells // BLOCK) * BLOCK if self.shifts else cells

    @property
    def shared_bytes(self) -> int:
        return 4 * self.cells * (1 if self.split else 2)

    def room(self) -> str:
        """The declarations of workgroup memory."""
        names = ("re",) if self.split else ("re", "im")
        return "".join(
            f"var<workgroup> {name}: array<f32, {self.cells}>;\n" for name in names
        )

    def head(self) -> str:
        """Names of a lane: `t` of its team, the team's `cells`, its `row`, if `on`."""
        idle = self.busy < self.workgroup
        seated = f"team < {self.rows}u && " if idle else ""
        lines = [
            f"let t = lid % {self.lanes}u;",
            f"let team = lid / {self.lanes}u;",
            f"let cells = team * {self.n}u;",
            f"let row = min(item * {self.rows}u + team, u.rows - 1u);",
            f"let on = {seated}item * {self.rows}u + team < u.rows;",
        ]
        if self.tilted:
            most = min(self.n, BLOCK) - 1
            lines.append(f"let tilt = (team * {self.lanes}u) & {most}u;")
        return "".join(f"  {line}\n" for line in lines)

    def level(self, index: str) -> str:
        """The cell of an index that neighbouring lanes have neighbouring values of.

        Small teams of one warp would meet in the same banks: each has its own tilt.
        """
        return f"cells + ({index} ^ tilt)" if self.tilted else f"cells + {index}"

    @property
    def tilted(self) -> bool:
        return self.binary and self.rows > 1

    def spots(self, e: Emitter, base: str, step: int, count: int) -> tuple[str, ...]:
        """Indices of the cells base + q * step, q below count, as they lie."""
        offsets = [q * step for q in range(count)]
        if not self.shifts:
            return tuple(f"{base} + {k}u" for k in offsets)
        if not self.binary:
            return tuple(
                self._swizzle(e, e.let(f"{base} + {k}u") if k else base)
                for k in offsets
            )
        # No bit is in both: the swizzle of the sum is that of the parts.
        spot = self._swizzle(e, base)
        return tuple(f"{spot} ^ {self.swizzled(k)}u" for k in offsets)

    def swizzled(self, cell: int) -> int:
        """Where a cell lies."""
        out = cell
        for shift in self.shifts:
            out ^= (cell >> shift) & BANK_BITS
        return out

    def _swizzle(self, e: Emitter, cell: str) -> str:
        terms = [f"(({cell} >> {shift}u) & {BANK_BITS}u)" for shift in self.shifts]
        return e.let(" ^ ".join([cell, *terms]))


def team_of(
    n: int, limits: Limits, extra: int = 0, most_radix: int = MOST_RADIX
) -> Team | None:
    """The team for rows of n under a device's limits, or None.

    extra   bytes of workgroup memory that a team needs besides its values
    """
    radices = team_radices(n, most_radix)
    if not radices:
        return None
    one = Team(n, radices, 1, False, SHIFTS.get(radices, ()))
    most = limits.workgroup_lanes
    room = limits.max_compute_workgroup_storage_size
    rows = max(1, LANES // one.lanes)
    for split, count in ((False, rows), (False, 1), (True, 1)):
        team = replace(one, rows=count, split=split)
        if team.workgroup <= most and team.shared_bytes + extra * team.teams <= room:
            return team
    return None


# --- roots of unity ---------------------------------------------------------------


def _read(radix: int) -> list[int]:
    """The powers that are read; `powers` makes the others of them."""
    return [k for k in range(1, radix) if k < FOURTH or k % FOURTH == 0]


def turn_table(team: Team) -> F64:
    """The roots of every pass but the last, two powers a vec4, value after value.

    So neighbouring lanes read neighbouring vec4s, whatever the power.
    """
    parts, before = [], 1
    for radix in team.radices[:-1]:
        stride = team.n // before // radix
        turns = np.arange(stride) * (-2.0 * math.pi * before / team.n)
        ks = _read(radix)
        for low, high in itertools.zip_longest(ks[::2], ks[1::2], fillvalue=0):
            angles = [f(k * turns) for k in (low, high) for f in (np.cos, np.sin)]
            parts.append(np.stack(angles, axis=1).ravel())
        before *= radix
    return np.concatenate(parts)


def _turns(e: Emitter, team: Team, at: int, m: str) -> list[Pair]:
    """w^0 … w^(radix - 1) of pass `at` for the value m."""
    first, before = 0, 1
    for radix in team.radices[:at]:
        stride = team.n // before // radix
        first += stride * -(-len(_read(radix)) // 2)
        before *= radix
    radix = team.radices[at]
    stride, ks, vectors = team.n // before // radix, _read(radix), {}
    for g in range(-(-len(ks) // 2)):
        start = first + g * stride
        vectors[g] = e.let(f"turn({m} + {start}u)" if start else f"turn({m})")

    def root(k: int) -> Pair:
        g, high = divmod(ks.index(k), 2)
        return (
            f"{vectors[g]}.{'z' if high else 'x'}",
            f"{vectors[g]}.{'w' if high else 'y'}",
        )

    return powers(e, radix, root)


# --- passes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Butterfly:
    """One of a lane's: its number, its turn's value, the indices of its cells."""

    j: str
    m: str
    cells: tuple[str, ...]


def transform(team: Team, e: Emitter, first: First, again: str = "") -> Results:
    """Lines of the transform of the team's row; `turn(i)` reads the table's vec4 i.

    It ends without a barrier. `again` names a zero that a compiler cannot know for one,
    lest it keeps all roots and addresses in registers over a loop.
    """
    radix = team.radices[0]
    xs = [
        first(e, "t", b * team.lanes + q * (team.n // radix))
        for b in range(team.each // radix)
        for q in range(radix)
    ]
    here = _butterflies(team, e, 0, again)
    for at, radix in enumerate(team.radices[:-1]):
        ys: list[Pair] = []
        for b, one in enumerate(here):
            m = f"{one.m} + {again}" if again else one.m
            turns = _turns(e, team, at, m)
            found = e.dft(xs[b * radix : (b + 1) * radix])
            ys += [e.times(y, *turns[k]) if k else y for k, y in enumerate(found)]
        after = _butterflies(team, e, at + 1, again)
        xs = _exchange(team, e, _all_cells(here), ys, _all_cells(after))
        here = after
    radix, out = team.radices[-1], []
    for b, one in enumerate(here):
        found = e.dft(xs[b * radix : (b + 1) * radix])
        step = team.n // radix
        out += [(f"{one.j} + {k * step}u", y) for k, y in enumerate(found)]
    return out


def _butterflies(team: Team, e: Emitter, at: int, again: str) -> list[Butterfly]:
    """Those that a lane does in pass `at`."""
    radix, out = team.radices[at], []
    length = team.n // math.prod(team.radices[:at])
    stride = length // radix
    cells = f"cells + {again}" if again else "cells"
    for b in range(team.each // radix):
        j = e.let(f"t + {b * team.lanes}u") if b else "t"
        m = j if at == 0 else "0u" if stride == 1 else e.let(f"{j} % {stride}u")
        if at == 0:
            base = j
        elif stride == 1:
            base = place(e, j, team.radices[:-1], team.n)
        else:
            base = f"({j} / {stride}u) * {length}u + {m}"
        spots = team.spots(e, e.let(f"{cells} + {base}"), stride, radix)
        out.append(Butterfly(j, m, spots))
    return out


def _all_cells(butterflies: Sequence[Butterfly]) -> list[str]:
    return [cell for one in butterflies for cell in one.cells]


def _exchange(
    team: Team, e: Emitter, kept: list[str], values: list[Pair], wanted: list[str]
) -> list[Pair]:
    """The values of the wanted cells after everybody has stored theirs."""
    barrier = "workgroupBarrier();"

    def store(array: str, part: int) -> None:
        for cell, value in zip(kept, values, strict=True):
            e.do(f"{array}[{cell}] = {value[part]};")

    def load(array: str) -> list[str]:
        return [e.let(f"{array}[{cell}]") for cell in wanted]

    store("re", 0)
    if not team.split:
        store("im", 1)
        e.do(barrier)
        return list(zip(load("re"), load("im"), strict=True))
    e.do(barrier)
    re = load("re")
    e.do(barrier)  # the imaginary parts go where others still read
    store("re", 1)
    e.do(barrier)
    return list(zip(re, load("re"), strict=True))
