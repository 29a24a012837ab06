"""Least squares with nonnegative coefficients, in relative error.

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
class NonnegativeFit:
    """Fitted weights [P] of the columns; error: the typical relative miss (0.1 = 10
    %).
    """

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
