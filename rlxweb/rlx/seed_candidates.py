"""RLX's four estimates of each device side by side, as rows that `explain` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

from rlxweb.decision.candidate import Candidate, ranked
from rlxweb.decision.terms import Terms
from rlxweb.devices.place import Place
from rlxweb.rlx.seed_costs import Learned, SeedCosts

STRATEGIES = ("ultra", "fast", "fused", "learned")
"""Our names, in the order of `WelchPeaksCosts`."""


def seed_candidates(
    places: Sequence[Place], n_rows: int, n_fft: int, k: int
) -> tuple[Candidate, ...]:
    """The strategies of every place, cheapest first, as terms not broken down.

    RLX's formulas price 1 and 2 segments, whatever is asked.
    """
    found: list[Candidate] = []
    for place in places:
        who = place.device
        costs = SeedCosts().strategies(who, n_rows, n_fft, max(1, k), Learned())
        for strategy, ns in zip(STRATEGIES, astuple(costs), strict=True):
            ruled_out = math.isinf(ns)
            found.append(
                Candidate(
                    place.device,
                    place.label,
                    strategy,
                    terms=None if ruled_out else Terms(other_ns=ns),
                    source="seed",
                    blocker="RLX's formulas rule it out here" if ruled_out else "",
                    adapter=place.adapter,
                )
            )
    return ranked(found)
