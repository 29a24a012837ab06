"""Softmax and norms with whole lines in registers, for GPUs: each element is read once.

Several short lines share a workgroup, one long line takes all of it. Elements move four
at a time. What a line needs to know of itself, its highest element or its sums, its
lanes tell each other within subgroups where the device has them, and then through
workgroup memory with one barrier; elsewhere through a tree with one for each halving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Call, Recipe
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.ir.shape import normal_axis
from rlxweb.limits import Limits
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_variants import RecipeFor

GROUP = 256
LEAST = 64
"""Shorter lines are left to one invocation each."""
HELD, MOST_HELD = 4, 8
"""Groups of four a lane should hold, and holds of the longest lines."""

_MAIN_OF_SUBGROUPS = """@compute @workgroup_size(WG)
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
class Line:
    """How a line of n elements is shared: its lanes, groups of four each holds."""

    n: int
    subgroups: bool

    @property
    def lanes(self) -> int:
        wanted = -(-self.n // (4 * HELD))
        return min(GROUP, max(8, 1 << (wanted - 1).bit_length()))

    @property
    def held(self) -> int:
        return -(-self.n // (4 * self.lanes))

    def text(self, body: str) -> str:
        """The shader of `body`, which has its line and stores the result."""
        numbered = "select(lid, subgroup * size + within, full)"
        lane = numbered if self.subgroups else "lid"
        lines = [
            (_MAIN_OF_SUBGROUPS if self.subgroups else MAIN_TEXT).rstrip(),
            f"  let lane = {lane};",
            f"  let mine = item * {GROUP // self.lanes}u + lane / {self.lanes}u;",
            # Lanes beyond the last line do it once more and keep it to themselves.
            "  let line = min(mine, u.outer - 1u) * (u.n / 4u);",
            f"  let at = lane % {self.lanes}u;",
            body,
        ]
        return "\n".join([*lines, "}"])

    def each(self, *lines: str) -> str:
        """The lines once a held group: `#` is its number, `@` its place in a line."""
        return "\n".join(
            line.replace("#", str(r)).replace("@", f"(at + {r * self.lanes}u)")
            for r in range(self.held)
            for line in lines
        )

    def inside(self, text: str) -> str:
        """The text under the condition that place `@` is in the line."""
        whole = self.n == 4 * self.lanes * self.held
        return text if whole else f"  if (@ < u.n / 4u) {{ {text.strip()} }}"

    def folded(self, of: str, by: str) -> str:
        """All held groups as one vec4: `of` with its number for `#`."""
        made = of.replace("#", "0")
        for r in range(1, self.held):
            made = by.format(made, of.replace("#", str(r)))
        return made


def _softmax(s: Line) -> str:
    tops = s.folded("v#", "max({}, {})")
    return "\n".join(
        (
            s.each(
                "  var v# = F(-3.4028234e38);",
                s.inside("  v# = ld0(line + @);"),
            ),
            f"  let tops = {tops};",
            "  let high = max(max(tops.x, tops.y), max(tops.z, tops.w));",
            "  let top = line_max(lane, high);",
            s.each("  var e# = F();", s.inside("  e# = weights(v# - top);")),
            f"  let sums = {s.folded('e#', '{} + {}')};",
            "  let sum = (sums.x + sums.y) + (sums.z + sums.w);",
            "  let scale = 1.0 / line_sum(lane, sum);",
            "  if (mine >= u.outer) { return; }",
            s.each(s.inside("  st1(line + @, e# * scale);")),
        )
    )


def _norm(centred: bool) -> Callable[[Line], str]:
    def body(s: Line) -> str:
        squares = s.folded("v# * v#", "{} + {}")
        first = "ld0(line).x" if centred else "0.0"
        return "\n".join(
            (
                f"  let first = {first};",
                s.each("  var v# = F();", s.inside("  v# = ld0(line + @) - first;")),
                *(_centring(s) if centred else ()),
                f"  let squares = {squares};",
                "  let square = (squares.x + squares.y) + (squares.z + squares.w);",
                "  let mean_square = line_square(lane, square) / f32(u.n);",
                "  let scale = 1.0 / sqrt(mean_square + u.eps);",
                "  if (mine >= u.outer) { return; }",
                s.each(s.inside("  st3(line + @, v# * scale * ld1(@) + ld2(@));")),
            )
        )

    return body


def _centring(s: Line) -> tuple[str, ...]:
    return (
        f"  let sums = {s.folded('v#', '{} + {}')};",
        "  let sum = line_sum(lane, (sums.x + sums.y) + (sums.z + sums.w));",
        "  let mean = sum / f32(u.n);",
        s.each(s.inside("  v# -= F(mean);")),
    )


_WEIGHTS = """// exp of -104 is 0 in f32; a driver's exp of less might overflow inside.
fn weights(v: F) -> F { return keeps_nan(v, exp(max(v, F(-104.0)))); }
"""
_BODIES: dict[str, tuple[Callable[[Line], str], tuple[tuple[str, str], ...]]] = {
    "softmax": (_softmax, (("max", "max"), ("sum", "sum"))),
    "layer_norm": (_norm(True), (("sum", "sum"), ("square", "sum"))),
    "rms_norm": (_norm(False), (("square", "sum"),)),
}
_COMBINED = {"sum": "{} + {}", "max": "max({}, {})"}


def _tree(name: str, how: str, s: Line) -> str:
    """`line_NAME` by halving: a barrier for each."""
    both = _COMBINED[how].format(f"of_{name}[lane]", f"of_{name}[lane + half]")
    return f"""var<workgroup> of_{name}: array<f32, {GROUP}>;
fn line_{name}(lane: u32, v: f32) -> f32 {{
  of_{name}[lane] = v;
  workgroupBarrier();
  for (var half = {s.lanes // 2}u; half > 0u; half /= 2u) {{
    if (lane % {s.lanes}u < half) {{ of_{name}[lane] = {both}; }}
    workgroupBarrier();
  }}
  return of_{name}[lane / {s.lanes}u * {s.lanes}u];
}}
"""


def _within_subgroups(name: str, how: str, s: Line) -> str:
    """`line_NAME` by exchange within subgroups, then one barrier.

    A lane's number is made of those of its subgroup, so that neighbours by number are
    neighbours in the exchange whatever way a driver lays a workgroup out.
    """
    both = _COMBINED[how].format("all", "subgroupShuffleXor(all, step)")
    more = _COMBINED[how].format("all", f"of_{name}[from_group + g]")
    return f"""var<workgroup> of_{name}: array<f32, {GROUP}>;
fn line_{name}(lane: u32, v: f32) -> f32 {{
  var all = v;
  let together = min({s.lanes}u, subgroup_lanes);
  for (var step = 1u; step < together; step *= 2u) {{ all = {both}; }}
  if (lane % together == 0u) {{ of_{name}[lane / together] = all; }}
  workgroupBarrier();
  let groups = {s.lanes}u / together;
  let from_group = lane / {s.lanes}u * groups;
  all = of_{name}[from_group];
  for (var g = 1u; g < groups; g++) {{ all = {more}; }}
  return all;
}}
"""


def line_blocks(op: str, subgroups: bool) -> RecipeFor:
    """The recipe of an op over lines that fit into the registers of a workgroup.

    None for short and very long lines, lengths that are no multiple of four, and where
    neighbours in a line are not so in memory.
    """
    body, sums = _BODIES[op]

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        axis = normal_axis(attrs["axis"], out.rank)
        n, dense = out.shape[axis], all(d == 1 for d in out.shape[axis + 1 :])
        s = Line(n, subgroups)
        room = limits.workgroup_lanes
        if n < LEAST or n % 4 or not dense or s.held > MOST_HELD or room < GROUP:
            return None
        made = registry.get(op).recipe(inputs, out, attrs)
        tell = _within_subgroups if subgroups else _tree
        parts = [_WEIGHTS if op == "softmax" else ""]
        parts += ["var<private> subgroup_lanes: u32;"] if subgroups else []
        parts += [tell(name, how, s) for name, how in sums]
        text = "\n".join([*parts, s.text(body(s))])
        return made and Recipe(
            tuple(_shared(c, s, text, len(sums)) for c in made.calls)
        )

    return recipe


def _shared(call: Call, s: Line, text: str, sums: int) -> Call:
    """The op's own call, by the text: several lines a workgroup, all reads by fours."""
    return replace(
        call,
        shader=f"{call.shader}_blocks",
        source=text,
        accesses=tuple(replace(a, wide=True) for a in call.accesses),
        grid=(("outer", GROUP // s.lanes), ("inner", 1)),
        per="workgroup",
        workgroup=GROUP,
        uses=("nan",),
        shared_bytes=4 * GROUP * sums,
        turns=(sums * s.lanes.bit_length()) / s.n,
    )
