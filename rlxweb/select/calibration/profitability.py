"""Profitability thresholds: when a job justifies opening other devices, and measuring
them.

Opening a GPU takes from tenths of a second to seconds and measuring it seconds more, so
both wait until there is work to win them back: one large job, or many small ones that
add up. The limits are stated in every decision they take part in.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from rlxweb.core.fork_safety import ForkSafeLock

NS_PER_MS = 1e6
NS_PER_S = 1e9


@dataclass(slots=True)
class ProfitabilityPolicy:
    """Predicted CPU time that this process has put into "auto" jobs, with the
    thresholds on it.

    min_round_trip_ns  no submit and read-back is faster than this: below it, nobody
                       asks
    attempted      engines that were to be measured already, so that one which cannot be
                   does not cost its seconds again and again
    """

    min_round_trip_ns: float = 0.1 * NS_PER_MS
    open_job_ns: float = 5 * NS_PER_MS
    open_sum_ns: float = 0.5 * NS_PER_S
    measure_job_ns: float = 25 * NS_PER_MS
    measure_sum_ns: float = 2 * NS_PER_S
    spent_ns: float = 0.0
    attempted: set[Hashable] = field(default_factory=set, repr=False)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock, repr=False)

    def add_job(self, cpu_ns: float) -> None:
        """Add a job with its predicted CPU time."""
        with self._lock:
            self.spent_ns += cpu_ns

    @property
    def rule(self) -> str:
        """The rule when other devices are opened, in words."""
        job_ms, sum_s = self.open_job_ns / NS_PER_MS, self.open_sum_ns / NS_PER_S
        return (
            f"other devices are opened only for jobs of {job_ms:g} ms or more, "
            f"or after {sum_s:g} s of work in total"
        )

    def is_trivial(self, cpu_ns: float) -> bool:
        """Return whether the job is shorter than any round trip to a device."""
        return cpu_ns < self.min_round_trip_ns

    def should_open(self, cpu_ns: float) -> bool:
        """Return whether devices that are not open yet should be opened for the job."""
        return cpu_ns >= self.open_job_ns or self.spent_ns >= self.open_sum_ns

    def should_measure(self, cpu_ns: float) -> bool:
        """Return whether engines without a calibration should be measured for the
        job.
        """
        return cpu_ns >= self.measure_job_ns or self.spent_ns >= self.measure_sum_ns


profitability_policy = ProfitabilityPolicy()
