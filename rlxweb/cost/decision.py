"""Decision: one choice as plain data with all its candidates; `explain` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlxweb.cost.candidate import Candidate
from rlxweb.cost.device_run_attempt import Attempt


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """Choice, its reason and the numbers behind it.

    candidates  every way there was, best first, where a cost model chose
    attempts    where it was tried, in order, where it was not done at the first try
    """

    what: str
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        count = len(self.candidates)
        among = f", {count} candidate{'s' * (count != 1)}" if count else ""
        return f"Decision({self.what!r}: {self.why}{among})"

    def __str__(self) -> str:
        facts = ", ".join(f"{k}={v}" for k, v in self.numbers.items())
        return f"{self.what}: {self.why}" + (f" ({facts})" if facts else "")

    def as_json(self) -> dict[str, Any]:
        """Return the decision as plain data; empty candidates and attempts are left
        out.
        """
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
    def of_json(cls, document: Mapping[str, Any]) -> Decision:
        """Return the decision that `as_json` described."""
        return cls(
            document["what"],
            document["why"],
            document["numbers"],
            tuple(map(Candidate.of_json, document.get("candidates", ()))),
            tuple(map(Attempt.of_json, document.get("attempts", ()))),
        )
