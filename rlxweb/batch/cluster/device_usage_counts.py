"""Count of the devices that the work of a cluster ran on, with shares and reasons.

Every worker decides for itself, by its own calibration; here the decisions of all are
counted. Knows neither recordings nor arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rlxweb.cost.decision import Decision

# A prediction differs from piece to piece, and its reason does not.
_NUMBER_PATTERN = re.compile(r"\d[\d.,]*( [nµm]?s)?")


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """Share of the work that ran on one device.

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


class DeviceTally:
    """Counter of tasks by the device they ran on."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._first_reasons: dict[tuple[str, str], str] = {}

    def add(self, device: str, decision: Decision) -> None:
        """Count a task that ran on a device, with the reason that its decision
        gives.
        """
        reason = _NUMBER_PATTERN.sub("#", decision.why)
        self._first_reasons.setdefault((device, reason), decision.why)
        self._counts.setdefault(device, Counter())[reason] += 1

    def shares(self) -> list[DeviceShare]:
        """Return the share of each device so far, the largest first."""
        totals = {device: reasons.total() for device, reasons in self._counts.items()}
        total = sum(totals.values())
        return [
            DeviceShare(device, n, n / total, self._most_common_reason(device))
            for device, n in sorted(
                totals.items(), key=lambda entry: (-entry[1], entry[0])
            )
        ]

    def _most_common_reason(self, device: str) -> str:
        ((reason, _),) = self._counts[device].most_common(1)
        return self._first_reasons[device, reason]
