"""What it costs to reach a device: submits and waits, starts of kernels, transfers.

Taken as measured, nothing fitted. A record of a CPU has none of it: nothing is
submitted there, and nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rlxweb.cost.curve import Curve, curve_of
from rlxweb.cost.record import Calibration
from rlxweb.decision.terms import Terms


@dataclass(frozen=True)
class TripPrices:
    """The trips of one record."""

    record: Calibration

    @cached_property
    def submit_ns(self) -> float:
        """A submit and a wait."""
        return self.record.ns_of("submit")

    @cached_property
    def dispatch_ns(self) -> float:
        """One more kernel."""
        return self.record.ns_of("dispatch")

    @cached_property
    def is_host(self) -> bool:
        return not self.submit_ns

    @cached_property
    def upload(self) -> Curve:
        return curve_of(self.record.of("upload"))

    @cached_property
    def readback(self) -> Curve:
        return curve_of(self.record.of("readback"))

    def terms(
        self, launches: int, given_bytes: float, back_bytes: float, waits: int = 1
    ) -> Terms:
        """So many kernels, what goes up before them and comes back after them."""
        return Terms(
            launches=launches,
            syncs=0 if self.is_host else waits,
            dispatch_ns=launches * self.dispatch_ns,
            sync_ns=self.submit_ns * waits,
            upload_ns=self.upload.at(given_bytes),
            readback_ns=self.readback.at(back_bytes),
        )
