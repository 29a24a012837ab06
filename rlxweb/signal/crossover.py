"""Every way of a Welch job side by side, and from which batch on another one wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from rlxweb.decision.candidate import Candidate, ranked
from rlxweb.device import Device
from rlxweb.devices.place import Place, available_places
from rlxweb.signal.offers import WelchJob

LARGEST_BATCH = 65_536


def welch_candidates(
    job: WelchJob, places: Sequence[Place] | None = None
) -> tuple[Candidate, ...]:
    """Every way to run the job, fastest prediction first, blocked ones last.

    places   where it may run; None means every engine of the machine
    """
    at = available_places() if places is None else tuple(places)
    return ranked(way for place in at for way in job.offers(place))


def crossover(job: WelchJob, places: Sequence[Place] | None = None) -> str:
    """From which batch on another engine is predicted to win, in words."""
    at = available_places() if places is None else tuple(places)
    batches = [1 << power for power in range(LARGEST_BATCH.bit_length())]
    winners = [_winner(replace(job, n_rows=batch), at) for batch in batches]
    stretches = groupby(zip(winners, batches, strict=True), itemgetter(0))
    (first, _), *others = (next(stretch) for _, stretch in stretches)
    if not first:
        return "no engine can run it"
    if not others:
        return f"{first} at every batch up to {LARGEST_BATCH:,} on this machine"
    parts = [f"{first} below batch {others[0][1]:,}"]
    parts += [f"{name} from batch {batch:,}" for name, batch in others]
    return ", ".join(parts) + " on this machine"


def _winner(job: WelchJob, places: Sequence[Place]) -> str:
    """The fastest way in a few words; "" where nobody can run it."""
    found = welch_candidates(job, places)
    if not found or found[0].blocker:
        return ""
    best = found[0]
    return "CPU" if best.device is Device.CPU else f"{best.strategy} on {best.engine}"
