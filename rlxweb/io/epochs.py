"""Stretches of one length around annotations, cut out of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import switch, whole
from rlxweb.errors import UsageError, shown
from rlxweb.io.annotations import Annotation, bad_stretches, is_named, named
from rlxweb.io.cutting import check_any, cut
from rlxweb.io.recording import Recording


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Epochs:
    """E stretches of C channels; every signal function takes them as they are.

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
        lost = f", {len(self.dropped)} dropped" if self.dropped else ""
        lost += f", {len(self.rejected)} rejected" if self.rejected else ""
        lost += f", {len(self.bad)} bad" if self.bad else ""
        shape = "×".join(map(str, self.data.shape))
        return f"Epochs({shape} at {self.fs:g} Hz{lost})"

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return iter(self.data)

    def __getitem__(self, around: str) -> Epochs:
        """Those around annotations of some words, or of a pattern: "Stim*".

        Errors   UnknownName, with the words there are
        """
        named(self.events, around, "choosing epochs")
        kept = [at for at, note in enumerate(self.events) if is_named(note, around)]

        def some(notes: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
            return tuple(note for note in notes if is_named(note, around))

        return replace(
            self,
            data=self.data[kept],
            events=some(self.events),
            dropped=some(self.dropped),
            rejected=some(self.rejected),
            bad=some(self.bad),
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many epochs each text has."""
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
    """From `tmin` to `tmax` seconds around each annotation of some words.

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
            "a Recording is wanted",
            "open one: rlxweb.read(path), or make it: Recording.from_array(x, fs)",
        )
    doing = f"cutting epochs out of {recording.path!r}"
    words: object = around
    if not isinstance(words, str):
        said, rule = f"around is {shown(around)}", "the words of an annotation"
        raise UsageError(doing, said, rule, 'give them as a text: "Stim*"')
    notes = named(recording.annotations, around, doing)
    at = whole("group", group, doing)
    if not 0 <= at < len(recording.signals):
        raise UsageError(doing, f"group is {at}", f"there are {len(recording.groups)}")
    found = cut(recording.groups[at], notes, tmin, tmax, doing)
    if not switch("keep_bad", keep_bad, doing):
        found = found.outside(bad_stretches(recording.annotations))
    if reject is not None:
        found = found.below(reject)
    check_any(found, doing)
    units = {channel.unit for channel in found.group.channels}
    return Epochs(
        found.data(),
        found.group.fs,
        found.times,
        found.group.names,
        units.pop() if len(units) == 1 else "",
        found.events,
        found.beyond,
        found.rejected,
        found.bad,
    )
