"""RLX's four estimates of each device side by side, as rows that `explain` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlxweb.decision.candidate import Candidate, ranked
from rlxweb.decision.terms import Terms
from rlxweb.devices.place import Place
from rlxweb.rlx.seed_costs import Learned, SeedCosts


def seed_candidates(
    places: Sequence[Place], n_rows: int, n_fft: int, k: int
) -> tuple[Candidate, ...]:
    """The strategies of every place, cheapest first, as terms not broken down.

    RLX's formulas price 1 and 2 segments, whatever is asked.
    """
    found: list[Candidate] = []
    for place in places:
        costs = SeedCosts().strategies(
            place.device, n_rows, n_fft, max(1, k), Learned()
        )
        for strategy, ns in (
            ("ultra", costs.ultra_ns),
            ("fast", costs.fast_ns),
            ("fused", costs.rlx_ns),
            ("learned", costs.learned_ns),
        ):
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
