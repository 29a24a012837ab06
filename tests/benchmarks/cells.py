"""What a benchmark is made of: cells of rows, and the goals they are held to.

A cell compares peers that do the same work. The answers are checked against each
other: a fast wrong answer is no row but a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlxweb.calibration.stopwatch import Stopwatch, Timing

CAREFUL = Stopwatch(samples=9, least=7, budget_ns=45e9)
QUICK = Stopwatch(sample_ns=5e5, samples=3, least=3, budget_ns=3e9)


@dataclass(frozen=True, slots=True)
class Entry:
    """One peer before it is timed.

    engine     the adapter or library that computes, in words
    ours       rlxweb itself
    published  ms, from the peers' page: another machine or another day
    """

    name: str
    engine: str
    peer: Callable[[], object]
    ours: bool = False
    published: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One peer, timed."""

    name: str
    engine: str
    ours: bool
    timing: Timing
    published: float | None

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
class Verdict:
    """A goal and what came of it; `ratio` is ours / the fastest of the others."""

    ours: str
    against: str
    ratio: float
    limit: float

    @property
    def met(self) -> bool:
        return self.ratio <= self.limit


@dataclass(frozen=True, slots=True)
class Work:
    """A cell before it is run.

    check    raises AssertionError when the peers' answers differ
    steady   what a later run of our prepared graph compiled and allocated
    close    frees what the peers hold
    absent   peers that have no row here, each with the reason
    """

    name: str
    entries: tuple[Entry, ...]
    goals: tuple[Goal, ...]
    check: Callable[[], None]
    steady: Callable[[], dict[str, Any]] | None = None
    close: Callable[[], None] = lambda: None
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that has been run. `wrong` says what was wrong with the answers."""

    name: str
    rows: tuple[Row, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    steady: dict[str, Any] = field(default_factory=dict)
    wrong: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        ours = {v.ours for v in self.verdicts}
        return {
            "cell": self.name,
            "wrong": self.wrong,
            "rows": [
                {
                    "name": row.name,
                    "engine": row.engine,
                    "ours": row.ours,
                    "published_ms": row.published,
                    "ms": row.ms,
                    "spread": row.timing.spread,
                    "samples": row.timing.samples,
                    "calls": row.timing.calls,
                    "first_ms": row.timing.first_ns / 1e6,
                    "ratio": {
                        mine.name: mine.ms / row.ms
                        for mine in self.rows
                        if mine.name in ours
                    },
                }
                for row in self.rows
            ],
            "goals": [asdict(v) | {"met": v.met} for v in self.verdicts],
            "steady": self.steady,
            "absent": dict(self.absent),
        }


def three_more(port: Any, call: Callable[[], object]) -> dict[str, Any]:
    """What three more calls compiled and allocated on the port's device."""
    before, live = dict(port.created), len(port.live)
    for _ in range(3):
        call()
    made = {name: port.created[name] - before[name] for name in before}
    return {"runs": 3, "created": made, "live_grew_by": len(port.live) - live}


def run(work: Work, watch: Stopwatch) -> Cell:
    """Time all peers in turns, check, judge. Wrong answers leave no rows."""
    try:
        timings = watch.interleaved([e.peer for e in work.entries])
        try:
            work.check()
        except AssertionError as error:
            return Cell(work.name, wrong="; ".join(str(error).split("\n"))[:400])
        rows = tuple(
            Row(e.name, e.engine, e.ours, timing, e.published)
            for e, timing in zip(work.entries, timings, strict=True)
        )
        steady = work.steady() if work.steady is not None else {}
        judged = tuple(verdicts(work.goals, rows))
        return Cell(work.name, rows, judged, steady, absent=work.absent)
    finally:
        work.close()


def verdicts(goals: Sequence[Goal], rows: Sequence[Row]) -> Iterator[Verdict]:
    """What came of each goal whose rows are there."""
    ms = {row.name: row.ms for row in rows}
    for goal in goals:
        there = [name for name in goal.against if name in ms]
        if goal.ours in ms and there:
            fastest = min(there, key=ms.__getitem__)
            yield Verdict(goal.ours, fastest, ms[goal.ours] / ms[fastest], goal.limit)
