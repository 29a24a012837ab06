"""Epochs of recordings: which are averaged together, how many, and which are not.

Owns what is asked of epochs, the split by the words of their annotations, and what a
result says of them. Where they lie and how they are read is the business of
`rlxweb.io.cutting`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from rlxweb.arguments import one_of
from rlxweb.errors import RecordingWarning, UsageError, shown
from rlxweb.host.spec import WelchSpec
from rlxweb.io import Group, Recording
from rlxweb.io.annotations import Annotation, bad_stretches, named
from rlxweb.io.cutting import Cut, check_any, cut, segments_of

By = Literal["all", "text"]
BY: Final = get_args(By)

COLUMNS: Final = ("condition", "n_epochs", "n_dropped")
"""Of a table with a row for something of each condition."""


@dataclass(frozen=True, slots=True)
class Epoching:
    """What is asked of epochs.

    around      words of annotations, or a pattern: "Stim*"
    tmin, tmax  seconds from the annotation; tmax itself is left out
    by          "all": one average of all; "text": one for each wording
    reject      microvolts from peak to peak, above which an epoch is left out
    keep_bad    False: an epoch that reaches into what is annotated as bad is left out
    """

    around: str
    tmin: float = 0.0
    tmax: float = 1.0
    by: By = "all"
    reject: float | None = None
    keep_bad: bool = False

    @property
    def seconds(self) -> float:
        """Length of an epoch."""
        return self.tmax - self.tmin


@dataclass(frozen=True, slots=True)
class EpochsUsed:
    """The epochs of which a result is the average.

    condition    the words of their annotations; what was asked for where they are of
                 several
    counts       (text, how many) of those that are averaged
    n_beyond     left out, as they reach beyond an end of the recording, or into a gap
    n_rejected   left out, as a channel swings too far
    n_bad        left out, as they reach into what is annotated as bad
    """

    condition: str
    tmin: float
    tmax: float
    counts: tuple[tuple[str, int], ...]
    n_beyond: int
    n_rejected: int
    n_bad: int = 0

    @property
    def n(self) -> int:
        """How many are averaged."""
        return sum(count for _, count in self.counts)

    @property
    def n_dropped(self) -> int:
        """How many are not."""
        return self.n_beyond + self.n_bad + self.n_rejected

    @property
    def cells(self) -> tuple[str, int, int]:
        """What `COLUMNS` hold."""
        return self.condition, self.n, self.n_dropped

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "condition": self.condition,
            "tmin": self.tmin,
            "tmax": self.tmax,
            "n_epochs": self.n,
            "n_dropped": self.n_dropped,
            "dropped": {
                "outside the recording": self.n_beyond,
                "annotated as bad": self.n_bad,
                "peak to peak": self.n_rejected,
            },
            "counts": dict(self.counts),
        }

    @property
    def short(self) -> str:
        """`12 epochs of 'Stim*'`."""
        return f"{self.n} epoch{'s' * (self.n != 1)} of {shown(self.condition)}"

    def __str__(self) -> str:
        """`12 epochs of 'Stim*' (Stim 1 5, Stim 2 7), -0.2 to 0.8 s, 1 dropped (…)`."""
        said = self.short
        if len(self.counts) > 1:
            some = [f"{text} {count}" for text, count in self.counts[:6]]
            more = ", …" if len(self.counts) > 6 else ""
            said += f" ({', '.join(some)}{more})"
        said += f", {self.tmin:g} to {self.tmax:g} s"
        reasons = [
            f"{count} {why}"
            for count, why in (
                (self.n_beyond, "outside the recording"),
                (self.n_bad, "annotated as bad"),
                (self.n_rejected, "above peak to peak"),
            )
            if count
        ]
        if reasons:
            said += f", {self.n_dropped} dropped ({', '.join(reasons)})"
        return said


@dataclass(frozen=True, slots=True)
class Condition:
    """Epochs that are averaged together."""

    cut: Cut
    used: EpochsUsed

    def signal(self, spec: WelchSpec, *, is_looked_at: bool) -> Group:
        """The segments of all its epochs, end to end, as if they were a signal.

        spec          settled for the length of an epoch
        is_looked_at  samples that are not finite are refused
        """
        each = spec.segments_of(self.cut.count)
        return segments_of(
            self.cut, spec.nperseg, spec.hop, each, is_looked_at=is_looked_at
        )


def conditions_of(
    recording: Recording,
    group: Group,
    asked: Epoching,
    progress: Callable[[float], object] = bool,
) -> tuple[Condition, ...]:
    """The epochs of a group of channels, all of them or by the words of each.

    progress  is told what share of all epochs was looked at, where some are to be
              rejected

    Errors    UnknownName where no annotation has the words; UsageError where no epoch
              is left, or the arguments cannot be
    Warns     RecordingWarning for a wording of which no epoch is left
    """
    doing = f"cutting epochs out of {recording.path!r}"
    one_of("by", asked.by, BY, doing)
    notes = named(recording.annotations, asked.around, doing)
    found = cut(group, notes, asked.tmin, asked.tmax, doing)
    if not asked.keep_bad:
        found = found.outside(bad_stretches(recording.annotations))
    if asked.reject is not None:
        size = len(found.events) * found.count * len(group.channels)
        found = found.below(asked.reject, lambda n: progress(n / size))
    check_any(found, doing)
    if asked.by == "all":
        texts = dict.fromkeys(one.text for one in notes)
        only = next(iter(texts)) if len(texts) == 1 else asked.around
        return (Condition(found, _used(found, only, asked)),)
    return tuple(_by_text(found, notes, asked, doing))


def _by_text(
    found: Cut, notes: tuple[Annotation, ...], asked: Epoching, doing: str
) -> Iterator[Condition]:
    for text in dict.fromkeys(one.text for one in notes):
        own = found.of((text,))
        try:
            check_any(own, doing, f" of {shown(text)}")
        except UsageError as error:
            warnings.warn(RecordingWarning(doing, error.problem), stacklevel=2)
            continue
        yield Condition(own, _used(own, text, asked))


def _used(own: Cut, condition: str, asked: Epoching) -> EpochsUsed:
    return EpochsUsed(
        condition=condition,
        tmin=asked.tmin,
        tmax=asked.tmax,
        counts=tuple(Counter(note.text for note in own.events).items()),
        n_beyond=len(own.beyond),
        n_rejected=len(own.rejected),
        n_bad=len(own.bad),
    )


def length_of(group: Group, asked: Epoching) -> Group:
    """The group as if it were one epoch long: what an estimate is settled for."""
    return replace(group, n_samples=max(1, round(asked.seconds * group.fs)), gaps=())
