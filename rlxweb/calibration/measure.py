"""Measures one engine: trips, transfers, our own kernels, in a few seconds.

Medians with their spread become the points of a Calibration. What cannot be measured,
or no longer fits the time allowed, is left out by name; a device that is lost is an
error. Which engine is worth measuring, and where records are kept, is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from rlxweb.backends.cpu import WORKSHOPS
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend, Trip
from rlxweb.calibration.kernels import (
    DISPATCHES,
    MIB,
    TELLING,
    Job,
    call_job,
    compile_job,
    do_nothing,
    empty_run,
    kernel_jobs,
)
from rlxweb.calibration.races import races
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.calibration.welch_jobs import welch_jobs
from rlxweb.cost.kinds import MOST, rate_of
from rlxweb.cost.race import Race
from rlxweb.cost.record import Calibration, Point
from rlxweb.devices.place import Place, identity_of
from rlxweb.errors import DeviceError, DeviceLost, GpuTimeout, InputError, RlxError
from rlxweb.gpu.drive import drive

BUDGET_S = 15.0
BRIEFLY = 5
"""Samples of a job that is one of many."""
MOST_ADDED = 2.0
"""Times the fastest sample: what is more than that is not the work."""
Progress = Callable[[str], None]
JobMaker = Callable[[], Job]
JobsOf = Callable[[Place], Iterable[Job]]


def no_progress(step: str) -> None:
    """Says nothing."""


@dataclass(slots=True)
class Calibrator:
    """One use: measures the jobs it is given until the time is over."""

    watch: Stopwatch
    deadline_ns: float
    progress: Progress = no_progress
    points: list[Point] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def ns_of(self, what: str) -> float:
        """The first point of a kind; 0 where there is none."""
        return next((p.ns for p in self.points if p.what == what), 0.0)

    def measure(self, name: str, make: JobMaker) -> None:
        """Make a job, time it, keep its point; or note why not."""
        if self.watch.clock() >= self.deadline_ns:
            self.left_out.append(f"{name}: the time was over")
            return
        self.progress(name)
        try:
            with closing(make()) as job:
                point = self._point(job)
            if rate_of(point)[0] > MOST:
                raise InputError("timing it", "it took no time that the clock can tell")
            self.points.append(point)
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError) as error:
            self.left_out.append(f"{name}: {str(error) or type(error).__name__}")

    def look_again(self, job: Job) -> None:
        """Time a job once more, later; the faster figure stays, as noise only adds."""
        try:
            with closing(job):
                again = self._point(job)
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError):
            return  # the first look stands
        for at, known in enumerate(self.points):
            if (known.what, known.size) == (again.what, again.size):
                self.points[at] = min(known, again, key=lambda p: p.ns)

    def _point(self, job: Job) -> Point:
        watch = self.watch
        if job.brief:
            watch = replace(watch, samples=BRIEFLY, sample_ns=watch.sample_ns / 2)
        timing = watch.time(job.run)
        # The median, as jobs meet neighbours too; but it is a neighbour's alone as soon
        # as that has half of the time, and neighbours only add to the fastest.
        ns = min(timing.ns, MOST_ADDED * timing.least_ns)
        # The part that is not meant was measured on its own; noise may make it larger
        # than the whole, and a time of nothing is not believed.
        rest = max(ns - self.ns_of(job.less), 0.02 * ns) / job.per
        return Point(job.what, dict(job.size), rest, timing.spread, timing.samples)


def calibrate(
    place: Place,
    *,
    jobs: JobsOf = welch_jobs,
    budget_s: float = BUDGET_S,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
    race_s: float = 0.0,
) -> Calibration:
    """Measure the engine of a place.

    jobs      more to time; the telling kernels of the engine come first
    budget_s  no measurement is begun after so many seconds; one may run over by its
              own length
    progress  called with the name of each step before it begins
    race_s    seconds more for races between its ways to run an op
    Errors    DeviceError when the place cannot be opened or is lost on the way.
    """
    watch = watch or Stopwatch()
    begun = watch.clock()
    started = time.perf_counter()
    work = Calibrator(watch, begun + budget_s * 1e9, progress)
    backend = pool.backend(place.device.label, place.adapter)
    has_trips = _measure_trips(work, place, backend, begun)
    work.measure("run", lambda: empty_run(place))
    if has_trips:
        work.measure("compile", lambda: compile_job(place))
    else:
        work.measure("call", lambda: call_job(place))
    # What is compiled after a while is what counts.
    with ExitStack() as stack:
        for shop in WORKSHOPS:
            stack.enter_context(shop.waiting())
        _measure_kernels(work, place, jobs)
    raced = tuple(races(backend, watch, race_s, progress)) if race_s else ()
    for race in raced:
        work.left_out += [f"{name}, in a race: {why}" for name, why in race.wrong]
    return _record(place, work, time.perf_counter() - started, raced)


def _name(job: Job) -> str:
    size = ", ".join(f"{k} {v:,}" for k, v in job.size.items())
    return f"{job.what} {size}".strip()


def _measure_trips(
    work: Calibrator, place: Place, backend: Backend, begun: float
) -> bool:
    """What a run pays besides its kernels; False for an engine without trips."""
    opening = pool.opening_ns(place.device.label, place.adapter)
    trips = drive(backend.trips())
    if trips is None:
        return False
    try:
        drive(trips.dispatches(1))
        # Whoever opened it, the pool knows how long that took.
        cold = opening + work.watch.clock() - begun
        work.points.append(Point("cold_start", {}, float(max(1, cold))))
        one, many = partial(trips.dispatches, 1), partial(trips.dispatches, DISPATCHES)
        for name, what, trip in (
            ("submit", "submit", trips.wait),
            ("1 dispatch", "one", one),
            (f"{DISPATCHES} dispatches", "many", many),
        ):
            work.measure(name, partial(_trip_job, what, trip))
        _settle_dispatch(work)
        for nbytes in (64 << 10, MIB, 16 * MIB):
            for what, make in (("upload", trips.upload), ("readback", trips.readback)):
                work.measure(f"{what} {nbytes:,}", partial(_moving, what, make, nbytes))
    finally:
        if not backend.lost:
            trips.close()
    return True


def _trip_job(what: str, trip: Trip) -> Job:
    return Job(what, {}, lambda: drive(trip()))


def _moving(what: str, make: Callable[[int], Trip], nbytes: int) -> Job:
    trip = make(nbytes)
    return Job(what, {"bytes": nbytes}, lambda: drive(trip()), "submit")


def _settle_dispatch(work: Calibrator) -> None:
    """The slope from 1 dispatch to 64 is what one more costs."""
    one, many = work.ns_of("one"), work.ns_of("many")
    spread = max((p.spread for p in work.points if p.what == "many"), default=0.0)
    work.points[:] = [p for p in work.points if p.what not in ("one", "many")]
    if one and many:
        slope = max((many - one) / (DISPATCHES - 1), 1.0)
        work.points.append(Point("dispatch", {}, slope, spread))


def _measure_kernels(work: Calibrator, place: Place, jobs: JobsOf) -> None:
    """The telling kernels, the jobs of those above, and then all that still fits."""
    kernels = list(kernel_jobs(place))
    for name, make in kernels[:TELLING]:
        work.measure(name, make)
    begun = work.watch.clock()
    for job in jobs(place):
        # Closed whether there is time for it or not.
        with closing(job):
            work.measure(_name(job), partial(replace, job, close=do_nothing))
    took_ns = work.watch.clock() - begun
    for name, make in kernels[TELLING:]:
        work.measure(name, make)
    # A neighbour that keeps the machine busy for a second would spoil the points it met
    # and not the others, and bend the fitted model: a second pass over the same jobs,
    # where the time allows the whole of it.
    if work.watch.clock() + 1.2 * took_ns <= work.deadline_ns:
        work.progress("second look")
        for job in jobs(place):
            work.look_again(job)


def _record(
    place: Place, work: Calibrator, took_s: float, raced: tuple[Race, ...]
) -> Calibration:
    if not work.points:
        left_out = "; ".join(work.left_out)
        raise DeviceError(f"calibrate {place}", "nothing could be measured", left_out)
    names = ("engine", "backend", "driver", "rlxweb", "machine")
    return Calibration(
        device=place.device.label,
        **dict(zip(names, identity_of(place), strict=True)),
        points=tuple(work.points),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=took_s,
        left_out=tuple(work.left_out),
        races=raced,
    )
