"""One engine through all its cases, over as many child processes as that takes.

A case that ends, holds up or overfills its process is a row like any other; the cases
after it go on in a fresh child, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal, cast

from rlxweb.smoke.answers import Row, blank
from rlxweb.smoke.case import Level
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.process import Bounds, Child

MOST_CHILDREN = 6
"""Processes an engine may use up; what is left then is not run."""
EngineWord = Literal[
    "right", "wrong", "missing", "crashed", "hung", "out of memory", "lost"
]
_WORST = ("crashed", "hung", "out of memory", "lost")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of every engine.

    pattern      which cases, as `pattern_of` reads it; "" for all
    environment  variables of the children; None: this process's own
    sabotage     a test hook: `KIND:PATTERN`
    """

    level: Level = "standard"
    pattern: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    environment: Mapping[str, str] | None = None
    sabotage: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of an engine, as far as it got.

    rows     by case, in the order of the list
    events   what happened to its processes: (word, why)
    seconds  all in all
    enough   why not all of its cases were run, where that is as it should be
    is_done  False where the run was broken off
    """

    engine: Engine
    rows: dict[str, Row] = field(default_factory=dict)
    events: list[tuple[EngineWord, str]] = field(default_factory=list)
    seconds: float = 0.0
    enough: str = ""
    is_open: bool = False
    is_done: bool = False

    @property
    def left(self) -> int:
        return sum(row["word"] == "not run" for row in self.rows.values())


Heard = Callable[[Outcome, str], None]
"""Told whenever an engine is about to run a case, of which the name is given."""


def quiet(outcome: Outcome, case: str) -> None:
    """Whoever shows no progress."""


class Trying:
    """One engine on its way through the cases. `outcome` is good at any time."""

    def __init__(
        self, engine: Engine, settings: Settings, heard: Heard = quiet
    ) -> None:
        self.outcome = Outcome(engine)
        self._settings, self._heard = settings, heard
        self._running = ""

    def run(self) -> Outcome:
        """Everything, or as much as can be; nothing of what cannot be tried."""
        if not self.outcome.engine.can_be_tried:
            self.outcome.is_done = True
            return self.outcome
        begun = monotonic()
        until = begun + self._settings.bounds.total_s
        try:
            for _ in range(MOST_CHILDREN):
                if self._over_one_child(until) or monotonic() > until:
                    break
            self.outcome.is_done = True
        finally:
            self.outcome.seconds = monotonic() - begun
            self._explain_what_is_left()
        return self.outcome

    def _over_one_child(self, until: float) -> bool:
        """Is that all there is to do?"""
        self._running = ""
        child = Child(self._asked(), self._settings.bounds, self._environment())
        is_lost = False
        try:
            for told in child.lines(until):
                is_lost = self._take(told) or is_lost
                if "begun" in told:
                    self._heard(self.outcome, told["begun"])
            ending = child.ending
        except KeyboardInterrupt:
            for told in child.rest():
                self._take(told)
            raise
        finally:
            child.close()
        if ending.word:
            self._fell(ending.word, ending.why)
        is_over = not (ending.word or is_lost)
        # Whoever does not even open, or is out of time, is not asked again.
        return is_over or not self.outcome.rows or not self.outcome.left

    def _asked(self) -> dict[str, Any]:
        settings, rows = self._settings, self.outcome.rows
        done = [name for name, row in rows.items() if row["word"] != "not run"]
        return {
            "engine": self.outcome.engine.as_json(),
            "level": settings.level,
            "pattern": settings.pattern,
            "sabotage": settings.sabotage,
            "done": done,
        }

    def _environment(self) -> Mapping[str, str] | None:
        own = self.outcome.engine.environment
        if self._settings.environment is None:
            return None
        return {**self._settings.environment, **own}

    def _take(self, told: Mapping[str, Any]) -> bool:
        """Note what a child says; is its device lost?"""
        if "opened" in told:
            self.outcome.engine = replace(self.outcome.engine, **told["opened"])
            self.outcome.is_open = True
        elif "cases" in told:
            fresh = {name: blank(name) for name in told["cases"]}
            self.outcome.rows = fresh | self.outcome.rows
        elif "begun" in told:
            self._running = told["begun"]
            self.outcome.rows[self._running] |= told["described"]
        elif "row" in told:
            self.outcome.rows[told["row"]["case"]] = told["row"]
            self._running = ""
        elif "enough" in told:
            self.outcome.enough = told["enough"]
        elif "lost" in told:
            self.outcome.events.append(("lost", told["lost"]))
            return True
        elif "failed" in told:
            self._failed(told)
        return False

    def _failed(self, told: Mapping[str, Any]) -> None:
        """It was found and could not be opened: broken, too old, without a device."""
        word: EngineWord = "lost" if told["is_lost"] else "wrong"
        self.outcome.events.append((word, f"it cannot be opened: {told['failed']}"))

    def _fell(self, word: EngineWord, why: str) -> None:
        """A child ended badly: the case it was at is wrong, and that is why."""
        if self._running:
            row = self.outcome.rows[self._running]
            row |= {"word": "wrong", "why": f"{word}: {why}", "raised": word}
            why = f"{why}, at {self._running}"
        elif not self.outcome.is_open:
            why = f"{why}, while it was opened"
        self.outcome.events.append((word, why))

    def _explain_what_is_left(self) -> None:
        left = [row for row in self.outcome.rows.values() if row["word"] == "not run"]
        why = self.outcome.enough or "the run was broken off"
        if self.outcome.is_done and self.outcome.events and not self.outcome.enough:
            why = f"after {self.outcome.events[-1][1]}"
        for row in left:
            row["why"] = why


def word_of(outcome: Outcome) -> tuple[EngineWord, str]:
    """The word for an engine, and why."""
    engine = outcome.engine
    if engine.missing:
        return "missing", engine.missing
    if engine.fell:
        return cast("EngineWord", engine.fell), engine.why_fell
    for worst in _WORST:
        for word, why in outcome.events:
            if word == worst:
                return word, why
    if outcome.events:
        return outcome.events[0]
    wrong = [row for row in outcome.rows.values() if row["word"] == "wrong"]
    if wrong:
        return "wrong", f"{wrong[0]['case']}: {wrong[0]['why']}"
    return "right", ""
