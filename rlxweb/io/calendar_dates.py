"""Parsers and formatters of calendar dates as recording files store them: ISO and
EDF.
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Final

SECONDS_PER_DAY: Final = 86_400.0
_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_START_DATE: Final = re.compile(r"Startdate (\d\d)-([A-Z]{3})-(\d{4})( |$)")
_SHORT_DATE: Final = re.compile(r"(\d\d)\.(\d\d)\.(\d\d)")
UNKNOWN_DATE: Final = "01.01.85"
"""Start date that EDF uses for "unknown", as it has no other field value for it."""


def parse_iso_date(text: object) -> datetime.date | None:
    """Parse an ISO date such as "2002-03-02", possibly followed by a time; return None
    for other text.
    """
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        return None


def parse_edf_date(short: bytes, recording: bytes) -> datetime.date | None:
    """Parse EDF's dd.mm.yy and, for EDF+, the local recording identification.

    Source   Kemp & Olivan 2003, 2.1.3.3: years from 1985 to 2084 in the short one
    """
    long_match = _START_DATE.match(recording.decode("latin-1"))
    if long_match and long_match[2] in _MONTHS:
        return _date_or_none(
            int(long_match[3]), _MONTHS.index(long_match[2]) + 1, int(long_match[1])
        )
    text = short.decode("latin-1").strip()
    short_match = _SHORT_DATE.fullmatch(text)
    if short_match is None or text == UNKNOWN_DATE:
        return None
    day, month, year = map(int, short_match.groups())
    return _date_or_none(year + (1900 if year >= 85 else 2000), month, day)


def format_edf_date(day: datetime.date | None) -> tuple[str, str]:
    """Return a date as EDF's start date and local recording identification."""
    if day is None:
        return UNKNOWN_DATE, "Startdate X X X X"
    year = f"{day.year % 100:02}" if 1985 <= day.year <= 2084 else "yy"
    recording_field = (
        f"Startdate {day.day:02}-{_MONTHS[day.month - 1]}-{day.year:04} X X X"
    )
    return f"{day.day:02}.{day.month:02}.{year}", recording_field


def shift_date(day: datetime.date | None, seconds: float) -> datetime.date | None:
    """Return the date so many seconds after midnight of a day."""
    if day is None:
        return None
    try:
        return day + datetime.timedelta(days=math.floor(seconds / SECONDS_PER_DAY))
    except OverflowError:
        return None


def _date_or_none(year: int, month: int, day: int) -> datetime.date | None:
    """Return a date, or None if there is no such day."""
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None
