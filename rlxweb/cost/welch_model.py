"""What a Welch estimate costs on a calibrated engine: fitted to our own kernels' times.

A row of S segments of n samples asks for S transforms of n log2 n work. One row's chain
of work is a latency nobody can hide; all rows together are a throughput; bins are
averaged, and searched if peaks are wanted; each costs something per row. The weights of
these are fitted to the measured points of a record, none below zero. What was measured
apart (submitting, uploading, reading back) is taken as measured. Knows numbers only, no
device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from rlxweb.cost.curve import Curve, curve_of
from rlxweb.cost.fit import Fit, fit_relative
from rlxweb.cost.record import Calibration, Point
from rlxweb.decision.terms import Terms

How = Literal["welch_host", "welch_fused", "welch_block"]


@dataclass(frozen=True, slots=True)
class WelchSize:
    """One job: rows x samples in, `segments` transforms of n per row, k peaks out.

    k = 0 asks for the spectrum itself. n_bins is n // 2 + 1 of a one-sided spectrum.
    launches counts the kernels of the plan.
    """

    n: int
    segments: int
    rows: int
    k: int
    samples: int
    launches: int = 1

    @property
    def n_bins(self) -> int:
        return self.n // 2 + 1

    @property
    def input_bytes(self) -> int:
        return 4 * self.rows * self.samples

    @property
    def spectrum_bytes(self) -> int:
        return 4 * self.rows * self.n_bins

    @property
    def output_bytes(self) -> int:
        return 8 * self.rows * self.k if self.k else self.spectrum_bytes


@lru_cache(maxsize=512)
def transform_work(n: int) -> float:
    """Work of one real transform of length n, in units of n log2 n at a power of two.

    A factor p costs log2 p per value up to 4 and p / 2 beyond; a large prime factor is
    bounded by the detour over three transforms of the next power of two above 2 n.
    """
    left, total, p = n, 0.0, 2
    while left > 1:
        if p * p > left:
            p = left
        while left % p == 0:
            total += math.log2(p) if p <= 4 else p / 2
            left //= p
        p += 1
    detour = 1 << max(1, (2 * n - 1).bit_length())
    return max(1.0, min(n * total, 3.0 * detour * math.log2(detour)))


def columns(size: WelchSize) -> tuple[float, ...]:
    """What the fitted part of the time is a sum of; see `COLUMNS`."""
    row = size.segments * transform_work(size.n)
    rows = float(size.rows)
    return (
        1e3,
        row,
        rows,
        rows * row,
        rows * size.segments * size.n,
        rows * size.n_bins * (size.k > 0),
        rows * size.n_bins,
        rows * size.k,
    )


# "searched" before "bins": where every point has peaks and nothing tells the two apart,
# the fit takes the first.
COLUMNS = (
    "a call",
    "latency",
    "rows",
    "transforms",
    "values",
    "searched",
    "bins",
    "peaks",
)


@dataclass(frozen=True)
class WelchModel:
    """Prices WelchSizes on the engine of one record.

    how   which points of the record it is fitted to
    error the typical relative miss on sizes it was not fitted to
    """

    record: Calibration
    how: How = "welch_fused"

    @property
    def points(self) -> tuple[Point, ...]:
        return self.record.of(self.how)

    @cached_property
    def upload(self) -> Curve:
        return curve_of(self.record.of("upload"))

    @cached_property
    def readback(self) -> Curve:
        return curve_of(self.record.of("readback"))

    @cached_property
    def submit_ns(self) -> float:
        """A submit and a wait; nothing where there is no device to wait for."""
        found = self.record.of("submit")
        return found[0].ns if found else 0.0

    @cached_property
    def dispatch_ns(self) -> float:
        found = self.record.of("dispatch")
        return found[0].ns if found else 0.0

    @cached_property
    def fit(self) -> Fit:
        sizes = [size_of(p) for p in self.points]
        return fit_relative(
            [columns(s) for s in sizes],
            [p.ns for p in self.points],
            [self._fixed(s).total_ns for s in sizes],
        )

    @property
    def error(self) -> float:
        return self.fit.error

    def _fixed(self, size: WelchSize) -> Terms:
        return Terms(
            launches=size.launches,
            syncs=1 if self.submit_ns else 0,
            dispatch_ns=self.dispatch_ns * size.launches,
            sync_ns=self.submit_ns,
            upload_ns=self.upload.at(size.input_bytes),
            readback_ns=self.readback.at(size.output_bytes),
        )

    def shares(self, size: WelchSize) -> tuple[float, ...]:
        """Nanoseconds for each of COLUMNS."""
        parts = zip(self.fit.weights, columns(size), strict=True)
        return tuple(weight * amount for weight, amount in parts)

    def terms(self, size: WelchSize) -> Terms:
        """The predicted time of one run, warm."""
        shares = self.shares(size)
        fixed = self._fixed(size)
        return replace(
            fixed,
            dispatch_ns=fixed.dispatch_ns + shares[0],
            compute_ns=sum(shares[1:4]) + sum(shares[5:]),
            traffic_ns=shares[4],
        )


def block_terms(device: WelchModel, host: WelchModel, size: WelchSize) -> Terms:
    """The spectrum on the device, its peaks on the host.

    The device's time without its peak search, the spectrum's way back, and the host's
    own cost of searching so many bins.
    """
    power = device.terms(replace(size, k=0))
    shares = dict(zip(COLUMNS, host.shares(size), strict=True))
    # About half of the calls a NumPy estimate makes are the search.
    host_ns = shares["searched"] + shares["peaks"] + 0.5 * shares["a call"]
    return replace(power, host_ns=host_ns)


def size_of(point: Point) -> WelchSize:
    """The job a measured point stands for: segments overlap by half."""
    n, segments = point.size["n"], point.size["segments"]
    samples = point.size.get("samples", n + (segments - 1) * max(1, n // 2))
    return WelchSize(n, segments, point.size["rows"], point.size["k"], samples)
