"""The names that columns of times go by, and the units that they tell.

One list for the columns of tables, the arrays of files and the columns of pandas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {
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
_TIMES: Final = frozenset(
    "time times t timestamp timestamps timecode unixtime zeit zeitstempel uhrzeit "
    "temps tiempo tempo tijd tid czas clock stamp".split()
)
_DATES: Final = frozenset("date datetime datum fecha localtime utctime".split())
# Words beside those of a time that do not make it the time of something else.
_BESIDE: Final = frozenset(
    "elapsed relative rel absolute abs epoch unix posix utc gmt local system device "
    "sensor sample sampling recording recorded formatted cal iso iso8601 in "
    "since start of day the gps yyyy mm dd hh ss fff ffffff sss".split()
)
# A unit that stands for the column by itself; "ms", "h" and "min" may be others.
_ALONE: Final = frozenset(
    "sec secs second seconds sekunde sekunden msec millis millisecond milliseconds "
    "usec micros microsecond microseconds nsec nanos nanosecond nanoseconds".split()
)
_SHORT: Final = frozenset({"s", "sec", "ms", "us", "µs", "μs", "ns"})


@dataclass(frozen=True, slots=True)
class ClockName:
    """A name that says that a column holds times.

    scale      seconds per unit, None where it names no unit
    is_date    it says that they are dates
    is_letter  it is "t" or "T" and no more, as a temperature is called too: the times
               have to run one way (`runs_one_way`)
    """

    scale: float | None
    is_date: bool = False
    is_letter: bool = False


def clock_name(name: str) -> ClockName | None:
    """Return what a column's name says of the times in it; None for other columns.

    "time", "t", "timestamp", "Elapsed Time (s)", "time_ns", "datetime", "Zeit" …
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = [one.casefold() for one in re.findall(r"[^\W_]+", spaced)]
    if len(words) == 1 and words[0] in _ALONE:
        return ClockName(_UNITS[words[0]])
    units = [word for word in words if word in _UNITS]
    others = [word for word in words if word not in _UNITS and word not in _BESIDE]
    if len({_UNITS[word] for word in units}) > 1:
        units = []  # the parts of a date, "hh:mm:ss"
    is_date = any(word in _DATES for word in others)
    is_time = is_date or any(word in _TIMES for word in others)
    if not is_time and (others or "elapsed" not in words):
        return None
    if any(word not in _TIMES and word not in _DATES for word in others):
        return None
    if others == ["t"] and not {*words[1:]} <= _SHORT:
        return None  # T is a temperature too, and T_min its minimum
    return ClockName(_UNITS[units[0]] if units else None, is_date, others == ["t"])


def unit_scale(unit: str) -> float | None:
    """Return the seconds of a unit, "ms"; None for what is no unit of time."""
    return _UNITS.get(unit.strip().casefold())
