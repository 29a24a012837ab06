"""When a job is worth opening other devices for, and when measuring them is.

Opening a GPU takes from tenths of a second to seconds and measuring it seconds more, so
both wait until there is work to win them back: one large job, or many small ones that
add up. The limits are stated in every decision they take part in.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from rlxweb.forked import ForkLock

MS = 1e6
S = 1e9


@dataclass(slots=True)
class Worth:
    """How much predicted CPU time this process has put into jobs left to "auto".

    least_trip_ns  no submit and read-back is faster than this: below it, nobody asks
    tried          engines that were to be measured already, so that one which cannot be
                   does not cost its seconds again and again
    """

    least_trip_ns: float = 0.1 * MS
    open_job_ns: float = 5 * MS
    open_sum_ns: float = 0.5 * S
    measure_job_ns: float = 25 * MS
    measure_sum_ns: float = 2 * S
    spent_ns: float = 0.0
    tried: set[Hashable] = field(default_factory=set, repr=False)
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    def add(self, cpu_ns: float) -> None:
        """One more job that the CPU would take so long for."""
        with self._lock:
            self.spent_ns += cpu_ns

    @property
    def rule(self) -> str:
        """When other devices are opened, in words."""
        return (
            f"other devices are opened for jobs of {self.open_job_ns / MS:g} ms and "
            f"more, or once {self.open_sum_ns / S:g} s of work was seen"
        )

    def is_trivial(self, cpu_ns: float) -> bool:
        return cpu_ns < self.least_trip_ns

    def opening(self, cpu_ns: float) -> bool:
        """Shall devices that are not open yet be opened for it?"""
        return cpu_ns >= self.open_job_ns or self.spent_ns >= self.open_sum_ns

    def measuring(self, cpu_ns: float) -> bool:
        """Shall engines without a calibration be measured for it?"""
        return cpu_ns >= self.measure_job_ns or self.spent_ns >= self.measure_sum_ns


worth = Worth()
