"""How a fused Welch kernel ends: power written out, or the strongest bins picked.

Each ending gets the bins in a loop whose text defines `p`, the power of bin `i`, and
knows the store function of the output: `scan` is the text over all bins, given the
lines that define `p`, and `room` declares a workgroup's memory for it. Peaks are (bin,
power) pairs, strongest first, ties to the smaller bin. A power that is NaN is passed
over; places that no number took are NaN, as in a row without numbers every place is.
How many are wanted is the uniform `u.k`, so that another number is no new shader. Knows
no transform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlxweb.recipes.fft_rows import ONE_LANE, WORKGROUP, Loop

MOST_INSERTED = 32
"""Longest sorted list that a lane keeps in registers."""
MOST_LANES = 256
"""Largest workgroup of a group kernel."""
NOTHING = "-3.4028234e38"

SHARED_SUM = """    parts[lid] = part;
    workgroupBarrier();
    for (var s = WG / 2u; s > 0u; s /= 2u) {
      if (lid < s) { parts[lid] += parts[lid + s]; }
      workgroupBarrier();
    }
    part = parts[0];
"""


@dataclass(frozen=True, slots=True)
class Plain:
    """Every power is written, by a lane or by a workgroup."""

    room: ClassVar = ""
    shared_bytes: ClassVar = 0
    store: str
    pitch: int
    loop: Loop = ONE_LANE

    def scan(self, bins: int, power: str) -> str:
        line = f"    {self.store}(row * {self.pitch}u + i, p);"
        end = "\n" if self.loop is WORKGROUP else ""
        return self.loop.over(bins, f"{power}\n{line}", "i") + end


@dataclass(frozen=True, slots=True)
class Insertion:
    """A lane keeps the strongest in registers, sorted, guarded by the weakest.

    No uniform can count registers: there are as many as the next power of two.
    """

    room: ClassVar = ""
    store: str
    k: int

    @property
    def places(self) -> int:
        """A power of two, k or more."""
        return 1 << (self.k - 1).bit_length()

    def scan(self, bins: int, power: str) -> str:
        places = self.places
        lists = "".join(
            f"  var p{q} = {NOTHING};\n  var b{q} = 0u;\n" for q in range(places)
        )
        body = f"{power}\n    if (p > p{places - 1}) {{\n{self._insert()}\n    }}"
        walk = ONE_LANE.over(bins, body, "i")
        ends = "".join(
            f"  if ({q}u < u.k) {{\n"
            f"    let none = p{q} == {NOTHING};\n"
            f"    {self.store}(list + {2 * q}u, select(f32(b{q}), {q}.0, none));\n"
            f"    {self.store}(list + {2 * q + 1}u, nan_where(none, p{q}));\n"
            "  }\n"
            for q in range(places)
        )
        return f"{lists}{walk}\n  let list = row * u.k * 2u;\n{ends}"

    def _insert(self) -> str:
        # From the weakest up, each place takes its upper neighbour, p, or stays:
        # no place waits for another, unlike a bubble.
        lines = [f"      let up{q} = p > p{q};" for q in range(self.places)]
        for q in range(self.places - 1, 0, -1):
            for name, new in (("p", "p"), ("b", "i")):
                moved = f"select({new}, {name}{q - 1}, up{q - 1})"
                lines.append(f"      {name}{q} = select({name}{q}, {moved}, up{q});")
        lines.append("      p0 = select(p0, p, up0);")
        lines.append("      b0 = select(b0, i, up0);")
        return "\n".join(lines)


def listed_turns(bins: int) -> int:
    """Loop turns of a lane at most, to find the strongest bins by `Listed`."""
    return (bins + 2) * (MOST_INSERTED + 1)


# Weaker ones move down by one; the new one takes the place of the first that is.
_INSERT = """\
      for (var q = {last}u; q > 0u; q--) {{
        let above = p > best[q - 1u];
        let here = p > best[q];
        best[q] = select(select(best[q], p, here), best[q - 1u], above);
        best_bin[q] = select(select(best_bin[q], i, here), best_bin[q - 1u], above);
      }}
      let first = p > best[0];
      best[0] = select(best[0], p, first);
      best_bin[0] = select(best_bin[0], i, first);"""


@dataclass(frozen=True, slots=True)
class Listed:
    """As `Insertion`, with the strongest in two lists of the lane's own: a text that
    compiles faster.
    """

    store: str
    k: int

    @property
    def places(self) -> int:
        """A power of two, k or more."""
        return 1 << (self.k - 1).bit_length()

    @property
    def room(self) -> str:
        """The lists: powers, and their bins."""
        return (
            f"var<private> best: array<f32, {self.places}>;\n"
            f"var<private> best_bin: array<u32, {self.places}>;\n"
        )

    def scan(self, bins: int, power: str) -> str:
        # A loop of at most one turn: a driver that runs lanes in step jumps over a loop
        # that none of them enters, and walks through an `if` all the same.
        body = (
            f"{power}\n    for (var more = p > best[{self.places - 1}]; more; "
            f"more = false) {{\n{_INSERT.format(last=self.places - 1)}\n    }}"
        )
        return f"""  for (var q = 0u; q < {self.places}u; q++) {{
    best[q] = {NOTHING};
    best_bin[q] = 0u;
  }}
{ONE_LANE.over(bins, body, "i")}
  let list = row * u.k * 2u;
  for (var q = 0u; q < u.k; q++) {{
    let p = best[q];
    let none = p == {NOTHING};
    {self.store}(list + 2u * q, f32(select(best_bin[q], q, none)));
    {self.store}(list + 2u * q + 1u, nan_where(none, p));
  }}
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A workgroup picks k bins with a handful of barriers, whatever k is.

    Every lane finds its own strongest bin; the k-th of those is a floor that at least k
    bins reach. The few that do are gathered and ranked by counting who beats whom.
    Needs the arrays `re`, `im` (free by now) and `total`.
    """

    room: ClassVar = (
        f"var<workgroup> best_power: array<f32, {MOST_LANES}>;\n"
        f"var<workgroup> best_bin: array<u32, {MOST_LANES}>;\n"
        "var<workgroup> floor_power: f32;\n"
        "var<workgroup> floor_bin: u32;\n"
        "var<workgroup> found: atomic<u32>;\n"
    )
    shared_bytes: ClassVar = 8 * MOST_LANES + 12
    store: str

    def scan(self, bins: int, power: str) -> str:
        best = WORKGROUP.over(
            bins,
            f"{power}\n    total[i] = p;\n"
            "    if (p > mine) { mine = p; mine_bin = i; }",
            "i",
        )
        gather = WORKGROUP.over(
            bins,
            "    let p = total[i];\n"
            "    if (p > floor_power || (p == floor_power && i <= floor_bin)) {\n"
            "      let at = atomicAdd(&found, 1u);\n"
            "      re[at] = p;\n"
            "      im[at] = f32(i);\n"
            "    }",
            "i",
        )
        return f"""  var mine = {NOTHING};
  var mine_bin = {bins}u;
{best}
  best_power[lid] = mine;
  best_bin[lid] = mine_bin;
  if (lid == 0u) {{
    floor_power = {NOTHING};
    floor_bin = {bins}u;
    atomicStore(&found, 0u);
  }}
  workgroupBarrier();
  var above = 0u;
  for (var l = 0u; l < WG; l++) {{
    let p = best_power[l];
    above += u32(p > mine || (p == mine && best_bin[l] < mine_bin));
  }}
  if (above == u.k - 1u && mine_bin < {bins}u) {{
    floor_power = mine;
    floor_bin = mine_bin;
  }}
  workgroupBarrier();
{gather}
  workgroupBarrier();
  let count = atomicLoad(&found);
  for (var c = lid; c < count; c += WG) {{
    let p = re[c];
    let bin = im[c];
    var rank = 0u;
    for (var other = 0u; other < count; other++) {{
      let q = re[other];
      rank += u32(q > p || (q == p && im[other] < bin));
    }}
    if (rank < u.k) {{
      {self.store}(row * u.k * 2u + 2u * rank, bin);
      {self.store}(row * u.k * 2u + 2u * rank + 1u, p);
    }}
  }}
  for (var c = count + lid; c < u.k; c += WG) {{
    {self.store}(row * u.k * 2u + 2u * c, f32(c));
    {self.store}(row * u.k * 2u + 2u * c + 1u, nan_where(true, 0.0));
  }}
"""


LaneFinish = Plain | Insertion | Listed
GroupFinish = Plain | Ranking
