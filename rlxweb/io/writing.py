"""Writing a recording in blocks, each file whole or not at all.

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

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, one_of
from rlxweb.callers import outside
from rlxweb.errors import RecordingWarning, UsageError, not_installed, shown
from rlxweb.io.annotations import Annotation
from rlxweb.io.days import DAY_S, moved
from rlxweb.io.formats import WRITERS
from rlxweb.io.joining import differences, joined
from rlxweb.io.outgoing import Outgoing, WrittenGroup
from rlxweb.io.recording import Group, Recording
from rlxweb.whole_file import written_to


@dataclass(frozen=True, slots=True, repr=False)
class Written:
    """What a file holds, and what it does not hold of the recording.

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
            f"{len(one.channels)} channel{'s' * (len(one.channels) != 1)} at "
            f"{one.fs:g} Hz, {one.n_samples} samples"
            for one in self.groups
        )
        return f"Written({shown(self.path)}: {self.format}, {groups})"

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def save(
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
    """Do what `Recording.save` says."""
    named = getattr(path, "name", "") if hasattr(path, "write") else path
    name = os.fsdecode(named) if isinstance(named, str | os.PathLike) else ""
    doing = f"writing {name!r}" if name else "writing a recording"
    with written_to(path, doing) as file:
        kind = format_of(name, format, doing)
        own = _groups_of(recording, groups, doing)
        check_format(kind, bits, full_scale, doing)
        _check_length(own, doing)
        own = own if WRITERS[kind].several_rates else joined(own)
        _check_rates(kind, own, doing)
        n_gaps = max(len(group.gaps) for group in own)
        if n_gaps and WRITERS[kind].has_integers(bits):
            raise _no_gaps(kind, n_gaps, doing)
        since = own[0].first / own[0].fs
        notes = (
            _inside(recording.annotations, since, own)
            if annotations is None
            else _notes(annotations, doing)
        )
        begun, day = _beginning(recording, since, begun, date, doing)
        step = _step(progress, kind, own, full_scale, doing)
        outgoing = Outgoing(doing, kind, own, notes, begun, day, bits, full_scale, step)
        if annotations is None and len(notes) < len(recording.annotations):
            n = len(recording.annotations) - len(notes)
            note = "annotation lies" if n == 1 else "annotations lie"
            outgoing.lost.append(f"{n} {note} outside of it")
        if n_gaps:
            outgoing.lost.append(f"{n_gaps} gap{'s are' if n_gaps > 1 else ' is'} NaN")
        module, _, function = WRITERS[kind].function.partition(":")
        write = getattr(import_module(f"rlxweb.io.{module}"), function)
        written = write(file, outgoing)
        for text in outgoing.lost:
            warnings.warn(RecordingWarning(doing, text), stacklevel=outside())
    n_notes = len(notes) if WRITERS[kind].annotations else 0
    return Written(name, kind, written, n_notes, tuple(outgoing.lost))


# --- what a format can be asked for ---------------------------------------------------


def format_of(name: str, asked: str | None, doing: str) -> str:
    """Return the format that is asked for, else that of the suffix.

    Raises
    ------
    UsageError
        It is not written.
    """
    if asked is not None:
        return one_of("format", asked, WRITERS, doing)
    suffix = Path(name).suffix.lower()
    if suffix.removeprefix(".") in WRITERS:
        return suffix.removeprefix(".")
    raise UsageError(
        doing,
        f"the name ends in {suffix!r}" if suffix else "the name has no suffix",
        f"written are {', '.join(f'.{one}' for one in WRITERS)}",
        "choose one of these names, or give the format",
    )


def check_format(
    kind: str, bits: int | None, full_scale: float | None, doing: str
) -> None:
    """Check that a format can be written, with such samples.

    Raises
    ------
    UsageError
        The format has no samples of so many bits, or no full scale.
    Unsupported
        The library that the format needs is missing.
    """
    own = WRITERS[kind]
    able = sorted(own.bits)
    if bits is not None and bits not in able:
        raise UsageError(
            doing,
            f"bits is {shown(bits)}",
            f"{kind} has {' or '.join(map(str, able))}"
            if able
            else f"{kind} holds samples as they are read",
            "bdf has 24" if kind == "edf" else Advice("leave out {}", bits=Blank("N")),
        )
    if full_scale is not None:
        scale = number("full_scale", full_scale, doing)
        if scale <= 0 or not math.isfinite(scale):
            hint = "give the largest value that can occur"
            rule = "above 0, and finite"
            raise UsageError(doing, f"full_scale is {scale:g}", rule, hint)
        if not own.has_integers(bits):
            hint = Advice("give {} too", bits=16) if 16 in able else "leave it out"
            raise UsageError(doing, "full_scale is given", "floats need none", hint)
    if own.library:
        try:
            import_module(own.library)
        except (ImportError, OSError) as error:  # the second where a part is missing
            hint = f"pip install 'rlxweb[{own.extra}]'"
            raise not_installed(doing, own.library, hint) from error


def _check_rates(kind: str, groups: Sequence[Group], doing: str) -> None:
    if len(groups) > 1 and not WRITERS[kind].several_rates:
        able = [f".{one}" for one, own in WRITERS.items() if own.several_rates]
        has_rates = len({group.fs for group in groups}) > 1
        raise UsageError(
            doing,
            differences(groups),
            f"a .{kind} file holds one; {' and '.join(able)} hold several"
            if has_rates
            else f"a .{kind} file holds channels of one beginning and one length",
            Advice(
                "write each group into a file of its own, or bring all to one rate: {}",
                resample=Blank("HZ"),
            )
            if has_rates
            else "write each group into a file of its own",
        )
    begins = [group.first / group.fs for group in groups]
    most = 1 / min(group.fs for group in groups)
    if max(begins) - min(begins) > most:
        raise UsageError(
            doing,
            f"the groups begin between {min(begins):g} s and {max(begins):g} s",
            f"a file has one beginning: at most {most:g} s lie between",
            "write each into a file of its own",
        )


def _check_length(groups: Sequence[Group], doing: str) -> None:
    for group in groups:
        if not group.n_samples:
            raise UsageError(
                doing,
                f"a group of {shown(group.recording)} has 0 samples",
                "a file has 1 of each channel at least",
                "take a longer part",
            )


def _no_gaps(kind: str, n_gaps: int, doing: str) -> UsageError:
    return UsageError(
        doing,
        f"the recording has {n_gaps} gap{'s' * (n_gaps != 1)}",
        f"{kind} is written without any, and its integers have none for NaN",
        Advice(
            "take what lies between two: {} and {}; or write .npz or .parquet",
            start=Blank("T"),
            stop=Blank("T"),
        ),
    )


# --- what is written ------------------------------------------------------------------


def _groups_of(
    recording: Recording, groups: Group | Sequence[Group] | None, doing: str
) -> tuple[Group, ...]:
    if groups is None:
        return recording.signals
    if isinstance(groups, Group):
        return (groups,)
    if (
        isinstance(groups, list | tuple)
        and groups
        and all(isinstance(one, Group) for one in groups)
    ):
        return tuple(groups)
    rule = "groups of the recording, or parts of them"
    raise UsageError(doing, f"groups is {shown(groups)}", rule, "or leave it out: all")


def _step(
    progress: Any,
    kind: str,
    groups: Sequence[Group],
    full_scale: float | None,
    doing: str,
) -> Callable[[int], object]:
    """Return what the writer calls with the number of samples of each block."""
    if progress is None:
        return bool
    if not callable(progress):
        rule = "a function of two numbers: samples to do, and just done"
        said = f"progress is {shown(progress)}"
        raise UsageError(doing, said, rule, "leave it out, or pass a function")
    work = sum(group.n_samples * len(group.channels) for group in groups)
    # EDF and BDF are read for the range of each channel first.
    twice = kind in ("edf", "bdf") and full_scale is None
    return partial(progress, work * (1 + twice))


def _beginning(
    recording: Recording, since: float, begun: Any, date: Any, doing: str
) -> tuple[float | None, datetime.date | None]:
    """Return the time of day and the day of the first sample that is written.

    since        where that lies in the recording, in seconds
    begun, date  what the caller gave; None: those of the recording
    """
    at = recording.begun
    if begun is not None:
        begun = _checked_time(begun, doing)
    elif at is not None:
        begun = (at + since) % DAY_S
    if date is not None:
        return begun, _checked_day(date, doing)
    return begun, moved(recording.date, (at or 0.0) % DAY_S + since)


def _checked_time(begun: Any, doing: str) -> float:
    own = number("begun", begun, doing)
    if not 0 <= own < DAY_S:
        raise UsageError(
            doing,
            f"begun is {own:.10g} s",
            f"a time of day, from 0 to less than {DAY_S:g} s",
            f"give {own % DAY_S:.10g}, and the day it is of as date=",
        )
    return own


def _checked_day(date: Any, doing: str) -> datetime.date:
    if isinstance(date, datetime.datetime):
        return date.date()
    if isinstance(date, datetime.date):
        return date
    hint = "leave it out for that of the recording"
    raise UsageError(doing, f"date is {shown(date)}", "a datetime.date", hint)


def _inside(
    notes: Sequence[Annotation], since: float, groups: Sequence[Group]
) -> tuple[Annotation, ...]:
    """Return the annotations of a stretch; of one that began before it, the rest."""
    seconds = max(group.seconds for group in groups)
    found = []
    for note in notes:
        begin, end = note.onset - since, note.onset - since + note.duration
        if begin > seconds or (since and begin < 0 and end <= 0):
            continue
        if since and begin < 0:
            begin, note = 0.0, note._replace(duration=end)
        found.append(note._replace(onset=begin))
    return tuple(found)


def _notes(given: Any, doing: str) -> tuple[Annotation, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        said, rule = (
            f"annotations is {shown(given)}",
            "a list of (onset, duration, text)",
        )
        raise UsageError(doing, said, rule, "[] writes none")
    return tuple(_note(one, doing) for one in given)


def _note(given: Any, doing: str) -> Annotation:
    problem = f"an annotation is {shown(given)}"
    try:
        onset, duration, text = given
        own = Annotation(float(onset), float(duration or 0.0), str(text))
    except (TypeError, ValueError) as error:
        rule, hint = "(onset, duration, text), in s", "a moment has the duration 0"
        raise UsageError(doing, problem, rule, hint) from error
    if not (math.isfinite(own.onset) and math.isfinite(own.duration)):
        raise UsageError(doing, problem, "times are finite", "leave it out")
    return own
