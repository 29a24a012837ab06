"""What a run costs, term by term, in nanoseconds. Plain data that `explain` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Terms:
    """The parts of a predicted time; all `*_ns` in nanoseconds, they add up.

    launches  kernels started (NumPy: calls into it)
    syncs     times the host waits for the device, the final wait included
    dispatch_ns  starting kernels        sync_ns      submit and wait
    upload_ns    inputs to the device    compute_ns   arithmetic, by measured rates
    traffic_ns   memory read and written by steps whose rate was not measured
    readback_ns  results to the host     host_ns      work left to the host
    other_ns     what a formula adds or scales beyond these (RLX's seed formulas do)
    """

    launches: int = 0
    syncs: int = 0
    dispatch_ns: float = 0.0
    sync_ns: float = 0.0
    upload_ns: float = 0.0
    compute_ns: float = 0.0
    traffic_ns: float = 0.0
    readback_ns: float = 0.0
    host_ns: float = 0.0
    other_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        """The predicted time."""
        return float(sum(getattr(self, name) for name in TIMES))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "total_ns": self.total_ns}


TIMES = tuple(f.name for f in fields(Terms) if f.name.endswith("_ns"))
"""The names of the terms that add up."""
