"""What a Work costs on a calibrated device, term by term.

One traffic term, nothing for views, real arithmetic: matrix products, transforms and
Welch estimates by the rates of our own kernels, the rest by bytes through memory and
operations. Numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from rlxweb.cost.assumed import assumed_cpu
from rlxweb.cost.calibrated import (
    Interpolated,
    MeasuredRate,
    bandwidth,
    interpolated,
    matmul_rate,
)
from rlxweb.cost.curve import Curve, curve_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.welch_model import How, WelchModel, WelchSize
from rlxweb.cost.work import Item, Work
from rlxweb.decision.terms import Terms

KERNELS = ("copy", "elementwise", "matmul", "fft")
"""The kinds of points a graph is priced by."""


@dataclass(frozen=True)
class Prices:
    """The fitted prices of one record.

    Kernels it has no points for, because its time was over, are priced as an ordinary
    CPU would do them: careful, and nothing unmeasured looks free.
    """

    record: Calibration

    @cached_property
    def kernels(self) -> Calibration:
        """The record, with assumed points for the kinds it lacks."""
        lacking = [k for k in KERNELS if not self.record.of(k)]
        more = [p for kind in lacking for p in assumed_cpu().of(kind)]
        return replace(self.record, points=(*self.record.points, *more))

    @cached_property
    def is_host(self) -> bool:
        """Nothing is submitted or moved: the record of a CPU."""
        return not self.record.of("submit")

    @cached_property
    def start_ns(self) -> float:
        """Starting one kernel, or one NumPy call."""
        found = self.record.of("call" if self.is_host else "dispatch")
        return found[0].ns if found else 0.0

    @cached_property
    def wait_ns(self) -> float:
        found = self.record.of("submit")
        return found[0].ns if found else 0.0

    @cached_property
    def upload(self) -> Curve:
        return curve_of(self.record.of("upload"))

    @cached_property
    def readback(self) -> Curve:
        return curve_of(self.record.of("readback"))

    @cached_property
    def bandwidth(self) -> Interpolated | None:
        return bandwidth(self.kernels)

    @cached_property
    def products(self) -> MeasuredRate | None:
        return matmul_rate(self.kernels)

    @cached_property
    def transforms(self) -> Interpolated | None:
        """flop/ns of the fastest transform measured at each length."""
        points = sorted(self.kernels.of("fft"), key=_fft_rate)
        if not points:
            return None
        return interpolated(points, lambda p: float(p.size["n"]), _fft_rate)

    @cached_property
    def elementwise(self) -> float:
        """flop/ns of a fused chain; infinite where it was not measured."""
        found = self.kernels.of("elementwise")
        if not found:
            return math.inf
        point = found[-1]
        nbytes = point.size["bytes"]
        flops = _beyond_moving(point.size["flops"], nbytes)
        if flops == 0.0:  # it hid behind the moving, so nothing is known of it
            return math.inf
        return flops / max(point.ns - self.moving_ns(nbytes), 0.05 * point.ns)

    @cached_property
    def welch(self) -> WelchModel | None:
        how: How = "welch_host" if self.is_host else "welch_fused"
        return WelchModel(self.record, how) if self.record.of(how) else None

    def moving_ns(self, nbytes: float) -> float:
        """Bytes through the device's memory."""
        if self.bandwidth is None or nbytes <= 0:
            return 0.0
        return nbytes / self.bandwidth.at(nbytes)

    def compute_ns(self, item: Item) -> float | None:
        """Time of a kind that was measured, its traffic included; None otherwise."""
        size = item.size
        if item.kind == "matmul" and self.products is not None:
            rate = self.products(size["m"] * size.get("batch", 1), size["k"], size["n"])
            return item.flops / rate if rate else 0.0
        if item.kind == "fft" and self.transforms is not None:
            return item.flops / self.transforms.at(max(2, size["n"]))
        if item.kind == "welch" and self.welch is not None:
            one = WelchSize(
                size["n"], size["segments"], size["rows"], size["k"], size["samples"]
            )
            terms = self.welch.terms(one)
            return terms.compute_ns + terms.traffic_ns
        return None


def _beyond_moving(flops: float, nbytes: float) -> float:
    """The operations that do not hide behind moving the bytes: one per 8 bytes does."""
    return max(0.0, flops - nbytes / 8)


def _fft_rate(point: Point) -> float:
    n, rows = point.size["n"], point.size["rows"]
    return 5.0 * rows * n * math.log2(max(2, n)) / point.ns


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
    return Terms(
        launches=launches,
        syncs=0 if prices.is_host else 1 + work.syncs,
        dispatch_ns=launches * prices.start_ns,
        sync_ns=prices.wait_ns * (1 + work.syncs),
        upload_ns=prices.upload.at(work.upload_bytes),
        compute_ns=compute,
        traffic_ns=traffic,
        readback_ns=prices.readback.at(work.readback_bytes),
    )
