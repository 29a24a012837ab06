"""Starts the process that measures for `bench gpu`, hears it, and starts another where
one hangs or crashes: without the contender that was on its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rlxweb.cli.bench_gpu_cases import Case
from rlxweb.cli.bench_gpu_child import row_of
from rlxweb.cli.bench_gpu_contenders import Row
from rlxweb.smoke.memory import fair_nbytes
from rlxweb.smoke.process import Bounds, Child, Ending

MOST_CHILDREN = 9
START_S = 60.0
"""For each of the steps before the first case."""
LEAST_S = 2.0
"""Less is not worth another process."""
CASE_S = 60.0
"""For one contender to be made, judged and tried, or for all of a case to be timed."""
_MODULE = "rlxweb.cli.bench_gpu_child"
_FACTS = ("engines", "missing", "peers", "nvidia", "memory_types")


@dataclass(slots=True)
class Found:
    """Everything that is known so far, in the order in which it was learnt."""

    cases: Sequence[Case]
    began: float = field(default_factory=monotonic)
    smoke: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    trips: dict[str, Any] = field(default_factory=dict)
    from_host: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    fell: list[str] = field(default_factory=list)
    is_partial: bool = True


Heard = Callable[[str, Sequence[dict[str, Any]]], None]
"""What was begun, and the rows that came with it."""


@dataclass(slots=True)
class Measuring:
    """One benchmark over as many processes as it takes.

    asked    what every process is asked, but for where it begins
    until    the time (`monotonic`) at which all has to be over
    """

    found: Found
    asked: dict[str, Any]
    until: float
    heard: Heard
    case_s: float = CASE_S
    _at: int = 0
    _is_first: bool = True
    _begun: str = ""
    _key: list[str] | None = None
    _without: list[list[str]] = field(default_factory=list)

    def run(self) -> None:
        """Everything, or as much as can be."""
        for _ in range(MOST_CHILDREN):
            if self._over_one_child():
                return
            if self.until - monotonic() < LEAST_S:
                break
        rest = self.found.cases[self._at :]
        why = "no time is left, or too much went wrong"
        self.found.left_out += [f"{case.label}: {why}" for case in rest]

    def _over_one_child(self) -> bool:
        """Is that all there is to do?"""
        left = self.until - monotonic()
        bounds = Bounds(
            start_s=max(START_S, self.case_s),
            case_s=self.case_s,
            total_s=left + self.case_s,
            nbytes=fair_nbytes(),
        )
        asked = self.asked | {
            "budget_s": left,
            "first": self._at,
            "without": self._without,
            "around": self._is_first,
        }
        self._is_first, self._begun, self._key = False, "", None
        child = Child(asked, bounds, module=_MODULE)
        is_spoiled = False
        try:
            for told in child.lines(monotonic() + bounds.total_s):
                is_spoiled = self._take(told) or is_spoiled
            ending = child.ending
        finally:
            child.close()
        if ending.word:
            self._fell(ending)
        return not (ending.word or is_spoiled) or self._at >= len(self.found.cases)

    def _take(self, told: dict[str, Any]) -> bool:
        """Note what it says; is it of no more use?"""
        found = self.found
        found.facts |= {key: told[key] for key in _FACTS if key in told}
        found.trips |= told.get("trips", {})
        found.from_host |= told.get("from_host", {})
        found.left_out += told.get("left_out", [])
        if "failed" in told:
            found.fell.append(told["failed"])
        self._begun = told.get("doing", self._begun)
        if "begun" in told:
            self._begun, self._key = told["begun"], told.get("key")
            self._at = told.get("case", self._at)
        rows, spoiled = told.get("rows", []), told.get("spoiled", [])
        found.rows += rows
        if spoiled:
            self._without += spoiled
            found.fell += [f"{row['why']}, at {self._begun}" for row in rows]
        elif rows:
            self._at += 1
        self.heard(self._begun, rows)
        return bool(spoiled)

    def _fell(self, ending: Ending) -> None:
        """It ended badly: who was on its turn has a row that says so."""
        why = f"{ending.word}: {ending.why}"
        is_case = (
            self._at < len(self.found.cases)
            and self._begun == (case := self.found.cases[self._at]).label
        )
        self.found.fell.append(f"{why}, at {self._begun or 'its begin'}")
        if not is_case:
            return
        if self._key is None:  # all of them were timed: nobody knows whose fault it is
            row = Row(case, "all in turns", why=why)
            self._at += 1
        else:
            row = Row(case, self._key[1], self._key[2], why=why)
            self._without.append(self._key)
        self.found.rows.append(row_of(row))
        self.heard(self._begun, self.found.rows[-1:])
