"""Times between measured sizes: lines through points, and what lies beyond them.

Pure numbers. A calibration measures a transfer at a few sizes; this says what any other
size costs.
"""

from __future__ import annotations

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
    found: dict[float, float] = {}
    for point in points:
        nbytes = float(point.size["bytes"])
        found[nbytes] = min(point.ns, found.get(nbytes, point.ns))
    sizes = sorted(found)
    lifted = accumulate((found[size] for size in sizes), max)
    return Curve(tuple(zip(sizes, lifted, strict=True)))
