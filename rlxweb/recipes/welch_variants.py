"""Fused Welch kernels: frames, window, transform, mean power and peaks in one dispatch.

Two real segments go through one complex transform: with Z = DFT(a + ib) the powers of
a and b at bin k add up to (|Z[k]|² + |Z[n-k]|²) / 2, so nobody tells them apart.
A workgroup shares a row. A recipe is None when the case does not suit; the composed op
then serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes import welch_select as select
from rlxweb.recipes.butterfly import Emitter, Pair, number
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_calls import Work
from rlxweb.recipes.fft_rows import BARRIER, Last, Load, over_lanes, passes, place
from rlxweb.recipes.fft_variants import (
    MOST_RADIX,
    group_radices,
    group_size,
    shared_load,
    shared_store,
)
from rlxweb.recipes.welch_plan import WelchPlan, welch_plan

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

    def starts(self) -> str:
        """Return the text of where segments begin; a missing partner is a, times 0."""
        lines = ["    let from_a = (row * u.width + pair * u.hop * 2u);"]
        if self.names == ("a", "b"):
            there = "pair * 2u + 1u < u.segments" if self.lone else "true"
            hop = f"select(0u, u.hop, {there})"
            lines.append(f"    let from_b = from_a + {hop};")
            lines.append(f"    let share_b = select(0.0, 1.0, {there});")
        return "\n".join(lines) + "\n"

    def sums(self) -> str:
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
        walk = over_lanes(n, inner, "i")
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
    memory: tuple[Load, Callable[[Emitter, str, Pair], None]],
    last: Last,
) -> str:
    n = segments.plan.nfft
    first = segments.load(n // radices[0])
    load, store = memory
    return passes(n, radices, lambda i: f"ld2({i})", first, load, store, last)


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


def _group_text(case: WelchPlan, finish: select.GroupFinish) -> str:
    segments, n = Segments(case), case.nfft
    radices = group_radices(n)
    memory = shared_load, shared_store

    def last(e: Emitter, to: str, cell: str, y: Pair) -> None:
        e.do(f"re[{cell}] = {e.power(y)};")

    body = _transform(segments, radices, memory, last)
    e = Emitter("s")
    front = place(e, "i", radices, n)
    back = place(e, e.let(f"({n}u - i) % {n}u"), radices, n)
    e.do(f"let both = re[{front}] + re[{back}];")
    e.do("total[i] = both + select(0.0, total[i], pair > 0u);")
    walk = (
        segments.starts()
        + segments.sums()
        + (select.SHARED_SUM if case.detrend != "none" else "")
        + segments.trends()
        + body
        + BARRIER
        + over_lanes(case.bins, e.text(), "i")
        + f"\n{BARRIER}"
    )
    room = "".join(
        f"var<workgroup> {name}: array<f32, {size}>;\n"
        for name, size in (("re", n), ("im", n), ("total", case.bins))
    )
    if case.detrend != "none":
        room += f"var<workgroup> parts: array<vec4<f32>, {select.MOST_LANES}>;\n"
    text = finish.scan(case.bins, f"    let p = total[i] * {weight_of(case)};")
    head = f"{room}{finish.room}{MAIN_TEXT}  let row = item;\n"
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


def _add_group(work: Work, case: WelchPlan, out: Ref, k: int) -> int:
    """Adds the call; the workgroup memory it takes."""
    width = 2 * k if k else case.bins
    finish = select.Ranking("st3") if k else select.Plain("st3", case.bins)
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


def group_recipe(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """welch_power and welch_row_peaks with a workgroup a row."""
    case, k = case_of(types, attrs), attrs.get("k", 0)
    if case is None or max(group_radices(case.nfft)) > MOST_RADIX:
        return None
    work = Work(case.rows)
    shared = _add_group(work, case, Ref("out"), k)
    if shared > limits.max_compute_workgroup_storage_size:
        return None
    return work.recipe()
