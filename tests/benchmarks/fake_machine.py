"""Fake machine for the placement benchmark: its clock advances by the cost of each
call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlxweb.core.device import Device
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.signal.welch_candidates import WelchJob
from tests.benchmarks.placement_sweep import SweepCellResult, SweepRow, WelchCell

MS = 1_000_000
S = 1_000_000_000

Cost = int | BaseException | Callable[["FakeMachine", int], int]


@dataclass
class FakeMachine:
    """Run candidates by strategy; `costs` say how long the nth call takes, or fails.

    called_strategies  strategies in the order they were called
    call_arguments  the jobs and rows they were called with
    """

    costs: Mapping[str, Cost]
    now: int = 0
    called_strategies: list[str] = field(default_factory=list)
    call_arguments: list[tuple[WelchJob, Any]] = field(default_factory=list)

    def clock(self) -> int:
        return self.now

    def __call__(self, candidate: Candidate, job: WelchJob, x: Any) -> None:
        cost = self.costs[candidate.strategy]
        nth = self.called_strategies.count(candidate.strategy)
        duration = cost(self, nth) if callable(cost) else cost
        self.called_strategies.append(candidate.strategy)
        self.call_arguments.append((job, x))
        if isinstance(duration, BaseException):
            raise duration
        self.now += duration


def make_candidate(
    strategy: str, predicted_ms: float, device: Device = Device.CPU, **options: Any
) -> Candidate:
    """Return a candidate whose model predicts so many milliseconds."""
    terms = Terms(launches=1, compute_ns=predicted_ms * MS)
    engine = f"{device.label} engine"
    return Candidate(
        device, engine, strategy, terms=terms, source="calibrated", **options
    )


def make_row(candidate: Candidate, measured_ms: float) -> SweepRow:
    return SweepRow(candidate, measured_ms * MS, 0.1, 7, 9.0 * MS)


def make_cell_result(
    *rows: SweepRow, cell: WelchCell | None = None, failed: Sequence[Candidate] = ()
) -> SweepCellResult:
    """Return a cell's result with these rows, and some that could not run."""
    errors = (SweepRow(candidate, error="no driver") for candidate in failed)
    all_rows = sorted((*rows, *errors), key=lambda r: r.candidate.predicted_ns)
    return SweepCellResult(cell or WelchCell(64, 1, 4, 2), tuple(all_rows))
