"""One choice as plain data, with every way there was. `explain` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """One choice: what was chosen, why, and the numbers behind it.

    candidates  every way there was, best first, where a cost model chose
    attempts    where it was tried, in order, where it was not done at the first try
    """

    what: str
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        ways = len(self.candidates)
        among = f", {ways} way{'s' * (ways != 1)}" if ways else ""
        return f"Decision({self.what!r}: {self.why}{among})"

    def __str__(self) -> str:
        facts = ", ".join(f"{k}={v}" for k, v in self.numbers.items())
        return f"{self.what}: {self.why}" + (f" ({facts})" if facts else "")

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "what": self.what,
            "why": self.why,
            "numbers": dict(self.numbers),
        }
        if self.candidates:
            document["candidates"] = [c.as_json() for c in self.candidates]
        if self.attempts:
            document["attempts"] = [a.as_json() for a in self.attempts]
        return document

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Decision:
        """What `as_json` told."""
        return cls(
            told["what"],
            told["why"],
            told["numbers"],
            tuple(map(Candidate.of_json, told.get("candidates", ()))),
            tuple(map(Attempt.of_json, told.get("attempts", ()))),
        )
