"""Fused Welch kernels: frames, window, transform, mean power and peaks in one dispatch.

Two real segments go through one complex transform: with Z = DFT(a + ib) the powers of
a and b at bin k add up to (|Z[k]|² + |Z[n-k]|²) / 2, so nobody tells them apart.
lane: a lane walks whole rows (CPU drivers). group: a workgroup shares a row (GPUs).
A recipe is None when the case does not suit; the composed op then serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import MAX_TURNS, Limits
from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes import welch_select as select
from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.fft_calls import Work
from rlxweb.recipes.fft_rows import ONE_LANE, WORKGROUP, Last, Load, Loop, passes, place
from rlxweb.recipes.fft_variants import (
    LANE_RADIX,
    MAX_LANE,
    group_radices,
    group_size,
    lane_turns,
    shared_load,
    shared_store,
    unrolls,
)
from rlxweb.recipes.lane_cells import MAIN, LaneCells, add_call, shared_bytes
from rlxweb.recipes.lane_rows import LanePasses
from rlxweb.recipes.lane_rows import turns_of as short_turns
from rlxweb.recipes.peaks_variants import add_peaks, ranking_on_software
from rlxweb.recipes.welch_plan import WelchPlan, welch_plan

RUN = 64
"""Values a lane adds up before it adds them to the rest."""

MOST_SHORT = 1 << 17
"""Samples of the largest batch that the short text is for."""

MOST_SEGMENTS = 64
"""The composed op cuts longer rows into shorter ones, which then run side by side."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The text that reads segments a and b of a row, two at a time."""

    plan: WelchPlan

    @property
    def pairs(self) -> int:
        return -(-self.plan.segments // 2)

    @property
    def lone(self) -> bool:
        """The last segment has no partner."""
        return self.plan.segments % 2 == 1

    @property
    def names(self) -> tuple[str, ...]:
        return ("a",) if self.plan.segments == 1 else ("a", "b")

    def starts(self, width: int = 1) -> str:
        """Where the segments begin; a missing partner is read as a, times 0.

        width   samples that are read at once, a divisor of rows and hops
        """
        share = f" / {width}u" if width > 1 else ""
        lines = [f"    let from_a = (row * u.width + pair * u.hop * 2u){share};"]
        if self.names == ("a", "b"):
            there = "pair * 2u + 1u < u.segments" if self.lone else "true"
            hop = f"select(0u, u.hop{share}, {there})"
            lines.append(f"    let from_b = from_a + {hop};")
            lines.append(f"    let share_b = select(0.0, 1.0, {there});")
        return "\n".join(lines) + "\n"

    def sums(self, loop: Loop) -> str:
        """Sum and tilt of each segment about its first value, in `part` (vec4)."""
        if self.plan.detrend == "none":
            return ""
        n, middle = self.plan.n, (self.plan.n - 1) / 2
        heads = "".join(f"    let first_{s} = ld0(from_{s});\n" for s in self.names)
        body = [f"      let t = f32(i) - {number(middle)};"]
        for s in self.names:
            body.append(f"      let v{s} = ld0(from_{s} + i) - first_{s};")
        adds = [f"v{s}, v{s} * t" for s in self.names]
        if len(adds) == 1:
            adds.append("0.0, 0.0")
        body.append(f"      part += vec4<f32>({', '.join(adds)});")
        inner = "\n".join(body)
        if loop is WORKGROUP:
            walk = loop.over(n, inner, "i")
        else:
            # One lane adds up in runs: a long single sum loses too many bits.
            walk = (
                f"    for (var at = 0u; at < {n}u; at += {RUN}u) {{\n"
                f"      let whole = part;\n      part = vec4<f32>();\n"
                f"      for (var i = at; i < min(at + {RUN}u, {n}u); i++) {{\n"
                f"{inner}\n      }}\n      part += whole;\n    }}"
            )
        return f"{heads}    var part = vec4<f32>();\n{walk}\n"

    def trends(self) -> str:
        """Mean and slope of each segment from `part`."""
        if self.plan.detrend == "none":
            return ""
        n, lines = self.plan.n, []
        energy = n * (n * n - 1) / 12
        for at, s in enumerate(self.names):
            mean, tilt = "xz"[at], "yw"[at]
            lines.append(f"    let mean_{s} = part.{mean} * {number(1 / n)};")
            if self.plan.detrend == "linear":
                inverse = number(1 / energy if energy else 0.0)
                lines.append(f"    let slope_{s} = part.{tilt} * {inverse};")
        return "\n".join(lines) + "\n"

    def load(self, stride: int) -> Load:
        """The windowed pair at a cell; `stride` is the step between a pass's cells."""

        def value(e: Emitter, s: str, cell: str, weight: str) -> str:
            x = e.let(f"ld0(from_{s} + {cell})")
            if self.plan.detrend != "none":
                x = e.let(f"(({x} - first_{s}) - mean_{s})")
            if self.plan.detrend == "linear":
                middle = number((self.plan.n - 1) / 2)
                x = e.let(f"fma(slope_{s}, {middle} - f32({cell}), {x})")
            return e.let(f"{x} * {weight}")

        def load(e: Emitter, base: str, offset: int) -> Pair:
            if offset >= self.plan.n:
                return "0.0", "0.0"
            cell = e.let(f"{base} + {offset}u")
            if offset + stride > self.plan.n:
                inside = e.let(f"{cell} < {self.plan.n}u")
                cell = e.let(f"min({cell}, {self.plan.n - 1}u)")
                weight = e.let(f"select(0.0, ld1({cell}), {inside})")
            else:
                weight = e.let(f"ld1({cell})")
            re = value(e, "a", cell, weight)
            if self.names == ("a",):
                return re, "0.0"
            share = e.let(f"{weight} * share_b") if self.lone else weight
            return re, value(e, "b", cell, share)

        return load

    def each(self, body: str) -> str:
        """`body` for every pair of segments."""
        if self.pairs == 1:
            return f"  {{\n    let pair = 0u;\n{body}\n  }}\n"
        head = "  for (var pair = 0u; pair * 2u < u.segments; pair++) {\n"
        return f"{head}{body}\n  }}\n"


def _transform(
    segments: Segments,
    radices: tuple[int, ...],
    loop: Loop,
    memory: tuple[Load, Callable[[Emitter, str, Pair], None]],
    last: Last,
) -> str:
    n = segments.plan.nfft
    first = segments.load(n // radices[0])
    load, store = memory
    return passes(n, radices, loop, lambda i: f"ld2({i})", first, load, store, last)


def weight_of(case: WelchPlan, i: str = "i") -> str:
    """The factor of bin i, a name."""
    if not case.doubling or case.bins < 2:
        return "u.at_ends"
    last = f" || {i} == {case.bins - 1}u" if case.nfft % 2 == 0 else ""
    return f"select(u.inside, u.at_ends, {i} == 0u{last})"


def uniforms_of(case: WelchPlan, k: int) -> dict[str, int | float]:
    """Where segments lie, and the factors, which also undo the sum over two mirrors.

    They are uniforms, so that a new length, hop, sampling rate or number of peaks does
    not mean a new shader.
    """
    weights = case.weights()
    return {
        "width": case.width,
        "hop": case.hop,
        "segments": case.segments,
        "at_ends": 0.5 * float(weights[0]),
        "inside": 0.5 * float(weights.max()),
        **({"k": k} if k else {}),
    }


def _turns(case: WelchPlan, short: bool = False) -> int:
    """Loop turns of one lane for one row, by the usual text or the short one."""
    radices = plan.radices(case.nfft, LANE_RADIX)
    trend = 0 if case.detrend == "none" else case.n + case.n // RUN + 1
    walk = short_turns(case.nfft, radices) if short else lane_turns(case.nfft, radices)
    scan = select.listed_turns(case.bins) if short else case.bins
    return Segments(case).pairs * (walk + trend + 1) + scan


def _lane_text(
    case: WelchPlan, cells: LaneCells, finish: select.LaneFinish, short: bool
) -> str:
    segments, n = Segments(case), case.nfft
    radices = plan.radices(n, LANE_RADIX)
    total = 0 if segments.pairs == 1 else 2

    def last(e: Emitter, to: str, cell: str, y: Pair) -> None:
        power = e.power(y)
        if segments.pairs > 1:
            before = e.let(cells.get(2, cell))
            power = e.let(f"{power} + select(0.0, {before}, pair > 0u)")
        e.do(cells.put(total, cell, power))

    room, memory = "", (cells.load, cells.store)
    if short:
        first = segments.load(n)
        all_passes = LanePasses(n, radices, lambda i: f"ld2({i})", first, *memory, last)
        room, body = all_passes.room, all_passes.text()
    else:
        body = _transform(segments, radices, ONE_LANE, memory, last)
    walk = segments.starts() + segments.sums(ONE_LANE) + segments.trends() + body
    e = Emitter("s")
    front = place(e, "i", radices, n)
    back = place(e, e.let(f"({n}u - i) % {n}u"), radices, n)
    both = f"({cells.get(total, front)} + {cells.get(total, back)})"
    scan = finish.scan(
        case.bins, f"{e.text()}\n    let p = {both} * {weight_of(case)};"
    )
    return room + finish.room + cells.module(segments.each(walk) + scan)


def _group_text(case: WelchPlan, finish: select.GroupFinish) -> str:
    segments, n = Segments(case), case.nfft
    radices = group_radices(n)
    memory = shared_load, shared_store

    def last(e: Emitter, to: str, cell: str, y: Pair) -> None:
        e.do(f"re[{cell}] = {e.power(y)};")

    body = _transform(segments, radices, WORKGROUP, memory, last)
    e = Emitter("s")
    front = place(e, "i", radices, n)
    back = place(e, e.let(f"({n}u - i) % {n}u"), radices, n)
    e.do(f"let both = re[{front}] + re[{back}];")
    e.do("total[i] = both + select(0.0, total[i], pair > 0u);")
    barrier = WORKGROUP.barrier
    walk = (
        segments.starts()
        + segments.sums(WORKGROUP)
        + (select.SHARED_SUM if case.detrend != "none" else "")
        + segments.trends()
        + body
        + barrier
        + WORKGROUP.over(case.bins, e.text(), "i")
        + f"\n{barrier}"
    )
    room = "".join(
        f"var<workgroup> {name}: array<f32, {size}>;\n"
        for name, size in (("re", n), ("im", n), ("total", case.bins))
    )
    if case.detrend != "none":
        room += f"var<workgroup> parts: array<vec4<f32>, {select.MOST_LANES}>;\n"
    text = finish.scan(case.bins, f"    let p = total[i] * {weight_of(case)};")
    head = f"{room}{finish.room}{MAIN}  let row = item;\n"
    return f"{head}{segments.each(walk)}{text}}}\n"


def case_of(types: Types, attrs: Mapping[str, Any]) -> WelchPlan | None:
    """The plan of an op that a fused kernel serves, or None."""
    if any(t.dtype is not DType.F32 for t in types):
        return None
    case = welch_plan(types[0].shape, types[1].shape[0], attrs)
    fits = case.segments <= MOST_SEGMENTS and case.rows * case.width < 1 << 31
    return case if fits else None


def _operands(work: Work, case: WelchPlan) -> tuple[Access, ...]:
    return (
        Access(Ref("in", 0), (case.width, 0), span=case.width),
        Access(Ref("in", 1), (0, 0), span=case.n),
        work.roots(case.nfft),
    )


def _add_lane(
    work: Work, case: WelchPlan, out: Ref, k: int, limits: Limits, short: bool
) -> None:
    cells = cells_of(case, limits)
    accesses = list(_operands(work, case))
    if cells.in_scratch:
        accesses.append(work.spare(cells.numel))
    width = 2 * k if k else case.bins
    accesses.append(Access(out, (width, 0), "write", span=width))
    store = f"st{len(accesses) - 1}"
    peaks = select.Listed if short else select.Insertion
    finish = peaks(store, k) if k else select.Plain(store, case.bins)
    add_call(
        work,
        f"welch_{'short_' * short}lane_{case.nfft}",
        tuple(accesses),
        uniforms_of(case, k),
        cells,
        _turns(case, short),
        _lane_text(case, cells, finish, short),
        uses=("nan",),
    )


def _add_group(work: Work, case: WelchPlan, out: Ref, k: int) -> int:
    """Adds the call; the workgroup memory it takes."""
    width = 2 * k if k else case.bins
    finish = select.Ranking("st3") if k else select.Plain("st3", case.bins, WORKGROUP)
    shared = 8 * case.nfft + 4 * case.bins + finish.shared_bytes
    if case.detrend != "none":
        shared += 16 * select.MOST_LANES
    work.call(
        f"welch_group_{case.nfft}",
        1,
        (*_operands(work, case), Access(out, (width, 0), "write", span=width)),
        uniforms_of(case, k),
        grid=(("rows", 1),),
        per="workgroup",
        workgroup=group_size(case.nfft // max(group_radices(case.nfft))),
        source=_group_text(case, finish),
        uses=("nan",),
        shared_bytes=shared,
    )
    return shared


def lane_recipe(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """welch_power and welch_row_peaks with a lane a row: for software adapters."""
    return _lanes(case_of(types, attrs), attrs.get("k", 0), limits)


def short_lane_recipe(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """The same by a text that compiles in less than half the time and runs a third
    longer: for batches so small that it takes dozens of runs to make up for it.
    """
    case = case_of(types, attrs)
    if case is None or case.rows * case.width > MOST_SHORT:
        return None
    return _lanes(case, attrs.get("k", 0), limits, short=True)


def _lanes(
    case: WelchPlan | None, k: int, limits: Limits, short: bool = False
) -> Recipe | None:
    if case is None or case.nfft > MAX_LANE or _turns(case, short) > MAX_TURNS:
        return None
    if not unrolls(case.nfft, LANE_RADIX):
        return None

    def add(work: Work, out: Ref, k: int) -> None:
        _add_lane(work, case, out, k, limits, short)

    return recipe_by(add, case, k, select.MOST_INSERTED)


def recipe_by(
    add: Callable[[Work, Ref, int], None], case: WelchPlan, k: int, most: int
) -> Recipe:
    """One kernel, which finds at most `most` peaks; of more it leaves the power to
    another one.

    add   puts the kernel there: the work, where it writes, peaks to find or 0
    """
    work = Work(case.rows)
    if k <= most:
        add(work, Ref("out"), k)
        return work.recipe()
    power = work.spare(case.rows * case.bins).ref
    add(work, power, 0)
    ranking = ranking_on_software(case.rows, case.bins, k)
    add_peaks(work, ranking, power, case.bins, k)
    return work.recipe()


def cells_of(case: WelchPlan, limits: Limits, width: int = 1) -> LaneCells:
    """Cells of the transform, and of the sums of powers where pairs are several."""
    arrays = 2 if case.segments <= 2 else 3
    room = limits.max_compute_workgroup_storage_size
    in_scratch = shared_bytes(case.nfft, arrays) > room
    return LaneCells(case.nfft, in_scratch, arrays, access=3, width=width)


def group_recipe(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """welch_power and welch_row_peaks with a workgroup a row: for GPUs."""
    case, k = case_of(types, attrs), attrs.get("k", 0)
    if case is None or max(group_radices(case.nfft)) > LANE_RADIX:
        return None
    work = Work(case.rows)
    shared = _add_group(work, case, Ref("out"), k)
    if shared > limits.max_compute_workgroup_storage_size:
        return None
    return work.recipe()
