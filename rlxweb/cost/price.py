"""What a Work costs on a calibrated device, term by term.

One traffic term, nothing for views, real arithmetic. What an item costs is said by its
kind in the table of kinds; this adds them up. Numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from rlxweb.cost.assumed import assumed_cpu
from rlxweb.cost.kinds import KINDS, Price, by_bytes_and_operations
from rlxweb.cost.record import Calibration
from rlxweb.cost.trips import TripPrices
from rlxweb.cost.work import Work
from rlxweb.decision.terms import Terms


@dataclass(frozen=True)
class Prices:
    """The fitted prices of one record.

    Kernels it has no points for, because its time was over, are priced as an ordinary
    CPU would do them: careful, and nothing unmeasured looks free.
    """

    record: Calibration
    _known: dict[str, Price] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def trips(self) -> TripPrices:
        return TripPrices(self.record)

    @cached_property
    def start_ns(self) -> float:
        """Starting one kernel, or one NumPy call."""
        trips = self.trips
        return self.record.ns_of("call") if trips.is_host else trips.dispatch_ns

    @cached_property
    def kernels(self) -> Calibration:
        """The record, with assumed points for the kernels it lacks."""
        had = {p.what for p in self.record.points}
        lacking = {k.name for k in KINDS.values() if k.probes and k.name not in had}
        more = (p for p in assumed_cpu().points if p.what in lacking)
        return replace(self.record, points=(*self.record.points, *more))

    def of(self, kind: str) -> Price:
        """The price of items of one kind."""
        if kind not in self._known:
            found = KINDS[kind].price(self.kernels) if kind in KINDS else None
            self._known[kind] = found or by_bytes_and_operations(self.kernels)
        return self._known[kind]


def terms_of(work: Work, prices: Prices) -> Terms:
    """The predicted terms of one run."""
    launches = sum(i.launches for i in work.items)
    compute = traffic = 0.0
    for item in work.items:
        computing, moving = prices.of(item.kind)(item)
        compute += computing
        traffic += moving
    return replace(
        prices.trips.terms(
            launches, work.upload_bytes, work.readback_bytes, 1 + work.syncs
        ),
        dispatch_ns=launches * prices.start_ns,
        compute_ns=compute,
        traffic_ns=traffic,
    )
