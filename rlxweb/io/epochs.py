"""Stretches of one length around annotations, cut out of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import number, whole
from rlxweb.errors import UsageError
from rlxweb.io.annotations import Annotation, named
from rlxweb.io.recording import Group, Recording


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Epochs:
    """E stretches of C channels; every signal function takes them as they are.

    data     (E, C, T) float64, in the channels' units
    fs       Hz
    times    (T,) seconds from the annotation
    names    of the channels
    unit     of the samples, "" where they differ
    events   (E,) the annotation of each
    dropped  those too near an end of the recording
    """

    data: NDArray[np.float64]
    fs: float
    times: NDArray[np.float64]
    names: tuple[str, ...]
    unit: str
    events: tuple[Annotation, ...]
    dropped: tuple[Annotation, ...]

    def __repr__(self) -> str:
        lost = f", {len(self.dropped)} dropped" if self.dropped else ""
        shape = "×".join(map(str, self.data.shape))
        return f"Epochs({shape} at {self.fs:g} Hz{lost})"

    def __len__(self) -> int:
        return len(self.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.data, dtype, copy=copy)


def epochs(
    recording: Recording, around: str, tmin: float, tmax: float, group: int = 0
) -> Epochs:
    """From `tmin` to `tmax` seconds around each annotation of some words.

    around   the words, or a pattern: "Stim*"
    tmax     is left out itself
    group    of the recording, where its channels have several rates
    Errors   UnknownName where no annotation has them; UsageError for tmax ≤ tmin, and
             where all lie too near an end; RecordingError
    """
    doing = f"cutting epochs out of {recording.path!r}"
    notes = named(recording.annotations, around, doing)
    at = whole("group", group, doing)
    if not 0 <= at < len(recording.groups):
        raise UsageError(doing, f"group is {at}", f"there are {len(recording.groups)}")
    return _cut(recording.groups[at], notes, tmin, tmax, doing)


def _cut(
    group: Group, notes: tuple[Annotation, ...], tmin: float, tmax: float, doing: str
) -> Epochs:
    low, high = (number(*one, doing) for one in (("tmin", tmin), ("tmax", tmax)))
    first, count = round(low * group.fs), round((high - low) * group.fs)
    if count < 1:
        raise UsageError(doing, f"tmax is {high:g} s", f"after tmin, {low:g} s")
    kept, dropped, parts = [], [], []
    for note in notes:
        # Of a stretch, the first sample has a number of its own.
        begin = round(note.onset * group.fs) - group.first + first
        if begin < 0 or begin + count > group.n_samples:
            dropped.append(note)
            continue
        kept.append(note)
        parts.append(np.asarray(group.read(begin, begin + count), np.float64))
    if not parts:
        raise UsageError(
            doing,
            f"all {len(notes)} epochs reach beyond an end",
            f"it has {group.seconds:g} s",
            "give a shorter epoch",
        )
    units = {channel.unit for channel in group.channels}
    return Epochs(
        np.stack(parts),
        group.fs,
        (first + np.arange(count)) / group.fs,
        group.names,
        units.pop() if len(units) == 1 else "",
        tuple(kept),
        tuple(dropped),
    )
