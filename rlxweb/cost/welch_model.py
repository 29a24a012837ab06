"""Cost model of a Welch estimate on a calibrated engine, fitted to rlxweb's own kernel
times.

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

from rlxweb.core.fork_safety import cached_property
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.decision import Terms
from rlxweb.cost.interpolation import NonnegativeFit, fit_relative
from rlxweb.cost.latency_costs import LatencyCosts

WelchPointKind = Literal["welch_host", "welch_compiled", "welch_fused"]
# A walk over all samples, as a part of what the host's own estimate of them takes.
_PASS_SHARE = 0.12


@dataclass(frozen=True, slots=True)
class WelchSize:
    """Size of a Welch job: rows x samples in, `segments` transforms of n per row, k
    peaks out.

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
    def from_mapping(cls, size: Mapping[str, int]) -> WelchSize:
        """Return the size of a calibration point or a work item; without samples,
        segments overlap by half.
        """
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
        return self.rows * (8 * self.k if self.k else 4 * self.n_output_bins)

    @property
    def n_output_bins(self) -> int:
        """Number of bins that are searched or returned."""
        return self.band or self.n_bins


@lru_cache(maxsize=512)
def transform_work(n: int) -> float:
    """Return the work of one real transform of length n, in units of n log2 n at a
    power of two.

    A factor p costs log2 p per value up to 4 and p / 2 beyond; a large prime factor is
    bounded by the detour over three transforms of the next power of two above 2 n.
    """
    remaining, total, p = n, 0.0, 2
    while remaining > 1:
        if p * p > remaining:
            p = remaining
        while remaining % p == 0:
            total += math.log2(p) if p <= 4 else p / 2
            remaining //= p
        p += 1
    padded_length = 1 << max(1, (2 * n - 1).bit_length())
    return max(1.0, min(n * total, 3.0 * padded_length * math.log2(padded_length)))


def _row_work(size: WelchSize) -> float:
    return size.segments * transform_work(size.n)


# "searched" before "bins": where every point has peaks and nothing tells the two apart,
# the fit takes the first.
COLUMNS: Mapping[str, Callable[[WelchSize], float]] = {
    "a call": lambda s: 1e3,
    "latency": _row_work,
    "rows": lambda s: s.rows,
    "transforms": lambda s: s.rows * _row_work(s),
    "values": lambda s: s.rows * s.segments * s.n,
    "searched": lambda s: s.rows * s.n_output_bins * (s.k > 0),
    "bins": lambda s: s.rows * s.n_bins,
    "peaks": lambda s: s.rows * s.k,
}


def column_values(size: WelchSize) -> tuple[float, ...]:
    """Return the amounts that the fitted time is a weighted sum of, one for each of
    COLUMNS.
    """
    return tuple(float(column(size)) for column in COLUMNS.values())


@dataclass(frozen=True)
class WelchModel:
    """Cost model of Welch jobs on the engine of one record.

    how   which points of the record it is fitted to
    error the typical relative miss on sizes it was not fitted to
    """

    record: Calibration
    how: WelchPointKind = "welch_fused"

    @property
    def points(self) -> tuple[MeasuredPoint, ...]:
        return self.record.points_of_kind(self.how)

    @cached_property
    def latency(self) -> LatencyCosts:
        return LatencyCosts.from_record(self.record)

    @cached_property
    def fit(self) -> NonnegativeFit:
        sizes = [WelchSize.from_mapping(p.size) for p in self.points]
        return fit_relative(
            [column_values(s) for s in sizes],
            [p.ns for p in self.points],
            [self._latency_terms(s).total_ns for s in sizes],
        )

    @property
    def error(self) -> float:
        return self.fit.error

    def _latency_terms(self, size: WelchSize) -> Terms:
        return self.latency.terms(size.launches, size.input_bytes, size.output_bytes)

    def column_ns(self, size: WelchSize) -> tuple[float, ...]:
        """Return the nanoseconds of each of COLUMNS."""
        parts = zip(self.fit.weights, column_values(size), strict=True)
        return tuple(weight * amount for weight, amount in parts)

    def terms(self, size: WelchSize) -> Terms:
        """Return the predicted terms of one warm run."""
        column_ns = self.column_ns(size)
        latency_terms = self._latency_terms(size)
        return replace(
            latency_terms,
            dispatch_ns=latency_terms.dispatch_ns + column_ns[0],
            compute_ns=sum(column_ns[1:4]) + sum(column_ns[5:]),
            traffic_ns=column_ns[4],
        )


def integer_level_terms(host: WelchModel, size: WelchSize, has_level: bool) -> Terms:
    """Return the host's cost of integers on a device: conversion to float32, and their
    level.
    """
    spectrum_ns = host.terms(replace(size, k=0)).total_ns
    passes, transforms = (2, 1) if has_level else (1, 0)
    return Terms(
        host_ns=spectrum_ns * (_PASS_SHARE * passes + transforms / size.segments)
    )


def block_terms(
    device: WelchModel, host: WelchModel, size: WelchSize, is_band_cut: bool = False
) -> Terms:
    """Return the terms of a spectrum on the device whose peaks are searched on the
    host.

    The device's time without its peak search, the spectrum's way back, of the band
    alone where that is cut out there, and the host's own cost of searching the bins.
    """
    spectrum_terms = device.terms(
        replace(size, k=0, band=size.band if is_band_cut else 0)
    )
    column_ns = dict(zip(COLUMNS, host.column_ns(size), strict=True))
    # About half of the calls a NumPy estimate makes are the search.
    host_ns = column_ns["searched"] + column_ns["peaks"] + 0.5 * column_ns["a call"]
    return replace(spectrum_terms, host_ns=host_ns)
