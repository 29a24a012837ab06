"""Latency costs of a device: submits and waits, kernel launches, transfers.

Taken as measured, nothing fitted. A CPU has none of it: nothing is submitted there, and
nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.decision import Terms
from rlxweb.cost.interpolation import CostCurve, fit_cost_curve


@dataclass(frozen=True, slots=True)
class LatencyCosts:
    """Measured costs of a submit and wait, of a kernel launch, and of transfers to and
    from the device.
    """

    submit_ns: float
    dispatch_ns: float
    upload: CostCurve
    readback: CostCurve

    @classmethod
    def from_record(cls, record: Calibration) -> LatencyCosts:
        """Return the latency costs of a calibration record."""
        upload, readback = (
            fit_cost_curve(record.points_of_kind(kind))
            for kind in ("upload", "readback")
        )
        return cls(
            record.first_ns("submit"), record.first_ns("dispatch"), upload, readback
        )

    @property
    def is_host(self) -> bool:
        """True for the host, where nothing is submitted."""
        return not self.submit_ns

    def terms(
        self, launches: int, upload_bytes: float, readback_bytes: float, waits: int = 1
    ) -> Terms:
        """Return the terms of a number of launches with the bytes uploaded before and
        read back after them.
        """
        return Terms(
            launches=launches,
            syncs=0 if self.is_host else waits,
            dispatch_ns=launches * self.dispatch_ns,
            sync_ns=self.submit_ns * waits,
            upload_ns=self.upload.ns_at(upload_bytes),
            readback_ns=self.readback.ns_at(readback_bytes),
        )
