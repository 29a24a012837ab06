"""Fused Welch kernels of teams: samples, powers and peaks stay in registers.

As `welch_variants` does it, two segments go through one complex transform. Here a lane
holds its samples while mean and slope are found, so they are read once, and the power
of its bins over all segments, so that a pair of segments costs the exchanges of its
transform and no more. The mirrored bins meet once, in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Access, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_calls import Work
from rlxweb.recipes.fft_team import MOST_RADIX, Team, team_of, team_radices, transform
from rlxweb.recipes.fft_team_rows import turn_reader, turns_of
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.peaks_variants import add_peaks, ranking
from rlxweb.recipes.welch_plan import WelchPlan
from rlxweb.recipes.welch_team_peaks import Finish, Powers, Ranking
from rlxweb.recipes.welch_variants import Segments, case_of, uniforms_of, weight_of

STAGE = 16
"""Sums that one lane adds up; more go in two stages."""
WARP, RADICES = 32, (MOST_RADIX, 8)
AGAIN, PAIR_BITS = "again", 20
"""Compilers take window and roots out of the loop, into 60 registers and more."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The text that reads a pair of segments and makes it ready for the transform."""

    case: WelchPlan
    team: Team

    @property
    def segments(self) -> Segments:
        return Segments(self.case)

    @property
    def steps(self) -> list[int]:
        """What is added to t for each value of a lane, in the order of `transform`."""
        radix, n = self.team.radices[0], self.team.n
        return [
            b * self.team.lanes + q * (n // radix)
            for b in range(self.team.each // radix)
            for q in range(radix)
        ]

    def read(self, e: Emitter) -> dict[tuple[str, int], str]:
        """Names of the samples, less the segment's first where a trend is taken out."""
        found, trend = {}, self.case.detrend != "none"
        firsts = {s: e.let(f"ld0(from_{s})") for s in self.names} if trend else {}
        for step in self.steps:
            if step >= self.case.n:
                continue
            # Beyond the segment lies the next, or the row's last sample: unused.
            cell = self._inside(f"t + {step}u", step)
            for s in self.names:
                x = e.let(f"ld0(from_{s} + {cell})")
                found[s, step] = e.let(f"{x} - {firsts[s]}") if trend else x
        return found

    @property
    def again(self) -> str:
        """The name of a zero that every turn of the loop over pairs makes anew."""
        return AGAIN if self.segments.pairs > 1 else ""

    @property
    def names(self) -> tuple[str, ...]:
        return self.segments.names

    def _inside(self, cell: str, step: int) -> str:
        short = step + self._reach > self.case.n
        return f"min({cell}, {self.case.n - 1}u)" if short else f"({cell})"

    @property
    def _reach(self) -> int:
        """How far beyond its step a lane reads: t is below this."""
        return self.team.lanes

    def _padded(self, step: int) -> bool:
        return step + self._reach > self.case.n

    def trends(self, e: Emitter, xs: Mapping[tuple[str, int], str]) -> str:
        """Sum and tilt of the team's samples in `part`, then mean and slope."""
        linear = self.case.detrend == "linear"
        sums: list[str] = []
        for s in self.names:
            total, tilt = "0.0", "0.0"
            for step in (k for k in self.steps if (s, k) in xs):
                x = xs[s, step]
                if self._padded(step):
                    x = e.let(f"select(0.0, {x}, t + {step}u < {self.case.n}u)")
                total = e.let(f"{total} + {x}")
                if linear:
                    tilt = e.let(f"fma({x}, {self._ramp(step)}, {tilt})")
            sums += [total, tilt]
        taken = [k for k in range(len(sums)) if linear or k % 2 == 0]
        text = e.text("    ") + "\n" + self._shared_sums([sums[k] for k in taken])
        parts = ["0.0"] * 4
        for at, k in enumerate(taken):
            parts[k] = f"sum{at}"
        return (
            f"{text}    let part = vec4<f32>({', '.join(parts)});\n"
            f"{self.segments.trends()}"
        )

    def _ramp(self, step: int) -> str:
        middle = (self.case.n - 1) / 2
        return f"f32(t + {step}u) - {number(middle)}"

    def _spot(self, at: int, lane: str) -> str:
        """Sum `at` of a lane: the first two beside each other, where there are two."""
        if self.team.split:
            return f"re[{self.team.level(f'({lane} + {at * self.team.lanes}u)')}]"
        array = ("re", "im")[at % 2]
        more = at // 2 * self.team.lanes
        return f"{array}[{self.team.level(f'({lane} + {more}u)' if more else lane)}]"

    def _shared_sums(self, sums: list[str]) -> str:
        """`sum0`, `sum1`, … of all lanes, in one stage or two."""
        lanes = self.team.lanes
        kept = max(d for d in range(1, STAGE + 1) if lanes % d == 0)
        count = range(len(sums))
        text = "".join(f"    {self._spot(k, 't')} = {sums[k]};\n" for k in count)
        text += "    workgroupBarrier();\n"

        def added(upto: str, first: str, step: str) -> str:
            lines = "".join(f"    sum{k} += {self._spot(k, 'l')};\n" for k in count)
            head = f"for (var l = {first}; l < {upto}; l += {step})"
            return f"    {head} {{\n{lines}    }}\n"

        text += "".join(f"    var sum{k} = 0.0;\n" for k in count)
        if lanes > kept:
            text += f"    if (t < {kept}u) {{\n{added(f'{lanes}u', 't', f'{kept}u')}"
            text += "".join(f"    {self._spot(k, 't')} = sum{k};\n" for k in count)
            text += "    }\n    workgroupBarrier();\n"
            text += "".join(f"    sum{k} = 0.0;\n" for k in count)
        text += added(f"{kept}u", "0u", "1u")
        return text + "    workgroupBarrier();\n"  # the transform stores here

    def windowed(
        self, e: Emitter, xs: Mapping[tuple[str, int], str]
    ) -> Callable[[Emitter, str, int], Pair]:
        """The transform's `First`: samples without their trend, times the window."""

        def value(s: str, step: int, weight: str) -> str:
            x = xs[s, step]
            if self.case.detrend != "none":
                x = e.let(f"{x} - mean_{s}")
            if self.case.detrend == "linear":
                x = e.let(f"fma(-slope_{s}, {self._ramp(step)}, {x})")
            return e.let(f"{x} * {weight}")

        def first(_: Emitter, base: str, step: int) -> Pair:
            if step >= self.case.n:
                return "0.0", "0.0"
            cell = self._inside(f"t + {step}u", step)
            weight = e.let(f"ld1({cell} + {AGAIN})" if self.again else f"ld1({cell})")
            if self._padded(step):
                inside = f"t + {step}u < {self.case.n}u"
                weight = e.let(f"select(0.0, {weight}, {inside})")
            re = value("a", step, weight)
            if self.names == ("a",):
                return re, "0.0"
            if self.segments.lone:
                weight = e.let(f"{weight} * share_b")
            return re, value("b", step, weight)

        return first


def _pair_text(samples: Samples) -> str:
    """What is done with one pair: its powers are added to `acc0`, `acc1`, …"""
    team, segments = samples.team, samples.segments
    read, sums, e = Emitter("x"), Emitter("y"), Emitter()
    xs = samples.read(read)
    trends = samples.trends(sums, xs) if samples.case.detrend != "none" else ""
    out = transform(team, e, samples.windowed(e, xs), samples.again)
    for k, (_, y) in enumerate(out):
        before = "" if segments.pairs == 1 else f"acc{k} + "
        e.do(f"acc{k} = {before}{e.power(y)};")
    again = "" if segments.pairs == 1 else "\n    workgroupBarrier();"
    zero = f"    let {AGAIN} = pair >> {PAIR_BITS}u;\n" if samples.again else ""
    return f"{zero}{segments.starts()}{read.text()}\n{trends}{e.text()}{again}"


def _bins_text(case: WelchPlan, team: Team) -> str:
    """Bins and their mirror images meet: `p0`, `p1`, … of bins t, t + lanes, …"""
    e = Emitter("w")
    names = [name for name, _ in _bins_of(team)]
    for k, name in enumerate(names):
        e.do(f"re[{team.level(f'({name})')}] = acc{k};")
    e.do("workgroupBarrier();")
    for q in range(-(-case.bins // team.lanes)):
        i = e.let(f"t + {q * team.lanes}u")
        mirror = f"({team.n}u - {i}) % {team.n}u"
        both = e.let(f"re[{team.level(i)}] + re[{team.level(f'({mirror})')}]")
        e.do(f"let p{q} = {both} * {weight_of(case, i)};")
    return e.text("  ") + "\n"


def _bins_of(team: Team) -> list[tuple[str, str]]:
    """The bins a lane ends up with, as `transform` gives them."""
    radix = team.radices[-1]
    return [
        (f"t + {b * team.lanes + k * (team.n // radix)}u", "")
        for b in range(team.each // radix)
        for k in range(radix)
    ]


def _text(case: WelchPlan, team: Team, finish: Finish) -> str:
    samples = Samples(case, team)
    segments = samples.segments
    acc = "".join(f"  var acc{k} = 0.0;\n" for k in range(team.each))
    barrier = "" if segments.pairs > 1 else "  workgroupBarrier();\n"
    return (
        f"{turn_reader(2)}{team.room()}{finish.room(team)}{MAIN_TEXT}{team.head()}{acc}"
        f"{segments.each(_pair_text(samples))}{barrier}{_bins_text(case, team)}"
        f"{finish.text(team, case.bins)}}}\n"
    )


def _turns(case: WelchPlan, team: Team) -> int:
    """Loop turns of a lane at most: all bins reach the floor."""
    ranks = case.bins * -(-case.bins // team.lanes)
    return ranks + Segments(case).pairs * (2 * STAGE + team.lanes) + 2 * team.lanes


def _add(work: Work, case: WelchPlan, out: Ref, k: int, team: Team) -> None:
    width = 2 * k if k else case.bins
    finish: Finish = Ranking("st3") if k else Powers("st3")
    accesses = (
        Access(Ref("in", 0), (case.width, 0), span=case.width),
        Access(Ref("in", 1), (0, 0), span=case.n),
        turns_of(work, team),
        Access(out, (width, 0), "write", span=width),
    )
    work.call(
        f"welch_team_{case.nfft}",
        1,
        accesses,
        uniforms_of(case, k),
        grid=(("rows", team.rows),),
        per="workgroup",
        turns=float(_turns(case, team)),
        workgroup=team.workgroup,
        source=_text(case, team, finish),
        shared_bytes=team.shared_bytes + finish.extra_bytes * team.teams,
        in_bounds=True,
    )


def _most_radix(nfft: int) -> int:
    """The largest of a pass that leaves a team the lanes of a warp, or the smaller.

    What is done besides the transform (trends, bins, peaks) is shared by the lanes. On
    an H100 128 samples take 0.7 of the time by it for 2 segments, 1.25 for 8; 256 take
    0.95, and a third with checks at run time.
    """
    for most in RADICES:
        radices = team_radices(nfft, most)
        if radices and nfft // math.lcm(*radices) >= WARP:
            return most
    return RADICES[-1]


def team_recipe(swizzled: bool = True, most_radix: int = 0) -> RecipeFor:
    """welch_power and welch_row_peaks by a team of lanes a row: for GPUs.

    most_radix   of a pass, only to see what it brings

    Peaks that cannot be ranked in the memory there is are picked from written powers.
    """

    def recipe(
        types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        case, k = case_of(types, attrs), int(attrs.get("k", 0))
        if case is None:
            return None
        work, most = Work(case.rows), most_radix or _most_radix(case.nfft)
        team = team_of(case.nfft, limits, Ranking.extra_bytes if k else 0, most)
        ranked = bool(k and team and Ranking("").fits(team, case.bins, k))
        if not ranked:
            team = team_of(case.nfft, limits, 0, most)
        if team is None:
            return None
        team = team if swizzled else replace(team, shifts=())
        if ranked or not k:
            _add(work, case, Ref("out"), k, team)
            return work.recipe()
        power = work.spare(case.rows * case.bins).ref
        _add(work, case, power, 0, team)
        order = ranking(case.rows, case.bins, k, limits)
        add_peaks(work, order, power, case.bins, k)
        return work.recipe()

    return recipe
