"""Rows transformed four values at a time, for drivers that run on a CPU.

Such a driver walks through every access to memory lane by lane; one to four neighbours
costs it little more than one to a single number. So values come and go as vec4, and so
do those that lie between the passes. The last pass transforms four neighbouring blocks
at once: what it makes of them are four neighbours again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

from rlxweb.limits import Limits
from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.chirp_fours import chirp_rows
from rlxweb.recipes.fft_calls import Detour, Rows, Smooth, Work, any_length
from rlxweb.recipes.fft_rows import place
from rlxweb.recipes.fft_variants import by_rule, lane_rows, lane_turns
from rlxweb.recipes.fours import Fours, WidePasses, turns_table
from rlxweb.recipes.lane_cells import LANES, LaneCells, add_call, shared_bytes

RADIX = 8
"""Of four columns at once: twice as many run no faster and take a driver twice as long
to compile.
"""
SHORT_RADIX, SHORT = 16, 1 << 8
"""For lengths up to so many, of which it saves a pass."""
LEAST, MOST = 32, 1 << 12
_PARTS = "xyzw"


@lru_cache(maxsize=256)
def radices_of(n: int) -> tuple[int, ...] | None:
    """The passes, the last of whole fours that lie in whole fours; None: it has none.

    As few as there may be, of the most even sizes.
    """
    found, most = [], SHORT_RADIX if n <= SHORT else RADIX
    for last in range(4, most + 1, 4):
        if n % (4 * last) == 0:
            front = plan.radices(n // last, most)
            if max(front) <= most:
                found.append((*front, last))
    return min(found, key=lambda one: (len(one), max(one)), default=None)


@dataclass(frozen=True, slots=True)
class FourRows:
    """How one side of a transform is read or written: planes, or parts side by side.

    access    of the binding, of vec4
    side      "in" or "out", as in the uniforms and the name of where a row begins
    """

    rows: Rows
    access: int
    side: str

    @classmethod
    def fits(cls, rows: Rows) -> bool:
        """Whether four neighbours of each part lie in whole fours."""
        if rows.pitch % 4:
            return False
        starts = [one for one in (rows.re, rows.im) if one is not None]
        if rows.step == 1:
            return all(one % 4 == 0 for one in starts)
        return rows.step == 2 and sorted(starts) == [0, 1]

    def begin(self) -> str:
        """Where row `row` begins, in fours."""
        name = self.side
        return f"  let row_{name} = row * (u.{name}_pitch / 4u);\n"

    def _at(self, part: int | None, four: str) -> str:
        return f"row_{self.side} + {(part or 0) // 4}u + ({four})"

    def load(self, e: Emitter, base: str, offset: int, stride: int) -> Pair:
        """Values 4 · (base + offset) and the three behind it."""
        four, rows = f"{base} + {offset}u", self.rows
        if rows.step == 2:
            both = f"row_{self.side} + ({four}) * 2u"
            a = e.let(f"ld{self.access}({both})")
            b = e.let(f"ld{self.access}({both} + 1u)")
            even = e.let(f"vec4<f32>({a}.x, {a}.z, {b}.x, {b}.z)")
            odd = e.let(f"vec4<f32>({a}.y, {a}.w, {b}.y, {b}.w)")
            return (even, odd) if rows.re == 0 else (odd, even)
        re, im = (
            "vec4<f32>()"
            if part is None
            else e.let(f"ld{self.access}({self._at(part, four)})")
            for part in (rows.re, rows.im)
        )
        return re, im

    def store(self, e: Emitter, four: str, y: Pair, room: str) -> None:
        """The counterpart of `load`; `room` is when there is room for it, or ""."""
        rows, lines = self.rows, []
        if rows.step == 2:
            a, b = y if rows.re == 0 else (y[1], y[0])
            both = f"row_{self.side} + ({four}) * 2u"
            for at, (i, j) in enumerate((("x", "y"), ("z", "w"))):
                value = f"vec4<f32>({a}.{i}, {b}.{i}, {a}.{j}, {b}.{j}) * u.scale"
                lines.append(f"st{self.access}({both} + {at}u, {value});")
        else:
            for part, value in zip((rows.re, rows.im), y, strict=True):
                if part is not None:
                    at_ = self._at(part, four)
                    lines.append(f"st{self.access}({at_}, {value} * u.scale);")
        text = " ".join(lines)
        e.do(f"if ({room}) {{ {text} }}" if room else text)


def _last(
    n: int, radices: tuple[int, ...], cells: LaneCells, target: FourRows, keep: int
) -> str:
    """The last pass: blocks 4j … 4j + 3, each of neighbouring cells."""
    radix = radices[-1]
    blocks = n // radix
    e = Fours("z")
    bases = [place(e, f"(4u * j + {b}u)", radices[:-1], n // 4) for b in range(4)]
    planes: list[list[str]] = []
    for array in (0, 1):
        plane = []
        for g in range(radix // 4):
            four = [e.let(cells.get(array, f"{base} + {g}u")) for base in bases]
            plane += [
                e.let(f"vec4<f32>({', '.join(f'{one}.{part}' for one in four)})")
                for part in _PARTS
            ]
        planes.append(plane)
    for k, y in enumerate(e.dft(list(zip(*planes, strict=True)))):
        to = e.let(f"j + {k * blocks // 4}u")
        within = (k + 1) * blocks <= keep
        room = "" if within else f"{to} < {-(-keep // 4)}u"
        if k * blocks < keep:
            target.store(e, to, y, room)
    return f"  for (var j = 0u; j < {blocks // 4}u; j++) {{\n{e.text()}\n  }}"


def four_rows(shared_limit: int) -> Smooth:
    """A lane a row, four values at a time; one by one where they do not lie so."""
    one_by_one = lane_rows(shared_limit)

    def smooth(
        work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
    ) -> None:
        radices = radices_of(n) if LEAST <= n <= MOST else None
        # Behind what is kept there is room for a whole four, but for a caller's.
        whole = keep % 4 == 0 or target.ref.kind != "out"
        fits = FourRows.fits(source) and FourRows.fits(target) and whole
        if radices is None or not fits:
            one_by_one(work, n, source, target, keep, scale)
            return
        in_scratch = shared_bytes(n, 2) > shared_limit
        cells = LaneCells(n, in_scratch, 2, access=2, width=4)
        table = turns_table(n, radices)
        turns = work.table(f"turns {n}", lambda: table, len(table))
        accesses = [replace(source.access(), wide=True), replace(turns, wide=True)]
        if in_scratch:
            accesses.append(replace(work.spare(cells.numel), wide=True))
        accesses.append(replace(target.access("write"), wide=True))
        given = FourRows(source, 0, "in")
        made = FourRows(target, len(accesses) - 1, "out")
        wide = WidePasses(n, radices, cells, given.load, "ld1").text()
        last = _last(n, radices, cells, made, keep)
        add_call(
            work,
            f"fft_fours_{n}",
            tuple(accesses),
            {**source.values("in"), **target.values("out"), "scale": float(scale)},
            cells,
            lane_turns(n, radices) // 4,
            cells.module(f"{given.begin()}{made.begin()}{wide}\n{last}"),
        )

    return smooth


def chirped(shared_limit: int) -> Detour:
    """Bluestein's convolution in one kernel, where the ring has passes of fours."""

    def detour(
        work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
    ) -> bool:
        size = plan.ring_length(2 * n - 1)
        radices = radices_of(size) if LEAST <= size <= MOST else None
        if radices is None:
            return False
        chirp_rows(shared_limit, work, n, radices, source, target, keep, scale)
        return True

    return detour


@partial(by_rule, walks=True)
def four_recipe(rows: int, lengths: tuple[int, ...], limits: Limits) -> Smooth | None:
    """A lane a row, in fours: for software adapters."""
    if rows < LANES or not all(
        LEAST <= n <= MOST and radices_of(n) is not None for n in lengths
    ):
        return None
    room = limits.max_compute_workgroup_storage_size
    return any_length(four_rows(room), chirped(room))
