"""Run of a picked Welch candidate, with a retry on the next candidate if its device is
lost.

The one place where a Welch job meets the engine that was picked for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from rlxweb.core.device import Device
from rlxweb.core.errors import Inexact
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.cost.candidate import Candidate, candidate_name, rank_candidates
from rlxweb.cost.decision import Decision
from rlxweb.cost.device_run_attempt import Attempt
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_loss_retry import DEVICE_LOST, retried_decision, retry_run
from rlxweb.signal.bin_range import BinRange
from rlxweb.signal.welch_candidates import WelchJob, engine_for_candidate
from rlxweb.signal.welch_engine import (
    NUMPY_ENGINE,
    NUMPY_ENGINE_WITHOUT_COMPILE,
    Power,
    SampleRows,
    WelchEngine,
)

T = TypeVar("T")
EngineWork = Callable[[WelchJob, WelchEngine], Awaitable[T]]


@lru_cache_if_small(128, lambda pick: pick.job.spec.nperseg <= SMALL_TABLE_SAMPLES)
def resolve_pick(pick: DevicePick[WelchJob]) -> tuple[WelchJob, WelchEngine]:
    """Return the job as the picked candidate computes it, and the engine that runs
    it.
    """
    return pick.job.job_for_candidate(pick.candidate), _candidate_engine(
        pick.job, pick.candidate
    )


def _candidate_engine(job: WelchJob, candidate: Candidate) -> WelchEngine:
    """Return the engine of a candidate of the job; a job that is never compiled records
    no run times.
    """
    engine = engine_for_candidate(candidate, job)
    return (
        NUMPY_ENGINE_WITHOUT_COMPILE
        if engine is NUMPY_ENGINE and job.use_compiled is False
        else engine
    )


async def run_pick(
    pick: DevicePick[WelchJob], work: EngineWork[T], strict: bool
) -> tuple[T, DevicePick[WelchJob]]:
    """Run the work on the picked candidate; return the answer, and the pick as it was
    carried out.

    strict   a run that is lost with its device raises
    Errors   those of the engine; DeviceLost, GpuTimeout when no way is left.
    """
    try:
        return await work(*resolve_pick(pick)), pick
    except Inexact as error:
        exact_candidates = [
            candidate for candidate in pick.decision.candidates if _is_exact(candidate)
        ]
        if strict or not exact_candidates:
            raise
        candidate = rank_candidates(exact_candidates)[0]
        answer = await work(
            pick.job.job_for_candidate(candidate),
            _candidate_engine(pick.job, candidate),
        )
        failed_attempt = Attempt(pick.device, str(error), error)
        explanation = (
            f"the result of {candidate_name(pick.candidate)} was not accurate "
            "enough, so "
            f"{candidate_name(candidate)} was used instead"
        )
        decision = replace(
            pick.decision,
            what=candidate_name(candidate),
            why=f"{pick.decision.why}; {explanation}",
            attempts=(failed_attempt, Attempt(candidate.device, "")),
        )
        return answer, replace(pick, candidate=candidate, decision=decision)
    except DEVICE_LOST as error:
        if strict:
            raise

        async def run_candidate(candidate: Candidate) -> T:
            return await work(
                pick.job.job_for_candidate(candidate),
                _candidate_engine(pick.job, candidate),
            )

        candidates = pick.decision.candidates
        answer, candidate, attempts = await retry_run(
            error, pick.candidate, candidates, run_candidate
        )
        decision = retried_decision(pick.decision, attempts)
        return answer, replace(pick, candidate=candidate, decision=decision)


def _is_exact(candidate: Candidate) -> bool:
    """Tell whether the candidate is not blocked and its error is rounding only."""
    return not candidate.blocker and not candidate.off


@dataclass(slots=True)
class PickedEngine:
    """Engine for a recording in blocks that reruns a block that was lost with its
    device.

    Where its device stays away, the blocks that follow go where that one went.
    """

    pick: DevicePick[WelchJob]
    strict: bool = False

    @property
    def device(self) -> Device:
        return self.pick.device

    @property
    def name(self) -> str:
        return resolve_pick(self.pick)[1].name

    @property
    def decision(self) -> Decision:
        """Decision on the device that runs it at present."""
        return self.pick.decision

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        async def work(job: WelchJob, engine: WelchEngine) -> Power:
            return await engine.power(x, spec, band)

        return await self._run_with_retry(work)

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        async def work(job: WelchJob, engine: WelchEngine) -> BinsAndPower:
            return await engine.strongest_bins(x, spec, k, band)

        return await self._run_with_retry(work)

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        return resolve_pick(self.pick)[1].is_ready(shape, spec, k, band)

    async def _run_with_retry(self, work: EngineWork[T]) -> T:
        """Run the work on the pick and keep the pick as it was carried out."""
        answer, self.pick = await run_pick(self.pick, work, self.strict)
        return answer
