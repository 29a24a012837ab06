"""Output stages of the cooperative Welch kernels: powers written out, or the peaks
selected by each team.

The powers of a lane's bins are in registers, `p0`, `p1`, … of bins t, t + lanes, …; the
memory of the transform is free, and serves as the pool that the peaks are ranked in.
(bin, power) pairs, ties and NaN are as `welch_select` has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlxweb.ops.fft.wgsl.cooperative import CooperativeFftLayout

NO_POWER = "-3.4028234e38"
NAN_BITS = "0x7fc00000u"
MIN_HEADS = 32
"""Strongest bins that are compared with each other, unless four times k are more."""


@dataclass(frozen=True, slots=True)
class CooperativePowerOutput:
    """Output stage that writes every power."""

    extra_bytes: ClassVar = 0
    store_function: str

    def declarations(self, team: CooperativeFftLayout) -> str:
        """Return the declarations of workgroup memory."""
        return ""

    def output_wgsl(self, team: CooperativeFftLayout, bins: int) -> str:
        """Return the WGSL that writes the powers."""
        bins_per_lane = -(-bins // team.lanes_per_row)
        lines = ["  if (on) {"]
        for q in range(bins_per_lane):
            i = f"t + {q * team.lanes_per_row}u"
            store = f"{self.store_function}(row * {bins}u + {i}, p{q});"
            needs_check = (q + 1) * team.lanes_per_row > bins
            lines.append(
                f"    if ({i} < {bins}u) {{ {store} }}"
                if needs_check
                else f"    {store}"
            )
        return "\n".join([*lines, "  }\n"])


@dataclass(frozen=True, slots=True)
class PeakCandidatePool:
    """Layout of the ranked (bin, power) pairs in the memory of the transform.

    Beside each other in two arrays, or in the halves of the one there is. The last
    place is kept for the floor.
    """

    team: CooperativeFftLayout

    @property
    def capacity(self) -> int:
        """Number of pairs that fit besides the floor."""
        return (self.team.n // 2 if self.team.is_split else self.team.n) - 1

    def power(self, position: str) -> str:
        """Return the WGSL of the power at a position."""
        return f"re[{self.team.linear_cell(position)}]"

    def bin(self, position: str) -> str:
        """Return the WGSL of the bin at a position."""
        if not self.team.is_split:
            return f"im[{self.team.linear_cell(position)}]"
        return f"re[{self.team.linear_cell(f'({self.team.n // 2}u + {position})')}]"


@dataclass(frozen=True, slots=True)
class CooperativePeakOutput:
    """Output stage that selects the k strongest bins of every team's row.

    Every lane finds its own strongest bin, and in a large team the stronger of two goes
    on until few are left; the k-th of those is a floor that at least k bins reach. The
    few that do are gathered and ranked by counting who beats whom.
    """

    extra_bytes: ClassVar = 4
    store_function: str

    def fits(self, team: CooperativeFftLayout, bins: int, k: int) -> bool:
        """Return whether the pool holds every bin that may reach the floor."""
        if team.lanes_per_row < k:
            return bins <= PeakCandidatePool(team).capacity
        heads = team.lanes_per_row
        while heads >= max(4 * k, 2 * MIN_HEADS) and heads % 2 == 0:
            heads //= 2
        max_candidates = (
            k * -(-bins // team.lanes_per_row) * (team.lanes_per_row // heads)
        )
        return min(max_candidates, bins) <= PeakCandidatePool(team).capacity

    def declarations(self, team: CooperativeFftLayout) -> str:
        """Return the declarations of workgroup memory."""
        return f"var<workgroup> found: array<atomic<u32>, {team.lane_groups}>;\n"

    def output_wgsl(self, team: CooperativeFftLayout, bins: int) -> str:
        """Return the WGSL that selects and writes the peaks."""
        pool = PeakCandidatePool(team)
        lane_best = self._lane_best_wgsl(team, bins)
        return (
            f"{lane_best}  workgroupBarrier();\n"  # the powers were read from the pool
            f"  {pool.power('t')} = mine;\n  {pool.bin('t')} = f32(mine_bin);\n"
            f"  if (t == 0u) "
            f"{{\n    {self._set_floor_wgsl(pool, NO_POWER, f'{bins}.0')}\n"
            "    atomicStore(&found[team], 0u);\n  }\n  workgroupBarrier();\n"
            f"{self._heads_wgsl(team, pool)}{self._find_floor_wgsl(team, pool, bins)}"
            f"{self._gather_wgsl(team, pool, bins)}{self._rank_wgsl(team, pool)}"
        )

    def _lane_best_wgsl(self, team: CooperativeFftLayout, bins: int) -> str:
        """Return the WGSL that finds the strongest bin of each lane."""
        lines = [f"  var mine = {NO_POWER};", f"  var mine_bin = {bins}u;"]
        for q in range(-(-bins // team.lanes_per_row)):
            i = f"t + {q * team.lanes_per_row}u"
            needs_check = (q + 1) * team.lanes_per_row > bins
            bounds_check = f" && {i} < {bins}u" if needs_check else ""
            lines.append(
                f"  if (p{q} > mine{bounds_check}) {{ mine = p{q}; mine_bin = {i}; }}"
            )
        return "\n".join(lines) + "\n"

    def _set_floor_wgsl(self, pool: PeakCandidatePool, power: str, bin_: str) -> str:
        """Return the WGSL that sets the floor to a power and a bin."""
        position = f"{pool.capacity}u"
        return f"{pool.power(position)} = {power}; {pool.bin(position)} = {bin_};"

    def _heads_wgsl(self, team: CooperativeFftLayout, pool: PeakCandidatePool) -> str:
        """Return the WGSL that keeps the stronger of two lanes' bins while at least
        four times k are left.
        """
        declarations_wgsl = (
            f"  var heads = {team.lanes_per_row}u;\n  var mine_at = f32(mine_bin);\n"
        )
        if team.lanes_per_row < 2 * MIN_HEADS or team.lanes_per_row % 2:
            return declarations_wgsl
        return (
            f"{declarations_wgsl}  for (var s = {team.lanes_per_row // 2}u; s >= "
            f"max(2u * u.k, {MIN_HEADS}u); "
            "s /= 2u) {\n    if (t < s) {\n"
            f"      let p = {pool.power('(t + s)')};\n"
            f"      let i = {pool.bin('(t + s)')};\n"
            "      if (p > mine || (p == mine && i < mine_at)) {\n"
            "        mine = p;\n        mine_at = i;\n"
            f"        {pool.power('t')} = p;\n        {pool.bin('t')} = i;\n"
            "      }\n    }\n    heads = s;\n    workgroupBarrier();\n  }\n"
        )

    def _find_floor_wgsl(
        self, team: CooperativeFftLayout, pool: PeakCandidatePool, bins: int
    ) -> str:
        """Return the WGSL in which the lane with the k-th strongest bin sets the
        floor.
        """
        return (
            "  if (t < heads) {\n    var above = 0u;\n"
            "    for (var l = 0u; l < heads; l++) {\n"
            f"      let p = {pool.power('l')};\n"
            f"      let i = {pool.bin('l')};\n"
            "      above += u32(p > mine || (p == mine && i < mine_at));\n    }\n"
            f"    if (above == u.k - 1u && mine_at < {bins}.0) {{\n"
            f"      {self._set_floor_wgsl(pool, 'mine', 'mine_at')}\n    }}\n  }}\n"
            "  workgroupBarrier();\n"
            f"  let floor_power = {pool.power(f'{pool.capacity}u')};\n"
            f"  let floor_bin = {pool.bin(f'{pool.capacity}u')};\n"
        )

    def _gather_wgsl(
        self, team: CooperativeFftLayout, pool: PeakCandidatePool, bins: int
    ) -> str:
        """Return the WGSL that gathers the bins that reach the floor."""
        lines = []
        for q in range(-(-bins // team.lanes_per_row)):
            i = f"t + {q * team.lanes_per_row}u"
            needs_check = (q + 1) * team.lanes_per_row > bins
            bounds_check = f"{i} < {bins}u && " if needs_check else ""
            lines.append(
                f"  if ({bounds_check}(p{q} > floor_power || (p{q} == floor_power && "
                f"f32({i}) <= floor_bin))) {{\n"
                "    let at = atomicAdd(&found[team], 1u);\n"
                f"    {pool.power('at')} = p{q};\n"
                f"    {pool.bin('at')} = f32({i});\n  }}"
            )
        return "\n".join(lines) + "\n  workgroupBarrier();\n"

    def _rank_wgsl(self, team: CooperativeFftLayout, pool: PeakCandidatePool) -> str:
        """Return the WGSL that ranks the gathered bins and writes the first k."""
        padding = f"bitcast<f32>(select(0u, {NAN_BITS}, c >= count))"
        return f"""  let count = atomicLoad(&found[team]);
  let list = row * u.k * 2u;
  for (var c = t; c < count; c += {team.lanes_per_row}u) {{
    let p = {pool.power("c")};
    let bin = {pool.bin("c")};
    var rank = 0u;
    for (var other = 0u; other < count; other++) {{
      let q = {pool.power("other")};
      let i = {pool.bin("other")};
      rank += u32(q > p || (q == p && i < bin));
    }}
    if (rank < u.k && on) {{
      {self.store_function}(list + 2u * rank, bin);
      {self.store_function}(list + 2u * rank + 1u, p);
    }}
  }}
  for (var c = count + t; c < u.k; c += {team.lanes_per_row}u) {{
    if (on) {{
      {self.store_function}(list + 2u * c, f32(c));
      {self.store_function}(list + 2u * c + 1u, {padding});
    }}
  }}
"""


CooperativeOutput = CooperativePowerOutput | CooperativePeakOutput
