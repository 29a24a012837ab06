"""Benchmark cells, their results and the goals they must meet.

A cell compares peers that do the same work. The answers are checked against each
other: a fast wrong answer is no row but a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlxweb.select.calibration.stopwatch import RunTiming, Stopwatch

CAREFUL_STOPWATCH = Stopwatch(samples=9, min_samples=7, budget_ns=45e9)
QUICK_STOPWATCH = Stopwatch(sample_ns=5e5, samples=3, min_samples=3, budget_ns=3e9)


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """One peer before it is timed.

    engine     the adapter or library that computes, in words
    is_ours    rlxweb itself
    published_ms  ms, from the peers' page: another machine or another day
    """

    name: str
    engine: str
    run: Callable[[], object]
    is_ours: bool = False
    published_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PeerResult:
    """Timing of one peer."""

    name: str
    engine: str
    is_ours: bool
    timing: RunTiming
    published_ms: float | None

    @property
    def ms(self) -> float:
        return self.timing.ns / 1e6


@dataclass(frozen=True, slots=True)
class Goal:
    """`ours` takes at most `limit` times as long as the fastest of `against`."""

    ours: str
    against: tuple[str, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class GoalResult:
    """Outcome of a goal; `ratio` is ours / the fastest of the others."""

    ours: str
    against: str
    ratio: float
    limit: float

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.limit


@dataclass(frozen=True, slots=True)
class BenchmarkCell:
    """A cell before it is run.

    check    raises AssertionError when the peers' answers differ
    resource_growth  what a later run of our prepared graph compiled and allocated
    close    frees what the peers hold
    absent_peers  peers that have no row here, each with the reason
    """

    name: str
    entries: tuple[PeerEntry, ...]
    goals: tuple[Goal, ...]
    check: Callable[[], None]
    resource_growth: Callable[[], dict[str, Any]] | None = None
    close: Callable[[], None] = lambda: None
    absent_peers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of a cell that has been run; `answer_error` says what was wrong with the
    answers.
    """

    name: str
    rows: tuple[PeerResult, ...] = ()
    goal_results: tuple[GoalResult, ...] = ()
    resource_growth: dict[str, Any] = field(default_factory=dict)
    answer_error: str = ""
    absent_peers: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        our_names = {v.ours for v in self.goal_results}
        return {
            "cell": self.name,
            "wrong": self.answer_error,
            "rows": [
                {
                    "name": row.name,
                    "engine": row.engine,
                    "ours": row.is_ours,
                    "published_ms": row.published_ms,
                    "ms": row.ms,
                    "spread": row.timing.spread,
                    "samples": row.timing.samples,
                    "calls": row.timing.calls,
                    "first_ms": row.timing.first_ns / 1e6,
                    "ratio": {
                        our_row.name: our_row.ms / row.ms
                        for our_row in self.rows
                        if our_row.name in our_names
                    },
                }
                for row in self.rows
            ],
            "goals": [asdict(v) | {"met": v.is_met} for v in self.goal_results],
            "steady": self.resource_growth,
            "absent": dict(self.absent_peers),
        }


def resource_growth(port: Any, call: Callable[[], object]) -> dict[str, Any]:
    """Count what three more calls compile and allocate on the port's device."""
    before, live_count = dict(port.created_counts), len(port.live_handles)
    for _ in range(3):
        call()
    created = {name: port.created_counts[name] - before[name] for name in before}
    return {
        "runs": 3,
        "created": created,
        "live_grew_by": len(port.live_handles) - live_count,
    }


def run_cell(cell: BenchmarkCell, stopwatch: Stopwatch) -> CellResult:
    """Time all peers interleaved, check the answers and judge the goals. Wrong answers
    leave no rows.
    """
    try:
        timings = stopwatch.time_interleaved([e.run for e in cell.entries])
        try:
            cell.check()
        except AssertionError as error:
            return CellResult(
                cell.name, answer_error="; ".join(str(error).split("\n"))[:400]
            )
        rows = tuple(
            PeerResult(e.name, e.engine, e.is_ours, timing, e.published_ms)
            for e, timing in zip(cell.entries, timings, strict=True)
        )
        growth = cell.resource_growth() if cell.resource_growth is not None else {}
        goal_results = tuple(judge_goals(cell.goals, rows))
        return CellResult(
            cell.name, rows, goal_results, growth, absent_peers=cell.absent_peers
        )
    finally:
        cell.close()


def judge_goals(
    goals: Sequence[Goal], rows: Sequence[PeerResult]
) -> Iterator[GoalResult]:
    """Yield the outcome of each goal whose rows exist."""
    ms = {row.name: row.ms for row in rows}
    for goal in goals:
        present = [name for name in goal.against if name in ms]
        if goal.ours in ms and present:
            fastest = min(present, key=ms.__getitem__)
            yield GoalResult(
                goal.ours, fastest, ms[goal.ours] / ms[fastest], goal.limit
            )
