"""Finds the shifts of `fft_team.SHIFTS`: every pair is run and its wavefronts counted.

`python -m tests.lanes.swizzles [N …] [--radix 8]`
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rlxweb.limits import Limits
from rlxweb.recipes.fft_calls import complex_recipe
from rlxweb.recipes.fft_team import MOST_RADIX, Team, team_of
from rlxweb.recipes.fft_team_rows import team_rows
from tests.lanes.kernel import run
from tests.lanes.memory import Counts

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1000, 1024, 1536)
LENGTHS += (2000, 2048, 3072, 4096, 6144, 8192)
DEVICE = Limits(
    max_compute_workgroup_storage_size=32 << 10,
    max_compute_invocations_per_workgroup=1024,
    max_compute_workgroup_size_x=1024,
)
LONGEST = 11


def pairs() -> Iterator[tuple[int, ...]]:
    """All choices of no shift, of one and of two."""
    for count in range(3):
        yield from itertools.combinations(range(1, LONGEST), count)


def counted(team: Team) -> Counts:
    """What one workgroup of the transform does."""
    x = np.zeros((team.rows, 2 * team.n), np.float32)
    recipe = complex_recipe(
        team.rows, team.n, False, "backward", team_rows(lambda n: team)
    )
    return run(
        recipe, [x], x.size, replace(DEVICE, max_compute_workgroup_storage_size=1 << 20)
    )[1][0]


def main(lengths: list[int], most_radix: int) -> None:
    for n in lengths or LENGTHS:
        team = team_of(n, DEVICE, 0, most_radix)
        if team is None:
            print(f"    # {n}: no team")
            continue
        found = {shifts: counted(replace(team, shifts=shifts)) for shifts in pairs()}
        # As few shifts as serve: each costs two instructions a butterfly or more.
        best = min(found, key=lambda s: (found[s].wavefronts, len(s)))
        near = [
            s for s in found if found[s].wavefronts <= found[best].wavefronts * 1.05
        ]
        best = min(near, key=lambda s: (len(s), found[s].wavefronts))
        was, now = found[()], found[best]
        print(
            f"    ({n}, {team.radices}): {best},  # {was.requests} requests: "
            f"{was.wavefronts} → {now.wavefronts}",
            flush=True,
        )


if __name__ == "__main__":
    ask = argparse.ArgumentParser()
    ask.add_argument("n", type=int, nargs="*")
    ask.add_argument("--radix", type=int, default=MOST_RADIX)
    asked = ask.parse_args()
    main(asked.n, asked.radix)
