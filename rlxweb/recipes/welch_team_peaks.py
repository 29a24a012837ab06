"""How a Welch kernel of teams ends: powers written out, or each team picks its peaks.

The powers of a lane's bins are in registers, `p0`, `p1`, … of bins t, t + lanes, …; the
memory of the transform is free, and serves as the pool that the peaks are ranked in.
(bin, power) pairs, ties and NaN are as `welch_select` has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlxweb.recipes.fft_team import Team

NOTHING = "-3.4028234e38"
NAN = "0x7fc00000u"
HEADS = 32
"""Strongest bins that are compared with each other, unless four times k are more."""


@dataclass(frozen=True, slots=True)
class Powers:
    """Every power is written."""

    extra_bytes: ClassVar = 0
    store: str

    def room(self, team: Team) -> str:
        return ""

    def text(self, team: Team, bins: int) -> str:
        per = -(-bins // team.lanes)
        lines = ["  if (on) {"]
        for q in range(per):
            i = f"t + {q * team.lanes}u"
            line = f"{self.store}(row * {bins}u + {i}, p{q});"
            spare = (q + 1) * team.lanes > bins
            lines.append(
                f"    if ({i} < {bins}u) {{ {line} }}" if spare else f"    {line}"
            )
        return "\n".join([*lines, "  }\n"])


@dataclass(frozen=True, slots=True)
class Pool:
    """Where the pairs of a ranking lie in the memory of the transform.

    Beside each other in two arrays, or in the halves of the one there is. The last
    place is kept for the floor.
    """

    team: Team

    @property
    def places(self) -> int:
        """Pairs that it holds beside the floor."""
        return (self.team.n // 2 if self.team.split else self.team.n) - 1

    def power(self, place: str) -> str:
        return f"re[{self.team.level(place)}]"

    def bin(self, place: str) -> str:
        if not self.team.split:
            return f"im[{self.team.level(place)}]"
        return f"re[{self.team.level(f'({self.team.n // 2}u + {place})')}]"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The k strongest bins of every team's row.

    Every lane finds its own strongest bin, and in a large team the stronger of two goes
    on until few are left; the k-th of those is a floor that at least k bins reach. The
    few that do are gathered and ranked by counting who beats whom.
    """

    extra_bytes: ClassVar = 4
    store: str

    def fits(self, team: Team, bins: int, k: int) -> bool:
        """Whether the pool holds every bin that may reach the floor."""
        if team.lanes < k:
            return bins <= Pool(team).places
        heads = team.lanes
        while heads >= max(4 * k, 2 * HEADS) and heads % 2 == 0:
            heads //= 2
        most = k * -(-bins // team.lanes) * (team.lanes // heads)
        return min(most, bins) <= Pool(team).places

    def room(self, team: Team) -> str:
        return f"var<workgroup> found: array<atomic<u32>, {team.teams}>;\n"

    def text(self, team: Team, bins: int) -> str:
        pool = Pool(team)
        own = self._own(team, bins)
        return (
            f"{own}  workgroupBarrier();\n"  # the powers were read from the pool
            f"  {pool.power('t')} = mine;\n  {pool.bin('t')} = f32(mine_bin);\n"
            f"  if (t == 0u) {{\n    {self._floor(pool, NOTHING, f'{bins}.0')}\n"
            "    atomicStore(&found[team], 0u);\n  }\n  workgroupBarrier();\n"
            f"{self._heads(team, pool)}{self._level(team, pool, bins)}"
            f"{self._gather(team, pool, bins)}{self._ranks(team, pool)}"
        )

    def _own(self, team: Team, bins: int) -> str:
        lines = [f"  var mine = {NOTHING};", f"  var mine_bin = {bins}u;"]
        for q in range(-(-bins // team.lanes)):
            i = f"t + {q * team.lanes}u"
            spare = (q + 1) * team.lanes > bins
            more = f" && {i} < {bins}u" if spare else ""
            lines.append(f"  if (p{q} > mine{more}) {{ mine = p{q}; mine_bin = {i}; }}")
        return "\n".join(lines) + "\n"

    def _floor(self, pool: Pool, power: str, bin_: str) -> str:
        last = f"{pool.places}u"
        return f"{pool.power(last)} = {power}; {pool.bin(last)} = {bin_};"

    def _heads(self, team: Team, pool: Pool) -> str:
        """The stronger of two lanes goes on, as long as four times k are left."""
        head = f"  var heads = {team.lanes}u;\n  var mine_at = f32(mine_bin);\n"
        if team.lanes < 2 * HEADS or team.lanes % 2:
            return head
        return (
            f"{head}  for (var s = {team.lanes // 2}u; s >= max(2u * u.k, {HEADS}u); "
            "s /= 2u) {\n    if (t < s) {\n"
            f"      let p = {pool.power('(t + s)')};\n"
            f"      let i = {pool.bin('(t + s)')};\n"
            "      if (p > mine || (p == mine && i < mine_at)) {\n"
            "        mine = p;\n        mine_at = i;\n"
            f"        {pool.power('t')} = p;\n        {pool.bin('t')} = i;\n"
            "      }\n    }\n    heads = s;\n    workgroupBarrier();\n  }\n"
        )

    def _level(self, team: Team, pool: Pool, bins: int) -> str:
        """The lane whose bin is the k-th strongest says so."""
        return (
            "  if (t < heads) {\n    var above = 0u;\n"
            "    for (var l = 0u; l < heads; l++) {\n"
            f"      let p = {pool.power('l')};\n"
            f"      let i = {pool.bin('l')};\n"
            "      above += u32(p > mine || (p == mine && i < mine_at));\n    }\n"
            f"    if (above == u.k - 1u && mine_at < {bins}.0) {{\n"
            f"      {self._floor(pool, 'mine', 'mine_at')}\n    }}\n  }}\n"
            "  workgroupBarrier();\n"
            f"  let floor_power = {pool.power(f'{pool.places}u')};\n"
            f"  let floor_bin = {pool.bin(f'{pool.places}u')};\n"
        )

    def _gather(self, team: Team, pool: Pool, bins: int) -> str:
        lines = []
        for q in range(-(-bins // team.lanes)):
            i = f"t + {q * team.lanes}u"
            spare = (q + 1) * team.lanes > bins
            more = f"{i} < {bins}u && " if spare else ""
            lines.append(
                f"  if ({more}(p{q} > floor_power || (p{q} == floor_power && "
                f"f32({i}) <= floor_bin))) {{\n"
                "    let at = atomicAdd(&found[team], 1u);\n"
                f"    {pool.power('at')} = p{q};\n"
                f"    {pool.bin('at')} = f32({i});\n  }}"
            )
        return "\n".join(lines) + "\n  workgroupBarrier();\n"

    def _ranks(self, team: Team, pool: Pool) -> str:
        return f"""  let count = atomicLoad(&found[team]);
  let list = row * u.k * 2u;
  for (var c = t; c < count; c += {team.lanes}u) {{
    let p = {pool.power("c")};
    let bin = {pool.bin("c")};
    var rank = 0u;
    for (var other = 0u; other < count; other++) {{
      let q = {pool.power("other")};
      let i = {pool.bin("other")};
      rank += u32(q > p || (q == p && i < bin));
    }}
    if (rank < u.k && on) {{
      {self.store}(list + 2u * rank, bin);
      {self.store}(list + 2u * rank + 1u, p);
    }}
  }}
  for (var c = count + t; c < u.k; c += {team.lanes}u) {{
    if (on) {{
      {self.store}(list + 2u * c, f32(c));
      {self.store}(list + 2u * c + 1u, bitcast<f32>(select(0u, {NAN}, c >= count)));
    }}
  }}
"""


Finish = Powers | Ranking
