"""What a Work costs on a calibrated device, term by term.

One traffic term, nothing for views, real arithmetic. Kinds and ops that were measured
as a whole are priced by their own points; the rest by bytes through memory and
operations. Numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlxweb.cost.curve import Interpolated
from rlxweb.cost.kinds import KINDS, Price, assumed_cpu, measured_step, rates
from rlxweb.cost.record import Calibration
from rlxweb.cost.trips import TripPrices
from rlxweb.cost.work import Item, Work
from rlxweb.decision.terms import Terms
from rlxweb.forked import cached_property


@dataclass(frozen=True)
class Prices:
    """The fitted prices of one record.

    Kernels it has no points for, because its time was over, are priced as an ordinary
    CPU would do them: careful, and nothing unmeasured looks free.
    """

    record: Calibration

    @cached_property
    def kernels(self) -> Calibration:
        """The record, with assumed points for the kernels it lacks."""
        had = {p.what for p in self.record.points}
        lacking = {k.name for k in KINDS.values() if k.probes and k.name not in had}
        more = (p for p in assumed_cpu().points if p.what in lacking)
        return replace(self.record, points=(*self.record.points, *more))

    @cached_property
    def trips(self) -> TripPrices:
        return TripPrices.of(self.record)

    @cached_property
    def start_ns(self) -> float:
        """Starting one kernel, or one NumPy call."""
        trips = self.trips
        return self.record.ns_of("call") if trips.is_host else trips.dispatch_ns

    @cached_property
    def run_ns(self) -> float:
        """What NumPy's run of a plan takes besides its calls; in `submit` elsewhere."""
        if not self.trips.is_host:
            return 0.0
        return max(0.0, self.record.ns_of("run") - self.start_ns)

    def _timed(self, op: str) -> Price | None:
        """The price of an op that was timed itself; None where its sizes tell none."""
        sizes = (p for p in self.record.of(op) if p.size.get("bytes", 0) > 0)
        points = [p for p in sizes if p.size.get("cells", 0) > 0]
        points.sort(key=lambda p: (p.size["cells"], -p.size.get("rows", 0)))
        return measured_step(points, self.moving_ns) if points else None

    @cached_property
    def _turned(self) -> float:
        """Ns per byte that is read across rows, besides the moving of it."""
        for point in self.kernels.of("turned"):
            nbytes = point.size["bytes"]
            return max(0.0, point.ns - self.moving_ns(3 * nbytes)) / nbytes
        return 0.0

    @cached_property
    def bandwidth(self) -> Interpolated | None:
        """Bytes/ns over the bytes of a copy: caches make small ones fast."""
        return rates(self.kernels, "copy")

    @cached_property
    def elementwise(self) -> float:
        """flop/ns of a fused chain; infinite where it was not measured."""
        for point in self.kernels.of("elementwise")[-1:]:
            nbytes = point.size["bytes"]
            flops = _beyond_moving(point.size["flops"], nbytes)
            if flops:  # else it hid behind the moving, so nothing is known of it
                return flops / max(point.ns - self.moving_ns(nbytes), 0.05 * point.ns)
        return math.inf

    @cached_property
    def measured(self) -> Mapping[str, Price | None]:
        """Prices of the kinds and of the ops that are measured as a whole."""
        ops = {p.what for p in self.record.points} - set(KINDS)
        kinds = {k.name: k.price(self.kernels, k) for k in KINDS.values() if k.price}
        return {op: self._timed(op) for op in ops} | kinds

    def compute_ns(self, item: Item) -> float | None:
        """Time of a kind that was measured, its traffic included; None otherwise."""
        named = f"{item.kind} {item.numbers}".rstrip()
        price = self.measured.get(named) or self.measured.get(item.kind)
        return None if price is None else price(item)

    def converting_ns(self, item: Item) -> float:
        """What half precision costs besides, where it is computed by conversions.

        Nothing for an op that was timed with it.
        """
        if item.numbers != "half" or f"{item.kind} half" in self.measured:
            return 0.0
        return self._converted * item.size.get("cells", 0)

    @cached_property
    def _converted(self) -> float:
        """Ns per element, by the ops that were timed in half precision."""
        taken = (p for p in self.record.points if p.what.endswith(" half"))
        return max((p.ns / p.size["cells"] for p in taken), default=0.0)

    def turning_ns(self, item: Item) -> float:
        """What it costs besides that some of its operands lie across."""
        return self._turned * item.turned

    def moving_ns(self, nbytes: float) -> float:
        """Bytes through the device's memory."""
        if self.bandwidth is None or nbytes <= 0:
            return 0.0
        return nbytes / self.bandwidth.at(nbytes)


def _beyond_moving(flops: float, nbytes: float) -> float:
    """The operations that do not hide behind moving the bytes: one per 8 bytes does."""
    return max(0.0, flops - nbytes / 8)


def terms_of(work: Work, prices: Prices) -> Terms:
    """The predicted terms of one run."""
    launches = sum(i.launches for i in work.items)
    compute = traffic = 0.0
    for item in work.items:
        known = prices.compute_ns(item)
        if known is not None:
            compute += known
        else:
            traffic += prices.moving_ns(item.nbytes)
            compute += _beyond_moving(item.flops, item.nbytes) / prices.elementwise
        compute += prices.converting_ns(item)
        traffic += prices.turning_ns(item)
    trips = prices.trips.terms(
        launches, work.upload_bytes, work.readback_bytes, 1 + work.syncs
    )
    dispatch = prices.run_ns + launches * prices.start_ns
    return replace(trips, dispatch_ns=dispatch, compute_ns=compute, traffic_ns=traffic)
