"""Picks where and how a Welch job runs, by predicted time, and says why.

The CPU is always a candidate and allowed to win. Other engines are opened, and measured
once, only when there is work to win that back (`calibration/worth.py`). The statistic
asked for is the one computed: a single segment stands for several only where the caller
said `min_segments=1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.calibration.corrections import corrections
from rlxweb.calibration.worth import Worth, worth
from rlxweb.choose.predict import PREFER_WITHIN
from rlxweb.choose.priced import UNMEASURED, measure_if_worth_it
from rlxweb.decision.candidate import Candidate, comparison, ranked
from rlxweb.decision.decision import Decision
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, available_places, parse_place
from rlxweb.errors import UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.calibration_jobs import welch_jobs
from rlxweb.signal.costs import estimate_welch_peaks_costs
from rlxweb.signal.engine import NUMPY, Engine, How, WelchJob, device_engine
from rlxweb.signal.prices import (
    NOT_ONE_SEGMENT,
    bucket_of,
    candidates_at,
    one_segment,
    points_for,
    size_of,
)

__all__ = [
    "Pick",
    "Place",
    "crossover",
    "decide",
    "engine_for",
    "parse_place",
    "spec_for",
    "welch_candidates",
]

LARGEST_BATCH = 65_536
ON_HOST = ("ultra", "fast")
"""The strategies that average on the CPU, whatever device they are compared with."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What was picked for a job: run `engine` with `job.spec`, then `observe`.

    cpu_ns   what the CPU was predicted to take for the job that was asked for
    """

    engine: Engine
    job: WelchJob
    candidate: Candidate
    decision: Decision
    cpu_ns: float = 0.0

    def observe(self, took_ns: float) -> None:
        """Let a warm run of this very job correct the model."""
        terms = self.candidate.terms
        if terms is not None and not worth.is_trivial(took_ns):
            bucket = bucket_of(self.job, self.candidate)
            corrections.note(bucket, terms.total_ns, took_ns)


def welch_candidates(
    spec: WelchSpec,
    n_rows: int,
    n_samples: int,
    k: int,
    *,
    places: Sequence[Place] | None = None,
    min_segments: int | None = None,
    mode: str = "bins",
    cost_mode: str = "calibrated",
) -> tuple[Candidate, ...]:
    """Every way to run the job, fastest prediction first, blocked ones last.

    places     where it may run; None means every engine of the machine
    cost_mode  "calibrated": by what was measured (or is assumed) of each engine;
               "seed": by RLX's formulas, which price 1 and 2 segments whatever is asked
    Errors     UsageError for an unknown cost_mode.
    """
    at = available_places() if places is None else tuple(places)
    job = WelchJob(spec, n_rows, n_samples, k, mode, min_segments)
    if cost_mode == "seed":
        return ranked(_seed_candidates(job, at))
    if cost_mode != "calibrated":
        raise UsageError("cost_mode", repr(cost_mode), "it is 'seed' or 'calibrated'")
    return ranked(candidates_at(job, at))


def _seed_candidates(job: WelchJob, places: Sequence[Place]) -> list[Candidate]:
    """RLX's four estimates of each device, as terms that are not broken down."""
    found: list[Candidate] = []
    for place in places:
        costs = estimate_welch_peaks_costs(
            place.device, job.n_rows, job.spec.nfft, max(1, job.k)
        )
        for strategy, ns in (
            ("ultra", costs.ultra_ns),
            ("fast", costs.fast_ns),
            ("fused", costs.rlx_ns),
            ("learned", costs.learned_ns),
        ):
            finite = ns != float("inf")
            found.append(
                Candidate(
                    place.device,
                    place.label,
                    strategy,
                    terms=Terms(other_ns=ns) if finite else None,
                    source="seed",
                    blocker="" if finite else "RLX's formulas rule it out here",
                    adapter=place.adapter,
                )
            )
    return found


def engine_for(candidate: Candidate) -> Engine:
    """What runs a candidate. Errors  UsageError for one that is blocked."""
    if candidate.blocker:
        raise UsageError(
            f"{candidate.strategy} on {candidate.engine}", candidate.blocker
        )
    if candidate.device is Device.CPU or candidate.strategy in ON_HOST:
        return NUMPY
    how: How = "block_fft_host" if candidate.how == "block_fft_host" else "fused_op"
    return device_engine(candidate.device, candidate.adapter, how)


def spec_for(candidate: Candidate, spec: WelchSpec) -> WelchSpec:
    """The estimate a candidate computes: "ultra" averages the first segment alone."""
    return replace(spec, n_segments=1) if candidate.strategy == "ultra" else spec


def decide(
    job: WelchJob,
    *,
    places: Sequence[Place] | None = None,
    strategy: str = "auto",
    prefer: Sequence[Device] = (),
    worthwhile: Worth = worth,
) -> Pick:
    """The fastest way there is, by prediction, with every other way beside it.

    places    where it may run; None: the CPU, and the other engines if they are worth
              opening for it
    strategy  "auto", or the one of "ultra", "fast", "fused", "learned" to be used
    prefer    devices taken instead when predicted to be at most 10 % slower

    Errors    UsageError when nothing is left that may run it, with every reason.
    """
    found = ranked(candidates_at(job, [CPU]))
    cpu_ns = next(c.predicted_ns for c in found if c.strategy == "fast")
    worthwhile.add(cpu_ns)
    notes: list[str] = []
    if places is None:
        places, note = _places_worth_it(cpu_ns, strategy, worthwhile)
        notes += [note] if note else []
    if len(places) > 1 or CPU not in places:
        measure_if_worth_it(places, points_for, cpu_ns, worthwhile, welch_jobs)
        found = ranked(candidates_at(job, places))
    if strategy != "auto":
        found = _allowed(tuple(c for c in found if c.strategy == strategy))
    if all(c.blocker for c in found):
        found = _unmeasured(found)
    if not found and places:
        named = ", ".join(map(str, places))
        notes = [f"none of {named} has the strategy {strategy!r}"]
    return replace(_first(job, found, notes, prefer), cpu_ns=cpu_ns)


def _allowed(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Naming the strategy "ultra" allows its single segment."""
    return tuple(
        replace(c, blocker="") if c.blocker == NOT_ONE_SEGMENT else c for c in found
    )


def _unmeasured(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Ways nobody has measured or can guess are better than none."""
    return tuple(
        replace(c, blocker="", terms=None) if c.blocker == UNMEASURED else c
        for c in found
    )


def first_of(job: WelchJob, found: Sequence[Candidate], why: str) -> Pick:
    """The best of the ways on a device that was asked for.

    Ways nobody has measured or can guess stay open: the device was asked for.
    """
    named = _unmeasured(_allowed(found))
    measured = [c for c in named if c.terms is not None]
    pick = _first(job, ranked(named) if measured else named, ())
    if measured:
        why = f"{why}; {pick.decision.why}"
    return replace(pick, decision=replace(pick.decision, why=why))


def _places_worth_it(
    cpu_ns: float, strategy: str, worthwhile: Worth
) -> tuple[tuple[Place, ...], str]:
    if strategy in ON_HOST:
        return (CPU,), ""
    needs_device = strategy in ("fused", "learned")
    if not needs_device and worthwhile.is_trivial(cpu_ns):
        return (CPU,), "too small to pay for a trip to any device"
    if not needs_device and not worthwhile.opening(cpu_ns):
        return (CPU,), worthwhile.rule
    return available_places(), ""


def _first(
    job: WelchJob,
    found: Sequence[Candidate],
    notes: Sequence[str],
    prefer: Sequence[Device] = (),
) -> Pick:
    """The first candidate that may run, and the decision that says why."""
    open_ = [c for c in found if not c.blocker]
    if not open_:
        reasons = "; ".join(f"{c.strategy} on {c.engine}: {c.blocker}" for c in found)
        raise UsageError(
            "welch_peaks",
            "no strategy and device is left that may run it",
            reasons or "; ".join(notes) or "the list of devices is empty",
            "allow another device or strategy",
        )
    picked = _preferred(open_, prefer)
    if picked is not open_[0]:
        notes = [f"preferred, being within {PREFER_WITHIN - 1:.0%} of the best", *notes]
    if picked.strategy == "ultra":
        job = one_segment(job)
    numbers: dict[str, Any] = {
        "rows": job.n_rows,
        "n_fft": job.spec.nfft,
        "n_samples": job.n_samples,
        "segments": size_of(job).segments,
        "k": job.k,
    }
    if picked.terms is not None:
        numbers["predicted_ms"] = round(picked.predicted_ns / 1e6, 4)
        numbers["source"] = picked.source
    decision = Decision(
        f"{picked.strategy} on {picked.engine}",
        "; ".join([comparison(picked, found), *notes]),
        numbers,
        tuple(found),
    )
    return Pick(engine_for(picked), job, picked, decision)


def _preferred(open_: Sequence[Candidate], prefer: Sequence[Device]) -> Candidate:
    most = PREFER_WITHIN * open_[0].predicted_ns
    near = [c for c in open_ if c.predicted_ns <= most]
    return next((c for d in prefer for c in near if c.device is d), open_[0])


def crossover(
    spec: WelchSpec, n_samples: int, k: int, places: Sequence[Place] | None = None
) -> str:
    """From which batch on another engine is predicted to win, in words."""
    at = available_places() if places is None else tuple(places)
    previous, said = "", []
    batch = 1
    while batch <= LARGEST_BATCH:
        found = welch_candidates(spec, batch, n_samples, k, places=at)
        best = next((c for c in found if not c.blocker), None)
        name = "" if best is None else _name(best)
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
