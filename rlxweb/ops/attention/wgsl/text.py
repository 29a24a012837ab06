"""WGSL source of attention in one kernel; `fused_attention_plan` explains the
method.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.ir.dtype import DType

QUERIES_PER_WORKGROUP = 64
MAX_VEC4S_PER_LANE = 16
"""Maximum number of vec4s that a lane keeps of a query and of its result."""
MAX_TILE_KEYS = 32
"""Number of keys in workgroup memory at a time when a lane has a whole query."""


@dataclass(frozen=True, slots=True)
class AttentionStrides:
    """Strides of an operand over batch, head and position."""

    batch: int
    head: int
    position: int


@dataclass(frozen=True, slots=True)
class AttentionKernelSpec:
    """Description of one attention kernel: sizes, operand strides, and what is applied
    to the scores.

    key_heads  key heads; `group_size` query heads use each
    first_key  the key at which the first query stands
    head_sizes  of a head of q and k, and of v
    mask_kind  "none", "causal", "sliding_window", "custom" or "bias"
    mask_strides  of the mask over batch, head, query and key
    """

    batch: int
    key_heads: int
    group_size: int
    queries: int
    keys: int
    first_key: int
    head_sizes: tuple[int, int]
    operand_strides: tuple[
        AttentionStrides, AttentionStrides, AttentionStrides, AttentionStrides
    ]
    scale: float
    softcap: float | None
    mask_kind: str
    mask_dtype: DType | None = None
    mask_strides: tuple[int, int, int, int] = (0, 0, 0, 0)
    window: int = 0

    @property
    def lanes_per_query(self) -> int:
        """Number of lanes that share a query, a power of two."""
        min_lanes = -(-max(self.head_sizes) // (4 * MAX_VEC4S_PER_LANE))
        return 1 << (min_lanes - 1).bit_length()

    @property
    def tile_keys(self) -> int:
        """Number of keys in workgroup memory at a time."""
        return MAX_TILE_KEYS // self.lanes_per_query

    @property
    def vec4s_per_lane(self) -> tuple[int, int]:
        """Number of vec4s that a lane holds of a query, and of a result."""
        q, v = (-(-size // (4 * self.lanes_per_query)) for size in self.head_sizes)
        return q, v

    @property
    def has_positional_mask(self) -> bool:
        """True when the mask alone decides which tiles a block of queries attends
        to.
        """
        return self.mask_kind in ("causal", "sliding_window")

    @property
    def checked_keys(self) -> int:
        """Number of keys whose values a workgroup checks for non-finite numbers at a
        time.
        """
        return min(self.tile_keys, QUERIES_PER_WORKGROUP // self.vec4s_per_lane[1])

    @property
    def shared_bytes(self) -> int:
        """Bytes of workgroup memory."""
        cells = self.tile_keys * self.lanes_per_query * sum(self.vec4s_per_lane)
        return 16 * (cells + self._partial_vec4s) + 8 * self.has_positional_mask

    @property
    def _partial_vec4s(self) -> int:
        """Number of vec4s of partial scores that the lanes of a query exchange."""
        return (
            self.tile_keys // 4 * QUERIES_PER_WORKGROUP * self.lanes_per_query
            if self.lanes_per_query > 1
            else 0
        )


def attention_source(spec: AttentionKernelSpec) -> str:
    """Return the WGSL functions and `main` that follow the accessor prelude."""
    declarations = [
        f"var<workgroup> keys: array<F, "
        f"{spec.tile_keys * spec.lanes_per_query * spec.vec4s_per_lane[0]}>;",
        f"var<workgroup> values: array<F, "
        f"{spec.tile_keys * spec.lanes_per_query * spec.vec4s_per_lane[1]}>;",
    ]
    if spec.lanes_per_query > 1:
        declarations.append(f"var<workgroup> partial: array<F, {spec._partial_vec4s}>;")
    if spec.has_positional_mask:
        declarations.append(
            "var<workgroup> unseen: atomic<u32>;\nvar<workgroup> rest: u32;"
        )
    lines = [
        *declarations,
        *_score_functions(spec),
        MAIN_TEXT + "\n".join(_lane_declarations(spec)),
    ]
    lines += _span_loop_start(spec) if spec.has_positional_mask else []
    bounds = ("start", "stop") if spec.has_positional_mask else ("0u", "u.key")
    loop_header = (
        f"first = {bounds[0]}; first < {bounds[1]}; first += {spec.tile_keys}u"
    )
    lines += [f"  for (var {loop_header}) {{"]
    lines += [*_tile_loads(spec), "    workgroupBarrier();"]
    dot_lines, is_split = _dot_products(spec), spec.lanes_per_query > 1
    loop_header = f"    for (var j = 0u; j < {spec.tile_keys}u; j += 4u) {{"
    if is_split:
        lines += [
            loop_header,
            *dot_lines,
            "    }",
            "    workgroupBarrier();",
            loop_header,
        ]
        index = (
            f"partial[j / 4u * {QUERIES_PER_WORKGROUP * spec.lanes_per_query}u + "
            f"lid % {QUERIES_PER_WORKGROUP}u"
        )
        sums = " + ".join(
            f"{index} + {h * QUERIES_PER_WORKGROUP}u]"
            for h in range(spec.lanes_per_query)
        )
        lines.append(f"      let dots = {sums};")
    else:
        lines += [loop_header, *dot_lines]
    lines += [*_online_softmax(spec), "    }", "    workgroupBarrier();", "  }"]
    lines += _span_loop_end(spec) if spec.has_positional_mask else []
    lines += [f"  if (block + lid % {QUERIES_PER_WORKGROUP}u >= u.query) {{ return; }}"]
    lines += ["  let all = 1.0 / total;"]
    for c in range(spec.vec4s_per_lane[1]):
        index = f"part * {spec.vec4s_per_lane[1]}u + {c}u"
        lines.append(
            f"  if ({index} < {spec.head_sizes[1] // 4}u) "
            f"{{ st3(to + {index}, r{c} * all); }}"
        )
    return "\n".join([*lines, "}"])


def _lane_declarations(spec: AttentionKernelSpec) -> list[str]:
    """Declare the lane's query, its offsets and its accumulators."""
    query_vec4s, value_vec4s = spec.vec4s_per_lane
    lines = [
        f"  let blocks = (u.query + {QUERIES_PER_WORKGROUP - 1}u) / "
        f"{QUERIES_PER_WORKGROUP}u;",
        f"  let block = item % blocks * {QUERIES_PER_WORKGROUP}u;",
        "  let head = item / blocks % (u.head * u.share);",
        "  let batch = item / blocks / (u.head * u.share);",
        f"  let part = lid / {QUERIES_PER_WORKGROUP}u;",
        # Lanes beyond the last query do it again and keep the result to themselves.
        f"  let query = min(block + lid % {QUERIES_PER_WORKGROUP}u, u.query - 1u);",
        "  let from_q = batch * u.q_b + head * u.q_h + query * u.q_s;",
        "  let from_k = batch * u.k_b + head / u.share * u.k_h;",
        "  let from_v = batch * u.v_b + head / u.share * u.v_h;",
        "  let to = batch * u.o_b + head * u.o_h + query * u.o_s;",
        "  var top = -3.4028234e38;",
        "  var total = 0.0;",
    ]
    for c in range(query_vec4s):
        index = f"part * {query_vec4s}u + {c}u"
        load = f"ld0(from_q + {index}) * u.scale"
        if spec.lanes_per_query * query_vec4s * 4 != spec.head_sizes[0]:
            lines += [
                f"  var q{c} = F();",
                f"  if ({index} < {spec.head_sizes[0] // 4}u) {{ q{c} = {load}; }}",
            ]
        else:
            lines.append(f"  let q{c} = {load};")
    return lines + [f"  var r{c} = F();" for c in range(value_vec4s)]


_NEWEST_KEY_FUNCTION = (
    "// The last key that a query sees.",
    "fn newest(query: u32) -> i32 {",
    "  return i32(u.at_query + query + u.key) - i32(u.behind);",
    "}",
)
MIN_UNMASKED_SCORE = "-9e8"
"""Score above which a masked score of -1e9 has no weight."""


def _span_loop_start(spec: AttentionKernelSpec) -> list[str]:
    """Open the loop over spans: first the whole tiles from `begin` to `end`, then the
    others if needed.
    """
    oldest_offset = (
        "- i32(u.window)" if spec.mask_kind == "sliding_window" else "- newest(block)"
    )
    newest_key = f"newest(min(block + {QUERIES_PER_WORKGROUP - 1}u, u.query - 1u))"
    tile = f"{spec.tile_keys}u"
    return [
        f"  let after = u32(max({newest_key} + 1, 0)) + {tile} - 1u;",
        f"  let end = min(after / {tile} * {tile}, u.key);",
        f"  let oldest = u32(max(newest(block) {oldest_offset}, 0));",
        f"  let begin = min(oldest / {tile} * {tile}, end);",
        "  if (lid == 0u) { atomicStore(&unseen, 0u); }",
        "  workgroupBarrier();",
        "  var start = begin;",
        "  var stop = end;",
        "  var spans = 1u;",
        "  for (var span = 0u; span < spans; span++) {",
    ]


def _span_loop_end(spec: AttentionKernelSpec) -> list[str]:
    """Close the loop over spans: choose the next one, or check the values that were
    left out.
    """
    vec4s, groups = spec.vec4s_per_lane[1], spec.head_sizes[1] // 4
    width = vec4s * spec.lanes_per_query
    sums = [f"    var bad{c} = F();" for c in range(vec4s)]
    sums += [f"    for (var n = 0u; n < {spec.checked_keys}u; n++) {{"]
    for c in range(vec4s):
        sums.append(f"      bad{c} += values[n * {width}u + part * {vec4s}u + {c}u];")
    sums += ["    }"]
    sums += [f"    r{c} = nan_where(bad{c} > F(), r{c});" for c in range(vec4s)]
    return [
        "    if (span == 0u) {",
        f"      if (top < {MIN_UNMASKED_SCORE}) {{ atomicStore(&unseen, 1u); }}",
        "      workgroupBarrier();",
        "      if (lid == 0u) { rest = atomicLoad(&unseen); }",
        "      if (workgroupUniformLoad(&rest) > 0u) { spans = 3u; }",
        "    }",
        "    start = select(end, 0u, span == 0u);",
        "    stop = select(u.key, begin, span == 0u);",
        "  }",
        "  if (spans == 1u) {",
        f"    let c = lid % {width}u;",
        "    var bad = F();",
        f"    if (lid < {spec.checked_keys * width}u && c < {groups}u) {{",
        f"      for (var at = lid / {width}u; at < u.key; at += {spec.checked_keys}u) "
        f"{{",
        "        if (at < begin || at >= end) {",
        "          let v = ld2(from_v + at * u.v_s + c);",
        "          bad = select(bad, F(1), not_finite(v));",
        "        }",
        "      }",
        "    }",
        f"    if (lid < {spec.checked_keys * width}u) {{ values[lid] = bad; }}",
        "    workgroupBarrier();",
        *sums,
        "  }",
    ]


def _tile_loads(spec: AttentionKernelSpec) -> list[str]:
    """Load a tile of keys and one of values, with zeros beyond the last key."""
    lines = []
    lanes = QUERIES_PER_WORKGROUP * spec.lanes_per_query
    for name, letter, access, vec4s, size in (
        ("keys", "k", 1, spec.vec4s_per_lane[0], spec.head_sizes[0]),
        ("values", "v", 2, spec.vec4s_per_lane[1], spec.head_sizes[1]),
    ):
        width = vec4s * spec.lanes_per_query
        lines += [
            f"    for (var i = lid; i < {spec.tile_keys * width}u; i += {lanes}u) {{",
            f"      let at = first + i / {width}u;",
            f"      let c = i % {width}u;",
            "      var v = F();",
            f"      if (at < u.key && c < {size // 4}u) {{",
            f"        v = ld{access}(from_{letter} + at * u.{letter}_s + c);",
            "      }",
            f"      {name}[i] = v;",
            "    }",
        ]
    return lines


def _dot_products(spec: AttentionKernelSpec) -> list[str]:
    """Multiply four keys with a lane's part of its query."""
    vec4s = spec.vec4s_per_lane[0]
    width = vec4s * spec.lanes_per_query
    lines = [f"      let from_key = j * {width}u + part * {vec4s}u;"]
    lines += [f"      var d{n} = q0 * keys[from_key + {n * width}u];" for n in range(4)]
    for c in range(1, vec4s):
        lines += [
            f"      d{n} = fma(q{c}, keys[from_key + {n * width + c}u], d{n});"
            for n in range(4)
        ]
    sums = ", ".join(f"(d{n}.x + d{n}.y) + (d{n}.z + d{n}.w)" for n in range(4))
    if spec.lanes_per_query > 1:
        index = f"j / 4u * {QUERIES_PER_WORKGROUP * spec.lanes_per_query}u + lid"
        return [*lines, f"      partial[{index}] = F({sums});"]
    return [*lines, f"      let dots = F({sums});"]


def _online_softmax(spec: AttentionKernelSpec) -> list[str]:
    """Update the running softmax with four keys and their values."""
    vec4s = spec.vec4s_per_lane[1]
    width = vec4s * spec.lanes_per_query
    lines = [
        "      let at = vec4<u32>(first + j) + vec4<u32>(0u, 1u, 2u, 3u);",
        "      let there = at < vec4<u32>(u.key);",
        "      let s = score(dots, batch, head, query, at);",
        "      let seen = select(F(-3.4028234e38), s, there);",
        "      let high = max(max(seen.x, seen.y), max(seen.z, seen.w));",
        "      if (high > top) {",
        "        let less = exp(max(top - high, -104.0));",
        "        total *= less;",
        *(f"        r{c} *= less;" for c in range(vec4s)),
        "        top = high;",
        "      }",
        "      let p = select(F(), weights(s - top), there);",
        "      total += (p.x + p.y) + (p.z + p.w);",
        f"      let from_value = j * {width}u + part * {vec4s}u;",
    ]
    for c in range(vec4s):
        for n, letter in enumerate("xyzw"):
            cell = f"values[from_value + {n * width + c}u]"
            lines.append(f"      r{c} = fma(F(p.{letter}), {cell}, r{c});")
    return lines


def _score_functions(spec: AttentionKernelSpec) -> list[str]:
    """Define the functions that turn four dot products into masked scores."""
    lines = [
        "// exp of -104 is 0 in f32; a driver's exp of less might overflow inside.",
        "fn weights(v: F) -> F { return keeps_nan(v, exp(max(v, F(-104.0)))); }",
        *(_NEWEST_KEY_FUNCTION if spec.has_positional_mask else ()),
        "fn score(dots: F, batch: u32, head: u32, query: u32, at: vec4<u32>) -> F {",
        "  var s = dots;",
    ]
    if spec.softcap is not None:
        lines.append("  s = keeps_nan(s, stable_tanh(s / u.cap)) * u.cap;")
    if spec.mask_dtype is not None:
        lines += [
            "  let from_mask = batch * u.m_b + head * u.m_h + query * u.m_s;",
            "  let key = min(at, vec4<u32>(u.key - 1u));",
            "  let cell = vec4<u32>(from_mask) + key * u.m_n;",
        ]
        cells = [f"ld4(cell.{c})" for c in "xyzw"]
    if spec.mask_dtype is not None and spec.mask_kind != "custom":
        lines.append(f"  s += F({', '.join(cells)});")
    if spec.mask_kind == "custom" and spec.mask_dtype is not None:
        condition = _KEEP_CONDITIONS.get(spec.mask_dtype, "")
        conditions = ", ".join(f"{cell}{condition}" for cell in cells)
        lines.append(f"  s = select(F(-1e9), s, vec4<bool>({conditions}));")
    if spec.has_positional_mask:
        lines += [
            "  let mine = newest(query);",
            "  let behind = vec4<i32>(mine) - vec4<i32>(at);",
            "  var keep = behind >= vec4<i32>(0);",
        ]
        if spec.mask_kind == "sliding_window":
            lines.append("  keep = keep & (behind <= vec4<i32>(i32(u.window)));")
        lines.append("  s = select(F(-1e9), s, keep);")
    return [*lines, "  return s;", "}"]


_KEEP_CONDITIONS = {
    DType.F32: " >= 0.5",
    DType.F16: " >= 0.5",
    DType.I32: " >= 1",
    DType.U32: " >= 1u",
}
