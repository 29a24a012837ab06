"""Calibration of synthetic jobs on a fake clock that advances only on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from rlxweb.cost.calibration_record import Calibration
from rlxweb.select.calibration.calibration_jobs import CalibrationJob
from rlxweb.select.calibration.measure_engine import calibrate
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE


@dataclass
class FakeClock:
    """Clock in nanoseconds that advances only by its own jobs."""

    now: int = 0

    def __call__(self) -> int:
        return self.now

    def make_work(self, *times: int) -> Callable[[], None]:
        """Return a function that takes each of the times in turn, then the last one
        repeatedly.
        """
        remaining = list(times)

        def advance() -> None:
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return advance


@dataclass
class CalibrationLab:
    """Factory of jobs of known duration that records which were run and closed.

    kernel_makers  makers of jobs that stand for those of the engine itself
    """

    clock: FakeClock = field(default_factory=FakeClock)
    started: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    kernel_makers: list[Callable[[], CalibrationJob]] = field(default_factory=list)

    @property
    def stopwatch(self) -> Stopwatch:
        """Stopwatch of five calls per job: the first, a warm one, three samples."""
        return Stopwatch(1, samples=3, budget_ns=1e30, clock=self.clock)

    def make_job(self, kind: str, *times: int, **options: Any) -> CalibrationJob:
        """Return a job whose calls take the times."""
        work = self.clock.make_work(*times)

        def run() -> None:
            self.started.append(kind)
            work()

        size = options.pop("size", {})
        return CalibrationJob(
            kind, size, run, close=lambda: self.closed.append(kind), **options
        )

    def make_failing_job(self, kind: str, error: BaseException) -> CalibrationJob:
        """Return a job that raises when it runs."""
        run = Mock(side_effect=error)
        return CalibrationJob(kind, {}, run, close=lambda: self.closed.append(kind))

    def named_kernels(self) -> Iterator[tuple[str, Callable[[], CalibrationJob]]]:
        """Yield the kernels as `kernel_jobs` does: (name, maker)."""
        return (("kernel", make) for make in self.kernel_makers)

    def calibrate(self, *jobs: CalibrationJob, **options: Any) -> Calibration:
        """Measure the CPU with these jobs in addition to its own."""
        return calibrate(
            CPU_PLACE, jobs=lambda place: jobs, watch=self.stopwatch, **options
        )
