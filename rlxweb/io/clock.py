"""The clock column of a table: what rate it gives, or why it gives none.

Owns the names such a column goes by, their units, and the rule for "evenly spaced".
Printed times are rounded, so the spacing is judged to the last digit printed and a rate
that a whole number explains as well is taken to be that number.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

import numpy as np
import numpy.typing as npt

_NAMES = ("time", "t", "timestamp", "timestamps", "seconds")
_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
_ROWS = 4096


class Rows(Protocol):
    """What the clock needs of a table."""

    def parse(
        self, columns: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Numbers of some columns, (columns, rows)."""
        ...

    def cell(self, row: int, column: int) -> str:
        """The text of one cell."""
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """The rate a clock column gives, or the reason there is none.

    tolerance  relative error of `fs` from the rounding of the printed times
    """

    fs: float | None = None
    tolerance: float = 1e-9
    problem: str = ""


def clock_scale(name: str) -> float | None:
    """Seconds per unit of a clock column of that name; None for other columns.

    "time", "t", "timestamp", with a unit as in "time_ms", "time [s]" or "t (us)".
    """
    text = name.strip().casefold()
    for mark in "[](){}_/":
        text = text.replace(mark, " ")
    stem, _, unit = text.strip().partition(" ")
    return _UNITS.get(unit.strip()) if stem in _NAMES else None


def find_rate(rows: Rows, column: int, scale: float, n_rows: int) -> Clock:
    """The rate of an evenly spaced clock column."""
    if n_rows < 2:
        return Clock(problem="has a single row")
    digits = _resolution([rows.cell(r, column) for r in _probe(n_rows)])
    if digits is None:
        return Clock(problem="is not a number of seconds")
    first = float(rows.parse((column,), 0, 1)[0, 0])
    last = float(rows.parse((column,), n_rows - 1, n_rows)[0, 0])
    step = (last - first) / (n_rows - 1)
    if not np.isfinite(step) or step <= 0:
        return Clock(problem="does not rise")
    if digits >= step:
        return Clock(problem=f"is printed to {digits:g}, too coarse for its rows")
    # Both ends of the line are rounded too, hence a whole last digit.
    slack = max(0.01 * step, 1.01 * digits, 8 * np.spacing(max(abs(first), abs(last))))
    for at in range(0, n_rows, _ROWS):
        times = rows.parse((column,), at, min(at + _ROWS, n_rows))[0]
        want = first + step * np.arange(at, at + len(times))
        even = np.abs(times - want) <= slack
        if not even.all():
            row = at + int(np.argmin(even))
            return Clock(problem=f"is not evenly spaced (row {row + 1})")
    return _rate(step * scale, digits / (last - first))


def _rate(step_s: float, error: float) -> Clock:
    fs = 1 / step_s
    error = max(error, 1e-9)
    whole = round(fs)
    if whole and abs(fs - whole) <= fs * error:
        fs = float(whole)
    return Clock(fs, error)


def _probe(n_rows: int) -> list[int]:
    return [*range(min(32, n_rows)), n_rows - 1]


def _resolution(texts: list[str]) -> float | None:
    """The smallest last digit printed in `texts`; None when one is no number."""
    exponents = []
    for text in texts:
        try:
            exponent = Decimal(text.strip()).as_tuple().exponent
        except InvalidOperation:
            return None
        if not isinstance(exponent, int):
            return None
        exponents.append(exponent)
    return float(10.0 ** min(exponents))
