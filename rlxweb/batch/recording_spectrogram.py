"""Spectrograms of one recording, from file to result, as a job of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlxweb.batch.channel_group_spectrogram import (
    GroupSpectrogram,
    SpectrogramSettings,
    channel_maxima,
    group_spectrogram,
)
from rlxweb.batch.epoch_options import EpochOptions, select_conditions
from rlxweb.batch.epoch_spectrogram import epochs_spectrogram
from rlxweb.batch.recording_analysis import FileProgress
from rlxweb.batch.settings import group_fmax
from rlxweb.batch.stage_timing import StageTimer, time_reads
from rlxweb.core.errors import OutOfMemory
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import Group, Recording, open_recording
from rlxweb.results.ran import Stage


@dataclass(frozen=True, slots=True)
class FileSpectrogram:
    """Spectrograms of a recording.

    groups  one per rate; of epochs, one per rate and condition
    """

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    groups: tuple[GroupSpectrogram, ...]
    stages: tuple[Stage, ...]
    wall_s: float

    def without_power(self) -> FileSpectrogram:
        """Return the same without the arrays of power; what was derived from them
        stays.
        """
        groups = tuple(
            replace(group, power=group.power[:, :0, :0].copy()) for group in self.groups
        )
        return replace(self, groups=groups)


@dataclass(frozen=True, slots=True)
class SpectrogramJob:
    """Job that computes the spectrograms of recordings; see `FileJob`.

    open_options  what `open_recording` takes besides the path
    epochs    that are averaged; None: the recording as it is
    baseline  seconds of an epoch whose mean powers are divided by
    keeps_power
              False: what is told of the powers is enough
    """

    settings: SpectrogramSettings
    open_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: EpochOptions | None = None
    baseline: tuple[float, float] | None = None
    keeps_power: bool = True

    def __call__(
        self, path: str, progress: FileProgress | None = None
    ) -> FileSpectrogram:
        """Compute the spectrograms of one file. Errors  those of `open_recording` and
        `group_spectrogram`; OutOfMemory
        """
        stages = StageTimer()
        try:
            with stages.stage("open the file", "open"):
                opened = open_recording(path, **self.open_options)
            with opened as recording:
                total_samples = sum(
                    g.n_samples * len(g.channels) for g in recording.signals
                )
                step = partial(progress or _ignore_progress, total_samples)
                with stages.stage("compute", "compute"):
                    timed_groups = tuple(
                        time_reads(group, stages) for group in recording.groups
                    )
                    spectrograms = self._group_spectrograms(
                        replace(recording, groups=timed_groups), step
                    )
                    groups = tuple(
                        replace(
                            group_result, channel_maxima=channel_maxima(group_result)
                        )
                        for group_result in spectrograms
                    )
                result = FileSpectrogram(
                    path,
                    recording.format,
                    recording.left_out,
                    recording.warnings,
                    groups,
                    stages.stage_seconds(),
                    stages.total_s,
                )
                return result if self.keeps_power else result.without_power()
        except MemoryError as error:
            raise OutOfMemory(
                f"spectrogram of {path!r}",
                "the host is out of memory",
                hint=Advice(
                    "use fewer channels or columns, or fewer files at a time: {}",
                    jobs=Blank("N"),
                ),
            ) from error

    def _group_spectrograms(
        self, recording: Recording, step: Callable[[int], object]
    ) -> Iterator[GroupSpectrogram]:
        for group in recording.groups:
            context = f"spectrogram of {recording.path!r}"
            fmax = group_fmax(self.settings.fmax, group, recording.groups, context)
            settings = replace(self.settings, fmax=fmax)
            if self.epochs is None:
                yield group_spectrogram(group, settings, step)
            else:
                yield from self._condition_spectrograms(
                    recording, group, settings, self.epochs, step
                )

    def _condition_spectrograms(
        self,
        recording: Recording,
        group: Group,
        settings: SpectrogramSettings,
        epochs: EpochOptions,
        step: Callable[[int], object],
    ) -> Iterator[GroupSpectrogram]:
        stage_share = 1.0 if epochs.reject is None else 0.5
        stage_samples = stage_share * group.n_samples * len(group.channels)

        def report_share(part: float, share: float) -> object:
            return step(round(part * share * stage_samples))

        conditions = select_conditions(
            recording, group, epochs, partial(report_share, 1.0)
        )
        n_epochs = sum(condition.averaged.n_averaged for condition in conditions)
        for condition in conditions:
            report_condition = partial(
                report_share, condition.averaged.n_averaged / n_epochs
            )
            yield epochs_spectrogram(
                condition, settings, report_condition, self.baseline
            )


def _ignore_progress(n_samples: int, n_done: int) -> None:
    """Ignore the progress."""
