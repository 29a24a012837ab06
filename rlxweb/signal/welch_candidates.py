"""Candidates of a Welch estimate: every strategy and place, priced; and their runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlxweb.core.array_coercion import add_readback_hint
from rlxweb.core.device import Device
from rlxweb.core.errors import Inexact, RlxError, Unsupported, UsageError
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.core.message_text import Advice
from rlxweb.cost.decision import (
    Attempt,
    Candidate,
    Decision,
    candidate_name,
    rank_candidates,
)
from rlxweb.cost.welch_strategy_names import (
    WelchPeaksStrategy,
    parse_welch_peaks_strategy,
)
from rlxweb.engines.pool import pool
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.observed_run_corrections import (
    Bucket,
    corrections,
    nearest_octave,
)
from rlxweb.select.chooser import AllowedDevices, DevicePick, PlaceableJob
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.select.device_loss_retry import DEVICE_LOST, retried_decision, retry_run
from rlxweb.signal.band_strategy import BAND_STRATEGY
from rlxweb.signal.cpu_welch_strategies import FAST, ULTRA
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.fused_device_strategy import FUSED
from rlxweb.signal.learned.learned_strategy import LEARNED
from rlxweb.signal.welch_engine import (
    NUMPY_ENGINE,
    NUMPY_ENGINE_WITHOUT_COMPILE,
    Power,
    SampleRows,
    WelchEngine,
)
from rlxweb.signal.welch_strategy import WelchEstimate, WelchStrategy

# --- Welch estimates as jobs for device choice: the table of strategies, and their
# candidates at a place
#
# The statistic asked for is the one computed: a single segment stands for several
# only where the caller said `min_segments=1`. Which way is taken is
# `select/chooser.py`'s business.

STRATEGIES = {s.name: s for s in (FAST, ULTRA, FUSED, BAND_STRATEGY, LEARNED)}
"""Welch strategies by name; where two are predicted to be as fast, the first is taken.
"""
_NAMES_BY_LABEL = {s.label: s.name for s in STRATEGIES.values()}


@dataclass(frozen=True, slots=True)
class WelchJob(WelchEstimate, PlaceableJob):
    """Welch estimate as a job that a device is chosen for."""

    title = "this job"

    @property
    def key(self) -> tuple[WelchJob, int] | None:
        """Key of the pick cache; None if the window is too large to be kept for many
        jobs.

        A kernel that was made since may be the way to go.
        """
        if self.spec.nperseg > SMALL_TABLE_SAMPLES:
            return None
        return self, welch_kernels.change_count

    @property
    def allowed_devices(self) -> AllowedDevices:
        if self.strategy == "auto":
            return "anywhere"
        on_host = STRATEGIES[self.strategy].runs_on_host
        if on_host is None:
            return "anywhere"
        return "cpu" if on_host else "devices"

    def cpu_ns(self) -> float:
        return min(
            self._apply_correction(candidate).predicted_ns
            for candidate in FAST.candidates(self, CPU_PLACE)
        )

    def candidates(self, place: DevicePlace) -> Iterator[Candidate]:
        strategies = (
            strategy
            for strategy in _strategies_at(place)
            if self.strategy in ("auto", strategy.name)
        )
        return (
            self._apply_correction(candidate)
            for strategy in strategies
            for candidate in strategy.candidates(self, place)
        )

    def _apply_correction(self, candidate: Candidate) -> Candidate:
        """Return the candidate with its prediction corrected by observed runs."""
        if candidate.terms is None:
            return candidate
        return replace(candidate, correction=corrections.factor(self.bucket(candidate)))

    def requested_candidates(self, place: DevicePlace) -> Sequence[Candidate]:
        """Return the candidates at a place that the caller named.

        Errors   UsageError for a strategy or an adapter the place has not; DTypeError
        when it would have to narrow; Unsupported for what it has no kernel for.
        """
        is_cpu = place.device is Device.CPU
        context = f"welch_peaks on {place.device.display}"
        if is_cpu and place.adapter:
            raise UsageError(
                context,
                f"adapter {place.adapter!r} was requested",
                "the CPU has no adapters",
                "leave the adapter out, or choose a GPU",
            )
        if not is_cpu:
            _check_device_supports(self, place)
        available = {
            strategy.name: strategy
            for strategy in _strategies_at(place)
            if not strategy.blocker
        }
        if self.strategy not in ("auto", *available):
            raise UsageError(
                context,
                f"strategy {self.strategy!r} is not supported on this device",
                f"supported: {', '.join(available)}",
                "leave the device or the strategy out",
            )
        if self.strategy == "auto":
            allowed_segments = (0, self.min_segments)
            available = {
                name: strategy
                for name, strategy in available.items()
                if strategy.n_segments in allowed_segments
            }
        return [
            candidate
            for candidate in self.candidates(place)
            if candidate.strategy in available
        ]

    def point_kinds(self, place: DevicePlace) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                kind
                for strategy in _strategies_at(place)
                for kind in strategy.point_kinds
            )
        )

    def bucket(self, candidate: Candidate) -> Bucket:
        size = self.job_for_candidate(candidate).size
        return (
            candidate.engine,
            f"welch {candidate.strategy} {candidate.how}".strip(),
            nearest_octave(size.n),
            nearest_octave(size.rows),
            nearest_octave(size.segments),
            nearest_octave(size.k + 1),
            self.spec.dtype,
            *(() if self.band is None else ("band", nearest_octave(len(self.band)))),
        )

    def decision_numbers(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "rows": self.n_rows,
            "n_fft": self.spec.nfft,
            "n_samples": self.n_samples,
            "segments": self.job_for_candidate(candidate).size.segments,
            "k": self.k,
        }

    def no_device_error(self, reasons: str, places: Sequence[DevicePlace]) -> RlxError:
        if reasons and self.spec.dtype == "float64" and self.strategy == "auto":
            return self.float64_sample_type.refusal_error("welch_peaks")
        if not reasons and places:
            place_names = ", ".join(map(str, places))
            reasons = f"none of {place_names} supports the strategy {self.strategy!r}"
        return UsageError(
            "welch_peaks",
            "no allowed combination of strategy and device can run this job",
            reasons or "the list of devices is empty",
            "allow another device or strategy",
        )

    def job_for_candidate(self, candidate: Candidate) -> WelchJob:
        """Return the job as a candidate computes it: "ultra" averages only the first
        segment.
        """
        return self.with_n_segments(STRATEGIES[candidate.strategy].n_segments)


def _strategies_at(place: DevicePlace) -> Iterator[WelchStrategy]:
    """Yield the strategies that run at a place."""
    is_cpu = place.device is Device.CPU
    return (
        strategy
        for strategy in STRATEGIES.values()
        if strategy.runs_on_host in (is_cpu, None)
    )


def validate_strategy(
    strategy: str | WelchPeaksStrategy, min_segments: int | None
) -> str:
    """Return the internal name of a strategy.

    Errors   UsageError for an unknown one, and for one that averages fewer segments
    than are asked for; Unsupported for one that nobody can take yet.
    """
    label = parse_welch_peaks_strategy(strategy)
    if label is WelchPeaksStrategy.AUTO:
        return "auto"
    entry = STRATEGIES[_NAMES_BY_LABEL[label]]
    context = f"welch_peaks with strategy='{entry.name}'"
    if entry.blocker:
        raise Unsupported(
            context, entry.blocker, hint=Advice("use {}", strategy=FUSED.name)
        )
    if entry.n_segments and (min_segments or 1) > entry.n_segments:
        raise UsageError(
            context,
            f"min_segments is {min_segments}",
            f"the strategy averages only {entry.n_segments} segment",
            f"leave min_segments out, or use strategy='{FAST.name}'",
        )
    return entry.name


def engine_for_candidate(
    candidate: Candidate, job: WelchEstimate | None = None
) -> WelchEngine:
    """Return the engine that runs a candidate of a job.

    Errors   UsageError for one that is blocked.
    """
    if candidate.blocker:
        raise UsageError(
            f"{candidate.strategy} on {candidate.engine}", candidate.blocker
        )
    return STRATEGIES[candidate.strategy].make_engine(candidate, job)


def _check_device_supports(job: WelchJob, place: DevicePlace) -> None:
    """Raise unless the device of a place can compute the job."""
    pool.engine(place.device.label, place.adapter)
    reason = job.host_only_reason
    context = f"welch on {place.device.display}"
    if not reason:
        return
    error: RlxError = Unsupported(context, reason, hint=Advice("use {}", device="cpu"))
    if job.spec.dtype == "float64":
        error = job.float64_sample_type.refusal_error(context)
    raise add_readback_hint(error, "x") if job.is_on_device else error


# --- Run of a picked Welch candidate, with a retry on the next candidate if its
# device is lost
#
# The one place where a Welch job meets the engine that was picked for it.

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
    pick: DevicePick[WelchJob],
    work: EngineWork[T],
    strict: bool,
    resolved: tuple[WelchJob, WelchEngine] | None = None,
) -> tuple[T, DevicePick[WelchJob]]:
    """Run the work on the picked candidate; return the answer, and the pick as it was
    carried out.

    strict   a run that is lost with its device raises
    resolved  what `resolve_pick` gives, where the caller has it in hand
    Errors   those of the engine; DeviceLost, GpuTimeout when no way is left.
    """

    async def run_candidate(candidate: Candidate) -> T:
        return await work(
            pick.job.job_for_candidate(candidate),
            _candidate_engine(pick.job, candidate),
        )

    try:
        return await work(*(resolved or resolve_pick(pick))), pick
    except Inexact as error:
        exact_candidates = [
            candidate for candidate in pick.decision.candidates if _is_exact(candidate)
        ]
        if strict or not exact_candidates:
            raise
        candidate = rank_candidates(exact_candidates)[0]
        answer = await run_candidate(candidate)
        failed_attempt = Attempt(pick.device, str(error), error)
        explanation = (
            f"the result of {candidate_name(pick.candidate)} was not accurate "
            f"enough, so {candidate_name(candidate)} was used instead"
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
