"""Writing recordings in blocks, each file whole or not at all.

Owns `write_recording`: what may be given, what becomes of a stretch's annotations and
time of day, and which format a name asks for. The formats' writers are loaded when one
is asked for.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, Literal, get_args

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, one_of
from rlxweb.errors import UsageError, shown
from rlxweb.given import named
from rlxweb.io.annotations import Annotation
from rlxweb.io.array_group import group_of
from rlxweb.io.days import DAY_S, moved
from rlxweb.io.outgoing import Outgoing, WrittenGroup
from rlxweb.io.recording import Group, Recording
from rlxweb.whole_file import WholeFiles

Format = Literal["edf", "bdf", "npz", "wav", "flac", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_INTEGERS: Final = (16, 24)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format that is written; its suffix is its name.

    Attributes
    ----------
    title : str
        The name that people use.
    writer : str
        Module below `rlxweb.io` and function.
    library : str
        The package that the writer needs beside NumPy; "" for none.
    bits : tuple of int
        Sample widths, the default first; none where samples are written as they are.
    several_rates : bool
        Whether one file holds channels of several rates.
    annotations : bool
        Whether a file holds annotations, the time of day and the date.
    """

    title: str
    writer: str
    library: str = ""
    bits: tuple[int, ...] = ()
    several_rates: bool = False
    annotations: bool = True

    def has_integers(self, bits: int | None) -> bool:
        """Whether samples of so many bits, or of the default, are integers."""
        return (bits or next(iter(self.bits), 0)) in _INTEGERS


TABLE: Final[dict[Format, FileFormat]] = {
    "edf": FileFormat("EDF+", "edf_writer:write_edf16", "", (16,), True),
    "bdf": FileFormat("BDF+", "edf_writer:write_bdf24", "", (24,), True),
    "npz": FileFormat("NPZ", "npz_writer:write_samples"),
    "wav": FileFormat(
        "WAV", "wav_writer:write_wav", "", (32, 64, 16, 24), False, False
    ),
    "flac": FileFormat(
        "FLAC", "flac_writer:write_flac", "soundfile", (24, 16), annotations=False
    ),
    "parquet": FileFormat("Parquet", "parquet_writer:write_columns", "pyarrow"),
}
HOLD_RATES: Final = tuple(kind for kind, own in TABLE.items() if own.several_rates)
"""Formats of which one file holds channels of several rates."""


@dataclass(frozen=True, slots=True, repr=False)
class Written:
    """What a file holds, and what it does not hold of the recording.

    path        as it was named; "" for an open file
    groups      the channels of each rate, with the exactness of each
    annotations how many
    lost        what the file does not hold, each a sentence
    """

    path: str
    format: Format
    groups: tuple[WrittenGroup, ...]
    annotations: int
    lost: tuple[str, ...]

    def __repr__(self) -> str:
        told = "; ".join(
            f"{len(one.channels)} channel{'s' * (len(one.channels) != 1)} at "
            f"{one.fs:g} Hz, {one.n_samples} samples"
            for one in self.groups
        )
        return f"Written({shown(self.path)}: {self.format}, {told})"

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        groups = [
            {
                "fs": one.fs,
                "n_samples": one.n_samples,
                "channels": [
                    {name: getattr(own, name) for name in own.__slots__}
                    for own in one.channels
                ],
            }
            for one in self.groups
        ]
        told = {"annotations": self.annotations, "lost": list(self.lost)}
        return {"path": self.path, "format": self.format, "groups": groups, **told}


def write_recording(
    path: str | os.PathLike[str] | IO[bytes],
    recording: Any,
    *,
    format: Format | None = None,
    fs: float | None = None,
    channels: Sequence[str] | None = None,
    units: str | Sequence[str] | None = None,
    annotations: Sequence[Annotation] | None = None,
    begun: float | None = None,
    date: datetime.date | None = None,
    bits: int | None = None,
    full_scale: float | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Written:
    """Write a recording as EDF+, BDF+, NPZ, WAV, FLAC or Parquet.

    path        of the file, which appears whole or not at all; or a file open for bytes
    recording   a Recording, a Group or several of one recording, read in blocks and so
                of any length; or an array (C, T) or (T,)
    format      "edf", "bdf", "npz", "wav", "flac" or "parquet"; by default the
                suffix of the name
    fs, channels, units
                of an array: Hz; a name per channel; one unit, or one per channel
    annotations, begun, date
                (onset, duration, text) in seconds from the first sample that is
                written, the time of day of that sample in seconds, and its day; of a
                Recording they are its own by default, moved to where a stretch begins
    bits        of a sample in WAV: 32 or 64 (floats; 32 is the default), 16 or 24; in
                FLAC 24 (the default) or 16
    full_scale  the value that the largest integer stands for. WAV, FLAC: 1. EDF
                and BDF: by default each channel's own range, for which the samples are
                read twice, or the very integers of an EDF file where they fit
    progress    is told how many samples there are to do, and how many were just done

    Samples     NPZ and Parquet hold them as they are read, bit by bit; WAV of 32 bits
                as float32; EDF (16 bits) and BDF (24) to half a step, which
                `Written.groups` tells per channel with the largest difference there is
    Errors      UsageError for channels of several rates in a format but EDF and BDF,
                for what a format cannot hold, and for samples beyond full scale;
                NotFinite for NaN and infinity in integers; Unsupported for Parquet
                without pyarrow and FLAC without soundfile; RecordingError where the
                file cannot be written
    Source      Kemp & Olivan 2003 (EDF+), www.biosemi.com/faq/file_format.htm (BDF)

    Example     with rlxweb.read("night.edf", highpass=0.5) as night:
                    rlxweb.io.write_recording("clean.edf", night)
    """
    is_open = hasattr(path, "write")
    if not is_open and not isinstance(path, str | os.PathLike):
        said = f"{named(path)} is no path"
        raise UsageError("writing a recording", said, "a file's name, or an open file")
    name = "" if is_open else os.fspath(path)  # type: ignore[arg-type]
    doing = f"writing {name!r}" if name else "writing a recording"
    kind = format_of(name, format, doing)
    groups = _groups_of(recording, fs, channels, units, doing)
    check_asked(kind, bits, full_scale, doing)
    _check_rates(kind, groups, doing)
    n_gaps = max(len(group.gaps) for group in groups)
    if n_gaps:
        _check_gaps(kind, n_gaps, bits, doing)
    notes, since = _beside(recording, groups, annotations, begun, doing)
    day = _day_of(recording, groups) if date is None else _checked_day(date, doing)
    going = Outgoing(doing, groups, notes, since, bits, full_scale, date=day)
    own = _dropped(recording, annotations, going)
    if own:
        going.lost.append(own)
    if n_gaps:
        going.lost.append("1 gap is NaN" if n_gaps == 1 else f"{n_gaps} gaps are NaN")
    if progress is not None:
        work = sum(group.n_samples * len(group.channels) for group in groups)
        twice = 2 if kind in HOLD_RATES and full_scale is None else 1
        going = replace(going, step=partial(progress, work * twice))
    if is_open:
        made = _write(path, going, kind)  # type: ignore[arg-type]
    else:
        with WholeFiles() as files:
            made = _write(files.open(name), going, kind)
    kept = len(notes) if TABLE[kind].annotations else 0
    return Written(name, kind, made, kept, tuple(going.lost))


def format_of(name: str, asked: str | None, doing: str) -> Format:
    """The format asked for, else that of the suffix. Errors  UsageError for none."""
    if asked is not None:
        asked = one_of("format", asked, FORMATS, doing)
    suffix = Path(name).suffix.lower()
    for one in FORMATS:
        if one == (asked or suffix.removeprefix(".")):
            return one
    raise UsageError(
        doing,
        f"the name ends in {suffix!r}" if suffix else "the name has no suffix",
        f"written are {', '.join(f'.{one}' for one in FORMATS)}",
        "choose one of these names, or give the format",
    )


def _check_rates(kind: Format, groups: Sequence[Group], doing: str) -> None:
    if len(groups) > 1 and kind not in HOLD_RATES:
        rates = ", ".join(f"{group.fs:g}" for group in groups)
        raise UsageError(
            doing,
            f"the channels have {len(groups)} rates: {rates} Hz",
            f"a .{kind} file holds one; .edf and .bdf hold several",
            Advice(
                "write each group into a file of its own, or bring all to one rate: {}",
                resample=Blank("HZ"),
            ),
        )


def _check_gaps(kind: Format, n_gaps: int, bits: int | None, doing: str) -> None:
    if TABLE[kind].has_integers(bits):
        raise UsageError(
            doing,
            f"the recording has {n_gaps} gap{'s' * (n_gaps != 1)}",
            f"{kind} is written without any, and its integers have none for NaN",
            Advice(
                "take what lies between two: {} and {}; or write .npz or .parquet",
                start=Blank("T"),
                stop=Blank("T"),
            ),
        )


def check_asked(
    kind: Format, bits: int | None, full_scale: float | None, doing: str
) -> None:
    """Errors  UsageError for what the format cannot be asked for."""
    able = sorted(TABLE[kind].bits)
    if bits is not None and bits not in able:
        raise UsageError(
            doing,
            f"bits is {shown(bits)}",
            f"{kind} has {' or '.join(map(str, able))}"
            if able
            else f"{kind} holds samples as they are read",
            "bdf has 24" if kind == "edf" else "",
        )
    if full_scale is None:
        return
    if number("full_scale", full_scale, doing) <= 0 or not math.isfinite(full_scale):
        raise UsageError(doing, f"full_scale is {full_scale:g}", "above 0, and finite")
    if not TABLE[kind].has_integers(bits):
        hint = Advice("give {} too", bits=16) if kind == "wav" else "leave it out"
        raise UsageError(doing, "full_scale is given", "floats need none", hint)


def _write(file: IO[bytes], going: Outgoing, kind: Format) -> tuple[WrittenGroup, ...]:
    module, _, function = TABLE[kind].writer.partition(":")
    write = getattr(import_module(f"rlxweb.io.{module}"), function)
    groups: tuple[WrittenGroup, ...] = write(file, going)
    return groups


# --- beside the samples ---------------------------------------------------------------


def _beside(
    recording: Any,
    groups: Sequence[Group],
    annotations: Sequence[Annotation] | None,
    begun: float | None,
    doing: str,
) -> tuple[tuple[Annotation, ...], float | None]:
    """Annotations and time of day, counted from the first sample that is written."""
    since = groups[0].first / groups[0].fs
    if begun is not None:
        begun = number("begun", begun, doing) % DAY_S
    elif isinstance(recording, Recording) and recording.begun is not None:
        begun = (recording.begun + since) % DAY_S
    if annotations is not None:
        return tuple(_note(one, doing) for one in annotations), begun
    if not isinstance(recording, Recording):
        return (), begun
    return _inside(recording.annotations, since, groups), begun


def _day_of(recording: Any, groups: Sequence[Group]) -> datetime.date | None:
    """Of the first sample that is written."""
    if not isinstance(recording, Recording):
        return None
    since = groups[0].first / groups[0].fs
    return moved(recording.date, (recording.begun or 0.0) % DAY_S + since)


def _checked_day(date: Any, doing: str) -> datetime.date:
    if isinstance(date, datetime.datetime):
        return date.date()
    if isinstance(date, datetime.date):
        return date
    raise UsageError(doing, f"date is {shown(date)}", "a datetime.date")


def _inside(
    notes: Sequence[Annotation], since: float, groups: Sequence[Group]
) -> tuple[Annotation, ...]:
    """Those of what is written; of one that begins before it, what lasts into it."""
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


def _dropped(recording: Any, annotations: Any, going: Outgoing) -> str:
    """How many annotations lie outside of what is written."""
    if annotations is not None or not isinstance(recording, Recording):
        return ""
    outside = len(recording.annotations) - len(going.notes)
    return f"{outside} annotations lie outside of it" if outside else ""


def _note(given: Any, doing: str) -> Annotation:
    try:
        onset, duration, text = given
        own = Annotation(float(onset), float(duration or 0.0), str(text))
    except (TypeError, ValueError) as error:
        raise UsageError(
            doing, f"an annotation is {shown(given)}", "(onset, duration, text), in s"
        ) from error
    if not (math.isfinite(own.onset) and math.isfinite(own.duration)):
        raise UsageError(doing, f"an annotation is {shown(given)}", "times are finite")
    return own


# --- samples --------------------------------------------------------------------------


def _groups_of(
    recording: Any,
    fs: float | None,
    channels: Sequence[str] | None,
    units: str | Sequence[str] | None,
    doing: str,
) -> tuple[Group, ...]:
    found: tuple[Group, ...]
    if isinstance(recording, Recording):
        found = recording.signals
    elif isinstance(recording, Group):
        found = (recording,)
    elif (
        isinstance(recording, list | tuple)
        and recording
        and all(isinstance(one, Group) for one in recording)
    ):
        found = tuple(recording)
    else:
        return (group_of(recording, fs, channels, units, doing),)
    for name, given in (("fs", fs), ("channels", channels), ("units", units)):
        if given is not None:
            said = f"{name} is given for a recording"
            raise UsageError(doing, said, "it has its own", "leave it out")
    return found
