"""Time ranges of a recording: the samples between two moments as a recording of their
own.

Owns what a moment may look like.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.errors import UsageError, shown
from rlxweb.io.annotations import find_annotations
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.format_reader_interface import FileContents
from rlxweb.io.recording import Group, nearest_sample_index

Moment: TypeAlias = float | str
"""A moment in seconds or as text: "90", "1:30", "0:01:30.5" from the beginning,
"@22:15:30" as a time of day, or the text of an annotation such as "Lights off".
"""

_TIME_CHARACTERS = re.compile(r"[\d:.,+\-\s]*")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d*)?))?")
_DURATION = re.compile(r"(?:(?:(\d+):)?([0-5]?\d):)?(\d+(?:\.\d*)?|\.\d+)")


def parse_moment(
    name: str, moment: Moment | None, context: str, contents: FileContents
) -> float | None:
    """Convert a moment to seconds from the beginning.

    Errors   UsageError for what is none, and for a time of day in a file that does not
             tell when it began; UnknownName for an annotation there is not.
    """
    if moment is None:
        return None
    if isinstance(moment, str) and moment.strip().startswith("@"):
        return _parse_time_of_day(name, moment.strip()[1:], context, contents)
    if isinstance(moment, str) and not _TIME_CHARACTERS.fullmatch(moment.strip()):
        return find_annotations(contents.read_annotations(), moment.strip(), context)[
            0
        ].onset
    if isinstance(moment, str):
        match = _DURATION.fullmatch(moment.strip())
        hours, minutes, seconds_text = match.groups() if match else (None, None, "nan")
        seconds = float(seconds_text)
        if match is None or (minutes is not None and seconds >= 60):
            raise UsageError(
                context,
                f"{name} is {shown(moment)}",
                "must be seconds or [hours:]minutes:seconds, such as 90, 1:30 or "
                "0:01:30.5",
            )
        return 3600.0 * int(hours or 0) + 60.0 * int(minutes or 0) + seconds
    seconds = coerce_float(name, moment, context)
    if seconds < 0:
        raise UsageError(context, f"{name} is {seconds:g} s", "must be 0 s or later")
    return seconds


def _parse_time_of_day(
    name: str, text: str, context: str, contents: FileContents
) -> float:
    """Return the first moment of the recording with this time of day, in seconds from
    the beginning.
    """
    match = _TIME_OF_DAY.fullmatch(text.strip())
    if match is None:
        problem = f"{name} is {shown('@' + text)}"
        raise UsageError(
            context, problem, "a time of day must have the form @22:15 or @22:15:30"
        )
    if contents.begun is None:
        problem = f"the {contents.format} file does not contain a start time"
        raise UsageError(context, problem, f"{name} is @{text}", "pass seconds instead")
    hours, minutes, seconds = match.groups()
    day_seconds = 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds or 0)
    return (day_seconds - contents.begun) % 86_400.0


def check_time_range(start: float | None, stop: float | None, context: str) -> None:
    """Raise UsageError unless start lies before stop."""
    if start is not None and stop is not None and stop <= start:
        raise UsageError(
            context, f"stop is {stop:g} s", f"must be after start, {start:g} s"
        )


def slice_group(
    group: Group, start: float | None, stop: float | None, source: RecordingSource
) -> Group:
    """Return the samples of a group from start up to stop, in seconds; None means no
    limit.

    Whatever named the two moments, seconds, a time of day or an annotation, this is
    where they are compared with the recording. A stop beyond the end is warned of, and
    the end is taken.

    Errors   UsageError where the stretch begins before the first sample, or holds none.
    """
    if start is None and stop is None:
        return group
    first = 0 if start is None else nearest_sample_index(start, group.fs)
    last = group.n_samples if stop is None else nearest_sample_index(stop, group.fs)
    rule = f"the recording is {group.seconds:.6g} s long, sampled at {group.fs:g} Hz"
    if start is not None and first < 0:
        raise UsageError(
            source.context,
            f"start is {start:g} s, before the first sample",
            rule,
            "pass a later start, or omit it",
        )
    if stop is not None and last > group.n_samples:
        source.warn(
            f"the recording ends at {group.seconds:.6g} s, before the requested stop "
            f"at {stop:g} s"
        )
    last = min(last, group.n_samples)
    if first >= last:
        raise UsageError(
            source.context,
            f"no sample is between {start or 0:g} s and "
            f"{('the end' if stop is None else f'{stop:g} s')}",
            rule,
        )
    selected = group.between(first, last)
    if not selected.spans:
        raise UsageError(
            source.context,
            f"no sample was recorded between {first / group.fs:g} s and "
            f"{last / group.fs:g} s",
            "this range is in a gap of the recording",
        )
    return selected
