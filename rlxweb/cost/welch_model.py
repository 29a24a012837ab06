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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from rlxweb.cost.fit import Fit, fit_relative
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.trips import TripPrices
from rlxweb.decision.terms import Terms
from rlxweb.forked import cached_property

How = Literal["welch_host", "welch_compiled", "welch_fused"]
# A walk over all samples, as a part of what the host's own estimate of them takes.
_WALK = 0.12


@dataclass(frozen=True, slots=True)
class WelchSize:
    """One job: rows x samples in, `segments` transforms of n per row, k peaks out.

    k = 0 asks for the spectrum itself. n_bins is n // 2 + 1 of a one-sided spectrum,
    of which `band` are wanted; 0: all. launches counts the kernels of the plan.
    """

    n: int
    segments: int
    rows: int
    k: int
    samples: int
    launches: int = 1
    band: int = 0

    @classmethod
    def of(cls, size: Mapping[str, int]) -> WelchSize:
        """The job of a point or an item: where it has no samples, halves overlap."""
        n, segments = size["n"], size["segments"]
        samples = size.get("samples", n + (segments - 1) * max(1, n // 2))
        return cls(n, segments, size["rows"], size["k"], samples)

    @property
    def n_bins(self) -> int:
        return self.n // 2 + 1

    @property
    def input_bytes(self) -> int:
        return 4 * self.rows * self.samples

    @property
    def output_bytes(self) -> int:
        return self.rows * (8 * self.k if self.k else 4 * self.n_wanted)

    @property
    def n_wanted(self) -> int:
        """Bins that are searched, or given back."""
        return self.band or self.n_bins


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


def _row(size: WelchSize) -> float:
    return size.segments * transform_work(size.n)


# "searched" before "bins": where every point has peaks and nothing tells the two apart,
# the fit takes the first.
COLUMNS: Mapping[str, Callable[[WelchSize], float]] = {
    "a call": lambda s: 1e3,
    "latency": _row,
    "rows": lambda s: s.rows,
    "transforms": lambda s: s.rows * _row(s),
    "values": lambda s: s.rows * s.segments * s.n,
    "searched": lambda s: s.rows * s.n_wanted * (s.k > 0),
    "bins": lambda s: s.rows * s.n_bins,
    "peaks": lambda s: s.rows * s.k,
}


def columns(size: WelchSize) -> tuple[float, ...]:
    """What the fitted part of the time is a sum of, for each of COLUMNS."""
    return tuple(float(column(size)) for column in COLUMNS.values())


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
    def trips(self) -> TripPrices:
        return TripPrices.of(self.record)

    @cached_property
    def fit(self) -> Fit:
        sizes = [WelchSize.of(p.size) for p in self.points]
        return fit_relative(
            [columns(s) for s in sizes],
            [p.ns for p in self.points],
            [self._fixed(s).total_ns for s in sizes],
        )

    @property
    def error(self) -> float:
        return self.fit.error

    def _fixed(self, size: WelchSize) -> Terms:
        return self.trips.terms(size.launches, size.input_bytes, size.output_bytes)

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


def level_terms(host: WelchModel, size: WelchSize, has_level: bool) -> Terms:
    """What integers on a device cost the host: the way to float32, and their level."""
    whole = host.terms(replace(size, k=0)).total_ns
    walks, transforms = (2, 1) if has_level else (1, 0)
    return Terms(host_ns=whole * (_WALK * walks + transforms / size.segments))


def block_terms(
    device: WelchModel, host: WelchModel, size: WelchSize, is_cut: bool = False
) -> Terms:
    """The spectrum on the device, its peaks on the host.

    The device's time without its peak search, the spectrum's way back, of the band
    alone where that is cut out there, and the host's own cost of searching the bins.
    """
    power = device.terms(replace(size, k=0, band=size.band if is_cut else 0))
    shares = dict(zip(COLUMNS, host.shares(size), strict=True))
    # About half of the calls a NumPy estimate makes are the search.
    host_ns = shares["searched"] + shares["peaks"] + 0.5 * shares["a call"]
    return replace(power, host_ns=host_ns)
