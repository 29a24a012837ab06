"""Measures one engine: trips, transfers, our own kernels, in a few seconds.

Medians with their spread become the points of a Calibration. What cannot be measured,
or no longer fits the time allowed, is left out by name; a device that is lost is an
error. Which engine is worth measuring, and where records are kept, is not known here.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.calibration.kernels import (
    DISPATCHES,
    MIB,
    TELLING,
    Job,
    Trips,
    call_job,
    compile_job,
    empty_run,
    kernel_jobs,
)
from rlxweb.calibration.stopwatch import Stopwatch, Timing
from rlxweb.cost.record import Calibration, Point
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError, DeviceLost, GpuTimeout, RlxError

BUDGET_S = 10.0
Progress = Callable[[str], None]
JobMaker = Callable[[], Job]


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
        if not self._is_over(name):
            self._measure(name, make)

    def measure_made(self, job: Job, name: str = "") -> None:
        """The same for a job that is there already; it is closed in any case."""
        name = name or _name(job)
        if self._is_over(name):
            job.close()
        else:
            self._measure(name, lambda: job)

    def _is_over(self, name: str) -> bool:
        late = self.watch.clock() >= self.deadline_ns
        if late:
            self.left_out.append(f"{name}: the time was over")
        return late

    def _measure(self, name: str, make: JobMaker) -> None:
        self.progress(name)
        try:
            job = make()
            try:
                self._time(job)
            finally:
                job.close()
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError) as error:
            self.left_out.append(f"{name}: {str(error) or type(error).__name__}")

    def look_again(self, job: Job) -> None:
        """Time a job once more, later; the faster figure stays, as noise only adds."""
        try:
            again = self._point(job, self.watch.time(job.run))
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError):
            return  # the first look stands
        finally:
            job.close()
        for at, known in enumerate(self.points):
            if (known.what, known.size) == (again.what, again.size):
                self.points[at] = min(known, again, key=lambda p: p.ns)

    def _time(self, job: Job) -> None:
        timing = self.watch.time(job.run)
        self.points.append(self._point(job, timing))
        if job.first_is:
            first = max(1.0, timing.first_ns - timing.ns)
            self.points.append(Point(job.first_is, dict(job.size), first))

    def _point(self, job: Job, timing: Timing) -> Point:
        # The part that is not meant was measured on its own; noise may make it larger
        # than the whole, and a time of nothing is not believed.
        rest = max(timing.ns - self.ns_of(job.less), 0.02 * timing.ns)
        return Point(
            job.what, dict(job.size), rest / job.per, timing.spread, timing.samples
        )


def calibrate(
    place: Place,
    jobs: Callable[[Place], Iterable[Job]] | None = None,
    *,
    budget_s: float = BUDGET_S,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> Calibration:
    """Measure the engine of a place.

    jobs      more to time, by those who know of more; each engine's own come first
    budget_s  no measurement is begun after so many seconds; one may run over by its
              own length
    progress  called with the name of each step before it begins
    Errors    DeviceError when the place cannot be opened or is lost on the way.
    """
    watch = watch or Stopwatch()
    begun = watch.clock()
    started = time.perf_counter()
    work = Calibrator(watch, begun + budget_s * 1e9, progress)
    if place.device is Device.CPU:
        _measure_cpu(work, place, jobs)
    else:
        _measure_device(work, place, jobs)
    return _record(place, work, time.perf_counter() - started)


def complete_points(
    record: Calibration,
    jobs: Iterable[Job],
    *,
    budget_s: float = BUDGET_S,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> Calibration:
    """The record with points for the jobs whose kind it lacks."""
    watch = watch or Stopwatch()
    had = {p.what for p in record.points}
    work = Calibrator(watch, watch.clock() + budget_s * 1e9, progress)
    started = time.perf_counter()
    for job in jobs:
        if job.what in had:
            job.close()
        else:
            work.measure_made(job)
    return replace(
        record,
        points=(*record.points, *work.points),
        left_out=(*record.left_out, *work.left_out),
        took_s=record.took_s + time.perf_counter() - started,
    )


def _name(job: Job) -> str:
    size = ", ".join(f"{k} {v:,}" for k, v in job.size.items())
    return f"{job.what} {size}".strip()


def _measure_cpu(
    work: Calibrator, place: Place, jobs: Callable[[Place], Iterable[Job]] | None
) -> None:
    work.measure("run", lambda: empty_run(place))
    work.measure("call", lambda: call_job(place))
    _measure_kernels(work, place, jobs)


def _measure_device(
    work: Calibrator, place: Place, jobs: Callable[[Place], Iterable[Job]] | None
) -> None:
    label, adapter = place.device.label, place.adapter
    backend: Any = pool.backend(label, adapter)
    opening = pool.opening_ns(label, adapter)
    begun = work.watch.clock()
    trips = Trips(backend)
    try:
        trips.dispatches(1)
        # Whoever opened it, the pool knows how long that took.
        cold = opening + work.watch.clock() - begun
        work.points.append(Point("cold_start", {}, float(max(1, cold))))
        for name, job in _trip_jobs(trips):
            work.measure_made(job, name)
        _settle_dispatch(work)
        for nbytes in (64 << 10, MIB, 16 * MIB):
            for trip in (trips.upload, trips.readback):
                work.measure(f"{trip.__name__} {nbytes:,}", partial(trip, nbytes))
    finally:
        if not backend.lost:
            trips.close()
    work.measure("run", lambda: empty_run(place))
    work.measure("compile", lambda: compile_job(place))
    _measure_kernels(work, place, jobs)


def _trip_jobs(trips: Trips) -> Iterator[tuple[str, Job]]:
    yield "submit", Job("submit", {}, trips.wait)
    yield "1 dispatch", Job("one", {}, lambda: trips.dispatches(1))
    many = f"{DISPATCHES} dispatches"
    yield many, Job("many", {}, lambda: trips.dispatches(DISPATCHES))


def _settle_dispatch(work: Calibrator) -> None:
    """The slope from 1 dispatch to 64 is what one more costs."""
    one, many = work.ns_of("one"), work.ns_of("many")
    spread = max((p.spread for p in work.points if p.what == "many"), default=0.0)
    work.points[:] = [p for p in work.points if p.what not in ("one", "many")]
    if one and many:
        slope = max((many - one) / (DISPATCHES - 1), 1.0)
        work.points.append(Point("dispatch", {}, slope, spread))


def _measure_kernels(
    work: Calibrator, place: Place, jobs: Callable[[Place], Iterable[Job]] | None
) -> None:
    """The telling kernels, the jobs of those above, and then all that still fits."""
    kernels = list(kernel_jobs(place))
    for name, make in kernels[:TELLING]:
        work.measure(name, make)
    took = _measure_jobs(work, place, jobs)
    for name, make in kernels[TELLING:]:
        work.measure(name, make)
    _look_again(work, place, jobs, took)


def _measure_jobs(
    work: Calibrator, place: Place, jobs: Callable[[Place], Iterable[Job]] | None
) -> float:
    """Time the jobs of those above; how long that took, in ns."""
    begun = work.watch.clock()
    for job in jobs(place) if jobs is not None else ():
        work.measure_made(job)
    return work.watch.clock() - begun


def _look_again(
    work: Calibrator,
    place: Place,
    jobs: Callable[[Place], Iterable[Job]] | None,
    took_ns: float,
) -> None:
    """A second pass over the same jobs, where the time allows the whole of it.

    A neighbour that keeps the machine busy for a second would else spoil the points it
    met and not the others, and bend the fitted model.
    """
    if jobs is None or work.watch.clock() + 1.2 * took_ns > work.deadline_ns:
        return
    work.progress("second look")
    for job in jobs(place):
        work.look_again(job)


# --- the record -------------------------------------------------------------------


def identity_of(place: Place) -> tuple[str, ...]:
    """Engine, backend, driver, rlxweb's version and the machine.

    Errors   DeviceError when the place cannot be opened.
    """
    machine = f"{platform.machine()} {os.cpu_count()} cores"
    if place.device is Device.CPU:
        python = ".".join(map(str, sys.version_info[:2]))
        engine = f"NumPy {np.__version__}"
        return engine, "numpy", f"Python {python}", _version(), machine
    backend: Any = pool.backend(place.device.label, place.adapter)
    facts = getattr(backend, "facts", None)
    if facts is None:  # an engine that is no WebGPU adapter has a name and no more
        return backend.name, place.device.label, "", _version(), machine
    return facts.name, facts.backend, facts.driver, _version(), machine


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, distributions, version

    # Looked for where the package lies: the search for it reads all of sys.path, which
    # in a tab starts with Python's own zip.
    beside = str(Path(__file__).parents[2])
    for found in distributions(name="rlxweb", path=[beside]):
        return found.version
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # run from a source tree
        return "source"


def _record(place: Place, work: Calibrator, took_s: float) -> Calibration:
    if not work.points:
        raise DeviceError(
            f"calibrate {place}",
            "nothing could be measured",
            "; ".join(work.left_out),
        )
    engine, backend, driver, version, machine = identity_of(place)
    return Calibration(
        device=place.device.label,
        engine=engine,
        backend=backend,
        driver=driver,
        rlxweb=version,
        machine=machine,
        points=tuple(work.points),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=took_s,
        left_out=tuple(work.left_out),
    )
