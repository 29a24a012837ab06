"""Parser of times written as text: ISO dates, dates with dots, times of day.

Owns their forms. A date whose order of day and month cannot be known, as 01/02/2024, is
not read: over midnight it would be wrong.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAX_ROWS: Final = 1 << 24
"""Maximum number of rows whose times are held in memory; text tables are not this long.
"""
_DAY_S: Final = 86_400.0
_TIME_OF_DAY: Final = (
    r"(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*"
    r"(?:(Z|UTC)|([+-])(\d\d):?(\d\d)?)?"
)
_TIME_PATTERN: Final = re.compile(
    r"(?:(?:(\d{4})[-/.'](\d{1,2})[-/.'](\d{1,2})|(\d{1,2})[.'](\d{1,2})[.'](\d{4}))"
    rf"(?:[T ]\s*))?{_TIME_OF_DAY}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ParsedTimes:
    """Times of a column of text, as a ClockTable.

    seconds  (n,) from midnight of the first day; NaN for what is no time
    resolution  seconds of the last digit printed
    """

    seconds: npt.NDArray[np.float64]
    resolution: float

    @property
    def begun(self) -> float:
        """Return the time of day at the first row, in seconds."""
        return float(self.seconds[0]) % _DAY_S

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Return times [start, stop) as the only column; see SampleReader."""
        return self.seconds[None, start:stop]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return each time in seconds as text; see ClockTable."""
        return [repr(float(self.seconds[row])) for row in rows]


def parse_time_column(
    read_texts: Callable[[Sequence[int], int], list[str]], column: int, n_rows: int
) -> ParsedTimes | None:
    """Return the times of a column; None if its first cells are no times.

    read_texts  gives cells of a column as they are printed
    """
    first_texts = read_texts(range(min(n_rows, 2)), column)
    if n_rows > MAX_ROWS or any(parse_time(text) is None for text in first_texts):
        return None
    return parse_times(read_texts(range(n_rows), column))


def parse_times(cells: Sequence[str]) -> ParsedTimes:
    """Return the times of cells; without dates they continue past midnight."""
    parsed_cells = [parse_time(cell) for cell in cells]
    days: npt.NDArray[Any] = np.array(
        [0 if parsed is None else parsed[0] for parsed in parsed_cells]
    )
    seconds = np.array(
        [np.nan if parsed is None else parsed[1] for parsed in parsed_cells]
    )
    if days.any():
        days = np.where(days, days - days[np.flatnonzero(days)[0]], np.nan)
    else:
        days = np.cumsum(np.diff(seconds, prepend=seconds[:1]) < -_DAY_S / 2) * 1.0
    decimals = max(
        (parsed[2] for parsed in parsed_cells if parsed is not None), default=0
    )
    return ParsedTimes(days * _DAY_S + seconds, 10.0**-decimals)


def parse_time(cell: str) -> tuple[int, float, int] | None:
    """Return the day number of a time (0 without a date), its seconds and its number of
    decimals.

    The two are apart, for a float of both would be rounded to microseconds.
    """
    match = _TIME_PATTERN.fullmatch(cell.strip())
    if match is None:
        return None
    year, month, day, day2, month2, year2, *rest = match.groups()
    hours, minutes, seconds, fraction, _, sign, zone_h, zone_min = rest
    days = 0
    if year or year2:
        try:
            parts = int(year or year2), int(month or month2), int(day or day2)
            days = datetime.date(*parts).toordinal()
        except ValueError:
            return None
    if int(hours) > 24 or int(minutes) > 59 or int(seconds or 0) > 60:
        return None
    whole_seconds = int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
    if sign:
        zone_offset = int(zone_h) * 3600 + int(zone_min or 0) * 60
        whole_seconds += zone_offset if sign == "-" else -zone_offset
    return days, whole_seconds + float(f"0.{fraction or 0}"), len(fraction or "")
