"""A clock that passes only when told, and calibrations of jobs made up for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from rlxweb.calibration.kernels import Job
from rlxweb.calibration.measure import calibrate
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.cost.record import Calibration
from rlxweb.devices.place import CPU


@dataclass
class Clock:
    """Nanoseconds."""

    now: int = 0

    def __call__(self) -> int:
        return self.now

    def work(self, *times: int) -> Callable[[], None]:
        """Takes each of the times in turn, and the last one from then on."""
        left = list(times)

        def run() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@dataclass
class Lab:
    """Jobs of known length; remembers what was begun and closed.

    kernels  makers of jobs that stand for those of the engine itself
    """

    clock: Clock = field(default_factory=Clock)
    begun: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    kernels: list[Callable[[], Job]] = field(default_factory=list)

    @property
    def watch(self) -> Stopwatch:
        """Five calls of each job: the first, a warm one, three samples."""
        return Stopwatch(1, samples=3, budget_ns=1e30, clock=self.clock)

    def job(self, what: str, *times: int, **more: Any) -> Job:
        """A job whose calls take the times."""
        work = self.clock.work(*times)

        def run() -> None:
            self.begun.append(what)
            work()

        size = more.pop("size", {})
        return Job(what, size, run, close=lambda: self.closed.append(what), **more)

    def failing(self, what: str, error: BaseException) -> Job:
        """A job that raises when it runs."""
        run = Mock(side_effect=error)
        return Job(what, {}, run, close=lambda: self.closed.append(what))

    def named(self) -> Iterator[tuple[str, Callable[[], Job]]]:
        """The kernels as `kernel_jobs` gives them."""
        return (("kernel", make) for make in self.kernels)

    def calibrate(self, *jobs: Job, **more: Any) -> Calibration:
        """Measure the CPU with these jobs besides its own."""
        return calibrate(CPU, jobs=lambda place: jobs, watch=self.watch, **more)
