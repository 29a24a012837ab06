"""Interpolation between measured sizes: costs and rates at sizes that were not
measured.

Pure numbers. A calibration measures a few sizes; this says what any other size costs,
or at which rate it is worked on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rlxweb.cost.calibration_record import MeasuredPoint


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Cost curve: nanoseconds over bytes, through measured points in rising order of
    bytes.

    Nothing costs nothing. Below the first point the cost is the first point's: most of
    it is fixed. Above the last the line through the last two goes on, never falling.
    """

    points: tuple[tuple[float, float], ...]

    def ns_at(self, nbytes: float) -> float:
        """Return the nanoseconds that a number of bytes takes."""
        if nbytes <= 0 or not self.points:
            return 0.0
        points = self.points
        if nbytes <= points[0][0] or len(points) == 1:
            return points[0][1] * max(1.0, nbytes / points[0][0])
        for (x0, y0), (x1, y1) in pairwise(points):
            if nbytes <= x1:
                return y0 + (y1 - y0) * (nbytes - x0) / (x1 - x0)
        (x0, y0), (x1, y1) = points[-2:]
        return y1 + max(0.0, (y1 - y0) / (x1 - x0)) * (nbytes - x1)


def fit_cost_curve(points: Iterable[MeasuredPoint]) -> CostCurve:
    """Return the curve through points whose size has "bytes"; of two points of one size
    the faster counts.

    More bytes never cost less: a point below a smaller one is noise and is lifted.
    """
    slowest_first = sorted(
        ((float(p.size["bytes"]), p.ns) for p in points), reverse=True
    )
    by_size = sorted(dict(slowest_first).items())
    rising_ns = accumulate((ns for _, ns in by_size), max)
    return CostCurve(
        tuple((x, ns) for (x, _), ns in zip(by_size, rising_ns, strict=True))
    )


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Rate over a size: straight between points in log-log, constant beyond them.

    Unlike a cost, a rate settles: the largest size measured stands for all above it.
    """

    points: tuple[tuple[float, float], ...]

    def rate_at(self, size: float) -> float:
        """Return the rate at a size above 0."""
        xs = [x for x, _ in self.points]
        upper = bisect_right(xs, size)
        if upper == 0:
            return self.points[0][1]
        if upper == len(xs):
            return self.points[-1][1]
        (x0, y0), (x1, y1) = self.points[upper - 1], self.points[upper]
        share = math.log(size / x0) / math.log(x1 / x0)
        return math.exp(math.log(y0) + share * math.log(y1 / y0))


def fit_rate_curve(pairs: Iterable[tuple[float, float]]) -> RateCurve:
    """Return the curve through (size, rate) pairs in any order; of two pairs of one
    size the faster counts.
    """
    return RateCurve(tuple(dict(sorted(pairs)).items()))
