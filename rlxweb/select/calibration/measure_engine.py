"""Measurement of one engine in a few seconds: latencies, transfers and our own kernels.

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

from rlxweb.core.errors import DeviceError, DeviceLost, GpuTimeout, InputError, RlxError
from rlxweb.cost.calibration_record import AutotuneResult, Calibration, MeasuredPoint
from rlxweb.cost.work_kinds import MAX_RATE, point_rate
from rlxweb.engines.capabilities import LatencyProbe, Measures
from rlxweb.engines.cpu import JIT_CACHES
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.select.calibration.autotune import autotune_ops
from rlxweb.select.calibration.calibration_jobs import (
    DISPATCH_COUNT,
    ESSENTIAL_KERNEL_COUNT,
    MIB,
    CalibrationJob,
    call_job,
    compile_job,
    do_nothing,
    empty_run_job,
    kernel_jobs,
)
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.calibration.welch_jobs import welch_jobs
from rlxweb.select.device_and_adapter import DevicePlace, engine_identity

BUDGET_S = 15.0
BRIEF_SAMPLES = 5
"""Samples of a job that is one of many."""
MAX_NOISE_FACTOR = 2.0
"""Largest accepted ratio of the median to the fastest sample; the rest is not the job's
own time.
"""
Progress = Callable[[str], None]
JobMaker = Callable[[], CalibrationJob]
JobSource = Callable[[DevicePlace], Iterable[CalibrationJob]]


def ignore_progress(step: str) -> None:
    """Ignore the name of the step."""


@dataclass(slots=True)
class Calibrator:
    """Measures the jobs it is given until its time is over; used once."""

    watch: Stopwatch
    deadline_ns: float
    progress: Progress = ignore_progress
    points: list[MeasuredPoint] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def first_ns(self, kind: str) -> float:
        """Return the first point's time of a kind; 0 where there is none."""
        return next((p.ns for p in self.points if p.what == kind), 0.0)

    def measure(self, name: str, make_job: JobMaker) -> None:
        """Build a job, time it and keep its point; or note why that failed."""
        if self.watch.clock() >= self.deadline_ns:
            self.left_out.append(f"{name}: the time limit was reached")
            return
        self.progress(name)
        try:
            with closing(make_job()) as job:
                point = self._time_job(job)
            if point_rate(point)[0] > MAX_RATE:
                raise InputError(
                    "timing", "the run is too short for the clock to measure"
                )
            self.points.append(point)
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError) as error:
            self.left_out.append(f"{name}: {str(error) or type(error).__name__}")

    def remeasure(self, job: CalibrationJob) -> None:
        """Time a job once more; the faster result stays, as noise only adds."""
        try:
            with closing(job):
                new_point = self._time_job(job)
        except (DeviceLost, GpuTimeout):
            raise
        except (RlxError, MemoryError):
            return  # the first look stands
        for index, point in enumerate(self.points):
            if (point.what, point.size) == (new_point.what, new_point.size):
                self.points[index] = min(point, new_point, key=lambda p: p.ns)

    def _time_job(self, job: CalibrationJob) -> MeasuredPoint:
        """Time a job and return its point."""
        watch = self.watch
        if job.is_brief:
            watch = replace(watch, samples=BRIEF_SAMPLES, sample_ns=watch.sample_ns / 2)
        timing = watch.time(job.run)
        # The median, as jobs meet neighbours too; but it is a neighbour's alone as soon
        # as that has half of the time, and neighbours only add to the fastest.
        ns = min(timing.ns, MAX_NOISE_FACTOR * timing.min_ns)
        # The part that is not meant was measured on its own; noise may make it larger
        # than the whole, and a time of nothing is not believed.
        net_ns = (
            max(ns - self.first_ns(job.overhead_kind), 0.02 * ns) / job.units_per_run
        )
        return MeasuredPoint(
            job.point_kind, dict(job.size), net_ns, timing.spread, timing.samples
        )


def calibrate(
    place: DevicePlace,
    *,
    jobs: JobSource = welch_jobs,
    budget_s: float = BUDGET_S,
    progress: Progress = ignore_progress,
    watch: Stopwatch | None = None,
    autotune_s: float = 0.0,
) -> Calibration:
    """Measure the engine of a place.

    jobs      more to time; the telling kernels of the engine come first
    budget_s  no measurement is begun after so many seconds; one may run over by its
              own length
    progress  called with the name of each step before it begins
    autotune_s  seconds more for autotuning the kernels of its ops
    Errors    DeviceError when the place cannot be opened or is lost on the way.
    """
    watch = watch or Stopwatch()
    start_ns = watch.clock()
    start_s = time.perf_counter()
    calibrator = Calibrator(watch, start_ns + budget_s * 1e9, progress)
    engine = pool.engine(place.device.label, place.adapter)
    has_latency_probes = _measure_latency(calibrator, place, engine, start_ns)
    calibrator.measure("run", lambda: empty_run_job(place))
    if has_latency_probes:
        calibrator.measure("compile", lambda: compile_job(place))
    else:
        calibrator.measure("call", lambda: call_job(place))
    # What is compiled after a while is what counts.
    with ExitStack() as stack:
        for jit_cache in JIT_CACHES:
            stack.enter_context(jit_cache.wait_for_kernels())
        _measure_kernels(calibrator, place, jobs)
    autotune_results = (
        tuple(autotune_ops(engine, watch, autotune_s, progress)) if autotune_s else ()
    )
    for result in autotune_results:
        calibrator.left_out += [
            f"{name}, while autotuning: {reason}" for name, reason in result.wrong
        ]
    return _calibration_record(
        place, calibrator, time.perf_counter() - start_s, autotune_results
    )


def _job_name(job: CalibrationJob) -> str:
    """Return a job's kind and size in words."""
    size = ", ".join(f"{k} {v:,}" for k, v in job.size.items())
    return f"{job.point_kind} {size}".strip()


def _measure_latency(
    calibrator: Calibrator, place: DevicePlace, engine: Engine, start_ns: float
) -> bool:
    """Measure a run's overhead besides its kernels; return False for an engine without
    latency probes.
    """
    opening_ns = pool.opening_ns(place.device.label, place.adapter)
    probes = (
        run_blocking(engine.latency_probes()) if isinstance(engine, Measures) else None
    )
    if probes is None:
        return False
    try:
        run_blocking(probes.dispatch_and_wait(1))
        # Whoever opened it, the pool knows how long that took.
        cold_start_ns = opening_ns + calibrator.watch.clock() - start_ns
        calibrator.points.append(
            MeasuredPoint("cold_start", {}, float(max(1, cold_start_ns)))
        )
        one_dispatch = partial(probes.dispatch_and_wait, 1)
        many_dispatches = partial(probes.dispatch_and_wait, DISPATCH_COUNT)
        for name, point_kind, probe in (
            ("submit", "submit", probes.submit_and_wait),
            ("1 dispatch", "one", one_dispatch),
            (f"{DISPATCH_COUNT} dispatches", "many", many_dispatches),
        ):
            calibrator.measure(name, partial(_latency_job, point_kind, probe))
        _derive_dispatch_cost(calibrator)
        for nbytes in (64 << 10, MIB, 16 * MIB):
            for point_kind, make_probe in (
                ("upload", probes.upload_probe),
                ("readback", probes.readback_probe),
            ):
                calibrator.measure(
                    f"{point_kind} {nbytes:,}",
                    partial(_transfer_job, point_kind, make_probe, nbytes),
                )
    finally:
        if not engine.lost:
            probes.close()
    return True


def _latency_job(point_kind: str, probe: LatencyProbe) -> CalibrationJob:
    """Return the job that times a latency probe."""
    return CalibrationJob(point_kind, {}, lambda: run_blocking(probe()))


def _transfer_job(
    point_kind: str, make_probe: Callable[[int], LatencyProbe], nbytes: int
) -> CalibrationJob:
    """Return the job that times a transfer of nbytes."""
    probe = make_probe(nbytes)
    return CalibrationJob(
        point_kind, {"bytes": nbytes}, lambda: run_blocking(probe()), "submit"
    )


def _derive_dispatch_cost(calibrator: Calibrator) -> None:
    """Replace the two dispatch measurements by their slope, the cost of one more
    dispatch.
    """
    one_ns, many_ns = calibrator.first_ns("one"), calibrator.first_ns("many")
    spread = max((p.spread for p in calibrator.points if p.what == "many"), default=0.0)
    calibrator.points[:] = [
        p for p in calibrator.points if p.what not in ("one", "many")
    ]
    if one_ns and many_ns:
        slope = max((many_ns - one_ns) / (DISPATCH_COUNT - 1), 1.0)
        calibrator.points.append(MeasuredPoint("dispatch", {}, slope, spread))


def _measure_kernels(
    calibrator: Calibrator, place: DevicePlace, jobs: JobSource
) -> None:
    """Measure the essential kernels, the caller's jobs, and then all that still
    fits.
    """
    kernel_builders = list(kernel_jobs(place))
    for name, make_job in kernel_builders[:ESSENTIAL_KERNEL_COUNT]:
        calibrator.measure(name, make_job)
    start_ns = calibrator.watch.clock()
    for job in jobs(place):
        # Closed whether there is time for it or not.
        with closing(job):
            calibrator.measure(_job_name(job), partial(replace, job, close=do_nothing))
    elapsed_ns = calibrator.watch.clock() - start_ns
    for name, make_job in kernel_builders[ESSENTIAL_KERNEL_COUNT:]:
        calibrator.measure(name, make_job)
    # A neighbour that keeps the machine busy for a second would spoil the points it met
    # and not the others, and bend the fitted model: a second pass over the same jobs,
    # where the time allows the whole of it.
    if calibrator.watch.clock() + 1.2 * elapsed_ns <= calibrator.deadline_ns:
        calibrator.progress("second pass")
        for job in jobs(place):
            calibrator.remeasure(job)


def _calibration_record(
    place: DevicePlace,
    calibrator: Calibrator,
    elapsed_s: float,
    autotune_results: tuple[AutotuneResult, ...],
) -> Calibration:
    """Return the calibration of what was measured. Errors  DeviceError where nothing
    was.
    """
    if not calibrator.points:
        left_out = "; ".join(calibrator.left_out)
        raise DeviceError(f"calibrate {place}", "nothing could be measured", left_out)
    names = ("engine", "backend", "driver", "rlxweb", "machine")
    return Calibration(
        device=place.device.label,
        **dict(zip(names, engine_identity(place), strict=True)),
        points=tuple(calibrator.points),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=elapsed_s,
        left_out=tuple(calibrator.left_out),
        races=autotune_results,
    )
