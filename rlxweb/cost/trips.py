"""What it costs to reach a device: submits and waits, starts of kernels, transfers.

Taken as measured, nothing fitted. A CPU has none of it: nothing is submitted there, and
nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.cost.curve import Curve, curve_of
from rlxweb.cost.record import Calibration
from rlxweb.decision.terms import Terms


@dataclass(frozen=True, slots=True)
class TripPrices:
    """A submit and a wait, one more kernel, and bytes there and back."""

    submit_ns: float
    dispatch_ns: float
    upload: Curve
    readback: Curve

    @classmethod
    def of(cls, record: Calibration) -> TripPrices:
        up, back = (curve_of(record.of(what)) for what in ("upload", "readback"))
        return cls(record.ns_of("submit"), record.ns_of("dispatch"), up, back)

    @property
    def is_host(self) -> bool:
        return not self.submit_ns

    def terms(
        self, launches: int, up_bytes: float, back_bytes: float, waits: int = 1
    ) -> Terms:
        """So many kernels, what goes up before them and comes back after them."""
        return Terms(
            launches=launches,
            syncs=0 if self.is_host else waits,
            dispatch_ns=launches * self.dispatch_ns,
            sync_ns=self.submit_ns * waits,
            upload_ns=self.upload.at(up_bytes),
            readback_ns=self.readback.at(back_bytes),
        )
