"""Retry of a run whose device was lost; the decision records it.

First on the device itself, opened again, then by the next candidates of the pick on
other devices; a place that was named has no others. Each is tried once. What fails for
any other reason fails as it did: it would again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from rlxweb.core.errors import DeviceLost, GpuTimeout
from rlxweb.cost.decision import Attempt, Candidate, Decision
from rlxweb.select.chooser import REFUSAL_ERRORS

DEVICE_LOST = (DeviceLost, GpuTimeout)

T = TypeVar("T")
DeviceLossError = DeviceLost | GpuTimeout


async def retry_run(
    lost: DeviceLossError,
    lost_candidate: Candidate,
    candidates: Sequence[Candidate],
    run: Callable[[Candidate], Awaitable[T]],
) -> tuple[T, Candidate, tuple[Attempt, ...]]:
    """Retry a run whose device was lost and return its result, the candidate that gave
    it and all attempts.

    lost_candidate  the one that was lost
    candidates  all of the pick, best first
    run      runs a candidate, on a device opened again where that is needed
    Errors   of the kind of `lost`, with every attempt, when no candidate is left.
    """
    attempts = [Attempt(lost_candidate.device, str(lost), lost)]
    tried_places: set[tuple[object, str]] = set()
    for candidate in (lost_candidate, *candidates):
        place = (candidate.device, candidate.adapter)
        if candidate.blocker or place in tried_places:
            continue
        tried_places.add(place)
        try:
            result = await run(candidate)
        except REFUSAL_ERRORS as error:
            attempts.append(Attempt(candidate.device, str(error), error))
        else:
            return result, candidate, (*attempts, Attempt(candidate.device, ""))
    raise _retries_exhausted(lost, attempts) from attempts[-1].cause


def _retries_exhausted(
    lost: DeviceLossError, attempts: Sequence[Attempt]
) -> DeviceLossError:
    """Return the error of a run that no remaining device could repeat."""
    retries = (
        f"retried on {attempt.device.display}: {attempt.error}"
        for attempt in attempts[1:]
    )
    hint = "use device 'auto' or device 'cpu'"
    return type(lost)(lost.doing, lost.problem, "; ".join(retries), hint)


def lost_data_error(
    lost: DeviceLossError, data_names: Sequence[str]
) -> DeviceLossError:
    """Return the error for a lost device that held the only copy of data the run
    needs.
    """
    return type(lost)(
        lost.doing,
        lost.problem,
        f"{' and '.join(data_names)} existed only on the device, so the run "
        "cannot be repeated automatically",
        "upload the lost data again and rerun",
    )


def retried_decision(decision: Decision, attempts: Sequence[Attempt]) -> Decision:
    """Return the decision of a retried run, which says where it was retried and why."""
    last_device = attempts[-1].device
    why = f"{decision.why}; the run was lost with its device and repeated"
    what = decision.what
    if last_device is not attempts[0].device:
        what, why = f"device {last_device.label}", f"{why} on {last_device.display}"
    return replace(decision, what=what, why=why, attempts=tuple(attempts))
