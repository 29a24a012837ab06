"""The clock column of a table: what rate it gives, or why it gives none.

Owns the names such a column goes by, their units, and the rule for "evenly spaced".
Printed times are rounded, so the spacing is judged to the last digit printed and a rate
that a whole number explains as well is taken to be that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rlxweb.io import bounds
from rlxweb.io.contents import SampleReader

_NAMES = ("time", "t", "timestamp", "timestamps", "seconds")
_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
_ROWS = 4096
_MOST_EXPONENT = 300  # float64 holds no power of ten much beyond


class Rows(SampleReader, Protocol):
    """What the clock needs of a table; its samples are float64."""

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Cells of one column as they are printed, with a decimal point."""
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


def clock_of(rows: Rows, names: Sequence[str], n_rows: int) -> tuple[int, Clock, str]:
    """Which column of a table is its clock, -1: none; what it gives; why it gives none.

    The first with a clock's name is it.
    """
    at = next((i for i, n in enumerate(names) if clock_scale(n) is not None), -1)
    if at < 0:
        return at, Clock(), ""
    clock = find_rate(rows, at, clock_scale(names[at]) or 1.0, n_rows)
    note = f"its column {names[at]!r} {clock.problem}" if clock.problem else ""
    return at, clock, note


def find_rate(rows: Rows, column: int, scale: float, n_rows: int) -> Clock:
    """The rate of an evenly spaced clock column."""
    if n_rows < 2:
        return Clock(problem="has a single row")
    probe = [*range(min(32, n_rows)), n_rows - 1]
    digits = _resolution(rows.texts(probe, column))
    if digits is None:
        return Clock(problem="is not a number of seconds")
    first = float(rows.read((column,), 0, 1)[0, 0])
    last = float(rows.read((column,), n_rows - 1, n_rows)[0, 0])
    span = last - first
    step = span / (n_rows - 1)
    if not np.isfinite(step) or step <= 0:
        return Clock(problem="does not rise")
    if not 1 / bounds.MOST_HZ <= step * scale <= 1 / bounds.LEAST_HZ:
        return Clock(problem=f"rises by {step:.3g} a row, which is no rate")
    grain = float(8 * np.spacing(max(abs(first), abs(last))))
    fs = 1 / (step * scale)
    rounded = _whole(fs, max(digits, grain) / span)
    # The line through both ends may be tilted by their rounding, one through a whole
    # rate is not; a lost row shows as a jump of a whole step off either.
    lines = np.array([step, 1 / (rounded * scale)])
    room = np.minimum([2.02 * digits, 1.02 * digits], 0.75 * step)
    room = np.maximum(room, max(0.01 * step, grain))
    row, spread = _follow(rows, column, n_rows, lines, room)
    if row is not None:
        return Clock(problem=f"is not evenly spaced (about row {row + 1})")
    if spread[0] > grain and spread[1] <= room[1]:
        return Clock(rounded, max(float(spread[1]) / span, 1e-9))
    error = max(float(spread[0]), grain) / span
    return Clock(_whole(fs, error), max(error, 1e-9))


def _follow(
    rows: Rows,
    column: int,
    n_rows: int,
    lines: npt.NDArray[np.float64],
    room: npt.NDArray[np.float64],
) -> tuple[int | None, npt.NDArray[np.float64]]:
    """The row at which no line of these steps holds the times, None when one does to
    the end; and how far the times spread about each line.
    """
    low = np.full(len(lines), np.inf)
    high = -low
    first = 0.0
    for at in range(0, n_rows, _ROWS):
        times = rows.read((column,), at, min(at + _ROWS, n_rows))[0]
        first = first if at else float(times[0])
        with np.errstate(over="ignore", invalid="ignore"):
            off = times - first - lines[:, None] * np.arange(at, at + len(times))
        lowest = np.minimum(low[:, None], np.minimum.accumulate(off, axis=1))
        highest = np.maximum(high[:, None], np.maximum.accumulate(off, axis=1))
        # NaN compares false and so ends the walk as well.
        holds = (highest - lowest <= room[:, None]).any(axis=0)
        if not holds.all():
            return at + int(np.argmin(holds)), high - low
        low, high = lowest[:, -1], highest[:, -1]
    return None, high - low


def _whole(fs: float, error: float) -> float:
    """The whole number that explains `fs` as well, or `fs`."""
    whole = round(fs)
    return float(whole) if whole and abs(fs - whole) <= fs * max(error, 1e-9) else fs


def _resolution(texts: list[str]) -> float | None:
    """The smallest last digit printed in `texts`; None when one is no time."""
    try:
        last = min(_last_digit(text.strip().lower()) for text in texts)
    except (InvalidOperation, ValueError):
        return None
    if last > _MOST_EXPONENT:
        return None
    return float(10.0 ** max(last, -_MOST_EXPONENT))


def _last_digit(text: str) -> int:
    """The power of ten of the last digit. Errors: InvalidOperation, ValueError."""
    # taken apart first: where pointers have 32 bits, Decimal refuses "1e999999999"
    digits, mark, power = text.partition("e")
    exponent = Decimal(digits).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError
    return exponent + (int(power) if mark else 0)
