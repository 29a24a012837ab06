"""Values between measured sizes: lines through points, and what lies beyond them.

Pure numbers. A calibration measures a few sizes; this says what any other size costs,
or at which rate it is worked on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rlxweb.cost.record import Point


@dataclass(frozen=True, slots=True)
class Curve:
    """Nanoseconds over bytes, through measured points in rising order of bytes.

    Nothing costs nothing. Below the first point the cost is the first point's: most of
    it is fixed. Above the last the line through the last two goes on, never falling.
    """

    points: tuple[tuple[float, float], ...]

    def at(self, nbytes: float) -> float:
        """Nanoseconds for so many bytes."""
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


def curve_of(points: Iterable[Point]) -> Curve:
    """The curve through points whose size has "bytes"; one size twice: the faster.

    More bytes never cost less: a point below a smaller one is noise and is lifted.
    """
    slow_first = sorted(((float(p.size["bytes"]), p.ns) for p in points), reverse=True)
    found = sorted(dict(slow_first).items())
    lifted = accumulate((ns for _, ns in found), max)
    return Curve(tuple((x, ns) for (x, _), ns in zip(found, lifted, strict=True)))


@dataclass(frozen=True, slots=True)
class Interpolated:
    """A rate over a size, straight between points in log-log, flat beyond them.

    Unlike a cost, a rate settles: the largest size measured stands for all above it.
    """

    points: tuple[tuple[float, float], ...]

    def at(self, size: float) -> float:
        """The value at a size above 0."""
        xs = [x for x, _ in self.points]
        upper = bisect_right(xs, size)
        if upper == 0:
            return self.points[0][1]
        if upper == len(xs):
            return self.points[-1][1]
        (x0, y0), (x1, y1) = self.points[upper - 1], self.points[upper]
        share = math.log(size / x0) / math.log(x1 / x0)
        return math.exp(math.log(y0) + share * math.log(y1 / y0))


def interpolated(pairs: Iterable[tuple[float, float]]) -> Interpolated:
    """Through (size, rate) pairs in any order; one size twice: the faster."""
    return Interpolated(tuple(dict(sorted(pairs)).items()))
