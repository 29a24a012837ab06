"""Comparison of all candidates of a Welch job, and the batch size from which another
one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from rlxweb.core.device import Device
from rlxweb.cost.decision import Candidate, rank_candidates
from rlxweb.select.device_and_adapter import DevicePlace, available_places
from rlxweb.signal.welch_candidates import WelchJob

MAX_BATCH = 65_536


def welch_candidates(
    job: WelchJob, places: Sequence[DevicePlace] | None = None
) -> tuple[Candidate, ...]:
    """Return all candidates of a job, fastest prediction first, blocked ones last.

    places   where it may run; None means every engine of the machine
    """
    candidate_places = available_places() if places is None else tuple(places)
    return rank_candidates(
        candidate for place in candidate_places for candidate in job.candidates(place)
    )


def crossover_text(job: WelchJob, places: Sequence[DevicePlace] | None = None) -> str:
    """Describe the batch sizes from which another engine is predicted to win."""
    candidate_places = available_places() if places is None else tuple(places)
    batches = [1 << power for power in range(MAX_BATCH.bit_length())]
    winners = [
        _fastest_name(replace(job, n_rows=batch), candidate_places) for batch in batches
    ]
    stretches = groupby(zip(winners, batches, strict=True), itemgetter(0))
    (first_winner, _), *others = (next(stretch) for _, stretch in stretches)
    if not first_winner:
        return "no engine can run this job"
    if not others:
        return (
            f"{first_winner} is fastest at all batch sizes up to {MAX_BATCH:,} on "
            "this machine"
        )
    parts = [f"{first_winner} is fastest below batch size {others[0][1]:,}"]
    parts += [f"{name} from batch size {batch:,}" for name, batch in others]
    return ", ".join(parts) + " on this machine"


def _fastest_name(job: WelchJob, places: Sequence[DevicePlace]) -> str:
    """Return a short name of the fastest candidate; "" where none can run."""
    candidates = welch_candidates(job, places)
    if not candidates or candidates[0].blocker:
        return ""
    best = candidates[0]
    return "CPU" if best.device is Device.CPU else f"{best.strategy} on {best.engine}"
