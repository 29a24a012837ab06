"""Writer for recordings in any supported format, in blocks and atomically.

Owns what `Recording.save` does: what may be asked of a format, and what becomes of the
annotations and the time of day of a stretch. Which formats are written stands in the
table of `formats`; their writers are loaded when one is asked for.
"""

from __future__ import annotations

import datetime
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from rlxweb.core.argument_validation import check_choice, coerce_float
from rlxweb.core.atomic_file import open_output
from rlxweb.core.errors import RecordingWarning, UsageError, not_installed, shown
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.io.annotations import Annotation
from rlxweb.io.calendar_dates import SECONDS_PER_DAY, shift_date
from rlxweb.io.channel_group_merging import merge_groups, merge_obstacle
from rlxweb.io.formats import WRITERS
from rlxweb.io.recording import Group, Recording
from rlxweb.io.write_job import WriteJob, WrittenGroup


@dataclass(frozen=True, slots=True, repr=False)
class Written:
    """Report of a written file: its contents, and what it does not hold of the
    recording.

    Attributes
    ----------
    path : str
        The file's name; "" for an open file without one.
    format : str
        The format, as its suffix without the point.
    groups : tuple of WrittenGroup
        The channels of each rate, with the exactness of each.
    annotations : int
        How many annotations the file holds.
    lost : tuple of str
        What the file holds differently, or does not hold; each was warned of.
    """

    path: str
    format: str
    groups: tuple[WrittenGroup, ...]
    annotations: int
    lost: tuple[str, ...]

    def __repr__(self) -> str:
        groups = "; ".join(
            f"{len(group.channels)} channel{'s' * (len(group.channels) != 1)} at "
            f"{group.fs:g} Hz, {group.n_samples} samples"
            for group in self.groups
        )
        return f"Written({shown(self.path)}: {self.format}, {groups})"

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def save_recording(
    recording: Recording,
    path: str | os.PathLike[str] | IO[bytes],
    *,
    format: str | None,
    groups: Group | Sequence[Group] | None,
    annotations: Sequence[Annotation] | None,
    begun: float | None,
    date: datetime.date | None,
    bits: int | None,
    full_scale: float | None,
    progress: Callable[[int, int], object] | None,
) -> Written:
    """Write a recording to a file, as `Recording.save` describes."""
    named_path = getattr(path, "name", "") if hasattr(path, "write") else path
    name = os.fsdecode(named_path) if isinstance(named_path, str | os.PathLike) else ""
    context = f"writing {name!r}" if name else "writing a recording"
    with open_output(path, context) as file:
        format_name = choose_format(name, format, context)
        written_groups = _groups_to_write(recording, groups, context)
        check_format_options(format_name, bits, full_scale, context)
        _check_not_empty(written_groups, context)
        written_groups = (
            written_groups
            if WRITERS[format_name].supports_mixed_rates
            else merge_groups(written_groups)
        )
        _check_rates(format_name, written_groups, context)
        n_gaps = max(len(group.gaps) for group in written_groups)
        if n_gaps and WRITERS[format_name].has_integers(bits):
            raise _gaps_error(format_name, n_gaps, context)
        start_seconds = written_groups[0].first / written_groups[0].fs
        written_annotations = (
            _annotations_in_range(recording.annotations, start_seconds, written_groups)
            if annotations is None
            else _coerce_annotations(annotations, context)
        )
        begun, start_date = _start_time(recording, start_seconds, begun, date, context)
        report_progress = _progress_function(
            progress, format_name, written_groups, full_scale, context
        )
        job = WriteJob(
            context,
            format_name,
            written_groups,
            written_annotations,
            begun,
            start_date,
            bits,
            full_scale,
            report_progress,
        )
        if annotations is None and len(written_annotations) < len(
            recording.annotations
        ):
            n_dropped = len(recording.annotations) - len(written_annotations)
            problem = "annotation is" if n_dropped == 1 else "annotations are"
            job.losses.append(
                f"{n_dropped} {problem} outside the written part and omitted"
            )
        if n_gaps:
            job.losses.append(
                f"{n_gaps} gap{'s are' if n_gaps > 1 else ' is'} written as NaN"
            )
        module, _, function = WRITERS[format_name].import_path.partition(":")
        write_format = getattr(import_module(f"rlxweb.io.{module}"), function)
        written_report = write_format(file, job)
        for text in job.losses:
            warnings.warn(
                RecordingWarning(context, text), stacklevel=caller_stacklevel()
            )
    n_annotations = (
        len(written_annotations) if WRITERS[format_name].stores_annotations else 0
    )
    return Written(name, format_name, written_report, n_annotations, tuple(job.losses))


# --- what a format can be asked for ---------------------------------------------------


def choose_format(name: str, requested: str | None, context: str) -> str:
    """Return the requested format, or that of the suffix.

    Raises
    ------
    UsageError
        It is not written.
    """
    if requested is not None:
        return check_choice("format", requested, WRITERS, context)
    suffix = Path(name).suffix.lower()
    if suffix.removeprefix(".") in WRITERS:
        return suffix.removeprefix(".")
    raise UsageError(
        context,
        f"the name ends in {suffix!r}" if suffix else "the name has no suffix",
        "supported suffixes: "
        f"{', '.join(f'.{format_name}' for format_name in WRITERS)}",
        "use one of these suffixes, or pass the format",
    )


def check_format_options(
    format_name: str, bits: int | None, full_scale: float | None, context: str
) -> None:
    """Check that a format can be written with these options.

    Raises
    ------
    UsageError
        The format has no samples of so many bits, or no full scale.
    Unsupported
        The library that the format needs is missing.
    """
    writer = WRITERS[format_name]
    allowed_bits = sorted(writer.bits)
    if bits is not None and bits not in allowed_bits:
        raise UsageError(
            context,
            f"bits is {shown(bits)}",
            f"{format_name} supports {_or_list(allowed_bits)} bits"
            if allowed_bits
            else f"{format_name} stores samples with their original dtype",
            "write bdf for 24 bits"
            if format_name == "edf"
            else Advice("omit {}", bits=Blank("N")),
        )
    if full_scale is not None:
        scale = coerce_float("full_scale", full_scale, context)
        if scale <= 0 or not math.isfinite(scale):
            hint = "pass the largest absolute value that the samples can have"
            rule = "must be finite and above 0"
            raise UsageError(context, f"full_scale is {scale:g}", rule, hint)
        if not writer.has_integers(bits):
            hint = (
                Advice("also pass {}", bits=16)
                if 16 in allowed_bits
                else "omit full_scale"
            )
            raise UsageError(
                context,
                "full_scale is not supported for floats",
                "only integer formats use a full scale",
                hint,
            )
    if writer.library:
        try:
            import_module(writer.library)
        except (ImportError, OSError) as error:  # the second where a part is missing
            hint = f"pip install 'rlxweb[{writer.extra}]'"
            raise not_installed(context, writer.library, hint) from error


def _or_list(numbers: Sequence[int]) -> str:
    """Return numbers as text: "16", "16 or 24", "16, 24 or 32"."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def _check_rates(format_name: str, groups: Sequence[Group], context: str) -> None:
    """Raise UsageError for groups of several rates or beginnings in a format that holds
    one.
    """
    if len(groups) > 1 and not WRITERS[format_name].supports_mixed_rates:
        suffixes = [
            f".{suffix}"
            for suffix, writer in WRITERS.items()
            if writer.supports_mixed_rates
        ]
        obstacle = merge_obstacle(groups)
        raise UsageError(
            context,
            obstacle.problem,
            (
                f"a .{format_name} file supports one rate; {' and '.join(suffixes)} "
                "support several rates"
            )
            if obstacle.has_several_rates
            else (
                f"the channels of a .{format_name} file must have "
                f"{obstacle.requirement}"
            ),
            Advice(
                "write each group to a separate file, or resample all groups to one "
                "rate: {}",
                resample=Blank("HZ"),
            )
            if obstacle.has_several_rates
            else "write each group to a separate file",
        )
    begins = [group.first / group.fs for group in groups]
    max_difference = 1 / min(group.fs for group in groups)
    if max(begins) - min(begins) > max_difference:
        raise UsageError(
            context,
            f"the groups start between {min(begins):g} s and {max(begins):g} s",
            f"the start times in a file may differ by at most {max_difference:g} s",
            "write each group to a separate file",
        )


def _check_not_empty(groups: Sequence[Group], context: str) -> None:
    """Raise UsageError for a group without samples."""
    for group in groups:
        if not group.n_samples:
            raise UsageError(
                context,
                f"a group of {shown(group.recording)} has 0 samples",
                "a file needs at least 1 sample per channel",
                "write a longer part",
            )


def _gaps_error(format_name: str, n_gaps: int, context: str) -> UsageError:
    """Return the error for gaps in a format that cannot hold NaN."""
    return UsageError(
        context,
        f"the recording has {n_gaps} gap{'s' * (n_gaps != 1)}",
        f"{format_name} files cannot contain gaps, and their integers cannot "
        "represent NaN",
        Advice(
            "select a part without gaps: {} and {}; or write .npz or .parquet",
            start=Blank("T"),
            stop=Blank("T"),
        ),
    )


# --- what is written ------------------------------------------------------------------


def _groups_to_write(
    recording: Recording, groups: Group | Sequence[Group] | None, context: str
) -> tuple[Group, ...]:
    """Return the groups that the caller selected, by default all. Raises UsageError for
    anything but groups.
    """
    if groups is None:
        return recording.signals
    if isinstance(groups, Group):
        return (groups,)
    if (
        isinstance(groups, list | tuple)
        and groups
        and all(isinstance(group, Group) for group in groups)
    ):
        return tuple(groups)
    rule = "must be a list of groups of the recording, or of parts of groups"
    raise UsageError(
        context,
        f"groups is {shown(groups)}",
        rule,
        "omit groups to write all groups of the recording",
    )


def _progress_function(
    progress: Any,
    format_name: str,
    groups: Sequence[Group],
    full_scale: float | None,
    context: str,
) -> Callable[[int], object]:
    """Return the function that the writer calls with the number of samples of each
    block.
    """
    if progress is None:
        return bool
    if not callable(progress):
        rule = (
            "must be a function of two arguments: the total number of samples, and the "
            "number processed since the last call"
        )
        problem = f"progress is {shown(progress)}"
        raise UsageError(context, problem, rule, "omit progress, or pass a function")
    n_total = sum(group.n_samples * len(group.channels) for group in groups)
    # EDF and BDF are read for the range of each channel first.
    is_read_twice = format_name in ("edf", "bdf") and full_scale is None
    return partial(progress, n_total * (1 + is_read_twice))


def _start_time(
    recording: Recording, start_seconds: float, begun: Any, date: Any, context: str
) -> tuple[float | None, datetime.date | None]:
    """Return the time of day and the date of the first sample that is written.

    start_seconds  where that lies in the recording, in seconds
    begun, date  what the caller gave; None: those of the recording
    """
    recording_begun = recording.begun
    if begun is not None:
        begun = _validate_time_of_day(begun, context)
    elif recording_begun is not None:
        begun = (recording_begun + start_seconds) % SECONDS_PER_DAY
    if date is not None:
        return begun, _validate_date(date, context)
    return begun, shift_date(
        recording.date, (recording_begun or 0.0) % SECONDS_PER_DAY + start_seconds
    )


def _validate_time_of_day(begun: Any, context: str) -> float:
    """Return a time of day in seconds. Raises UsageError outside one day."""
    seconds = coerce_float("begun", begun, context)
    if not 0 <= seconds < SECONDS_PER_DAY:
        raise UsageError(
            context,
            f"begun is {seconds:.10g} s",
            f"must be a time of day, from 0 to less than {SECONDS_PER_DAY:g} s",
            f"pass {seconds % SECONDS_PER_DAY:.10g}, and the matching day as the "
            "argument date",
        )
    return seconds


def _validate_date(date: Any, context: str) -> datetime.date:
    """Return a date or the date of a datetime. Raises UsageError for anything else."""
    if isinstance(date, datetime.datetime):
        return date.date()
    if isinstance(date, datetime.date):
        return date
    hint = "omit date to use the date of the recording"
    raise UsageError(context, f"date is {shown(date)}", "must be a datetime.date", hint)


def _annotations_in_range(
    annotations: Sequence[Annotation], start_seconds: float, groups: Sequence[Group]
) -> tuple[Annotation, ...]:
    """Return the annotations within the written range; one that began earlier is
    shortened.
    """
    seconds = max(group.seconds for group in groups)
    selected = []
    for annotation in annotations:
        begin = annotation.onset - start_seconds
        end = annotation.onset - start_seconds + annotation.duration
        if begin > seconds or (start_seconds and begin < 0 and end <= 0):
            continue
        if start_seconds and begin < 0:
            begin, annotation = 0.0, annotation._replace(duration=end)
        selected.append(annotation._replace(onset=begin))
    return tuple(selected)


def _coerce_annotations(values: Any, context: str) -> tuple[Annotation, ...]:
    """Return annotations given by the caller. Raises UsageError for anything but a list
    of them.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        problem = f"annotations is {shown(values)}"
        rule = "must be a list of (onset, duration, text)"
        raise UsageError(context, problem, rule, "pass [] to write no annotations")
    return tuple(_coerce_annotation(value, context) for value in values)


def _coerce_annotation(value: Any, context: str) -> Annotation:
    """Return an annotation given as (onset, duration, text). Raises UsageError for
    anything else.
    """
    problem = f"an annotation is {shown(value)}"
    try:
        onset, duration, text = value
        annotation = Annotation(float(onset), float(duration or 0.0), str(text))
    except (TypeError, ValueError) as error:
        rule = "must be (onset, duration, text), with onset and duration in s"
        hint = "use duration 0 for a single point in time"
        raise UsageError(context, problem, rule, hint) from error
    if not (math.isfinite(annotation.onset) and math.isfinite(annotation.duration)):
        raise UsageError(
            context,
            problem,
            "onset and duration must be finite",
            "omit this annotation",
        )
    return annotation
