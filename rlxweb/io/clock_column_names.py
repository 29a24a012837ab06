"""Names of columns that hold times, and the units that those names tell.

One list for the columns of tables, the arrays of files and the columns of pandas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SECONDS_BY_UNIT: Final = {
    word: scale
    for scale, words in (
        (1.0, "s sec secs second seconds sek sekunde sekunden"),
        (1e-3, "ms msec msecs millis milli millisecond milliseconds"),
        (1e-6, "us µs μs usec usecs micros microsecond microseconds"),
        (1e-9, "ns nsec nsecs nanos nanosecond nanoseconds"),
        (60.0, "min mins minute minutes"),
        (3600.0, "h hr hrs hour hours"),
    )
    for word in words.split()
}
_TIME_WORDS: Final = frozenset(
    "time times t timestamp timestamps timecode unixtime zeit zeitstempel uhrzeit "
    "temps tiempo tempo tijd tid czas clock stamp".split()
)
_DATE_WORDS: Final = frozenset("date datetime datum fecha localtime utctime".split())
# Words beside those of a time that do not make it the time of something else.
_FILLER_WORDS: Final = frozenset(
    "elapsed relative rel absolute abs epoch unix posix utc gmt local system device "
    "sensor sample sampling recording recorded formatted cal iso iso8601 in "
    "since start of day the gps yyyy mm dd hh ss fff ffffff sss".split()
)
# A unit that stands for the column by itself; "ms", "h" and "min" may be others.
_STANDALONE_UNITS: Final = frozenset(
    "sec secs second seconds sekunde sekunden msec millis millisecond milliseconds "
    "usec micros microsecond microseconds nsec nanos nanosecond nanoseconds".split()
)
_SHORT_UNITS: Final = frozenset({"s", "sec", "ms", "us", "µs", "μs", "ns"})


@dataclass(frozen=True, slots=True)
class ClockName:
    """Parsed name of a column that holds times.

    seconds_per_unit  seconds per unit, None where it names no unit
    is_date    it says that they are dates
    is_letter  it is "t" or "T" and no more, as a temperature is called too: the times
               have to run one way (`runs_one_way`)
    """

    seconds_per_unit: float | None
    is_date: bool = False
    is_letter: bool = False


def parse_clock_name(name: str) -> ClockName | None:
    """Parse the name of a column of times; return None for other columns.

    "time", "t", "timestamp", "Elapsed Time (s)", "time_ns", "datetime", "Zeit" …
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = [token.casefold() for token in re.findall(r"[^\W_]+", spaced)]
    if len(words) == 1 and words[0] in _STANDALONE_UNITS:
        return ClockName(_SECONDS_BY_UNIT[words[0]])
    units = [word for word in words if word in _SECONDS_BY_UNIT]
    other_words = [
        word
        for word in words
        if word not in _SECONDS_BY_UNIT and word not in _FILLER_WORDS
    ]
    if len({_SECONDS_BY_UNIT[word] for word in units}) > 1:
        units = []  # the parts of a date, "hh:mm:ss"
    is_date = any(word in _DATE_WORDS for word in other_words)
    is_time = is_date or any(word in _TIME_WORDS for word in other_words)
    if not is_time and (other_words or "elapsed" not in words):
        return None
    if any(word not in _TIME_WORDS and word not in _DATE_WORDS for word in other_words):
        return None
    if other_words == ["t"] and not {*words[1:]} <= _SHORT_UNITS:
        return None  # T is a temperature too, and T_min its minimum
    return ClockName(
        _SECONDS_BY_UNIT[units[0]] if units else None, is_date, other_words == ["t"]
    )


def seconds_of_unit(unit: str) -> float | None:
    """Return the seconds of a unit such as "ms"; None if it is no unit of time."""
    return _SECONDS_BY_UNIT.get(unit.strip().casefold())
