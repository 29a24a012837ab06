"""One recording into a file of another format: what a run does with each.

Owns which file each group of channels goes into: all of them into one where the format
holds several rates or all have one, else the rates into files of their own, with the
rate in the name.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rlxweb.advice import Advice, Blank
from rlxweb.errors import OutOfMemory, RecordingError, RecordingWarning, UsageError
from rlxweb.io import Group, Recording, open_recording
from rlxweb.io.channels import ANNOTATIONS_REASON
from rlxweb.io.formats import WRITERS
from rlxweb.io.joining import differences, joined
from rlxweb.io.writing import Written
from rlxweb.jobs.analysis import FileProgress
from rlxweb.jobs.stages import Stages, timed
from rlxweb.results.ran import Stage
from rlxweb.streams import is_stream
from rlxweb.whole_file import WholeFiles


@dataclass(frozen=True, slots=True)
class Converted:
    """What came of a recording.

    format   of the recording
    written  the files
    stages   where the time went
    """

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    written: tuple[Written, ...]
    stages: tuple[Stage, ...]
    wall_s: float


@dataclass(frozen=True, slots=True)
class Conversion:
    """How recordings are converted; see `Job`.

    targets     the file that each recording goes into, by its name
    is_named    the user has named the file, so one that is there is replaced
    overwrites  so is any other that is there, but for a recording
    records     files that the run writes beside them
    reading     what `open_recording` takes besides the path
    bits, full_scale
                as `Recording.save` has them
    """

    format: str
    targets: Mapping[str, str]
    is_named: bool = False
    overwrites: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)
    bits: int | None = None
    full_scale: float | None = None
    records: tuple[str, ...] = ()

    def __call__(self, path: str, progress: FileProgress | None = None) -> Converted:
        """Errors  those of `open_recording` and `Recording.save`; OutOfMemory"""
        stages = Stages()
        try:
            with stages.stage("open the file", "open"):
                opened = open_recording(path, **self.reading)
            with opened as recording:
                with stages.stage("write the file", "write"):
                    written = self._written(recording, stages, progress)
                return Converted(
                    path,
                    recording.format,
                    _left_out(recording),
                    recording.warnings,
                    written,
                    stages.told(),
                    stages.total_s,
                )
        except MemoryError as error:
            raise OutOfMemory(
                f"converting {path!r}",
                "out of memory",
                hint=Advice(
                    "take fewer channels, or fewer at once: {}", jobs=Blank("N")
                ),
            ) from error

    def _written(
        self, recording: Recording, stages: Stages, progress: FileProgress | None
    ) -> tuple[Written, ...]:
        places = self.places(recording)
        work = sum(g.n_samples * len(g.channels) for g in recording.signals)
        made = []
        with WholeFiles(streams=True) as files, warnings.catch_warnings():
            # They are `Written.lost`, which the command sums up over many files.
            warnings.filterwarnings("ignore", "writing ", RecordingWarning)
            for place, groups in places.items():
                part = sum(g.n_samples * len(g.channels) for g in groups) / work
                written = recording.save(
                    files.open(place),
                    format=self.format,
                    groups=[timed(group, stages) for group in groups],
                    bits=self.bits,
                    full_scale=self.full_scale,
                    progress=None if progress is None else partial(_of, progress, part),
                )
                made.append(written)
        return tuple(made)

    def places(self, recording: Recording) -> dict[str, Sequence[Group]]:
        """The files and what goes into each.

        Errors   UsageError for one that is there and was not named, for one that
                 another recording or the record goes into, and for several that would
                 go into a stream
        """
        target, groups = self.targets[recording.path], recording.signals
        if WRITERS[self.format].several_rates:
            found: dict[str, Sequence[Group]] = {target: groups}
        elif len(groups := joined(groups)) == 1:
            found = {target: groups}
        else:
            if is_stream(target):
                raise UsageError(
                    f"converting {recording.path!r}",
                    differences(groups),
                    f"a .{self.format} file holds one, and {target!r} takes one file",
                    "name a file, or the channels of one rate (-c)",
                )
            own = Path(target)
            names = _names(own.stem, groups)
            found = {
                str(own.with_name(f"{name}{own.suffix}")): [group]
                for name, group in zip(names, groups, strict=True)
            }
            self._check_others(recording, found)
        for place in found:
            self._check(recording, place)
        return found

    def check(self) -> None:
        """Look at the recordings of which a file may get the name of another output.

        Most have one rate, and then none does: only those are opened whose files would
        have such a name if they had several.

        Errors   UsageError for an output of two recordings
        """
        outputs = [*self.targets.values(), *self.records]
        for path, target in self.targets.items():
            if not is_stream(target) and any(_is_of(one, target) for one in outputs):
                # What cannot be opened is told of when its turn comes.
                with suppress(RecordingError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RecordingWarning)
                    with open_recording(path, **self.reading) as recording:
                        self.places(recording)

    def _check_others(self, recording: Recording, places: Iterable[str]) -> None:
        others = {
            _plain(target): f"the recording {path!r} goes into it too"
            for path, target in self.targets.items()
            if path != recording.path
        }
        for path in self.records:
            others[_plain(path)] = "the run record does too"
        for place in places:
            if _plain(place) in others:
                raise UsageError(
                    f"converting {recording.path!r}",
                    f"a part of it goes into {place!r}, and {others[_plain(place)]}",
                    "every output is a file of its own",
                    "convert one of them into another folder (-o)",
                )

    def _check(self, recording: Recording, place: str) -> None:
        if is_stream(place):
            return
        doing = f"converting {recording.path!r}"
        if self.is_named and place == self.targets[recording.path]:
            return  # that it is no recording was seen before the work began
        if any(
            os.path.exists(other) and os.path.samefile(place, other)
            for other in self.targets
            if os.path.exists(place)
        ):
            raise UsageError(
                doing,
                f"{place!r} is a recording of this run",
                hint="choose another folder with -o",
            )
        if os.path.lexists(place) and not self.overwrites:
            raise there_already(doing, place)


def _names(stem: str, groups: Sequence[Group]) -> list[str]:
    """Return names with the rates in them; groups of one rate are numbered."""
    names = [f"{stem}-{group.fs:.10g}Hz" for group in groups]
    return [
        f"{name}-{names[:at].count(name) + 1}" if names.count(name) > 1 else name
        for at, name in enumerate(names)
    ]


def _is_of(place: str, target: str) -> bool:
    """True where a part of what goes into `target` might be called `place`."""
    own, other = _plain(target), _plain(place)
    stem, suffix = os.path.splitext(own)
    part = re.escape(stem) + r"-[\d.e+-]+hz(-\d+)?" + re.escape(suffix)
    return re.fullmatch(part, other) is not None


def _plain(path: str) -> str:
    """Return one name for all that some file system takes for the same."""
    whole = os.path.realpath(path)
    return unicodedata.normalize("NFC", whole).casefold()


def _left_out(recording: Recording) -> tuple[tuple[str, str], ...]:
    """But for the channels that hold the annotations, which are taken all the same."""
    return tuple(one for one in recording.left_out if one[1] != ANNOTATIONS_REASON)


def there_already(doing: str, place: str) -> UsageError:
    """For a file that nobody has named, and that is there."""
    return UsageError(
        doing,
        f"{place!r} is there already",
        hint=Advice(
            "{} replaces it; {} names another file or folder",
            overwrite=True,
            output=Blank("F"),
        ),
    )


def _of(progress: FileProgress, part: float, n_samples: int, n_done: int) -> None:
    """The progress of one file of several, as that of the recording."""
    progress(round(n_samples / part), n_done)
