"""Which devices the work of a cluster ran on, in what share, and why.

Every worker decides for itself, by its own calibration; here the decisions of all are
counted. Knows neither recordings nor arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rlxweb.decision.decision import Decision

# A prediction differs from piece to piece, and its reason does not.
_NUMBER = re.compile(r"\d[\d.,]*( [nµm]?s)?")


@dataclass(frozen=True, slots=True)
class Decided:
    """What ran on one device.

    count  how many pieces of the work
    share  of all, 0 to 1
    why    the reason given most often, with the numbers of the first that gave it
    """

    device: str
    count: int
    share: float
    why: str

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % ran on {self.device}: {self.why}"

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "count": self.count,
            "share": self.share,
            "why": self.why,
        }


class Tally:
    """Counts pieces of work by the device they ran on."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._first: dict[tuple[str, str], str] = {}

    def note(self, device: str, decision: Decision) -> None:
        """A piece ran on a device, for the reason its decision gives."""
        reason = _NUMBER.sub("#", decision.why)
        self._first.setdefault((device, reason), decision.why)
        self._counts.setdefault(device, Counter())[reason] += 1

    def shares(self) -> list[Decided]:
        """What was counted so far, the largest share first."""
        totals = {device: reasons.total() for device, reasons in self._counts.items()}
        everything = sum(totals.values())
        return [
            Decided(device, n, n / everything, self._why(device))
            for device, n in sorted(totals.items(), key=lambda one: (-one[1], one[0]))
        ]

    def _why(self, device: str) -> str:
        ((reason, _),) = self._counts[device].most_common(1)
        return self._first[device, reason]
