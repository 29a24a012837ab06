"""A Welch estimate as a job: the table of strategies, and what they offer at a place.

The statistic asked for is the one computed: a single segment stands for several only
where the caller said `min_segments=1`. Which way is taken is `choose/chooser.py`'s
business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.advice import Advice
from rlxweb.backends.pool import pool
from rlxweb.calibration.corrections import Bucket, corrections, octave
from rlxweb.choose.chooser import Job, Reach
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import RlxError, Unsupported, UsageError
from rlxweb.given import from_there
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.kept import SMALL
from rlxweb.signal.engine import Engine
from rlxweb.signal.in_band import BAND
from rlxweb.signal.learned.strategy import LEARNED
from rlxweb.signal.on_device import FUSED
from rlxweb.signal.on_host import FAST, ULTRA
from rlxweb.signal.ways import Strategy, WelchEstimate

STRATEGIES = {s.name: s for s in (FAST, ULTRA, FUSED, BAND, LEARNED)}
"""By our names; where two are predicted to be as fast, the first is taken."""
_BY_LABEL = {s.label: s.name for s in STRATEGIES.values()}


@dataclass(frozen=True, slots=True)
class WelchJob(WelchEstimate, Job):
    """See `chooser.Job`."""

    title = "this job"

    @property
    def key(self) -> tuple[WelchJob, int] | None:
        """None where the window is too large to be kept for many jobs.

        A kernel that was made since may be the way to go.
        """
        if self.spec.nperseg > SMALL:
            return None
        return self, welch_kernels.changes

    @property
    def reach(self) -> Reach:
        if self.strategy == "auto":
            return "anywhere"
        on_host = STRATEGIES[self.strategy].on_host
        if on_host is None:
            return "anywhere"
        return "cpu" if on_host else "devices"

    def cpu_ns(self) -> float:
        return min(self._corrected(way).predicted_ns for way in FAST.ways(self, CPU))

    def offers(self, place: Place) -> Iterator[Candidate]:
        wanted = (s for s in _at(place) if self.strategy in ("auto", s.name))
        return (self._corrected(w) for s in wanted for w in s.ways(self, place))

    def _corrected(self, way: Candidate) -> Candidate:
        """With what observed runs make of its prediction."""
        if way.terms is None:
            return way
        return replace(way, correction=corrections.factor(self.bucket(way)))

    def asked(self, place: Place) -> Sequence[Candidate]:
        """See `Job`.

        Errors   UsageError for a strategy or an adapter the place has not; DTypeError
        when it would have to narrow; Unsupported for what it has no kernel for.
        """
        is_cpu = place.device is Device.CPU
        where = f"welch_peaks on {place.device.display}"
        if is_cpu and place.adapter:
            raise UsageError(
                where,
                f"adapter {place.adapter!r} was asked for",
                "the CPU has none",
                "leave the adapter out, or name a GPU",
            )
        if not is_cpu:
            _refuse(self, place)
        has = {one.name: one for one in _at(place) if not one.blocker}
        if self.strategy not in ("auto", *has):
            raise UsageError(
                where,
                f"strategy {self.strategy!r} does not run there",
                f"it has {', '.join(has)}",
                "leave the device or the strategy open",
            )
        if self.strategy == "auto":
            all_ = (0, self.min_segments)
            has = {name: one for name, one in has.items() if one.segments in all_}
        return [way for way in self.offers(place) if way.strategy in has]

    def points(self, place: Place) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind for s in _at(place) for kind in s.points))

    def bucket(self, candidate: Candidate) -> Bucket:
        size = self.by(candidate).size
        return (
            candidate.engine,
            f"welch {candidate.strategy} {candidate.how}".strip(),
            octave(size.n),
            octave(size.rows),
            octave(size.segments),
            octave(size.k + 1),
            self.spec.dtype,
            *(() if self.band is None else ("band", octave(len(self.band)))),
        )

    def numbers(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "rows": self.n_rows,
            "n_fft": self.spec.nfft,
            "n_samples": self.n_samples,
            "segments": self.by(candidate).size.segments,
            "k": self.k,
        }

    def nobody(self, reasons: str, places: Sequence[Place]) -> RlxError:
        if reasons and self.spec.dtype == "float64" and self.strategy == "auto":
            return self.wide.refused("welch_peaks")
        if not reasons and places:
            named = ", ".join(map(str, places))
            reasons = f"none of {named} has the strategy {self.strategy!r}"
        return UsageError(
            "welch_peaks",
            "no strategy and device is left that may run it",
            reasons or "the list of devices is empty",
            "allow another device or strategy",
        )

    def by(self, candidate: Candidate) -> WelchJob:
        """The job a way computes: "ultra" averages the first segment alone."""
        return self.averaging(STRATEGIES[candidate.strategy].segments)


def _at(place: Place) -> Iterator[Strategy]:
    is_cpu = place.device is Device.CPU
    return (one for one in STRATEGIES.values() if one.on_host in (is_cpu, None))


def checked_strategy(
    strategy: str | WelchPeaksStrategy, min_segments: int | None
) -> str:
    """Our name of a strategy.

    Errors   UsageError for an unknown one, and for one that averages fewer segments
    than are asked for; Unsupported for one that nobody can take yet.
    """
    label = parse_welch_peaks_strategy(strategy)
    if label is WelchPeaksStrategy.AUTO:
        return "auto"
    one = STRATEGIES[_BY_LABEL[label]]
    doing = f"welch_peaks with strategy='{one.name}'"
    if one.blocker:
        raise Unsupported(
            doing, one.blocker, hint=Advice("use {}", strategy=FUSED.name)
        )
    if one.segments and (min_segments or 1) > one.segments:
        raise UsageError(
            doing,
            f"it averages {one.segments} segment",
            f"min_segments is {min_segments}",
            f"leave min_segments out, or use strategy='{FAST.name}'",
        )
    return one.name


def engine_for(candidate: Candidate, job: WelchEstimate | None = None) -> Engine:
    """What runs a candidate of a job.

    Errors   UsageError for one that is blocked.
    """
    if candidate.blocker:
        raise UsageError(
            f"{candidate.strategy} on {candidate.engine}", candidate.blocker
        )
    return STRATEGIES[candidate.strategy].engine(candidate, job)


def _refuse(job: WelchJob, place: Place) -> None:
    pool.backend(place.device.label, place.adapter)
    reason = job.only_on_host
    where = f"welch on {place.device.display}"
    if not reason:
        return
    refusal: RlxError = Unsupported(where, reason, hint=Advice("use {}", device="cpu"))
    if job.spec.dtype == "float64":
        refusal = job.wide.refused(where)
    raise from_there(refusal, "x") if job.is_there else refusal
