"""Curves through measured points: interpolation, and fits without negative terms."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from rlxweb.cost.calibration_record import MeasuredPoint

# --- Least squares with nonnegative coefficients, in relative error
#
# A time is a sum of costs, and no cost is below zero: a fit that may subtract goes
# wrong as soon as it is asked about a shape outside the measured range.

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class NonnegativeFit:
    """Fitted weights [P] of the columns, and the typical relative error (0.1 = 10%)."""

    weights: tuple[float, ...]
    error: float


def fit_relative(
    columns: npt.ArrayLike, values: npt.ArrayLike, known: npt.ArrayLike = 0.0
) -> NonnegativeFit:
    """Return weights >= 0 that bring known + columns [N, P] @ weights near values [N].

    known    the part of each value that is not fitted, [N] or a number
    values   above zero

    Minimises the sum of ((fitted - value) / value)². `error` is the root of the mean
    squared relative miss over the N points, each point predicted by a fit without it
    where there are enough points (N > P + 1), else by the fit itself.
    """
    matrix = np.asarray(columns, np.float64)
    targets = np.asarray(values, np.float64)
    scaled = matrix / targets[:, None]
    goal = 1.0 - np.broadcast_to(known, targets.shape) / targets
    weights = _nonnegative_weights(scaled, goal)
    errors = scaled @ weights - goal
    n_points, n_columns = matrix.shape
    if n_points > n_columns + 1:
        errors = np.array(
            [_held_out_error(scaled, goal, index) for index in range(n_points)]
        )
    error = float(np.sqrt(np.mean(errors**2))) if n_points else 1.0
    return NonnegativeFit(tuple(float(w) for w in weights), error)


def _held_out_error(scaled: Matrix, goal: Matrix, index: int) -> float:
    """Return the relative error at one point of a fit made without it."""
    weights = _nonnegative_weights(
        np.delete(scaled, index, axis=0), np.delete(goal, index)
    )
    return float(scaled[index] @ weights - goal[index])


def _nonnegative_weights(scaled: Matrix, goal: Matrix) -> Matrix:
    """Return the weights >= 0 that bring scaled [N, P] @ weights nearest to goal [N].

    The active-set method of Lawson and Hanson: columns enter where the residual falls
    fastest and leave when the free solution would turn them negative.
    """
    norms = np.sqrt(np.sum(scaled**2, axis=0))
    norms[norms == 0] = 1.0
    unit = scaled / norms
    x = np.zeros(unit.shape[1])
    free = np.zeros(len(x), np.bool_)
    for _ in range(4 * len(x)):
        gain = unit.T @ (goal - unit @ x)
        gain[free] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] <= TOLERANCE:
            break
        free[best] = True
        x = _feasible_solution(unit, goal, free, x)
    return np.asarray(x / norms)


def _feasible_solution(unit: Matrix, goal: Matrix, free: Mask, x: Matrix) -> Matrix:
    """Return the least-squares solution over `free`, reached from x without going below
    0.

    Columns that would turn negative are taken out of `free` on the way.
    """
    while True:
        solution = np.zeros(len(x))
        solution[free] = np.linalg.lstsq(unit[:, free], goal, rcond=None)[0]
        if (solution[free] > 0).all():
            return np.asarray(solution)
        blocking = free & (solution <= 0)
        step = np.min(
            x[blocking] / np.maximum(x[blocking] - solution[blocking], TOLERANCE)
        )
        x = np.asarray(np.maximum(x + step * (solution - x), 0.0))
        free &= x > TOLERANCE
        if not free.any():
            return np.zeros(len(x))


# --- Interpolation between measured sizes: costs and rates at sizes that were not
# measured
#
# A calibration measures a few sizes; this says what any other size
# costs, or at which rate it is worked on.


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
