"""A stretch of a recording: the samples between two moments, as if there were no more.

Owns what a moment may look like.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from rlxweb.arguments import number
from rlxweb.errors import UsageError, shown
from rlxweb.io.annotations import named
from rlxweb.io.contents import Contents
from rlxweb.io.recording import Group, sample_number
from rlxweb.io.source import Source

Moment: TypeAlias = float | str
"""Seconds, or a text: "90", "1:30", "0:01:30.5" from the beginning, "@22:15:30" by the
clock, or the words of an annotation: "Lights off".
"""

_LIKE_TIME = re.compile(r"[\d:.,+\-\s]*")
_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d*)?))?")
_CLOCK = re.compile(r"(?:(?:(\d+):)?([0-5]?\d):)?(\d+(?:\.\d*)?|\.\d+)")


def seconds_of(
    name: str, given: Moment | None, doing: str, contents: Contents
) -> float | None:
    """A moment in seconds from the beginning.

    Errors   UsageError for what is none, and for a time of day in a file that does not
             tell when it began; UnknownName for an annotation there is not.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.strip().startswith("@"):
        return _at_time_of_day(name, given.strip()[1:], doing, contents)
    if isinstance(given, str) and not _LIKE_TIME.fullmatch(given.strip()):
        return named(contents.notes(), given.strip(), doing)[0].onset
    if isinstance(given, str):
        found = _CLOCK.fullmatch(given.strip())
        hours, minutes, rest = found.groups() if found else (None, None, "nan")
        seconds = float(rest)
        if found is None or (minutes is not None and seconds >= 60):
            raise UsageError(
                doing,
                f"{name} is {shown(given)}",
                "seconds, or hours, minutes and seconds: 90, 1:30, 0:01:30.5",
            )
        return 3600.0 * int(hours or 0) + 60.0 * int(minutes or 0) + seconds
    seconds = number(name, given, doing)
    if seconds < 0:
        raise UsageError(doing, f"{name} is {seconds:g} s", "it is 0 or later")
    return seconds


def _at_time_of_day(name: str, text: str, doing: str, contents: Contents) -> float:
    """The first moment of the recording at which clocks showed that."""
    found = _OF_DAY.fullmatch(text.strip())
    if found is None:
        said = f"{name} is {shown('@' + text)}"
        raise UsageError(doing, said, "a time of day is written @22:15 or @22:15:30")
    if contents.begun is None:
        said = f"a {contents.format} file does not tell when it began"
        raise UsageError(doing, said, f"{name} is @{text}", "give seconds")
    hours, minutes, seconds = found.groups()
    wanted = 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds or 0)
    return (wanted - contents.begun) % 86_400.0


def check_stretch(start: float | None, stop: float | None, doing: str) -> None:
    """Errors  UsageError where nothing can lie between."""
    if start is not None and stop is not None and stop <= start:
        raise UsageError(
            doing, f"stop is {stop:g} s", f"it comes after start, {start:g} s"
        )


def stretch_of(
    group: Group, start: float | None, stop: float | None, source: Source
) -> Group:
    """Return the samples of a group from start up to stop, in seconds; None: no end.

    Whatever named the two moments, seconds, a time of day or an annotation, this is
    where they are compared with the recording. A stop beyond the end is warned of, and
    the end is taken.

    Errors   UsageError where the stretch begins before the first sample, or holds none.
    """
    if start is None and stop is None:
        return group
    first = 0 if start is None else sample_number(start, group.fs)
    last = group.n_samples if stop is None else sample_number(stop, group.fs)
    rule = f"it has {group.seconds:.6g} s at {group.fs:g} Hz"
    if start is not None and first < 0:
        raise UsageError(
            source.doing,
            f"start is {start:g} s, before the first sample",
            rule,
            "name a later moment, or none",
        )
    if stop is not None and last > group.n_samples:
        source.warn(f"it ends at {group.seconds:.6g} s, before stop, {stop:g} s")
    last = min(last, group.n_samples)
    if first >= last:
        raise UsageError(
            source.doing,
            f"no sample lies between {start or 0:g} s and "
            f"{'its end' if stop is None else f'{stop:g} s'}",
            rule,
        )
    taken = group.between(first, last)
    if not taken.spans:
        raise UsageError(
            source.doing,
            f"between {first / group.fs:g} s and {last / group.fs:g} s nothing was "
            "recorded",
            "it lies in a gap of the recording",
        )
    return taken
