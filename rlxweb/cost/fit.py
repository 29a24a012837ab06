"""Least squares with coefficients that cannot be negative, in relative error.

A time is a sum of costs, and no cost is below zero: a fit that may subtract goes wrong
as soon as it is asked about a shape outside the measured goal. Pure numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Fit:
    """Weights [P] of the columns; error: the typical relative miss (0.1 = 10 %)."""

    weights: tuple[float, ...]
    error: float


def fit_relative(
    columns: npt.ArrayLike, values: npt.ArrayLike, known: npt.ArrayLike = 0.0
) -> Fit:
    """Weights >= 0 that bring known + columns [N, P] @ weights near values [N].

    known    the part of each value that is not fitted, [N] or a number
    values   above zero

    Minimises the sum of ((fitted - value) / value)². `error` is the root of the mean
    squared relative miss over the N points, each point predicted by a fit without it
    where there are enough points (N > P + 1), else by the fit itself.
    """
    table = np.asarray(columns, np.float64)
    wanted = np.asarray(values, np.float64)
    scaled = table / wanted[:, None]
    goal = 1.0 - np.broadcast_to(known, wanted.shape) / wanted
    weights = _nonnegative(scaled, goal)
    misses = scaled @ weights - goal
    n_points, n_columns = table.shape
    if n_points > n_columns + 1:
        misses = np.array([_miss_without(scaled, goal, at) for at in range(n_points)])
    error = float(np.sqrt(np.mean(misses**2))) if n_points else 1.0
    return Fit(tuple(float(w) for w in weights), error)


def _miss_without(scaled: Matrix, goal: Matrix, at: int) -> float:
    weights = _nonnegative(np.delete(scaled, at, axis=0), np.delete(goal, at))
    return float(scaled[at] @ weights - goal[at])


def _nonnegative(scaled: Matrix, goal: Matrix) -> Matrix:
    """The weights >= 0 that bring scaled [N, P] @ weights nearest to goal [N].

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
        x = _feasible(unit, goal, free, x)
    return np.asarray(x / norms)


def _feasible(unit: Matrix, goal: Matrix, free: Mask, x: Matrix) -> Matrix:
    """The least-squares solution over `free`, walked to from x without going below 0.

    Columns that would turn negative are taken out of `free` on the way.
    """
    while True:
        wanted = np.zeros(len(x))
        wanted[free] = np.linalg.lstsq(unit[:, free], goal, rcond=None)[0]
        if (wanted[free] > 0).all():
            return np.asarray(wanted)
        stop = free & (wanted <= 0)
        step = np.min(x[stop] / np.maximum(x[stop] - wanted[stop], TOLERANCE))
        x = np.asarray(np.maximum(x + step * (wanted - x), 0.0))
        free &= x > TOLERANCE
        if not free.any():
            return np.zeros(len(x))
