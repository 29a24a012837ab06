"""Cost terms of a run, in nanoseconds. Plain data that `explain` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Terms:
    """Parts of a predicted time; all `*_ns` are in nanoseconds and add up.

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
        """Predicted time: the sum of all `*_ns` terms."""
        return float(sum(getattr(self, name) for name in TIME_FIELDS))

    def plus(self, other: Terms, times: int = 1) -> Terms:
        """Return these terms plus `times` the other terms."""
        own_terms, other_terms = asdict(self), asdict(other)
        return Terms(
            **{name: own_terms[name] + times * other_terms[name] for name in own_terms}
        )

    def slowed(self, factor: float) -> Terms:
        """Return the terms with compute and traffic multiplied by a factor."""
        compute, traffic = factor * self.compute_ns, factor * self.traffic_ns
        return replace(self, compute_ns=compute, traffic_ns=traffic)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "total_ns": self.total_ns}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Terms:
        """Return the terms that `as_json` described."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


TIME_FIELDS = tuple(f.name for f in fields(Terms) if f.name.endswith("_ns"))
"""Names of the terms that add up."""


def format_ns(ns: float) -> str:
    """Format a time with 3 significant digits and its unit: "412 us", "1.30 ms"."""
    if not math.isfinite(ns):
        return "never"
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= factor * 0.9995:
            return f"{_three_digits(ns / factor)} {unit}"
    return f"{_three_digits(ns)} ns"


def _three_digits(value: float) -> str:
    """Format a number with 3 significant digits."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
