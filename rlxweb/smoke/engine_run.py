"""Run of all cases of one engine, over as many child processes as needed.

A case that ends, holds up or overfills its process is a row like any other; the cases
after it go on in a fresh child, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal, cast

from rlxweb.smoke.case import Level
from rlxweb.smoke.child_process import ChildLimits, ChildProcess
from rlxweb.smoke.result_rows import ReportRow, not_run_row
from rlxweb.smoke.smoke_engine import SmokeEngine

MAX_CHILDREN = 6
"""Limit on the child processes of an engine; the cases left then are not run."""
EngineStatus = Literal[
    "right", "wrong", "missing", "crashed", "hung", "out of memory", "lost"
]
_SEVERE_STATUSES = ("crashed", "hung", "out of memory", "lost")


@dataclass(frozen=True, slots=True)
class SmokeSettings:
    """Settings of the smoke test of every engine.

    pattern      which cases, as `pattern_of` reads it; "" for all
    environment  variables of the children; None: this process's own
    sabotage     a test hook: `KIND:PATTERN`
    """

    level: Level = "standard"
    pattern: str = ""
    limits: ChildLimits = field(default_factory=ChildLimits)
    environment: Mapping[str, str] | None = None
    sabotage: str = ""


@dataclass(slots=True)
class EngineOutcome:
    """Results of an engine, as far as its run got.

    rows     by case, in the order of the list
    events   what happened to its processes: (word, why)
    seconds  all in all
    early_stop_reason  why not all of its cases were run, where that is as it should be
    is_done  False where the run was broken off
    """

    engine: SmokeEngine
    rows: dict[str, ReportRow] = field(default_factory=dict)
    events: list[tuple[EngineStatus, str]] = field(default_factory=list)
    seconds: float = 0.0
    early_stop_reason: str = ""
    is_open: bool = False
    is_done: bool = False

    @property
    def not_run_count(self) -> int:
        """Number of cases that were not run."""
        return sum(row["word"] == "not run" for row in self.rows.values())


CaseCallback = Callable[[EngineOutcome, str], None]
"""Callback before an engine runs a case, with the outcome so far and the case's name.
"""


def ignore_progress(outcome: EngineOutcome, case: str) -> None:
    """Ignore the progress of a run."""


class EngineRun:
    """Run of one engine through the cases; `outcome` is valid at any time."""

    def __init__(
        self,
        engine: SmokeEngine,
        settings: SmokeSettings,
        on_case: CaseCallback = ignore_progress,
    ) -> None:
        self.outcome = EngineOutcome(engine)
        self._settings, self._on_case = settings, on_case
        self._current_case = ""

    def run(self) -> EngineOutcome:
        """Run all cases, or as many as possible; none of an engine that is not
        testable.
        """
        if not self.outcome.engine.is_testable:
            self.outcome.is_done = True
            return self.outcome
        started_at = monotonic()
        deadline = started_at + self._settings.limits.total_s
        try:
            for _ in range(MAX_CHILDREN):
                if self._run_child(deadline) or monotonic() > deadline:
                    break
            self.outcome.is_done = True
        finally:
            self.outcome.seconds = monotonic() - started_at
            self._explain_not_run()
        return self.outcome

    def _run_child(self, deadline: float) -> bool:
        """Run cases in one child process; return whether the run is over."""
        self._current_case = ""
        child = ChildProcess(
            self._build_request(), self._settings.limits, self._child_environment()
        )
        is_lost = False
        try:
            for message in child.messages(deadline):
                is_lost = self._handle_message(message) or is_lost
                if "begun" in message:
                    self._on_case(self.outcome, message["begun"])
            ending = child.ending
        except KeyboardInterrupt:
            for message in child.drain():
                self._handle_message(message)
            raise
        finally:
            child.close()
        if ending.kind:
            self._record_child_failure(ending.kind, ending.reason)
        is_over = not (ending.kind or is_lost)
        # Whoever does not even open, or is out of time, is not asked again.
        return is_over or not self.outcome.rows or not self.outcome.not_run_count

    def _build_request(self) -> dict[str, Any]:
        """Return the request for a child process: the engine, and the cases already
        done.
        """
        settings, rows = self._settings, self.outcome.rows
        done = [name for name, row in rows.items() if row["word"] != "not run"]
        return {
            "engine": self.outcome.engine.as_json(),
            "level": settings.level,
            "pattern": settings.pattern,
            "sabotage": settings.sabotage,
            "done": done,
        }

    def _child_environment(self) -> Mapping[str, str] | None:
        """Return the environment variables of the child process."""
        engine_variables = self.outcome.engine.environment
        if self._settings.environment is None:
            return None
        return {**self._settings.environment, **engine_variables}

    def _handle_message(self, message: Mapping[str, Any]) -> bool:
        """Record a message of the child; return whether its device is lost."""
        if "opened" in message:
            self.outcome.engine = replace(self.outcome.engine, **message["opened"])
            self.outcome.is_open = True
        elif "cases" in message:
            new_rows = {name: not_run_row(name) for name in message["cases"]}
            self.outcome.rows = new_rows | self.outcome.rows
        elif "begun" in message:
            self._current_case = message["begun"]
            self.outcome.rows[self._current_case] |= message["described"]
        elif "row" in message:
            self.outcome.rows[message["row"]["case"]] = message["row"]
            self._current_case = ""
        elif "enough" in message:
            self.outcome.early_stop_reason = message["enough"]
        elif "lost" in message:
            self.outcome.events.append(("lost", message["lost"]))
            return True
        elif "failed" in message:
            self._record_open_error(message)
        return False

    def _record_open_error(self, message: Mapping[str, Any]) -> None:
        """Record that the engine was found but could not be opened."""
        status: EngineStatus = "lost" if message["is_lost"] else "wrong"
        self.outcome.events.append(
            (status, f"the device cannot be opened: {message['failed']}")
        )

    def _record_child_failure(self, status: EngineStatus, reason: str) -> None:
        """Record that the child ended abnormally; the case it was running is wrong."""
        if self._current_case:
            row = self.outcome.rows[self._current_case]
            row |= {"word": "wrong", "why": f"{status}: {reason}", "raised": status}
            reason = f"{reason}, while running {self._current_case}"
        elif not self.outcome.is_open:
            reason = f"{reason}, while opening the device"
        self.outcome.events.append((status, reason))

    def _explain_not_run(self) -> None:
        """Give every case that was not run its reason."""
        not_run = [
            row for row in self.outcome.rows.values() if row["word"] == "not run"
        ]
        reason = self.outcome.early_stop_reason or "the run was interrupted"
        if (
            self.outcome.is_done
            and self.outcome.events
            and not self.outcome.early_stop_reason
        ):
            reason = f"the engine failed earlier: {self.outcome.events[-1][1]}"
        for row in not_run:
            row["why"] = reason


def engine_status(outcome: EngineOutcome) -> tuple[EngineStatus, str]:
    """Return the status of an engine and its reason."""
    engine = outcome.engine
    if engine.missing:
        return "missing", engine.missing
    if engine.fell:
        return cast("EngineStatus", engine.fell), engine.why_fell
    for severe in _SEVERE_STATUSES:
        for status, reason in outcome.events:
            if status == severe:
                return status, reason
    if outcome.events:
        return outcome.events[0]
    wrong = [row for row in outcome.rows.values() if row["word"] == "wrong"]
    if wrong:
        return "wrong", f"{wrong[0]['case']}: {wrong[0]['why']}"
    return "right", ""
