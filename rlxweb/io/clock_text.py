"""Times that a table writes as text: ISO dates, dates with dots, times of day.

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

MOST: Final = 1 << 24
"""Rows whose times are held; they are text, and a table of text is not this long."""
_DAY_S: Final = 86_400.0
_TIME: Final = (
    r"(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*"
    r"(?:(Z|UTC)|([+-])(\d\d):?(\d\d)?)?"
)
_FORM: Final = re.compile(
    r"(?:(?:(\d{4})[-/.'](\d{1,2})[-/.'](\d{1,2})|(\d{1,2})[.'](\d{1,2})[.'](\d{4}))"
    rf"(?:[T ]\s*))?{_TIME}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TextTimes:
    """The times of a column of text, as the Rows of a clock.

    seconds  (n,) from midnight of the first day; NaN for what is no time
    digit    seconds of the last digit printed
    """

    seconds: npt.NDArray[np.float64]
    digit: float

    @property
    def begun(self) -> float:
        """Time of day at the first row, in seconds."""
        return float(self.seconds[0]) % _DAY_S

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """See SampleReader; there is one column."""
        return self.seconds[None, start:stop]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """See Rows."""
        return [repr(float(self.seconds[at])) for at in rows]


def text_times(
    texts: Callable[[Sequence[int], int], list[str]], column: int, n_rows: int
) -> TextTimes | None:
    """Return the times of a column; None where its first cells are none.

    texts   gives cells of a column as they are printed
    """
    some = texts(range(min(n_rows, 2)), column)
    if n_rows > MOST or any(parsed(one) is None for one in some):
        return None
    return times_of(texts(range(n_rows), column))


def times_of(cells: Sequence[str]) -> TextTimes:
    """Return the times of cells, which count on over midnight where no day is told."""
    found = [parsed(cell) for cell in cells]
    days: npt.NDArray[Any] = np.array([0 if one is None else one[0] for one in found])
    seconds = np.array([np.nan if one is None else one[1] for one in found])
    if days.any():
        days = np.where(days, days - days[np.flatnonzero(days)[0]], np.nan)
    else:
        days = np.cumsum(np.diff(seconds, prepend=seconds[:1]) < -_DAY_S / 2) * 1.0
    decimals = max((one[2] for one in found if one is not None), default=0)
    return TextTimes(days * _DAY_S + seconds, 10.0**-decimals)


def parsed(cell: str) -> tuple[int, float, int] | None:
    """Return the day of a time, 0 where it tells none, its seconds, and its decimals.

    The two are apart, for a float of both would be rounded to microseconds.
    """
    match = _FORM.fullmatch(cell.strip())
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
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
    if sign:
        ahead = int(zone_h) * 3600 + int(zone_min or 0) * 60
        whole += ahead if sign == "-" else -ahead
    return days, whole + float(f"0.{fraction or 0}"), len(fraction or "")
