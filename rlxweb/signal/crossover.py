"""Every way of a Welch job side by side, and from which batch on another one wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    previous, said = "", []
    batch = 1
    while batch <= LARGEST_BATCH:
        found = welch_candidates(replace(job, n_rows=batch), at)
        name = _name(found[0]) if found and not found[0].blocker else ""
        if name != previous:
            said.append((batch, name))
            previous = name
        batch *= 2
    if not said or not said[0][1]:
        return "no engine can run it"
    if len(said) == 1:
        return f"{said[0][1]} at every batch up to {LARGEST_BATCH:,} on this machine"
    parts = [f"{said[0][1]} below batch {said[1][0]:,}"]
    parts += [f"{name} from batch {batch:,}" for batch, name in said[1:]]
    return ", ".join(parts) + " on this machine"


def _name(candidate: Candidate) -> str:
    if candidate.device is Device.CPU:
        return "CPU"
    return f"{candidate.strategy} on {candidate.engine}"
