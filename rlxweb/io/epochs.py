"""Epochs: stretches of equal length around annotations, cut out of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_bool, coerce_integer
from rlxweb.core.errors import UsageError, shown
from rlxweb.io.annotations import (
    Annotation,
    bad_annotations,
    find_annotations,
    matches_text,
)
from rlxweb.io.epoch_selection import require_epochs, select_epochs
from rlxweb.io.recording import Recording


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Epochs:
    """Epochs of a recording: E stretches of C channels and T samples, accepted by every
    signal function.

    data      (E, C, T) float64, in the channels' units
    fs        Hz
    times     (T,) seconds from the annotation
    names     of the channels
    unit      of the samples, "" where they differ
    events    (E,) the annotation of each
    dropped   those too near an end of the recording or a gap
    rejected  those in which a channel swings too far
    bad       those that reach into what is annotated as bad
    """

    data: NDArray[np.float64]
    fs: float
    times: NDArray[np.float64]
    names: tuple[str, ...]
    unit: str
    events: tuple[Annotation, ...]
    dropped: tuple[Annotation, ...] = ()
    rejected: tuple[Annotation, ...] = ()
    bad: tuple[Annotation, ...] = ()

    def __repr__(self) -> str:
        exclusions = f", {len(self.dropped)} dropped" if self.dropped else ""
        exclusions += f", {len(self.rejected)} rejected" if self.rejected else ""
        exclusions += f", {len(self.bad)} bad" if self.bad else ""
        shape = "×".join(map(str, self.data.shape))
        return f"Epochs({shape} at {self.fs:g} Hz{exclusions})"

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return iter(self.data)

    def __getitem__(self, around: str) -> Epochs:
        """Return the epochs around annotations with this text, or matching a pattern
        such as "Stim*".

        Errors   UnknownName, with the words there are
        """
        find_annotations(self.events, around, "selecting epochs")
        selected = [
            index
            for index, note in enumerate(self.events)
            if matches_text(note, around)
        ]

        def select_notes(notes: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
            return tuple(note for note in notes if matches_text(note, around))

        return replace(
            self,
            data=self.data[selected],
            events=select_notes(self.events),
            dropped=select_notes(self.dropped),
            rejected=select_notes(self.rejected),
            bad=select_notes(self.bad),
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of epochs for each annotation text."""
        return dict(Counter(note.text for note in self.events))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.data, dtype, copy=copy)


def epochs(
    recording: Recording,
    around: str,
    tmin: float,
    tmax: float,
    group: int = 0,
    *,
    reject: float | None = None,
    keep_bad: bool = False,
) -> Epochs:
    """Cut epochs from `tmin` to `tmax` seconds around each annotation with a given
    text.

    around   the words, or a pattern: "Stim*"
    tmax     is left out itself, so that a second has as many samples as the rate says
             (mne.Epochs takes it in)
    group    of the recording, where its channels have several rates
    reject   microvolts from peak to peak; an epoch in which a channel has more is left
             out
    keep_bad False: an epoch is left out if it reaches into a stretch whose annotation
             begins with "bad", as MNE's are (reject_by_annotation)
    Errors   UnknownName where no annotation has them; UsageError for tmax ≤ tmin, where
             no epoch is left, and for `reject` with channels that are not in volts;
             RecordingError
    """
    if not isinstance(recording, Recording):
        raise UsageError(
            "cutting epochs out of a recording",
            f"recording is {shown(recording)}",
            "expected a Recording",
            "use rlxweb.read(path) or Recording.from_array(x, fs)",
        )
    context = f"cutting epochs out of {recording.path!r}"
    pattern: object = around
    if not isinstance(pattern, str):
        message = f"around is {shown(around)}"
        rule = "must be the text of an annotation"
        raise UsageError(context, message, rule, 'pass a string such as "Stim*"')
    notes = find_annotations(recording.annotations, around, context)
    group_index = coerce_integer("group", group, context)
    if not 0 <= group_index < len(recording.signals):
        raise UsageError(
            context,
            f"group is {group_index}",
            f"the recording has {len(recording.groups)} "
            f"group{'s' * (len(recording.groups) != 1)}, numbered from 0",
        )
    stretches = select_epochs(recording.groups[group_index], notes, tmin, tmax, context)
    if not coerce_bool("keep_bad", keep_bad, context):
        stretches = stretches.exclude_overlaps(bad_annotations(recording.annotations))
    if reject is not None:
        stretches = stretches.reject_above(reject)
    require_epochs(stretches, context)
    units = {channel.unit for channel in stretches.group.channels}
    return Epochs(
        stretches.read_epochs(),
        stretches.group.fs,
        stretches.times,
        stretches.group.names,
        units.pop() if len(units) == 1 else "",
        stretches.events,
        stretches.out_of_range,
        stretches.rejected,
        stretches.bad,
    )
