"""Cooperative Welch kernels: a team of lanes keeps samples, powers and peaks in
registers.

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

from rlxweb.codegen.butterfly import ComplexNames, WgslButterflyBuilder, f32_literal
from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import BufferRef, KernelPlan, OperandAccess
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.fft.wgsl.cooperative import (
    MAX_RADIX,
    CooperativeFftLayout,
    cooperative_radices,
    cooperative_transform,
    fit_cooperative_fft,
)
from rlxweb.ops.fft.wgsl.cooperative_plans import twiddle_access, twiddle_reader
from rlxweb.ops.fft.wgsl.plan import RowPlanBuilder
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.welch.parameters import WelchParameters
from rlxweb.ops.welch.wgsl.cooperative_outputs import (
    CooperativeOutput,
    CooperativePeakOutput,
    CooperativePowerOutput,
)
from rlxweb.ops.welch.wgsl.power_peaks import add_power_peaks, plan_ranking
from rlxweb.ops.welch.wgsl.workgroup import (
    SegmentPairReader,
    bin_weight_wgsl,
    fused_welch_parameters,
    welch_uniforms,
)

MAX_SUMS_PER_LANE = 16
"""Largest number of sums that one lane adds up; more are added in two stages."""
WARP_SIZE, MAX_RADIX_CHOICES = 32, (MAX_RADIX, 8)
OPAQUE_ZERO, PAIR_BITS = "again", 20
"""Compilers take window and roots out of the loop, into 60 registers and more."""


@dataclass(frozen=True, slots=True)
class CooperativeSegmentReader:
    """WGSL generator that reads a pair of segments and prepares it for the
    transform.
    """

    params: WelchParameters
    team: CooperativeFftLayout

    @property
    def segments(self) -> SegmentPairReader:
        """Generator of the code that the kernel shares with the per-workgroup one."""
        return SegmentPairReader(self.params)

    @property
    def steps(self) -> list[int]:
        """Offsets added to t for each value of a lane, in the order of `transform`."""
        radix, n = self.team.radices[0], self.team.n
        return [
            b * self.team.lanes_per_row + q * (n // radix)
            for b in range(self.team.values_per_lane // radix)
            for q in range(radix)
        ]

    def read_samples(self, e: WgslButterflyBuilder) -> dict[tuple[str, int], str]:
        """Emit the loads and return the names of the samples, less the segment's first
        where a trend is removed.
        """
        samples, has_trend = {}, self.params.detrend != "none"
        firsts = (
            {s: e.emit_let(f"ld0(from_{s})") for s in self.segment_names}
            if has_trend
            else {}
        )
        for step in self.steps:
            if step >= self.params.n:
                continue
            # Beyond the segment lies the next, or the row's last sample: unused.
            cell = self._clamped_index(f"t + {step}u", step)
            for s in self.segment_names:
                x = e.emit_let(f"ld0(from_{s} + {cell})")
                samples[s, step] = e.emit_let(f"{x} - {firsts[s]}") if has_trend else x
        return samples

    @property
    def opaque_zero(self) -> str:
        """Name of a zero that every iteration of the loop over pairs computes again, or
        "".
        """
        return OPAQUE_ZERO if self.segments.pair_count > 1 else ""

    @property
    def segment_names(self) -> tuple[str, ...]:
        """Names of the segments of a pair."""
        return self.segments.segment_names

    def _clamped_index(self, cell: str, step: int) -> str:
        """Return the WGSL of an index, clamped to the segment where a lane may read
        beyond it.
        """
        needs_clamp = step + self._read_range > self.params.n
        return f"min({cell}, {self.params.n - 1}u)" if needs_clamp else f"({cell})"

    @property
    def _read_range(self) -> int:
        """How far beyond its step a lane reads: t is below this."""
        return self.team.lanes_per_row

    def _needs_mask(self, step: int) -> bool:
        """Return whether some lane's value at a step lies beyond the segment."""
        return step + self._read_range > self.params.n

    def trends_wgsl(
        self, e: WgslButterflyBuilder, xs: Mapping[tuple[str, int], str]
    ) -> str:
        """Return the WGSL that sums the team's samples and their tilt in `part`, then
        computes mean and slope.
        """
        is_linear = self.params.detrend == "linear"
        sums: list[str] = []
        for s in self.segment_names:
            total, tilt = "0.0", "0.0"
            for step in (k for k in self.steps if (s, k) in xs):
                x = xs[s, step]
                if self._needs_mask(step):
                    x = e.emit_let(f"select(0.0, {x}, t + {step}u < {self.params.n}u)")
                total = e.emit_let(f"{total} + {x}")
                if is_linear:
                    tilt = e.emit_let(f"fma({x}, {self._ramp_wgsl(step)}, {tilt})")
            sums += [total, tilt]
        used_sums = [k for k in range(len(sums)) if is_linear or k % 2 == 0]
        text = (
            e.render("    ") + "\n" + self._team_sums_wgsl([sums[k] for k in used_sums])
        )
        parts = ["0.0"] * 4
        for index, k in enumerate(used_sums):
            parts[k] = f"sum{index}"
        return (
            f"{text}    let part = vec4<f32>({', '.join(parts)});\n"
            f"{self.segments.trends_wgsl()}"
        )

    def _ramp_wgsl(self, step: int) -> str:
        """Return the WGSL of the centred ramp at a step."""
        middle = (self.params.n - 1) / 2
        return f"f32(t + {step}u) - {f32_literal(middle)}"

    def _sum_cell(self, index: int, lane: str) -> str:
        """Return the memory cell of sum `index` of a lane."""
        if self.team.is_split:
            offset_lane = f"({lane} + {index * self.team.lanes_per_row}u)"
            return f"re[{self.team.linear_cell(offset_lane)}]"
        array = ("re", "im")[index % 2]
        offset = index // 2 * self.team.lanes_per_row
        offset_lane = f"({lane} + {offset}u)" if offset else lane
        return f"{array}[{self.team.linear_cell(offset_lane)}]"

    def _team_sums_wgsl(self, sums: list[str]) -> str:
        """Return the WGSL of `sum0`, `sum1`, … over all lanes, in one stage or two."""
        lanes = self.team.lanes_per_row
        partial_count = max(
            d for d in range(1, MAX_SUMS_PER_LANE + 1) if lanes % d == 0
        )
        indices = range(len(sums))
        text = "".join(f"    {self._sum_cell(k, 't')} = {sums[k]};\n" for k in indices)
        text += "    workgroupBarrier();\n"

        def sum_loop(end: str, start: str, step: str) -> str:
            lines = "".join(
                f"    sum{k} += {self._sum_cell(k, 'l')};\n" for k in indices
            )
            header = f"for (var l = {start}; l < {end}; l += {step})"
            return f"    {header} {{\n{lines}    }}\n"

        text += "".join(f"    var sum{k} = 0.0;\n" for k in indices)
        if lanes > partial_count:
            text += (
                f"    if (t < {partial_count}u) "
                f"{{\n{sum_loop(f'{lanes}u', 't', f'{partial_count}u')}"
            )
            text += "".join(
                f"    {self._sum_cell(k, 't')} = sum{k};\n" for k in indices
            )
            text += "    }\n    workgroupBarrier();\n"
            text += "".join(f"    sum{k} = 0.0;\n" for k in indices)
        text += sum_loop(f"{partial_count}u", "0u", "1u")
        return text + "    workgroupBarrier();\n"  # the transform stores here

    def windowed_reader(
        self, e: WgslButterflyBuilder, xs: Mapping[tuple[str, int], str]
    ) -> Callable[[WgslButterflyBuilder, str, int], ComplexNames]:
        """Return the transform's input reader: samples without their trend, times the
        window.
        """

        def windowed_sample(s: str, step: int, weight: str) -> str:
            x = xs[s, step]
            if self.params.detrend != "none":
                x = e.emit_let(f"{x} - mean_{s}")
            if self.params.detrend == "linear":
                x = e.emit_let(f"fma(-slope_{s}, {self._ramp_wgsl(step)}, {x})")
            return e.emit_let(f"{x} * {weight}")

        def read_windowed(
            _: WgslButterflyBuilder, base: str, step: int
        ) -> ComplexNames:
            if step >= self.params.n:
                return "0.0", "0.0"
            cell = self._clamped_index(f"t + {step}u", step)
            weight = e.emit_let(
                f"ld1({cell} + {OPAQUE_ZERO})" if self.opaque_zero else f"ld1({cell})"
            )
            if self._needs_mask(step):
                inside = f"t + {step}u < {self.params.n}u"
                weight = e.emit_let(f"select(0.0, {weight}, {inside})")
            re = windowed_sample("a", step, weight)
            if self.segment_names == ("a",):
                return re, "0.0"
            if self.segments.has_unpaired_segment:
                weight = e.emit_let(f"{weight} * share_b")
            return re, windowed_sample("b", step, weight)

        return read_windowed


def _pair_wgsl(samples: CooperativeSegmentReader) -> str:
    """Return the WGSL that adds the powers of one pair to `acc0`, `acc1`, …"""
    team, segments = samples.team, samples.segments
    read_emitter = WgslButterflyBuilder("x")
    sum_emitter = WgslButterflyBuilder("y")
    e = WgslButterflyBuilder()
    xs = samples.read_samples(read_emitter)
    trends = (
        samples.trends_wgsl(sum_emitter, xs) if samples.params.detrend != "none" else ""
    )
    results = cooperative_transform(
        team, e, samples.windowed_reader(e, xs), samples.opaque_zero
    )
    for k, (_, y) in enumerate(results):
        accumulated = "" if segments.pair_count == 1 else f"acc{k} + "
        e.emit_statement(f"acc{k} = {accumulated}{e.squared_magnitude(y)};")
    barrier = "" if segments.pair_count == 1 else "\n    workgroupBarrier();"
    zero = (
        f"    let {OPAQUE_ZERO} = pair >> {PAIR_BITS}u;\n"
        if samples.opaque_zero
        else ""
    )
    reads = f"{zero}{segments.starts_wgsl()}{read_emitter.render()}"
    return f"{reads}\n{trends}{e.render()}{barrier}"


def _bins_wgsl(params: WelchParameters, team: CooperativeFftLayout) -> str:
    """Return the WGSL that adds bins and their mirror images: `p0`, `p1`, … of bins t,
    t + lanes, …
    """
    e = WgslButterflyBuilder("w")
    names = [name for name, _ in _lane_bins(team)]
    for k, name in enumerate(names):
        e.emit_statement(f"re[{team.linear_cell(f'({name})')}] = acc{k};")
    e.emit_statement("workgroupBarrier();")
    for q in range(-(-params.bins // team.lanes_per_row)):
        i = e.emit_let(f"t + {q * team.lanes_per_row}u")
        mirror = f"({team.n}u - {i}) % {team.n}u"
        both = e.emit_let(
            f"re[{team.linear_cell(i)}] + re[{team.linear_cell(f'({mirror})')}]"
        )
        e.emit_statement(f"let p{q} = {both} * {bin_weight_wgsl(params, i)};")
    return e.render("  ") + "\n"


def _lane_bins(team: CooperativeFftLayout) -> list[tuple[str, str]]:
    """Return the bins that a lane holds after `transform`."""
    radix = team.radices[-1]
    return [
        (f"t + {b * team.lanes_per_row + k * (team.n // radix)}u", "")
        for b in range(team.values_per_lane // radix)
        for k in range(radix)
    ]


def _cooperative_welch_wgsl(
    params: WelchParameters, team: CooperativeFftLayout, output: CooperativeOutput
) -> str:
    """Return the WGSL of the whole kernel."""
    samples = CooperativeSegmentReader(params, team)
    segments = samples.segments
    acc = "".join(f"  var acc{k} = 0.0;\n" for k in range(team.values_per_lane))
    barrier = "" if segments.pair_count > 1 else "  workgroupBarrier();\n"
    return (
        f"{twiddle_reader(2)}{team.memory_declarations()}{output.declarations(team)}{MAIN_TEXT}{team.lane_declarations()}{acc}"
        f"{segments.pair_loop(_pair_wgsl(samples))}{barrier}{_bins_wgsl(params, team)}"
        f"{output.output_wgsl(team, params.bins)}}}\n"
    )


def _max_iterations(params: WelchParameters, team: CooperativeFftLayout) -> int:
    """Return the maximum number of loop iterations of a lane: all bins reach the
    floor.
    """
    rank_iterations = params.bins * -(-params.bins // team.lanes_per_row)
    return (
        rank_iterations
        + SegmentPairReader(params).pair_count
        * (2 * MAX_SUMS_PER_LANE + team.lanes_per_row)
        + 2 * team.lanes_per_row
    )


def _add_cooperative_dispatch(
    work: RowPlanBuilder,
    params: WelchParameters,
    out: BufferRef,
    k: int,
    team: CooperativeFftLayout,
) -> None:
    """Add the dispatch that writes powers (k = 0) or k peaks to `out`."""
    width = 2 * k if k else params.bins
    output: CooperativeOutput = (
        CooperativePeakOutput("st3") if k else CooperativePowerOutput("st3")
    )
    accesses = (
        OperandAccess(BufferRef("in", 0), (params.width, 0), span=params.width),
        OperandAccess(BufferRef("in", 1), (0, 0), span=params.n),
        twiddle_access(work, team),
        OperandAccess(out, (width, 0), "write", span=width),
    )
    work.add_dispatches(
        f"welch_team_{params.nfft}",
        1,
        accesses,
        welch_uniforms(params, k),
        grid=(("rows", team.rows_per_workgroup),),
        item_unit="workgroup",
        iterations=float(_max_iterations(params, team)),
        workgroup_size=team.workgroup_size,
        source=_cooperative_welch_wgsl(params, team, output),
        shared_bytes=team.shared_bytes + output.extra_bytes * team.lane_groups,
        is_in_bounds=True,
    )


def _best_max_radix(nfft: int) -> int:
    """Return the largest radix limit that leaves a team at least the lanes of a warp,
    or else the smallest.

    What is done besides the transform (trends, bins, peaks) is shared by the lanes. On
    an H100 128 samples take 0.7 of the time by it for 2 segments, 1.25 for 8; 256 take
    0.95, and a third with checks at run time.
    """
    for max_radix in MAX_RADIX_CHOICES:
        radices = cooperative_radices(nfft, max_radix)
        if radices and nfft // math.lcm(*radices) >= WARP_SIZE:
            return max_radix
    return MAX_RADIX_CHOICES[-1]


def cooperative_welch_planner(
    is_swizzled: bool = True, max_radix: int = 0
) -> WgslPlanRule:
    """Return a planner of welch_power and welch_row_peaks with a team of lanes per row,
    for GPUs.

    max_radix    of a pass, only to see what it brings

    Peaks that cannot be ranked in the memory there is are picked from written powers.
    """

    def plan(
        types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        params, k = fused_welch_parameters(types, attrs), int(attrs.get("k", 0))
        if params is None:
            return None
        work = RowPlanBuilder(params.rows)
        radix_limit = max_radix or _best_max_radix(params.nfft)
        team = fit_cooperative_fft(
            params.nfft,
            limits,
            CooperativePeakOutput.extra_bytes if k else 0,
            radix_limit,
        )
        ranks_in_team = bool(
            k and team and CooperativePeakOutput("").fits(team, params.bins, k)
        )
        if not ranks_in_team:
            team = fit_cooperative_fft(params.nfft, limits, 0, radix_limit)
        if team is None:
            return None
        team = team if is_swizzled else replace(team, shifts=())
        if ranks_in_team or not k:
            _add_cooperative_dispatch(work, params, BufferRef("out"), k, team)
            return work.build()
        power = work.reused_scratch(params.rows * params.bins).ref
        _add_cooperative_dispatch(work, params, power, 0, team)
        peak_planner = plan_ranking(params.rows, params.bins, k, limits)
        add_power_peaks(work, peak_planner, power, params.bins, k)
        return work.build()

    return plan


KERNELS = tuple(
    KernelVariant(f"{op}, team of lanes a row", op, cooperative_welch_planner())
    for op in ("welch_power", "welch_row_peaks")
)
