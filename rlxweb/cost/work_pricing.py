"""Price of a workload on a calibrated device, term by term.

One traffic term, nothing for views, real arithmetic. Kinds and ops that were measured
as a whole are priced by their own points; the rest by bytes through memory and
operations. Numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlxweb.core.fork_safety import cached_property
from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.decision import Terms
from rlxweb.cost.interpolation import RateCurve
from rlxweb.cost.latency_costs import LatencyCosts
from rlxweb.cost.work_kinds import (
    KINDS,
    PriceFunction,
    assumed_cpu,
    measured_rates,
    price_from_points,
)
from rlxweb.cost.workload import WorkItem, Workload


@dataclass(frozen=True)
class FittedPrices:
    """Prices fitted to one calibration record.

    Kernels it has no points for, because its time was over, are priced as an ordinary
    CPU would do them: careful, and nothing unmeasured looks free.
    """

    record: Calibration

    @cached_property
    def kernel_record(self) -> Calibration:
        """Calibration record, with assumed points for the kernels it lacks."""
        measured_kinds = {p.what for p in self.record.points}
        missing = {
            k.name for k in KINDS.values() if k.probes and k.name not in measured_kinds
        }
        assumed = (p for p in assumed_cpu().points if p.what in missing)
        return replace(self.record, points=(*self.record.points, *assumed))

    @cached_property
    def latency(self) -> LatencyCosts:
        """Latency costs of the record: submits, dispatches and transfers."""
        return LatencyCosts.from_record(self.record)

    @cached_property
    def launch_ns(self) -> float:
        """Time to start one kernel, or one NumPy call."""
        latency = self.latency
        return self.record.first_ns("call") if latency.is_host else latency.dispatch_ns

    @cached_property
    def plan_overhead_ns(self) -> float:
        """Overhead of NumPy's run of a plan besides its calls; on devices it is part of
        `submit`.
        """
        if not self.latency.is_host:
            return 0.0
        return max(0.0, self.record.first_ns("run") - self.launch_ns)

    def _op_price(self, op: str) -> PriceFunction | None:
        """Return the price function of an op that was timed itself; None where its
        sizes tell none.
        """
        sizes = (
            p for p in self.record.points_of_kind(op) if p.size.get("bytes", 0) > 0
        )
        points = [p for p in sizes if p.size.get("cells", 0) > 0]
        points.sort(key=lambda p: (p.size["cells"], -p.size.get("rows", 0)))
        return price_from_points(points, self.memory_ns) if points else None

    @cached_property
    def _strided_ns_per_byte(self) -> float:
        """Time in ns per byte that is read across rows, besides moving it."""
        for point in self.kernel_record.points_of_kind("turned"):
            nbytes = point.size["bytes"]
            return max(0.0, point.ns - self.memory_ns(3 * nbytes)) / nbytes
        return 0.0

    @cached_property
    def bandwidth(self) -> RateCurve | None:
        """Bytes/ns over the bytes of a copy: caches make small copies fast."""
        return measured_rates(self.kernel_record, "copy")

    @cached_property
    def elementwise_rate(self) -> float:
        """Rate of a fused elementwise chain in flop/ns; infinite where it was not
        measured.
        """
        for point in self.kernel_record.points_of_kind("elementwise")[-1:]:
            nbytes = point.size["bytes"]
            flops = _exposed_flops(point.size["flops"], nbytes)
            if flops:  # else it hid behind the moving, so nothing is known of it
                return flops / max(point.ns - self.memory_ns(nbytes), 0.05 * point.ns)
        return math.inf

    @cached_property
    def measured_prices(self) -> Mapping[str, PriceFunction | None]:
        """Price functions of the kinds and of the ops that are measured as a whole."""
        ops = {p.what for p in self.record.points} - set(KINDS)
        kinds = {
            k.name: k.make_price(self.kernel_record, k)
            for k in KINDS.values()
            if k.make_price
        }
        return {op: self._op_price(op) for op in ops} | kinds

    def compute_ns(self, item: WorkItem) -> float | None:
        """Return the time of an item whose kind was measured, traffic included; None
        otherwise.
        """
        point_name = f"{item.kind} {item.dtype_class}".rstrip()
        price = self.measured_prices.get(point_name) or self.measured_prices.get(
            item.kind
        )
        return None if price is None else price(item)

    def conversion_ns(self, item: WorkItem) -> float:
        """Return the extra time of half precision where it is computed by conversions.

        Nothing for an op that was timed with it.
        """
        if item.dtype_class != "half" or f"{item.kind} half" in self.measured_prices:
            return 0.0
        return self._conversion_ns_per_element * item.size.get("cells", 0)

    @cached_property
    def _conversion_ns_per_element(self) -> float:
        """Conversion time in ns per element, by the ops that were timed in half
        precision.
        """
        half_points = (p for p in self.record.points if p.what.endswith(" half"))
        return max((p.ns / p.size["cells"] for p in half_points), default=0.0)

    def strided_read_ns(self, item: WorkItem) -> float:
        """Return the extra time of operands that are read across their rows."""
        return self._strided_ns_per_byte * item.strided_bytes

    def memory_ns(self, nbytes: float) -> float:
        """Return the time to move bytes through the device's memory."""
        if self.bandwidth is None or nbytes <= 0:
            return 0.0
        return nbytes / self.bandwidth.rate_at(nbytes)


def _exposed_flops(flops: float, nbytes: float) -> float:
    """Return the operations that do not hide behind moving the bytes: one per 8 bytes
    does.
    """
    return max(0.0, flops - nbytes / 8)


def workload_terms(workload: Workload, prices: FittedPrices) -> Terms:
    """Return the predicted cost terms of one run of a workload."""
    launches = sum(i.launches for i in workload.items)
    compute = traffic = 0.0
    for item in workload.items:
        measured_ns = prices.compute_ns(item)
        if measured_ns is not None:
            compute += measured_ns
        else:
            traffic += prices.memory_ns(item.nbytes)
            compute += _exposed_flops(item.flops, item.nbytes) / prices.elementwise_rate
        compute += prices.conversion_ns(item)
        traffic += prices.strided_read_ns(item)
    latency_terms = prices.latency.terms(
        launches, workload.upload_bytes, workload.readback_bytes, 1 + workload.syncs
    )
    dispatch = prices.plan_overhead_ns + launches * prices.launch_ns
    return replace(
        latency_terms, dispatch_ns=dispatch, compute_ns=compute, traffic_ns=traffic
    )
