"""Days of the calendar, as files write them and as they read back."""

from __future__ import annotations

import datetime
import math
import re
from typing import Final

DAY_S: Final = 86_400.0
_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_STARTDATE: Final = re.compile(r"Startdate (\d\d)-([A-Z]{3})-(\d{4})( |$)")
_SHORT: Final = re.compile(r"(\d\d)\.(\d\d)\.(\d\d)")
NO_DAY: Final = "01.01.85"
"""Where EDF has no room for "unknown"; no recording says so and means it."""


def day_of_iso(text: object) -> datetime.date | None:
    """Of "2002-03-02", a time behind it or not; None for what is none."""
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        return None


def day_of_edf(short: bytes, recording: bytes) -> datetime.date | None:
    """Of EDF's dd.mm.yy and, of EDF+, the local recording identification.

    Source   Kemp & Olivan 2003, 2.1.3.3: years from 1985 to 2084 in the short one
    """
    told = _STARTDATE.match(recording.decode("latin-1"))
    if told and told[2] in _MONTHS:
        return _day(int(told[3]), _MONTHS.index(told[2]) + 1, int(told[1]))
    text = short.decode("latin-1").strip()
    plain = _SHORT.fullmatch(text)
    if plain is None or text == NO_DAY:
        return None
    day, month, year = map(int, plain.groups())
    return _day(year + (1900 if year >= 85 else 2000), month, day)


def for_edf(day: datetime.date | None) -> tuple[str, str]:
    """The same two fields, to be written."""
    if day is None:
        return NO_DAY, "Startdate X X X X"
    year = f"{day.year % 100:02}" if 1985 <= day.year <= 2084 else "yy"
    long = f"Startdate {day.day:02}-{_MONTHS[day.month - 1]}-{day.year:04} X X X"
    return f"{day.day:02}.{day.month:02}.{year}", long


def moved(day: datetime.date | None, seconds: float) -> datetime.date | None:
    """The day so many seconds after its midnight."""
    if day is None:
        return None
    try:
        return day + datetime.timedelta(days=math.floor(seconds / DAY_S))
    except OverflowError:
        return None


def _day(year: int, month: int, day: int) -> datetime.date | None:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None
