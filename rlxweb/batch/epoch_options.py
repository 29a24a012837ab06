"""Options of epochs: how they are split into conditions by annotation text, and a
record of which are averaged.

Owns what is asked of epochs, the split by the words of their annotations, and what a
result says of them. Where they lie and how they are read is the business of
`rlxweb.io.epoch_selection`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from rlxweb.core.argument_validation import check_choice
from rlxweb.core.errors import RecordingWarning, UsageError, shown
from rlxweb.io import Group, Recording
from rlxweb.io.annotations import Annotation, bad_annotations, find_annotations
from rlxweb.io.epoch_selection import (
    EpochSelection,
    require_epochs,
    segments_as_group,
    select_epochs,
)
from rlxweb.ops.welch.spec import WelchSpec

EpochGrouping = Literal["all", "text"]
EPOCH_GROUPINGS: Final = get_args(EpochGrouping)

EPOCH_COLUMNS: Final = ("condition", "n_epochs", "n_dropped")
"""Columns on epochs, in tables with a row for each condition."""


@dataclass(frozen=True, slots=True)
class EpochOptions:
    """Options that select epochs.

    around      words of annotations, or a pattern: "Stim*"
    tmin, tmax  seconds from the annotation; tmax itself is left out
    by          "all": one average of all; "text": one for each wording
    reject      microvolts from peak to peak, above which an epoch is left out
    keep_bad    False: an epoch that reaches into what is annotated as bad is left out
    """

    around: str
    tmin: float = 0.0
    tmax: float = 1.0
    by: EpochGrouping = "all"
    reject: float | None = None
    keep_bad: bool = False

    @property
    def seconds(self) -> float:
        """Length of an epoch in seconds."""
        return self.tmax - self.tmin


@dataclass(frozen=True, slots=True)
class AveragedEpochs:
    """Record of the epochs that a result is the average of.

    condition    the words of their annotations; what was asked for where they are of
                 several
    counts       (text, how many) of those that are averaged
    n_out_of_range  left out, as they reach beyond an end of the recording, or into a
                    gap
    n_rejected   left out, as a channel swings too far
    n_bad        left out, as they reach into what is annotated as bad
    """

    condition: str
    tmin: float
    tmax: float
    counts: tuple[tuple[str, int], ...]
    n_out_of_range: int
    n_rejected: int
    n_bad: int = 0

    @property
    def n_averaged(self) -> int:
        """Number of epochs that are averaged."""
        return sum(count for _, count in self.counts)

    @property
    def n_dropped(self) -> int:
        """Number of epochs that are not averaged."""
        return self.n_out_of_range + self.n_bad + self.n_rejected

    @property
    def table_cells(self) -> tuple[str, int, int]:
        """Values of `EPOCH_COLUMNS`."""
        return self.condition, self.n_averaged, self.n_dropped

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {
            "condition": self.condition,
            "tmin": self.tmin,
            "tmax": self.tmax,
            "n_epochs": self.n_averaged,
            "n_dropped": self.n_dropped,
            "dropped": {
                "outside the recording": self.n_out_of_range,
                "annotated as bad": self.n_bad,
                "peak to peak": self.n_rejected,
            },
            "counts": dict(self.counts),
        }

    @property
    def summary(self) -> str:
        """Short text such as `12 epochs of 'Stim*'`."""
        return (
            f"{self.n_averaged} epoch{'s' * (self.n_averaged != 1)} of "
            f"{shown(self.condition)}"
        )

    def __str__(self) -> str:
        """Return `12 epochs of 'Stim*' (Stim 1 5, Stim 2 7), -0.2 to 0.8 s, 1 dropped
        (…)`.
        """
        description = self.summary
        if len(self.counts) > 1:
            count_texts = [f"{text} {count}" for text, count in self.counts[:6]]
            more = ", …" if len(self.counts) > 6 else ""
            description += f" ({', '.join(count_texts)}{more})"
        description += f", {self.tmin:g} to {self.tmax:g} s"
        reasons = [
            f"{count} {why}"
            for count, why in (
                (self.n_out_of_range, "outside the recording"),
                (self.n_bad, "annotated as bad"),
                (self.n_rejected, "above the peak-to-peak limit"),
            )
            if count
        ]
        if reasons:
            description += f", {self.n_dropped} dropped ({', '.join(reasons)})"
        return description


@dataclass(frozen=True, slots=True)
class EpochCondition:
    """Epochs that are averaged together."""

    selection: EpochSelection
    averaged: AveragedEpochs

    def segment_signal(self, spec: WelchSpec, *, checks_finite: bool) -> Group:
        """Return the segments of all its epochs, end to end, as if they were a signal.

        spec          settled for the length of an epoch
        checks_finite  samples that are not finite are refused
        """
        segments_per_epoch = spec.segments_per_row(self.selection.n_samples)
        return segments_as_group(
            self.selection,
            spec.nperseg,
            spec.hop,
            segments_per_epoch,
            needs_finite=checks_finite,
        )


def select_conditions(
    recording: Recording,
    group: Group,
    options: EpochOptions,
    progress: Callable[[float], object] = bool,
) -> tuple[EpochCondition, ...]:
    """Select the epochs of a group of channels, as one condition or one for each
    annotation text.

    progress  is told what share of all epochs was looked at, where some are to be
              rejected

    Errors    UnknownName where no annotation has the words; UsageError where no epoch
              is left, or the arguments cannot be
    Warns     RecordingWarning for a wording of which no epoch is left
    """
    context = f"cutting epochs out of {recording.path!r}"
    check_choice("by", options.by, EPOCH_GROUPINGS, context)
    annotations = find_annotations(recording.annotations, options.around, context)
    selection = select_epochs(group, annotations, options.tmin, options.tmax, context)
    if not options.keep_bad:
        selection = selection.exclude_overlaps(bad_annotations(recording.annotations))
    if options.reject is not None:
        total_samples = (
            len(selection.events) * selection.n_samples * len(group.channels)
        )
        selection = selection.reject_above(
            options.reject, lambda n_done: progress(n_done / total_samples)
        )
    require_epochs(selection, context)
    if options.by == "all":
        texts = dict.fromkeys(annotation.text for annotation in annotations)
        label = next(iter(texts)) if len(texts) == 1 else options.around
        return (EpochCondition(selection, _averaged_epochs(selection, label, options)),)
    return tuple(_split_by_text(selection, annotations, options, context))


def _split_by_text(
    selection: EpochSelection,
    annotations: tuple[Annotation, ...],
    options: EpochOptions,
    context: str,
) -> Iterator[EpochCondition]:
    for text in dict.fromkeys(annotation.text for annotation in annotations):
        text_selection = selection.select_texts((text,))
        try:
            require_epochs(text_selection, context, f" of {shown(text)}")
        except UsageError as error:
            warnings.warn(RecordingWarning(context, error.problem), stacklevel=2)
            continue
        yield EpochCondition(
            text_selection, _averaged_epochs(text_selection, text, options)
        )


def _averaged_epochs(
    selection: EpochSelection, condition: str, options: EpochOptions
) -> AveragedEpochs:
    return AveragedEpochs(
        condition=condition,
        tmin=options.tmin,
        tmax=options.tmax,
        counts=tuple(
            Counter(annotation.text for annotation in selection.events).items()
        ),
        n_out_of_range=len(selection.out_of_range),
        n_rejected=len(selection.rejected),
        n_bad=len(selection.bad),
    )


def as_one_epoch(group: Group, options: EpochOptions) -> Group:
    """Return the group as if it were one epoch long, to resolve the Welch parameters
    for it.
    """
    return replace(group, n_samples=max(1, round(options.seconds * group.fs)), gaps=())
