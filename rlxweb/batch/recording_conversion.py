"""Conversion of one recording into files of another format.

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

from rlxweb.batch.recording_analysis import FileProgress
from rlxweb.batch.stage_timing import StageTimer, time_reads
from rlxweb.core.atomic_file import AtomicFiles
from rlxweb.core.errors import OutOfMemory, RecordingError, RecordingWarning, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.output_streams import is_stream
from rlxweb.io import Group, Recording, open_recording
from rlxweb.io.channel_group_merging import merge_groups, merge_obstacle
from rlxweb.io.channel_selection import ANNOTATIONS_REASON
from rlxweb.io.formats import WRITERS
from rlxweb.io.recording_writer import Written
from rlxweb.results.ran import Stage


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """Result of the conversion of a recording.

    format   of the recording
    written_files  the files
    stages   where the time went
    """

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    written_files: tuple[Written, ...]
    stages: tuple[Stage, ...]
    wall_s: float


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """Job that converts recordings; see `FileJob`.

    targets     the file that each recording goes into, by its name
    is_target_named  the user has named the file, so one that is there is replaced
    overwrites  so is any other that is there, but for a recording
    record_paths  files that the run writes beside them
    open_options  what `open_recording` takes besides the path
    bits, full_scale
                as `Recording.save` has them
    """

    format: str
    targets: Mapping[str, str]
    is_target_named: bool = False
    overwrites: bool = False
    open_options: Mapping[str, Any] = field(default_factory=dict)
    bits: int | None = None
    full_scale: float | None = None
    record_paths: tuple[str, ...] = ()

    def __call__(
        self, path: str, progress: FileProgress | None = None
    ) -> ConversionResult:
        """Convert one recording. Errors  those of `open_recording` and
        `Recording.save`; OutOfMemory
        """
        stages = StageTimer()
        try:
            with stages.stage("open the file", "open"):
                opened = open_recording(path, **self.open_options)
            with opened as recording:
                with stages.stage("write the file", "write"):
                    written_files = self._write_outputs(recording, stages, progress)
                return ConversionResult(
                    path,
                    recording.format,
                    _excluded_channels(recording),
                    recording.warnings,
                    written_files,
                    stages.stage_seconds(),
                    stages.total_s,
                )
        except MemoryError as error:
            raise OutOfMemory(
                f"converting {path!r}",
                "the host is out of memory",
                hint=Advice(
                    "use fewer channels, or fewer files at a time: {}", jobs=Blank("N")
                ),
            ) from error

    def _write_outputs(
        self, recording: Recording, stages: StageTimer, progress: FileProgress | None
    ) -> tuple[Written, ...]:
        groups_by_path = self.plan_outputs(recording)
        total_samples = sum(g.n_samples * len(g.channels) for g in recording.signals)
        written_files = []
        with AtomicFiles(allow_streams=True) as files, warnings.catch_warnings():
            # They are `Written.lost`, which the command sums up over many files.
            warnings.filterwarnings("ignore", "writing ", RecordingWarning)
            for output_path, groups in groups_by_path.items():
                share = (
                    sum(g.n_samples * len(g.channels) for g in groups) / total_samples
                )
                written = recording.save(
                    files.open(output_path),
                    format=self.format,
                    groups=[time_reads(group, stages) for group in groups],
                    bits=self.bits,
                    full_scale=self.full_scale,
                    progress=None
                    if progress is None
                    else partial(_scale_progress, progress, share),
                )
                written_files.append(written)
        return tuple(written_files)

    def plan_outputs(self, recording: Recording) -> dict[str, Sequence[Group]]:
        """Return the output files and the groups that go into each.

        Errors   UsageError for one that is there and was not named, for one that
                 another recording or the record goes into, and for several that would
                 go into a stream
        """
        target, groups = self.targets[recording.path], recording.signals
        if WRITERS[self.format].supports_mixed_rates:
            outputs: dict[str, Sequence[Group]] = {target: groups}
        elif len(groups := merge_groups(groups)) == 1:
            outputs = {target: groups}
        else:
            if is_stream(target):
                obstacle = merge_obstacle(groups)
                part = "rate" if obstacle.has_several_rates else "group"
                raise UsageError(
                    f"converting {recording.path!r}",
                    obstacle.problem,
                    f"the channels of a .{self.format} file must have "
                    f"{obstacle.requirement}, and {target!r} accepts only one file",
                    f"write to a named file to get one file per {part}, or select "
                    f"channels with {obstacle.requirement} (-c)",
                )
            target_path = Path(target)
            names = _rate_names(target_path.stem, groups)
            outputs = {
                str(target_path.with_name(f"{name}{target_path.suffix}")): [group]
                for name, group in zip(names, groups, strict=True)
            }
            self._check_collisions(recording, outputs)
        for output_path in outputs:
            self._check_output(recording, output_path)
        return outputs

    def check_outputs(self) -> None:
        """Check that no part of a recording would get the name of another output.

        Most have one rate, and then none does: only those are opened whose files would
        have such a name if they had several.

        Errors   UsageError for an output of two recordings
        """
        outputs = [*self.targets.values(), *self.record_paths]
        for path, target in self.targets.items():
            if not is_stream(target) and any(
                _could_be_part_of(output, target) for output in outputs
            ):
                # What cannot be opened is told of when its turn comes.
                with suppress(RecordingError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RecordingWarning)
                    with open_recording(path, **self.open_options) as recording:
                        self.plan_outputs(recording)

    def _check_collisions(
        self, recording: Recording, output_paths: Iterable[str]
    ) -> None:
        reasons_by_path = {
            _normalize_path(target): f"the output of the recording {path!r}"
            for path, target in self.targets.items()
            if path != recording.path
        }
        for path in self.record_paths:
            reasons_by_path[_normalize_path(path)] = "the run record"
        for output_path in output_paths:
            if _normalize_path(output_path) in reasons_by_path:
                raise UsageError(
                    f"converting {recording.path!r}",
                    f"the output {output_path!r} is also "
                    f"{reasons_by_path[_normalize_path(output_path)]}",
                    "every output must be a separate file",
                    "use another folder for one of the outputs (-o)",
                )

    def _check_output(self, recording: Recording, output_path: str) -> None:
        if is_stream(output_path):
            return
        context = f"converting {recording.path!r}"
        if self.is_target_named and output_path == self.targets[recording.path]:
            return  # that it is no recording was seen before the work began
        if any(
            os.path.exists(other) and os.path.samefile(output_path, other)
            for other in self.targets
            if os.path.exists(output_path)
        ):
            raise UsageError(
                context,
                f"{output_path!r} is an input of this run",
                hint="choose another folder with -o",
            )
        if os.path.lexists(output_path) and not self.overwrites:
            raise output_exists_error(context, output_path)


def _rate_names(stem: str, groups: Sequence[Group]) -> list[str]:
    """Return names with the rates in them; groups of one rate are numbered."""
    names = [f"{stem}-{group.fs:.10g}Hz" for group in groups]
    return [
        f"{name}-{names[:index].count(name) + 1}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _could_be_part_of(path: str, target: str) -> bool:
    """Return whether a part of what goes into `target` might be called `path`."""
    target_path, normal_path = _normalize_path(target), _normalize_path(path)
    stem, suffix = os.path.splitext(target_path)
    pattern = re.escape(stem) + r"-[\d.e+-]+hz(-\d+)?" + re.escape(suffix)
    return re.fullmatch(pattern, normal_path) is not None


def _normalize_path(path: str) -> str:
    """Return one name for all paths that some file system takes for the same."""
    real_path = os.path.realpath(path)
    return unicodedata.normalize("NFC", real_path).casefold()


def _excluded_channels(recording: Recording) -> tuple[tuple[str, str], ...]:
    """Return the excluded channels but those with annotations, which are converted all
    the same.
    """
    return tuple(
        channel for channel in recording.left_out if channel[1] != ANNOTATIONS_REASON
    )


def output_exists_error(context: str, path: str) -> UsageError:
    """Return the error for an output file that exists and that the user has not
    named.
    """
    return UsageError(
        context,
        f"{path!r} already exists",
        hint=Advice(
            "pass {} to replace it or {} to write elsewhere",
            overwrite=True,
            output=Blank("F"),
        ),
    )


def _scale_progress(
    progress: FileProgress, share: float, n_samples: int, n_done: int
) -> None:
    """Report the progress of one file of several as that of the recording."""
    progress(round(n_samples / share), n_done)
