"""What was picked, run to its end: by the next way where a run is lost with its device.

The one place where a Welch job meets the engine that was picked for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from rlxweb.choose.again import LOST, done_again, told
from rlxweb.choose.chooser import Pick
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate, candidate_name, ranked
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.errors import Inexact
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.engine import NUMPY, NUMPY_ALONE, Engine, Power, Rows
from rlxweb.signal.offers import WelchJob, engine_for

T = TypeVar("T")
Work = Callable[[WelchJob, Engine], Awaitable[T]]


@lru_of_small(128, lambda pick: pick.job.spec.nperseg <= SMALL)
def ready(pick: Pick[WelchJob]) -> tuple[WelchJob, Engine]:
    """The job as the way that was picked computes it, and what runs it."""
    return pick.job.by(pick.candidate), _engine(pick.job, pick.candidate)


def _engine(job: WelchJob, way: Candidate) -> Engine:
    """What runs a way of the job; of one that is never compiled nothing is learned."""
    engine = engine_for(way, job)
    return NUMPY_ALONE if engine is NUMPY and job.compiled is False else engine


async def run_pick(
    pick: Pick[WelchJob], work: Work[T], strict: bool
) -> tuple[T, Pick[WelchJob]]:
    """The answer, and the pick as it was done.

    strict   a run that is lost with its device raises
    Errors   those of the engine; DeviceLost, GpuTimeout when no way is left.
    """
    try:
        return await work(*ready(pick)), pick
    except Inexact as error:
        exact = [way for way in pick.decision.candidates if _is_exact(way)]
        if strict or not exact:
            raise
        way = ranked(exact)[0]
        answer = await work(pick.job.by(way), _engine(pick.job, way))
        lost = Attempt(pick.device, str(error), error)
        said = f"that was not exact enough, so {candidate_name(way)} was taken"
        decision = replace(
            pick.decision,
            what=candidate_name(way),
            why=f"{pick.decision.why}; {said}",
            attempts=(lost, Attempt(way.device, "")),
        )
        return answer, replace(pick, candidate=way, decision=decision)
    except LOST as error:
        if strict:
            raise

        async def again(way: Candidate) -> T:
            return await work(pick.job.by(way), _engine(pick.job, way))

        ways = pick.decision.candidates
        answer, way, tries = await done_again(error, pick.candidate, ways, again)
        decision = told(pick.decision, tries)
        return answer, replace(pick, candidate=way, decision=decision)


def _is_exact(way: Candidate) -> bool:
    """Is it open, and off by rounding alone?"""
    return not way.blocker and not way.off


@dataclass(slots=True)
class PickedEngine:
    """An engine for a recording in blocks: a block that is lost is done again.

    Where its device stays away, the blocks that follow go where that one went.
    """

    pick: Pick[WelchJob]
    strict: bool = False

    @property
    def device(self) -> Device:
        return self.pick.device

    @property
    def name(self) -> str:
        return ready(self.pick)[1].name

    @property
    def decision(self) -> Decision:
        """Why it runs where it does by now."""
        return self.pick.decision

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        async def work(job: WelchJob, engine: Engine) -> Power:
            return await engine.power(x, spec, band)

        return await self._done(work)

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        async def work(job: WelchJob, engine: Engine) -> Found:
            return await engine.strongest(x, spec, k, band)

        return await self._done(work)

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        return ready(self.pick)[1].is_ready(shape, spec, k, band)

    async def _done(self, work: Work[T]) -> T:
        answer, self.pick = await run_pick(self.pick, work, self.strict)
        return answer
