"""A made-up machine for the picker's benchmark: its clock moves by what calls cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlxweb.decision.candidate import Candidate
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.signal.offers import WelchJob
from tests.benchmarks.picker_sweep import Cell, Measured, Row

MS = 1_000_000
S = 1_000_000_000

Cost = int | BaseException | Callable[["Machine", int], int]


@dataclass
class Machine:
    """Runs candidates by strategy; `costs` say how long the nth call takes, or fails.

    log    strategies in the order they were called
    seen   the jobs and rows they were called with
    """

    costs: Mapping[str, Cost]
    now: int = 0
    log: list[str] = field(default_factory=list)
    seen: list[tuple[WelchJob, Any]] = field(default_factory=list)

    def clock(self) -> int:
        return self.now

    def __call__(self, candidate: Candidate, job: WelchJob, x: Any) -> None:
        cost = self.costs[candidate.strategy]
        nth = self.log.count(candidate.strategy)
        took = cost(self, nth) if callable(cost) else cost
        self.log.append(candidate.strategy)
        self.seen.append((job, x))
        if isinstance(took, BaseException):
            raise took
        self.now += took


def way(
    strategy: str, predicted_ms: float, device: Device = Device.CPU, **more: Any
) -> Candidate:
    """A candidate whose model says so many milliseconds."""
    terms = Terms(launches=1, compute_ns=predicted_ms * MS)
    engine = f"{device.label} engine"
    return Candidate(device, engine, strategy, terms=terms, source="calibrated", **more)


def row(candidate: Candidate, measured_ms: float) -> Row:
    return Row(candidate, measured_ms * MS, 0.1, 7, 9.0 * MS)


def measured(
    *rows: Row, cell: Cell | None = None, failed: Sequence[Candidate] = ()
) -> Measured:
    """A cell with these rows, and some that could not run."""
    errors = (Row(candidate, error="no driver") for candidate in failed)
    every = sorted((*rows, *errors), key=lambda r: r.candidate.predicted_ns)
    return Measured(cell or Cell(64, 1, 4, 2), tuple(every))
