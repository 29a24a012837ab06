"""Search for `fft_team.SHIFTS`: run every pair of shifts and count its wavefronts.

`python -m tests.lanes.fft_bank_conflict_search [N …] [--radix 8]`
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rlxweb.core.limits import Limits
from rlxweb.ops.fft.wgsl.cooperative import (
    MAX_RADIX,
    CooperativeFftLayout,
    fit_cooperative_fft,
)
from rlxweb.ops.fft.wgsl.cooperative_plans import cooperative_row_transform
from rlxweb.ops.fft.wgsl.plan import plan_complex_fft
from tests.lanes.kernel_plan_interpreter import run_plan
from tests.lanes.workgroup_access_tracking import WorkgroupCounts

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1000, 1024, 1536)
LENGTHS += (2000, 2048, 3072, 4096, 6144, 8192)
DEVICE = Limits(
    max_compute_workgroup_storage_size=32 << 10,
    max_compute_invocations_per_workgroup=1024,
    max_compute_workgroup_size_x=1024,
)
SHIFT_LIMIT = 11


def shift_combinations() -> Iterator[tuple[int, ...]]:
    """Yield all choices of no shift, of one and of two."""
    for count in range(3):
        yield from itertools.combinations(range(1, SHIFT_LIMIT), count)


def count_workgroup(team: CooperativeFftLayout) -> WorkgroupCounts:
    """Run the transform and return the counts of one workgroup."""
    x = np.zeros((team.rows_per_workgroup, 2 * team.n), np.float32)
    plan = plan_complex_fft(
        team.rows_per_workgroup,
        team.n,
        False,
        "backward",
        cooperative_row_transform(lambda n: team),
    )
    return run_plan(
        plan, [x], x.size, replace(DEVICE, max_compute_workgroup_storage_size=1 << 20)
    )[1][0]


def main(lengths: list[int], max_radix: int) -> None:
    for n in lengths or LENGTHS:
        team = fit_cooperative_fft(n, DEVICE, 0, max_radix)
        if team is None:
            print(f"    # {n}: no team")
            continue
        counts_by_shifts = {
            shifts: count_workgroup(replace(team, shifts=shifts))
            for shifts in shift_combinations()
        }
        # As few shifts as serve: each costs two instructions a butterfly or more.
        best = min(
            counts_by_shifts, key=lambda s: (counts_by_shifts[s].wavefronts, len(s))
        )
        candidates = [
            s
            for s in counts_by_shifts
            if counts_by_shifts[s].wavefronts
            <= counts_by_shifts[best].wavefronts * 1.05
        ]
        best = min(candidates, key=lambda s: (len(s), counts_by_shifts[s].wavefronts))
        unshifted, shifted = counts_by_shifts[()], counts_by_shifts[best]
        print(
            f"    ({n}, {team.radices}): {best},  # {unshifted.requests} requests: "
            f"{unshifted.wavefronts} → {shifted.wavefronts}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="*")
    parser.add_argument("--radix", type=int, default=MAX_RADIX)
    arguments = parser.parse_args()
    main(arguments.n, arguments.radix)
