"""Output stages of the per-workgroup Welch kernels: power written out, or the strongest
bins selected.

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

from rlxweb.ops.fft.wgsl.in_place import lane_loop

MAX_WORKGROUP_SIZE = 256
"""Largest workgroup of a per-workgroup kernel."""
NO_POWER = "-3.4028234e38"

WORKGROUP_SUM_WGSL = """    parts[lid] = part;
    workgroupBarrier();
    for (var s = WG / 2u; s > 0u; s /= 2u) {
      if (lid < s) { parts[lid] += parts[lid + s]; }
      workgroupBarrier();
    }
    part = parts[0];
"""


@dataclass(frozen=True, slots=True)
class WorkgroupPowerOutput:
    """Output stage that writes every power."""

    declarations: ClassVar = ""
    shared_bytes: ClassVar = 0
    store_function: str
    row_stride: int

    def bins_wgsl(self, bins: int, power: str) -> str:
        """Return the WGSL over all bins; `power` is the WGSL that defines `p`."""
        store = f"    {self.store_function}(row * {self.row_stride}u + i, p);"
        return lane_loop(bins, f"{power}\n{store}", "i") + "\n"


@dataclass(frozen=True, slots=True)
class WorkgroupPeakOutput:
    """Output stage in which a workgroup selects k bins with a few barriers, independent
    of k.

    Every lane finds its own strongest bin; the k-th of those is a floor that at least k
    bins reach. The few that do are gathered and ranked by counting who beats whom.
    Needs the arrays `re`, `im` (free by now) and `total`.
    """

    declarations: ClassVar = (
        f"var<workgroup> best_power: array<f32, {MAX_WORKGROUP_SIZE}>;\n"
        f"var<workgroup> best_bin: array<u32, {MAX_WORKGROUP_SIZE}>;\n"
        "var<workgroup> floor_power: f32;\n"
        "var<workgroup> floor_bin: u32;\n"
        "var<workgroup> found: atomic<u32>;\n"
    )
    shared_bytes: ClassVar = 8 * MAX_WORKGROUP_SIZE + 12
    store_function: str

    def bins_wgsl(self, bins: int, power: str) -> str:
        """Return the WGSL over all bins; `power` is the WGSL that defines `p`."""
        best = lane_loop(
            bins,
            f"{power}\n    total[i] = p;\n"
            "    if (p > mine) { mine = p; mine_bin = i; }",
            "i",
        )
        gather = lane_loop(
            bins,
            "    let p = total[i];\n"
            "    if (p > floor_power || (p == floor_power && i <= floor_bin)) {\n"
            "      let at = atomicAdd(&found, 1u);\n"
            "      re[at] = p;\n"
            "      im[at] = f32(i);\n"
            "    }",
            "i",
        )
        return f"""  var mine = {NO_POWER};
  var mine_bin = {bins}u;
{best}
  best_power[lid] = mine;
  best_bin[lid] = mine_bin;
  if (lid == 0u) {{
    floor_power = {NO_POWER};
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
      {self.store_function}(row * u.k * 2u + 2u * rank, bin);
      {self.store_function}(row * u.k * 2u + 2u * rank + 1u, p);
    }}
  }}
  for (var c = count + lid; c < u.k; c += WG) {{
    {self.store_function}(row * u.k * 2u + 2u * c, f32(c));
    {self.store_function}(row * u.k * 2u + 2u * c + 1u, nan_where(true, 0.0));
  }}
"""


WorkgroupOutput = WorkgroupPowerOutput | WorkgroupPeakOutput
