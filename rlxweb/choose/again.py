"""A run that was lost with its device is done again, and the answer says so.

First on the device itself, opened anew, then on the next ways of the pick that use
another; a place that was named has no others. Each is tried once. What fails for any
other reason fails as it did: it would again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from rlxweb.choose.chooser import REFUSALS
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.errors import DeviceLost, GpuTimeout

LOST = (DeviceLost, GpuTimeout)

T = TypeVar("T")
Lost = DeviceLost | GpuTimeout


async def done_again(
    lost: Lost,
    way: Candidate,
    others: Sequence[Candidate],
    run: Callable[[Candidate], Awaitable[T]],
) -> tuple[T, Candidate, tuple[Attempt, ...]]:
    """The answer of a run whose device is lost, the way that gave it, and all tries.

    way      the one that was lost
    others   every way there was, best first
    run      runs a way, on a device opened anew where that is needed
    Errors   of the kind of `lost`, with every try, when no way is left.
    """
    tries = [Attempt(way.device, str(lost), lost)]
    gone: set[tuple[object, str]] = set()
    for one in (way, *others):
        place = (one.device, one.adapter)
        if one.blocker or place in gone:
            continue
        gone.add(place)
        try:
            answer = await run(one)
        except REFUSALS as error:
            tries.append(Attempt(one.device, str(error), error))
        else:
            return answer, one, (*tries, Attempt(one.device, ""))
    raise _nothing_left(lost, tries) from tries[-1].cause


def _nothing_left(lost: Lost, tries: Sequence[Attempt]) -> Lost:
    again = (f"tried again on {t.device.display}: {t.error}" for t in tries[1:])
    hint = "leave the device to rlxweb ('auto'), or choose device 'cpu'"
    return type(lost)(lost.doing, lost.problem, "; ".join(again), hint)


def gone_with(lost: Lost, what: Sequence[str]) -> Lost:
    """The loss of a device on which lay, and nowhere else, what a run needs."""
    return type(lost)(
        lost.doing,
        lost.problem,
        f"{' and '.join(what)} lay on the device alone, so it cannot be done again",
        "put what is gone there again and run it anew",
    )


def told(decision: Decision, tries: Sequence[Attempt]) -> Decision:
    """The decision of a run that was done again, saying where and why."""
    last = tries[-1].device
    why = f"{decision.why}; the run was lost with its device and done again"
    what = decision.what
    if last is not tries[0].device:
        what, why = f"device {last.label}", f"{why} on {last.display}"
    return replace(decision, what=what, why=why, attempts=tuple(tries))
