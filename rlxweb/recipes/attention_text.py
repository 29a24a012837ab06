"""The shader text of attention in one kernel; `attention_blocks` tells the method."""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.ir.dtype import DType
from rlxweb.recipes.entry import MAIN_TEXT

QUERIES = 64
MOST_HELD = 16
"""Groups of four a lane keeps of a query and of its result."""
TILE = 32
"""Keys in workgroup memory at a time, where a lane has a whole query."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the lines of an operand lie: steps of batch, head and position."""

    batch: int
    head: int
    position: int


@dataclass(frozen=True, slots=True)
class Job:
    """One attention: sizes, how the operands lie, what happens to the scores.

    heads    key heads; `share` query heads use each
    first    the key at which the first query stands
    size     of a head of q and k, and of v
    mask     "none", "causal", "sliding_window", "custom" or "bias"
    steps    of the mask over batch, head, query and key
    """

    batch: int
    heads: int
    share: int
    queries: int
    keys: int
    first: int
    size: tuple[int, int]
    lines: tuple[Lines, Lines, Lines, Lines]
    scale: float
    softcap: float | None
    mask: str
    mask_dtype: DType | None = None
    steps: tuple[int, int, int, int] = (0, 0, 0, 0)
    window: int = 0

    @property
    def split(self) -> int:
        """Lanes that share a query, a power of two."""
        least = -(-max(self.size) // (4 * MOST_HELD))
        return 1 << (least - 1).bit_length()

    @property
    def tile(self) -> int:
        return TILE // self.split

    @property
    def held(self) -> tuple[int, int]:
        """Groups of four a lane holds of a query, and of a result."""
        q, v = (-(-n // (4 * self.split)) for n in self.size)
        return q, v

    @property
    def seen(self) -> bool:
        """Whether the mask tells which tiles a block of queries sees."""
        return self.mask in ("causal", "sliding_window")

    @property
    def looked(self) -> int:
        """Keys whose values a workgroup looks through at a time."""
        return min(self.tile, QUERIES // self.held[1])

    @property
    def shared_bytes(self) -> int:
        cells = self.tile * self.split * sum(self.held)
        return 16 * (cells + self._exchanged) + 8 * self.seen

    @property
    def _exchanged(self) -> int:
        """Groups of four partial scores that lanes of a query tell each other."""
        return self.tile // 4 * QUERIES * self.split if self.split > 1 else 0


def text(job: Job) -> str:
    """The functions and `main`, after the prelude of accesses."""
    rooms = [
        f"var<workgroup> keys: array<F, {job.tile * job.split * job.held[0]}>;",
        f"var<workgroup> values: array<F, {job.tile * job.split * job.held[1]}>;",
    ]
    if job.split > 1:
        rooms.append(f"var<workgroup> partial: array<F, {job._exchanged}>;")
    if job.seen:
        rooms.append("var<workgroup> unseen: atomic<u32>;\nvar<workgroup> rest: u32;")
    lines = [*rooms, *_scores(job), MAIN_TEXT + "\n".join(_places(job))]
    lines += _spans(job) if job.seen else []
    span = ("start", "stop") if job.seen else ("0u", "u.key")
    walk = f"first = {span[0]}; first < {span[1]}; first += {job.tile}u"
    lines += [f"  for (var {walk}) {{"]
    lines += [*_fills(job), "    workgroupBarrier();"]
    dots, apart = _dots(job), job.split > 1
    walk = f"    for (var j = 0u; j < {job.tile}u; j += 4u) {{"
    if apart:
        lines += [walk, *dots, "    }", "    workgroupBarrier();", walk]
        at = f"partial[j / 4u * {QUERIES * job.split}u + lid % {QUERIES}u"
        sums = " + ".join(f"{at} + {h * QUERIES}u]" for h in range(job.split))
        lines.append(f"      let dots = {sums};")
    else:
        lines += [walk, *dots]
    lines += [*_softmax(job), "    }", "    workgroupBarrier();", "  }"]
    lines += _unseen(job) if job.seen else []
    lines += [f"  if (block + lid % {QUERIES}u >= u.query) {{ return; }}"]
    lines += ["  let all = 1.0 / total;"]
    for c in range(job.held[1]):
        at = f"part * {job.held[1]}u + {c}u"
        lines.append(
            f"  if ({at} < {job.size[1] // 4}u) {{ st3(to + {at}, r{c} * all); }}"
        )
    return "\n".join([*lines, "}"])


def _places(job: Job) -> list[str]:
    held_q, held_v = job.held
    lines = [
        f"  let blocks = (u.query + {QUERIES - 1}u) / {QUERIES}u;",
        f"  let block = item % blocks * {QUERIES}u;",
        "  let head = item / blocks % (u.head * u.share);",
        "  let batch = item / blocks / (u.head * u.share);",
        f"  let part = lid / {QUERIES}u;",
        # Lanes beyond the last query do it again and keep the result to themselves.
        f"  let query = min(block + lid % {QUERIES}u, u.query - 1u);",
        "  let from_q = batch * u.q_b + head * u.q_h + query * u.q_s;",
        "  let from_k = batch * u.k_b + head / u.share * u.k_h;",
        "  let from_v = batch * u.v_b + head / u.share * u.v_h;",
        "  let to = batch * u.o_b + head * u.o_h + query * u.o_s;",
        "  var top = -3.4028234e38;",
        "  var total = 0.0;",
    ]
    for c in range(held_q):
        at = f"part * {held_q}u + {c}u"
        load = f"ld0(from_q + {at}) * u.scale"
        if job.split * held_q * 4 != job.size[0]:
            lines += [
                f"  var q{c} = F();",
                f"  if ({at} < {job.size[0] // 4}u) {{ q{c} = {load}; }}",
            ]
        else:
            lines.append(f"  let q{c} = {load};")
    return lines + [f"  var r{c} = F();" for c in range(held_v)]


_NEWEST = (
    "// The last key that a query sees.",
    "fn newest(query: u32) -> i32 {",
    "  return i32(u.at_query + query + u.key) - i32(u.behind);",
    "}",
)
LOW = "-9e8"
"""A score above it makes a masked one, of -1e9, weigh nothing."""


def _spans(job: Job) -> list[str]:
    """Whole tiles from `begin` to `end` first, and the others if need be."""
    window = "- i32(u.window)" if job.mask == "sliding_window" else "- newest(block)"
    last = f"newest(min(block + {QUERIES - 1}u, u.query - 1u))"
    tile = f"{job.tile}u"
    return [
        f"  let after = u32(max({last} + 1, 0)) + {tile} - 1u;",
        f"  let end = min(after / {tile} * {tile}, u.key);",
        f"  let oldest = u32(max(newest(block) {window}, 0));",
        f"  let begin = min(oldest / {tile} * {tile}, end);",
        "  if (lid == 0u) { atomicStore(&unseen, 0u); }",
        "  workgroupBarrier();",
        "  var start = begin;",
        "  var stop = end;",
        "  var spans = 1u;",
        "  for (var span = 0u; span < spans; span++) {",
    ]


def _unseen(job: Job) -> list[str]:
    """The end of a span: what comes next, or what is left."""
    held, groups = job.held[1], job.size[1] // 4
    width = held * job.split
    sums = [f"    var bad{c} = F();" for c in range(held)]
    sums += [f"    for (var n = 0u; n < {job.looked}u; n++) {{"]
    for c in range(held):
        sums.append(f"      bad{c} += values[n * {width}u + part * {held}u + {c}u];")
    sums += ["    }"]
    sums += [f"    r{c} = nan_where(bad{c} > F(), r{c});" for c in range(held)]
    return [
        "    if (span == 0u) {",
        f"      if (top < {LOW}) {{ atomicStore(&unseen, 1u); }}",
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
        f"    if (lid < {job.looked * width}u && c < {groups}u) {{",
        f"      for (var at = lid / {width}u; at < u.key; at += {job.looked}u) {{",
        "        if (at < begin || at >= end) {",
        "          let v = ld2(from_v + at * u.v_s + c);",
        "          bad = select(bad, F(1), not_finite(v));",
        "        }",
        "      }",
        "    }",
        f"    if (lid < {job.looked * width}u) {{ values[lid] = bad; }}",
        "    workgroupBarrier();",
        *sums,
        "  }",
    ]


def _fills(job: Job) -> list[str]:
    """A tile of keys and one of values, zeros beyond the last."""
    lines = []
    lanes = QUERIES * job.split
    for name, letter, access, held, size in (
        ("keys", "k", 1, job.held[0], job.size[0]),
        ("values", "v", 2, job.held[1], job.size[1]),
    ):
        width = held * job.split
        lines += [
            f"    for (var i = lid; i < {job.tile * width}u; i += {lanes}u) {{",
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


def _dots(job: Job) -> list[str]:
    """Four keys against a lane's part of its query."""
    held = job.held[0]
    width = held * job.split
    lines = [f"      let from_key = j * {width}u + part * {held}u;"]
    lines += [f"      var d{n} = q0 * keys[from_key + {n * width}u];" for n in range(4)]
    for c in range(1, held):
        lines += [
            f"      d{n} = fma(q{c}, keys[from_key + {n * width + c}u], d{n});"
            for n in range(4)
        ]
    sums = ", ".join(f"(d{n}.x + d{n}.y) + (d{n}.z + d{n}.w)" for n in range(4))
    if job.split > 1:
        at = f"j / 4u * {QUERIES * job.split}u + lid"
        return [*lines, f"      partial[{at}] = F({sums});"]
    return [*lines, f"      let dots = F({sums});"]


def _softmax(job: Job) -> list[str]:
    """The running softmax of four keys, and their values."""
    held = job.held[1]
    width = held * job.split
    lines = [
        "      let at = vec4<u32>(first + j) + vec4<u32>(0u, 1u, 2u, 3u);",
        "      let there = at < vec4<u32>(u.key);",
        "      let s = score(dots, batch, head, query, at);",
        "      let seen = select(F(-3.4028234e38), s, there);",
        "      let high = max(max(seen.x, seen.y), max(seen.z, seen.w));",
        "      if (high > top) {",
        "        let less = exp(max(top - high, -104.0));",
        "        total *= less;",
        *(f"        r{c} *= less;" for c in range(held)),
        "        top = high;",
        "      }",
        "      let p = select(F(), weights(s - top), there);",
        "      total += (p.x + p.y) + (p.z + p.w);",
        f"      let from_value = j * {width}u + part * {held}u;",
    ]
    for c in range(held):
        for n, letter in enumerate("xyzw"):
            cell = f"values[from_value + {n * width + c}u]"
            lines.append(f"      r{c} = fma(F(p.{letter}), {cell}, r{c});")
    return lines


def _scores(job: Job) -> list[str]:
    """What becomes of the products of a query and four keys."""
    lines = [
        "// exp of -104 is 0 in f32; a driver's exp of less might overflow inside.",
        "fn weights(v: F) -> F { return keeps_nan(v, exp(max(v, F(-104.0)))); }",
        *(_NEWEST if job.seen else ()),
        "fn score(dots: F, batch: u32, head: u32, query: u32, at: vec4<u32>) -> F {",
        "  var s = dots;",
    ]
    if job.softcap is not None:
        lines.append("  s = keeps_nan(s, stable_tanh(s / u.cap)) * u.cap;")
    if job.mask_dtype is not None:
        lines += [
            "  let from_mask = batch * u.m_b + head * u.m_h + query * u.m_s;",
            "  let key = min(at, vec4<u32>(u.key - 1u));",
            "  let cell = vec4<u32>(from_mask) + key * u.m_n;",
        ]
        cells = [f"ld4(cell.{c})" for c in "xyzw"]
    if job.mask_dtype is not None and job.mask != "custom":
        lines.append(f"  s += F({', '.join(cells)});")
    if job.mask == "custom" and job.mask_dtype is not None:
        least = _LEAST_KEPT.get(job.mask_dtype, "")
        keep = ", ".join(f"{cell}{least}" for cell in cells)
        lines.append(f"  s = select(F(-1e9), s, vec4<bool>({keep}));")
    if job.seen:
        lines += [
            "  let mine = newest(query);",
            "  let behind = vec4<i32>(mine) - vec4<i32>(at);",
            "  var keep = behind >= vec4<i32>(0);",
        ]
        if job.mask == "sliding_window":
            lines.append("  keep = keep & (behind <= vec4<i32>(i32(u.window)));")
        lines.append("  s = select(F(-1e9), s, keep);")
    return [*lines, "  return s;", "}"]


_LEAST_KEPT = {
    DType.F32: " >= 0.5",
    DType.F16: " >= 0.5",
    DType.I32: " >= 1",
    DType.U32: " >= 1u",
}
