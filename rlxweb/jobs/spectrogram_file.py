"""One recording from file to spectrograms: what a run does with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlxweb.advice import Advice, Blank
from rlxweb.errors import OutOfMemory
from rlxweb.io import Group, Recording, open_recording
from rlxweb.jobs.analysis import FileProgress
from rlxweb.jobs.epoch_spectrogram import epochs_spectrogram
from rlxweb.jobs.epoching import Epoching, conditions_of
from rlxweb.jobs.settings import fmax_of
from rlxweb.jobs.spectrogram import (
    GroupSpectrogram,
    SpectrogramSettings,
    group_spectrogram,
    strongest_of,
)
from rlxweb.jobs.stages import Stages, timed
from rlxweb.results.ran import Stage


@dataclass(frozen=True, slots=True)
class FileSpectrogram:
    """What came of a recording.

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
        """The same with what is told of the powers, and not these themselves."""
        groups = tuple(
            replace(one, power=one.power[:, :0, :0].copy()) for one in self.groups
        )
        return replace(self, groups=groups)


@dataclass(frozen=True, slots=True)
class SpectrogramOfFile:
    """How recordings are done; see `Job`.

    reading   what `open_recording` takes besides the path
    epochs    that are averaged; None: the recording as it is
    baseline  seconds of an epoch whose mean powers are divided by
    keeps_power
              False: what is told of the powers is enough
    """

    how: SpectrogramSettings
    reading: Mapping[str, Any] = field(default_factory=dict)
    epochs: Epoching | None = None
    baseline: tuple[float, float] | None = None
    keeps_power: bool = True

    def __call__(
        self, path: str, progress: FileProgress | None = None
    ) -> FileSpectrogram:
        """Errors  those of `open_recording` and `group_spectrogram`; OutOfMemory"""
        stages = Stages()
        try:
            with stages.stage("open the file", "open"):
                opened = open_recording(path, **self.reading)
            with opened as recording:
                work = sum(g.n_samples * len(g.channels) for g in recording.signals)
                step = partial(progress or _nothing, work)
                with stages.stage("compute", "compute"):
                    own = tuple(timed(group, stages) for group in recording.groups)
                    found = self._groups(replace(recording, groups=own), step)
                    groups = tuple(
                        replace(one, strongest=strongest_of(one)) for one in found
                    )
                done = FileSpectrogram(
                    path,
                    recording.format,
                    recording.left_out,
                    recording.warnings,
                    groups,
                    stages.told(),
                    stages.total_s,
                )
                return done if self.keeps_power else done.without_power()
        except MemoryError as error:
            raise OutOfMemory(
                f"spectrogram of {path!r}",
                "out of memory",
                hint=Advice(
                    "take fewer channels or columns, or fewer at once: {}",
                    jobs=Blank("N"),
                ),
            ) from error

    def _groups(
        self, recording: Recording, step: Callable[[int], object]
    ) -> Iterator[GroupSpectrogram]:
        for group in recording.groups:
            doing = f"spectrogram of {recording.path!r}"
            fmax = fmax_of(self.how.fmax, group, recording.groups, doing)
            how = replace(self.how, fmax=fmax)
            if self.epochs is None:
                yield group_spectrogram(group, how, step)
            else:
                yield from self._conditions(recording, group, how, self.epochs, step)

    def _conditions(
        self,
        recording: Recording,
        group: Group,
        how: SpectrogramSettings,
        epochs: Epoching,
        step: Callable[[int], object],
    ) -> Iterator[GroupSpectrogram]:
        half = 1.0 if epochs.reject is None else 0.5
        work = half * group.n_samples * len(group.channels)

        def tell(part: float, share: float) -> object:
            return step(round(part * share * work))

        found = conditions_of(recording, group, epochs, partial(tell, 1.0))
        n = sum(one.used.n for one in found)
        for one in found:
            each = partial(tell, one.used.n / n)
            yield epochs_spectrogram(one, how, each, self.baseline)


def _nothing(n_samples: int, n_done: int) -> None:
    """Nobody is told."""
