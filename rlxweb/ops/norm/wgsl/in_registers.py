"""Softmax and norms with whole rows in registers, for GPUs: each element is read once.

Several short lines share a workgroup, one long line takes all of it. Elements move four
at a time. What a line needs to know of itself, its highest element or its sums, its
lanes tell each other within subgroups where the device has them, and then through
workgroup memory with one barrier; elsewhere through a tree with one for each halving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import KernelDispatch, KernelPlan
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule

WORKGROUP_SIZE = 256
MIN_ROW_LENGTH = 64
"""Minimum length of a row; shorter rows are left to one invocation each."""
TARGET_VEC4S_PER_LANE, MAX_VEC4S_PER_LANE = 4, 8
"""Groups of four a lane should hold, and holds of the longest lines."""

_SUBGROUP_MAIN = """@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
  @builtin(subgroup_size) size: u32,
  @builtin(num_subgroups) subgroups: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) within: u32,
) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  // A driver may split a subgroup, or start one with lanes that are not there: then
  // nobody is asked, and lanes tell each other all through workgroup memory.
  let full = size * subgroups == WG;
  subgroup_lanes = select(1u, size, full);
"""


@dataclass(frozen=True, slots=True)
class RegisterRowLayout:
    """Distribution of a row of n elements over lanes, and the vec4s that each lane
    holds.
    """

    n: int
    uses_subgroups: bool

    @property
    def lanes(self) -> int:
        """Number of lanes that share a row."""
        target = -(-self.n // (4 * TARGET_VEC4S_PER_LANE))
        return min(WORKGROUP_SIZE, max(8, 1 << (target - 1).bit_length()))

    @property
    def vec4s_per_lane(self) -> int:
        """Number of vec4s a lane holds."""
        return -(-self.n // (4 * self.lanes))

    def source(self, body: str) -> str:
        """Return the shader around `body`, which reads the row and stores the
        result.
        """
        subgroup_lane = "select(lid, subgroup * size + within, full)"
        lane = subgroup_lane if self.uses_subgroups else "lid"
        lines = [
            (_SUBGROUP_MAIN if self.uses_subgroups else MAIN_TEXT).rstrip(),
            f"  let lane = {lane};",
            f"  let mine = item * {WORKGROUP_SIZE // self.lanes}u + lane / "
            f"{self.lanes}u;",
            # Lanes beyond the last line do it once more and keep it to themselves.
            "  let line = min(mine, u.outer - 1u) * (u.n / 4u);",
            f"  let at = lane % {self.lanes}u;",
            body,
        ]
        return "\n".join([*lines, "}"])

    def repeat_per_vec4(self, *lines: str) -> str:
        """Repeat the lines for every held vec4: `#` is replaced by its number, `@` by
        its place in the row.
        """
        return "\n".join(
            line.replace("#", str(r)).replace("@", f"(at + {r * self.lanes}u)")
            for r in range(self.vec4s_per_lane)
            for line in lines
        )

    def guard_in_row(self, text: str) -> str:
        """Return the text under the condition that place `@` is in the row."""
        is_full = self.n == 4 * self.lanes * self.vec4s_per_lane
        return text if is_full else f"  if (@ < u.n / 4u) {{ {text.strip()} }}"

    def fold_vec4s(self, term: str, combine: str) -> str:
        """Combine `term` over all held vec4s into one, with the vec4's number for
        `#`.
        """
        expression = term.replace("#", "0")
        for r in range(1, self.vec4s_per_lane):
            expression = combine.format(expression, term.replace("#", str(r)))
        return expression


def _softmax_body(layout: RegisterRowLayout) -> str:
    tops = layout.fold_vec4s("v#", "max({}, {})")
    return "\n".join(
        (
            layout.repeat_per_vec4(
                "  var v# = F(-3.4028234e38);",
                layout.guard_in_row("  v# = ld0(line + @);"),
            ),
            f"  let tops = {tops};",
            "  let high = max(max(tops.x, tops.y), max(tops.z, tops.w));",
            "  let top = line_max(lane, high);",
            layout.repeat_per_vec4(
                "  var e# = F();", layout.guard_in_row("  e# = weights(v# - top);")
            ),
            f"  let sums = {layout.fold_vec4s('e#', '{} + {}')};",
            "  let sum = (sums.x + sums.y) + (sums.z + sums.w);",
            "  let scale = 1.0 / line_sum(lane, sum);",
            "  if (mine >= u.outer) { return; }",
            layout.repeat_per_vec4(layout.guard_in_row("  st1(line + @, e# * scale);")),
        )
    )


def _norm_body(centred: bool) -> Callable[[RegisterRowLayout], str]:
    """Return the generator of the body of a norm, with or without centring."""

    def norm_body(layout: RegisterRowLayout) -> str:
        squares = layout.fold_vec4s("v# * v#", "{} + {}")
        first = "ld0(line).x" if centred else "0.0"
        return "\n".join(
            (
                f"  let first = {first};",
                layout.repeat_per_vec4(
                    "  var v# = F();",
                    layout.guard_in_row("  v# = ld0(line + @) - first;"),
                ),
                *(_centring_lines(layout) if centred else ()),
                f"  let squares = {squares};",
                "  let square = (squares.x + squares.y) + (squares.z + squares.w);",
                "  let mean_square = line_square(lane, square) / f32(u.n);",
                "  let scale = 1.0 / sqrt(mean_square + u.eps);",
                "  if (mine >= u.outer) { return; }",
                layout.repeat_per_vec4(
                    layout.guard_in_row(
                        "  st3(line + @, v# * scale * ld1(@) + ld2(@));"
                    )
                ),
            )
        )

    return norm_body


def _centring_lines(layout: RegisterRowLayout) -> tuple[str, ...]:
    """Return the lines that subtract the row's mean."""
    return (
        f"  let sums = {layout.fold_vec4s('v#', '{} + {}')};",
        "  let sum = line_sum(lane, (sums.x + sums.y) + (sums.z + sums.w));",
        "  let mean = sum / f32(u.n);",
        layout.repeat_per_vec4(layout.guard_in_row("  v# -= F(mean);")),
    )


_WEIGHTS_FUNCTION = """\
// exp of -104 is 0 in f32; a driver's exp of less might overflow inside.
fn weights(v: F) -> F { return keeps_nan(v, exp(max(v, F(-104.0)))); }
"""
_OP_BODIES: dict[
    str, tuple[Callable[[RegisterRowLayout], str], tuple[tuple[str, str], ...]]
] = {
    "softmax": (_softmax_body, (("max", "max"), ("sum", "sum"))),
    "layer_norm": (_norm_body(True), (("sum", "sum"), ("square", "sum"))),
    "rms_norm": (_norm_body(False), (("square", "sum"),)),
}
_COMBINE_EXPRESSIONS = {"sum": "{} + {}", "max": "max({}, {})"}


def _tree_reduction(name: str, operation: str, layout: RegisterRowLayout) -> str:
    """Define `line_NAME`, a reduction by halving with a barrier for each step."""
    combined = _COMBINE_EXPRESSIONS[operation].format(
        f"of_{name}[lane]", f"of_{name}[lane + half]"
    )
    return f"""var<workgroup> of_{name}: array<f32, {WORKGROUP_SIZE}>;
fn line_{name}(lane: u32, v: f32) -> f32 {{
  of_{name}[lane] = v;
  workgroupBarrier();
  for (var half = {layout.lanes // 2}u; half > 0u; half /= 2u) {{
    if (lane % {layout.lanes}u < half) {{ of_{name}[lane] = {combined}; }}
    workgroupBarrier();
  }}
  return of_{name}[lane / {layout.lanes}u * {layout.lanes}u];
}}
"""


def _subgroup_reduction(name: str, operation: str, layout: RegisterRowLayout) -> str:
    """Define `line_NAME`, a reduction by exchange within subgroups and then one
    barrier.

    A lane's number is made of those of its subgroup, so that neighbours by number are
    neighbours in the exchange whatever way a driver lays a workgroup out.
    """
    combined = _COMBINE_EXPRESSIONS[operation].format(
        "all", "subgroupShuffleXor(all, step)"
    )
    combined_groups = _COMBINE_EXPRESSIONS[operation].format(
        "all", f"of_{name}[from_group + g]"
    )
    return f"""var<workgroup> of_{name}: array<f32, {WORKGROUP_SIZE}>;
fn line_{name}(lane: u32, v: f32) -> f32 {{
  var all = v;
  let together = min({layout.lanes}u, subgroup_lanes);
  for (var step = 1u; step < together; step *= 2u) {{ all = {combined}; }}
  if (lane % together == 0u) {{ of_{name}[lane / together] = all; }}
  workgroupBarrier();
  let groups = {layout.lanes}u / together;
  let from_group = lane / {layout.lanes}u * groups;
  all = of_{name}[from_group];
  for (var g = 1u; g < groups; g++) {{ all = {combined_groups}; }}
  return all;
}}
"""


def register_row_rule(op: str, uses_subgroups: bool) -> WgslPlanRule:
    """Return the plan rule of an op over rows that fit into the registers of a
    workgroup.

    None for short and very long lines, lengths that are no multiple of four, and where
    neighbours in a line are not so in memory.
    """
    row_body, reductions = _OP_BODIES[op]

    def build_plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        axis = normalize_axis(attrs["axis"], out.rank)
        n, is_dense = out.shape[axis], all(d == 1 for d in out.shape[axis + 1 :])
        layout = RegisterRowLayout(n, uses_subgroups)
        max_lanes = limits.max_linear_workgroup_size
        if (
            n < MIN_ROW_LENGTH
            or n % 4
            or not is_dense
            or layout.vec4s_per_lane > MAX_VEC4S_PER_LANE
            or max_lanes < WORKGROUP_SIZE
        ):
            return None
        plan = registry.get(op).kernel_plan(inputs, out, attrs)
        reduction_source = _subgroup_reduction if uses_subgroups else _tree_reduction
        parts = [_WEIGHTS_FUNCTION if op == "softmax" else ""]
        parts += ["var<private> subgroup_lanes: u32;"] if uses_subgroups else []
        parts += [
            reduction_source(name, operation, layout) for name, operation in reductions
        ]
        text = "\n".join([*parts, layout.source(row_body(layout))])
        return plan and KernelPlan(
            tuple(
                _row_dispatch(dispatch, layout, text, len(reductions))
                for dispatch in plan.dispatches
            )
        )

    return build_plan


def _row_dispatch(
    dispatch: KernelDispatch, layout: RegisterRowLayout, text: str, reduction_count: int
) -> KernelDispatch:
    """Return the op's own dispatch with the new source: several rows per workgroup, all
    accesses by vec4s.
    """
    return replace(
        dispatch,
        shader=f"{dispatch.shader}_blocks",
        source=text,
        accesses=tuple(replace(a, is_vec4=True) for a in dispatch.accesses),
        grid=(("outer", WORKGROUP_SIZE // layout.lanes), ("inner", 1)),
        item_unit="workgroup",
        workgroup_size=WORKGROUP_SIZE,
        uses=("nan",),
        shared_bytes=4 * WORKGROUP_SIZE * reduction_count,
        iterations=(reduction_count * layout.lanes.bit_length()) / layout.n,
    )


_OPS = ("softmax", "layer_norm", "rms_norm")
KERNELS = (
    *(
        KernelVariant(
            f"{op}, in registers, by subgroups",
            op,
            register_row_rule(op, True),
            feature="subgroup",
        )
        for op in _OPS
    ),
    *(
        KernelVariant(f"{op}, in registers", op, register_row_rule(op, False))
        for op in _OPS
    ),
)
