"""Fused Welch kernels for drivers that run on a CPU, four cells at a time.

Such a driver runs a workgroup's lanes side by side and walks through every access to
memory lane by lane: that, and not arithmetic, is what a kernel of a lane a row takes
its time for. An access to four neighbours at once costs little more than one to a
single number, so here all of them are: samples and window come as vec4, the first
passes transform four neighbouring columns at once, and the last one, whose butterflies
lie in neighbouring cells, takes them apart. The arithmetic is that of
`welch_variants.py`; only powers of two have it, where hops and rows are
multiples of four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Access, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import MAX_TURNS, Limits
from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.fft_calls import Work
from rlxweb.recipes.fft_rows import place
from rlxweb.recipes.fours import WidePasses, turns_table
from rlxweb.recipes.lane_cells import LaneCells, add_call
from rlxweb.recipes.welch_fours_finish import FourPeaks, FourPlain, most_peaks
from rlxweb.recipes.welch_plan import WelchPlan
from rlxweb.recipes.welch_variants import (
    Segments,
    case_of,
    cells_of,
    recipe_by,
    uniforms_of,
)

WIDE_RADIX = 16
"""Of four columns at once: their values do not all stay in registers."""
LAST_RADIX = 32
LEAST, MOST = 128, 1 << 10
"""Lengths that gain: shorter ones are over too soon, and longer ones take a driver
more than a second to compile.
"""
_PARTS = "xyzw"


def radices_of(n: int) -> tuple[int, ...]:
    """The passes of a power of two from `LEAST` on."""
    return *plan.radices(n // LAST_RADIX, WIDE_RADIX), LAST_RADIX


@dataclass(frozen=True, slots=True)
class FourSegments(Segments):
    """`Segments` whose samples and window come four at a time."""

    def trend_text(self) -> str:
        """Mean and slope of each segment about its first value."""
        if self.plan.detrend == "none":
            return ""
        n, out = self.plan.n, []
        middle, energy = (n - 1) / 2, n * (n * n - 1) / 12
        inverse = number(1 / energy if energy else 0.0)
        for s in self.names:
            # In runs: a long single sum loses too many bits.
            out.append(
                f"""    let first_{s} = ld0(from_{s}).x;
    var sum_{s} = vec4<f32>();
    var tilt_{s} = vec4<f32>();
    for (var at = 0u; at < {n // 4}u; at += 16u) {{
      var run = vec4<f32>();
      var lean = vec4<f32>();
      for (var i = at; i < min(at + 16u, {n // 4}u); i++) {{
        let v = ld0(from_{s} + i) - first_{s};
        let t = vec4<f32>(vec4<u32>(i * 4u) + vec4<u32>(0u, 1u, 2u, 3u));
        run += v;
        lean += v * (t - {number(middle)});
      }}
      sum_{s} += run;
      tilt_{s} += lean;
    }}
    let mean_{s} = (sum_{s}.x + sum_{s}.y + sum_{s}.z + sum_{s}.w) * {number(1 / n)};
"""
            )
            if self.plan.detrend == "linear":
                out.append(
                    f"    let slope_{s} = (tilt_{s}.x + tilt_{s}.y + tilt_{s}.z"
                    f" + tilt_{s}.w) * {inverse};\n"
                )
        return "".join(out)

    def four(self, e: Emitter, cell: str, offset: int, stride: int) -> Pair:
        """The windowed pair at four · (cell + offset), in fours."""
        n = self.plan.n // 4
        if offset >= n:
            return "vec4<f32>()", "vec4<f32>()"
        at = e.let(f"{cell} + {offset}u")
        if offset + stride > n:
            inside = e.let(f"{at} < {n}u")
            at = e.let(f"min({at}, {n - 1}u)")
            weight = e.let(f"select(vec4<f32>(), ld1({at}), {inside})")
        else:
            weight = e.let(f"ld1({at})")
        re = self._part(e, "a", at, weight)
        if self.names == ("a",):
            return re, "vec4<f32>()"
        share = e.let(f"{weight} * share_b") if self.lone else weight
        return re, self._part(e, "b", at, share)

    def _part(self, e: Emitter, s: str, at: str, weight: str) -> str:
        x = e.let(f"ld0(from_{s} + {at})")
        if self.plan.detrend != "none":
            x = e.let(f"(({x} - first_{s}) - mean_{s})")
        if self.plan.detrend == "linear":
            middle = number((self.plan.n - 1) / 2)
            t = f"vec4<f32>(vec4<u32>({at} * 4u) + vec4<u32>(0u, 1u, 2u, 3u))"
            x = e.let(f"{x} + slope_{s} * ({middle} - {t})")
        return e.let(f"{x} * {weight}")


@dataclass(frozen=True, slots=True)
class FourPasses:
    """The transform of one pair of segments, up to the powers of its bins."""

    segments: FourSegments
    radices: tuple[int, ...]
    cells: LaneCells

    def text(self) -> str:
        """All passes, one after the other."""
        n, first = self.segments.plan.nfft, self.segments.four
        wide = WidePasses(n, self.radices, self.cells, first, "ld2").text()
        return f"{wide}\n{self._last()}"

    def _last(self) -> str:
        n, radix = self.segments.plan.nfft, self.radices[-1]
        e = Emitter("z")
        base = quarter(e, "j", self.radices, n)
        xs: list[Pair] = []
        for g in range(radix // 4):
            four = f"{base} + {g}u"
            re, im = e.let(self.cells.get(0, four)), e.let(self.cells.get(1, four))
            xs += [(f"{re}.{part}", f"{im}.{part}") for part in _PARTS]
        found = [e.power(y) for y in e.dft(xs)]
        several = self.segments.pairs > 1
        for g in range(radix // 4):
            four = f"{base} + {g}u"
            value = e.let(f"vec4<f32>({', '.join(found[4 * g : 4 * g + 4])})")
            if several:
                before = e.let(self.cells.get(2, four))
                value = e.let(
                    f"{value} + select(vec4<f32>(), {before}, vec4<bool>(pair > 0u))"
                )
            e.do(self.cells.put(2 if several else 0, four, value))
        return f"  for (var j = 0u; j < {n // radix}u; j++) {{\n{e.text()}\n  }}"


def quarter(e: Emitter, index: str, radices: Sequence[int], n: int) -> str:
    """Where the block of the last pass for `index` begins, in fours."""
    return place(e, index, radices[:-1], n // 4)


Finish = FourPlain | FourPeaks


def _scan(
    case: WelchPlan, radices: tuple[int, ...], cells: LaneCells, finish: Finish
) -> str:
    """Every bin of the half spectrum once, four at a time, with its mirror image.

    Bins of block b of the last pass are b, b + blocks, b + 2 · blocks …; their mirror
    images are those of block `blocks` - b in reverse.
    """
    n, last = case.nfft, radices[-1]
    blocks, groups = n // last, last // 4
    total = 0 if cells.arrays == 2 else 2
    e = Emitter("s")
    here = quarter(e, "b", radices, n)
    mirror = e.let(f"({blocks}u - b) % {blocks}u")
    there = quarter(e, mirror, radices, n)
    e.do(f"let front = {cells.get(total, f'{here} + g')};")
    back = cells.get(total, f"{there} + {groups - 1}u - g")
    e.do(f"let back = {back};")
    # In block 0 the mirror image of a place is one further on.
    further = cells.get(total, f"{there} + ({groups}u - g) % {groups}u")
    e.do(f"let next = {further}.x;")
    e.do("let turned = back.wzyx;")
    e.do("let shifted = vec4<f32>(next, back.w, back.z, back.y);")
    e.do("let four = front + select(turned, shifted, vec4<bool>(b == 0u));")
    e.do(
        f"let bin = vec4<u32>(b + g * {4 * blocks}u)"
        f" + vec4<u32>(0u, {blocks}u, {2 * blocks}u, {3 * blocks}u);"
    )
    # Blocks that are their own mirror image have each bin twice.
    own = f"(b == 0u || b == {blocks // 2}u)"
    e.do(f"let counts = select(vec4<bool>(true), bin <= vec4<u32>({n // 2}u), {own});")
    body = finish.each(e)
    return finish.around(
        f"  for (var b = 0u; b < {blocks // 2 + 1}u; b++) {{\n"
        f"  for (var g = 0u; g < {groups}u; g++) {{\n{body}\n  }}\n  }}\n"
    )


def four_recipe(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """welch_power and welch_row_peaks with a lane a row, four cells at a time."""
    case = case_of(types, attrs)
    if case is None or not LEAST <= case.nfft <= MOST or case.nfft & (case.nfft - 1):
        return None
    if any(size % 4 for size in (case.width, case.hop, case.n)):
        return None
    radices = radices_of(case.nfft)
    if _turns(case, radices) > MAX_TURNS:
        return None

    def add(work: Work, out: Ref, k: int) -> None:
        _add(work, case, radices, out, k, limits)

    return recipe_by(add, case, attrs.get("k", 0), most_peaks(case))


def _turns(case: WelchPlan, radices: Sequence[int]) -> int:
    """Loop turns of one lane for one row."""
    n, last = case.nfft, radices[-1]
    walk = sum(n // radix // 4 for radix in radices[:-1]) + n // last
    trend = 0 if case.detrend == "none" else 2 * (case.n // 4 + case.n // 64 + 2)
    blocks = n // last // 2 + 1
    # Fours of bins, their sums written out or looked at again, then every bin.
    scan = blocks * (1 + last // 4 * 6) + case.bins + 2 * most_peaks(case)
    return Segments(case).pairs * (walk + trend + 1) + scan


def _add(
    work: Work,
    case: WelchPlan,
    radices: tuple[int, ...],
    out: Ref,
    k: int,
    limits: Limits,
) -> None:
    segments, n = FourSegments(case), case.nfft
    cells = cells_of(case, limits, width=4)
    table = turns_table(n, radices)
    accesses = [
        Access(Ref("in", 0), (case.width, 0), span=case.width, wide=True),
        Access(Ref("in", 1), (0, 0), span=case.n, wide=True),
        replace(work.table(f"turns {n}", lambda: table, len(table)), wide=True),
    ]
    if cells.in_scratch:
        accesses.append(replace(work.spare(cells.numel), wide=True))
    width = 2 * k if k else case.bins
    accesses.append(Access(out, (width, 0), "write", span=width))
    store = f"st{len(accesses) - 1}"
    finish: Finish = FourPlain(case, store)
    if k:
        last = radices[-1]
        found = 0 if cells.arrays == 2 else 2
        finish = FourPeaks(case, store, k, n // last, last, cells.get, cells.put, found)
    passes = FourPasses(segments, radices, cells).text()
    walk = segments.starts(4) + segments.trend_text() + passes
    body = segments.each(walk) + _scan(case, radices, cells, finish)
    add_call(
        work,
        f"welch_fours_{n}",
        tuple(accesses),
        uniforms_of(case, k),
        cells,
        _turns(case, radices),
        cells.module(body),
    )
