"""From the points of a calibration to the attributes of a cost model. Numbers only."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.cost.record import Calibration, Point
from rlxweb.errors import InputError

# Nothing multiplies matrices a thousand times faster than a petaflop: a figure above
# this holds FLOP/s where GFLOP/s were meant.
MOST_GFLOPS = 1e6


@dataclass(frozen=True, slots=True)
class Interpolated:
    """A value over a size, straight between points in log-log, flat beyond them."""

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


def interpolated(
    points: Sequence[Point],
    size: Callable[[Point], float],
    value: Callable[[Point], float],
) -> Interpolated:
    """Through the points in rising order of size; of equal sizes the last counts."""
    found = {size(p): value(p) for p in points}
    return Interpolated(tuple(sorted(found.items())))


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """GFLOP/s of a matrix product by its volume m k n; 0 for an empty one."""

    curve: Interpolated

    def __call__(self, m: int, k: int, n: int) -> float:
        volume = m * k * n
        return self.curve.at(volume) if volume else 0.0


def _gflops(point: Point) -> float:
    rate = 2.0 * _volume(point) / point.ns
    if rate > MOST_GFLOPS:
        raise InputError(
            "reading a calibration",
            f"a matrix product at {rate:.3g} GFLOP/s",
            f"nothing passes {MOST_GFLOPS:.0g}",
            "run `rlxweb calibrate` to measure anew",
        )
    return rate


def _volume(point: Point) -> float:
    return float(point.size["m"] * point.size["k"] * point.size["n"])


def matmul_rate(record: Calibration) -> MeasuredRate | None:
    """The measured rate of matrix products. Errors  InputError for an absurd one."""
    points = record.of("matmul")
    if not points:
        return None
    return MeasuredRate(interpolated(points, _volume, _gflops))


def bandwidth(record: Calibration) -> Interpolated | None:
    """Bytes/ns over the bytes a copy reads and writes: caches make small ones fast."""
    points = record.of("copy")
    if not points:
        return None
    return interpolated(
        points, lambda p: float(p.size["bytes"]), lambda p: p.size["bytes"] / p.ns
    )


def readback_rate(record: Calibration) -> float | None:
    """Bytes/ns of large results: the slope from the smallest to the largest."""
    points = sorted(record.of("readback"), key=lambda p: p.size["bytes"])
    if len(points) < 2:
        return None
    nbytes = points[-1].size["bytes"] - points[0].size["bytes"]
    ns = points[-1].ns - points[0].ns
    # Where a large one was no slower than a small one, all of it is fixed cost.
    return nbytes / ns if ns > 0 else points[-1].size["bytes"] / points[-1].ns


def measured_attributes(record: Calibration, *, is_cpu: bool) -> dict[str, Any]:
    """Attributes of a BackendCostModel as far as the record has them.

    Errors   InputError for a record whose numbers cannot be.
    """
    found: dict[str, Any] = {}
    rate, band = matmul_rate(record), bandwidth(record)
    if rate is not None:
        found["sgemm_gflops"] = rate
    if band is not None:
        found["memory_bw"] = band.points[-1][1]
    starts = record.of("call" if is_cpu else "dispatch")
    if starts:
        found["dispatch_overhead_ns"] = starts[0].ns
    if is_cpu:
        # Nothing is submitted and nothing moves: results lie where they are read.
        found["round_trip_overhead_ns"] = 0.0
        found["unified_memory"] = True
        if band is not None:
            found["host_readback_bw"] = band.points[-1][1]
        return found
    submits, back = record.of("submit"), readback_rate(record)
    if submits:
        found["round_trip_overhead_ns"] = submits[0].ns
    if back is not None:
        found["host_readback_bw"] = back
    return found
