"""Fused Welch kernels, one workgroup per row: frames, window, transform, mean power and
peaks in one dispatch.

Two real segments go through one complex transform: with Z = DFT(a + ib) the powers of
a and b at bin k add up to (|Z[k]|² + |Z[n-k]|²) / 2, so nobody tells them apart.
A workgroup shares a row. A plan is None when the case does not suit; the composed op
then serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.codegen.butterfly import ComplexNames, WgslButterflyBuilder, f32_literal
from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import BufferRef, KernelPlan, OperandAccess
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.fft.wgsl.in_place import (
    BARRIER,
    LoadValue,
    StoreBin,
    digit_reversed_cell,
    in_place_passes,
    lane_loop,
)
from rlxweb.ops.fft.wgsl.plan import RowPlanBuilder
from rlxweb.ops.fft.wgsl.variants import (
    MAX_WORKGROUP_RADIX,
    load_shared,
    store_shared,
    workgroup_radices,
    workgroup_size_near,
)
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.welch.parameters import WelchParameters, welch_parameters
from rlxweb.ops.welch.wgsl.workgroup_outputs import (
    MAX_WORKGROUP_SIZE,
    WORKGROUP_SUM_WGSL,
    WorkgroupOutput,
    WorkgroupPeakOutput,
    WorkgroupPowerOutput,
)

MAX_SEGMENTS = 64
"""Largest number of segments; the composed op cuts longer rows into shorter ones, which
then run side by side.
"""


@dataclass(frozen=True, slots=True)
class SegmentPairReader:
    """WGSL generator that reads segments a and b of a row, two at a time."""

    params: WelchParameters

    @property
    def pair_count(self) -> int:
        """Number of pairs of segments."""
        return -(-self.params.segments // 2)

    @property
    def has_unpaired_segment(self) -> bool:
        """True if the last segment has no partner."""
        return self.params.segments % 2 == 1

    @property
    def segment_names(self) -> tuple[str, ...]:
        """Names of the segments of a pair."""
        return ("a",) if self.params.segments == 1 else ("a", "b")

    def starts_wgsl(self) -> str:
        """Return the WGSL that computes the starts of the segments; a missing partner
        is segment a, times 0.
        """
        lines = ["    let from_a = (row * u.width + pair * u.hop * 2u);"]
        if self.segment_names == ("a", "b"):
            has_partner = (
                "pair * 2u + 1u < u.segments" if self.has_unpaired_segment else "true"
            )
            hop = f"select(0u, u.hop, {has_partner})"
            lines.append(f"    let from_b = from_a + {hop};")
            lines.append(f"    let share_b = select(0.0, 1.0, {has_partner});")
        return "\n".join(lines) + "\n"

    def sums_wgsl(self) -> str:
        """Return the WGSL that sums each segment and its tilt about its first value, in
        `part` (vec4).
        """
        if self.params.detrend == "none":
            return ""
        n, middle = self.params.n, (self.params.n - 1) / 2
        first_samples = "".join(
            f"    let first_{s} = ld0(from_{s});\n" for s in self.segment_names
        )
        body = [f"      let t = f32(i) - {f32_literal(middle)};"]
        for s in self.segment_names:
            body.append(f"      let v{s} = ld0(from_{s} + i) - first_{s};")
        terms = [f"v{s}, v{s} * t" for s in self.segment_names]
        if len(terms) == 1:
            terms.append("0.0, 0.0")
        body.append(f"      part += vec4<f32>({', '.join(terms)});")
        loop_body = "\n".join(body)
        loop = lane_loop(n, loop_body, "i")
        return f"{first_samples}    var part = vec4<f32>();\n{loop}\n"

    def trends_wgsl(self) -> str:
        """Return the WGSL that computes mean and slope of each segment from `part`."""
        if self.params.detrend == "none":
            return ""
        n, lines = self.params.n, []
        energy = n * (n * n - 1) / 12
        for index, s in enumerate(self.segment_names):
            mean_field, tilt_field = "xz"[index], "yw"[index]
            lines.append(
                f"    let mean_{s} = part.{mean_field} * {f32_literal(1 / n)};"
            )
            if self.params.detrend == "linear":
                inverse = f32_literal(1 / energy if energy else 0.0)
                lines.append(f"    let slope_{s} = part.{tilt_field} * {inverse};")
        return "\n".join(lines) + "\n"

    def windowed_loader(self, stride: int) -> LoadValue:
        """Return the loader of the windowed pair at a cell; `stride` is the step
        between a pass's cells.
        """

        def windowed_sample(
            e: WgslButterflyBuilder, s: str, cell: str, weight: str
        ) -> str:
            x = e.emit_let(f"ld0(from_{s} + {cell})")
            if self.params.detrend != "none":
                x = e.emit_let(f"(({x} - first_{s}) - mean_{s})")
            if self.params.detrend == "linear":
                middle = f32_literal((self.params.n - 1) / 2)
                x = e.emit_let(f"fma(slope_{s}, {middle} - f32({cell}), {x})")
            return e.emit_let(f"{x} * {weight}")

        def load_pair(e: WgslButterflyBuilder, base: str, offset: int) -> ComplexNames:
            if offset >= self.params.n:
                return "0.0", "0.0"
            cell = e.emit_let(f"{base} + {offset}u")
            if offset + stride > self.params.n:
                inside = e.emit_let(f"{cell} < {self.params.n}u")
                cell = e.emit_let(f"min({cell}, {self.params.n - 1}u)")
                weight = e.emit_let(f"select(0.0, ld1({cell}), {inside})")
            else:
                weight = e.emit_let(f"ld1({cell})")
            re = windowed_sample(e, "a", cell, weight)
            if self.segment_names == ("a",):
                return re, "0.0"
            share = (
                e.emit_let(f"{weight} * share_b")
                if self.has_unpaired_segment
                else weight
            )
            return re, windowed_sample(e, "b", cell, share)

        return load_pair

    def pair_loop(self, body: str) -> str:
        """Return the WGSL that runs `body` for every pair of segments."""
        if self.pair_count == 1:
            return f"  {{\n    let pair = 0u;\n{body}\n  }}\n"
        head = "  for (var pair = 0u; pair * 2u < u.segments; pair++) {\n"
        return f"{head}{body}\n  }}\n"


def _transform_wgsl(
    segments: SegmentPairReader,
    radices: tuple[int, ...],
    memory: tuple[LoadValue, Callable[[WgslButterflyBuilder, str, ComplexNames], None]],
    store_last: StoreBin,
) -> str:
    """Return the WGSL of the passes of the transform."""
    n = segments.params.nfft
    load_first = segments.windowed_loader(n // radices[0])
    load, store = memory
    return in_place_passes(
        n, radices, lambda i: f"ld2({i})", load_first, load, store, store_last
    )


def bin_weight_wgsl(params: WelchParameters, i: str = "i") -> str:
    """Return the WGSL of the factor of bin i, a name."""
    if not params.doubling or params.bins < 2:
        return "u.at_ends"
    nyquist_test = f" || {i} == {params.bins - 1}u" if params.nfft % 2 == 0 else ""
    return f"select(u.inside, u.at_ends, {i} == 0u{nyquist_test})"


def welch_uniforms(params: WelchParameters, k: int) -> dict[str, int | float]:
    """Return the uniforms that locate the segments and scale the bins; the scale also
    undoes the sum over two mirrors.

    They are uniforms, so that a new length, hop, sampling rate or number of peaks does
    not mean a new shader.
    """
    weights = params.weights()
    return {
        "width": params.width,
        "hop": params.hop,
        "segments": params.segments,
        "at_ends": 0.5 * float(weights[0]),
        "inside": 0.5 * float(weights.max()),
        **({"k": k} if k else {}),
    }


def _workgroup_welch_wgsl(params: WelchParameters, output: WorkgroupOutput) -> str:
    """Return the WGSL of the whole kernel."""
    segments, n = SegmentPairReader(params), params.nfft
    radices = workgroup_radices(n)
    memory = load_shared, store_shared

    def store_power(
        e: WgslButterflyBuilder, to: str, cell: str, y: ComplexNames
    ) -> None:
        e.emit_statement(f"re[{cell}] = {e.squared_magnitude(y)};")

    body = _transform_wgsl(segments, radices, memory, store_power)
    e = WgslButterflyBuilder("s")
    bin_cell = digit_reversed_cell(e, "i", radices, n)
    mirror_cell = digit_reversed_cell(e, e.emit_let(f"({n}u - i) % {n}u"), radices, n)
    e.emit_statement(f"let both = re[{bin_cell}] + re[{mirror_cell}];")
    e.emit_statement("total[i] = both + select(0.0, total[i], pair > 0u);")
    pair_body = (
        segments.starts_wgsl()
        + segments.sums_wgsl()
        + (WORKGROUP_SUM_WGSL if params.detrend != "none" else "")
        + segments.trends_wgsl()
        + body
        + BARRIER
        + lane_loop(params.bins, e.render(), "i")
        + f"\n{BARRIER}"
    )
    declarations = "".join(
        f"var<workgroup> {name}: array<f32, {size}>;\n"
        for name, size in (("re", n), ("im", n), ("total", params.bins))
    )
    if params.detrend != "none":
        declarations += (
            f"var<workgroup> parts: array<vec4<f32>, {MAX_WORKGROUP_SIZE}>;\n"
        )
    output_wgsl = output.bins_wgsl(
        params.bins, f"    let p = total[i] * {bin_weight_wgsl(params)};"
    )
    head = f"{declarations}{output.declarations}{MAIN_TEXT}  let row = item;\n"
    return f"{head}{segments.pair_loop(pair_body)}{output_wgsl}}}\n"


def fused_welch_parameters(
    types: Types, attrs: Mapping[str, Any]
) -> WelchParameters | None:
    """Return the parameters of an op that a fused kernel serves, or None."""
    if any(t.dtype is not DType.F32 for t in types):
        return None
    params = welch_parameters(types[0].shape, types[1].shape[0], attrs)
    fits = params.segments <= MAX_SEGMENTS and params.rows * params.width < 1 << 31
    return params if fits else None


def _operand_accesses(
    work: RowPlanBuilder, params: WelchParameters
) -> tuple[OperandAccess, ...]:
    """Return the accesses of the samples, the window and the roots of unity."""
    return (
        OperandAccess(BufferRef("in", 0), (params.width, 0), span=params.width),
        OperandAccess(BufferRef("in", 1), (0, 0), span=params.n),
        work.roots_table(params.nfft),
    )


def _add_workgroup_dispatch(
    work: RowPlanBuilder, params: WelchParameters, out: BufferRef, k: int
) -> int:
    """Add the dispatch and return the bytes of workgroup memory it needs."""
    width = 2 * k if k else params.bins
    output = (
        WorkgroupPeakOutput("st3") if k else WorkgroupPowerOutput("st3", params.bins)
    )
    shared_bytes = 8 * params.nfft + 4 * params.bins + output.shared_bytes
    if params.detrend != "none":
        shared_bytes += 16 * MAX_WORKGROUP_SIZE
    work.add_dispatches(
        f"welch_group_{params.nfft}",
        1,
        (
            *_operand_accesses(work, params),
            OperandAccess(out, (width, 0), "write", span=width),
        ),
        welch_uniforms(params, k),
        grid=(("rows", 1),),
        item_unit="workgroup",
        workgroup_size=workgroup_size_near(
            params.nfft // max(workgroup_radices(params.nfft))
        ),
        source=_workgroup_welch_wgsl(params, output),
        uses=("nan",),
        shared_bytes=shared_bytes,
    )
    return shared_bytes


def plan_welch_per_workgroup(
    types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Return the plan of welch_power or welch_row_peaks with one workgroup per row."""
    params, k = fused_welch_parameters(types, attrs), attrs.get("k", 0)
    if params is None or max(workgroup_radices(params.nfft)) > MAX_WORKGROUP_RADIX:
        return None
    work = RowPlanBuilder(params.rows)
    shared_bytes = _add_workgroup_dispatch(work, params, BufferRef("out"), k)
    if shared_bytes > limits.max_compute_workgroup_storage_size:
        return None
    return work.build()


KERNELS = tuple(
    KernelVariant(f"{op}, workgroup a row", op, plan_welch_per_workgroup)
    for op in ("welch_power", "welch_row_peaks")
)
