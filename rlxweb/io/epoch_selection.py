"""Selection of epochs around annotations in a group of channels, and reading them.

Owns which of them are kept: those that lie whole in the recording and, where a limit is
given, those whose samples do not swing further. Holds no samples: a few stretches are
read at a time, near ones together, so that a filter is begun once for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.annotations import Annotation
from rlxweb.io.format_reader_interface import Span
from rlxweb.io.recording import Group, check_finite, nearest_sample_index

Array = NDArray[Any]

_MICROVOLTS: Final = {"V": 1e6, "mV": 1e3, "uV": 1.0, "µV": 1.0, "μV": 1.0, "nV": 1e-3}
_MAX_READ_NBYTES: Final = 8 << 20
"""Bytes of float64 samples that are read at once."""
_MAX_GAP_SPANS: Final = 8
"""Spans are read together if the gap between them is at most this many spans long."""


@dataclass(frozen=True, slots=True)
class EpochSelection:
    """Epochs of equal length in a group, each around an annotation.

    event_offset  from the sample of an annotation to the first of its stretch
    events    the annotations of those that are kept
    out_of_range  of those that reach beyond an end of the recording, or into a gap
    rejected  of those that swing too far
    bad       of those that reach into what is annotated as bad
    """

    group: Group
    event_offset: int
    n_samples: int
    events: tuple[Annotation, ...]
    out_of_range: tuple[Annotation, ...] = ()
    rejected: tuple[Annotation, ...] = ()
    bad: tuple[Annotation, ...] = ()

    @property
    def times(self) -> NDArray[np.float64]:
        """Return the (T,) seconds from the annotation."""
        return (self.event_offset + np.arange(self.n_samples)) / self.group.fs

    @property
    def n_annotations(self) -> int:
        """Return the number of annotations before any epoch was excluded."""
        excluded = self.out_of_range, self.rejected, self.bad
        return len(self.events) + sum(map(len, excluded))

    def start_sample(self, index: int) -> int:
        """Return the first sample of an epoch, relative to the group."""
        return _epoch_start(self.group, self.events[index], self.event_offset)

    def select_texts(self, texts: Sequence[str]) -> EpochSelection:
        """Return the epochs around annotations with exactly these texts."""

        def select(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
            return tuple(
                annotation for annotation in annotations if annotation.text in texts
            )

        return replace(
            self,
            events=select(self.events),
            out_of_range=select(self.out_of_range),
            rejected=select(self.rejected),
            bad=select(self.bad),
        )

    def read_epochs(
        self, first: int = 0, last: int | None = None
    ) -> NDArray[np.float64]:
        """Read epochs [first, last) as (E, C, T), in the channels' units."""
        last = len(self.events) if last is None else last
        out = np.empty((last - first, len(self.group.channels), self.n_samples))
        spans = [
            (start, start + self.n_samples)
            for start in map(self.start_sample, range(first, last))
        ]
        for index, x in enumerate(read_spans(self.group, spans, self.group.read)):
            out[index] = x
        return out

    def epoch_batches(self) -> Iterator[Span]:
        """Yield ranges of epochs [first, last) that fit in memory at once."""
        epoch_size = max(1, self.n_samples * len(self.group.channels))
        step = max(1, _MAX_READ_NBYTES // (8 * epoch_size))
        for first in range(0, len(self.events), step):
            yield first, min(first + step, len(self.events))

    def exclude_overlaps(self, annotations: Sequence[Annotation]) -> EpochSelection:
        """Return the selection without the epochs that overlap one of these
        annotations.
        """
        begins = np.array([annotation.onset for annotation in annotations])
        ends = begins + np.array([annotation.duration for annotation in annotations])
        fs = self.group.fs
        kept_events: list[Annotation] = []
        excluded_events: list[Annotation] = []
        for index, event in enumerate(self.events):
            start_s = (self.start_sample(index) + self.group.first) / fs
            overlaps = (begins < start_s + self.n_samples / fs) & (ends > start_s)
            (excluded_events if overlaps.any() else kept_events).append(event)
        return replace(
            self, events=tuple(kept_events), bad=(*self.bad, *excluded_events)
        )

    def reject_above(
        self, limit_uv: float, progress: Callable[[int], object] = bool
    ) -> EpochSelection:
        """Return the selection without the epochs in which a channel's peak-to-peak
        amplitude exceeds the limit.

        limit_uv  in microvolts
        progress  is told how many samples were looked at, all channels counted

        Errors    UsageError for a limit of 0 or less, and for a channel that is not in
                  volts
        """
        context = f"rejecting epochs of {self.group.recording!r}"
        limit = coerce_float("reject", limit_uv, context)
        if limit <= 0:
            raise UsageError(context, f"reject is {limit:g} µV", "must be above 0")
        scale = np.array(
            [_microvolts_per_unit(channel, context) for channel in self.group.channels]
        )
        kept_events: list[Annotation] = []
        rejected_events: list[Annotation] = []
        for first, last in self.epoch_batches():
            x = self.read_epochs(first, last)
            swings = np.ptp(x, axis=2) * scale
            # What is not finite swings no less.
            for event, is_kept in zip(
                self.events[first:last], (swings <= limit).all(axis=1), strict=True
            ):
                (kept_events if is_kept else rejected_events).append(event)
            progress(x.size)
        return replace(
            self, events=tuple(kept_events), rejected=(*self.rejected, *rejected_events)
        )


def select_epochs(
    group: Group,
    annotations: Sequence[Annotation],
    tmin: float,
    tmax: float,
    context: str,
) -> EpochSelection:
    """Select the epochs from `tmin` up to `tmax` seconds around each annotation.

    Errors   UsageError where no sample lies between
    """
    low, high = (
        coerce_float(*argument, context)
        for argument in (("tmin", tmin), ("tmax", tmax))
    )
    event_offset = nearest_sample_index(low, group.fs)
    n_samples = nearest_sample_index(high - low, group.fs)
    if n_samples < 1:
        raise UsageError(
            context,
            f"tmax is {high:g} s",
            f"must be greater than tmin, {low:g} s, so that an epoch has at least 1 "
            "sample",
        )
    events: list[Annotation] = []
    out_of_range: list[Annotation] = []
    for annotation in annotations:
        begin = _epoch_start(group, annotation, event_offset)
        is_recorded = group.is_whole(begin, begin + n_samples)
        (events if is_recorded else out_of_range).append(annotation)
    return EpochSelection(
        group, event_offset, n_samples, tuple(events), tuple(out_of_range)
    )


def _epoch_start(group: Group, annotation: Annotation, event_offset: int) -> int:
    """Return the group's sample at which the epoch of an annotation begins."""
    # Of a stretch of the recording, the first sample has a number of its own.
    return nearest_sample_index(annotation.onset, group.fs) - group.first + event_offset


def require_epochs(selection: EpochSelection, context: str, of_what: str = "") -> None:
    """Raise UsageError with the reasons if no epoch is left.

    of_what  they are: " of 'Stim 1'"
    """
    if selection.events:
        return
    hint: str = "use a shorter epoch"
    reasons = []
    if selection.out_of_range:
        or_gap = " or in a gap" if selection.group.gaps else ""
        reasons.append(f"{len(selection.out_of_range)} outside the recording{or_gap}")
    if selection.bad:
        reasons.append(f"{len(selection.bad)} annotated as bad")
        hint = Advice("keep bad epochs: {}", keep_bad=True)
    if selection.rejected:
        reasons.append(f"{len(selection.rejected)} above the peak-to-peak limit")
        hint = Advice("pass a larger {}", reject=Blank("UV"))
    raise UsageError(
        context,
        f"none of {selection.n_annotations} epochs{of_what} remains: "
        f"{', '.join(reasons)}",
        f"the recording is {selection.group.seconds:g} s long",
        hint,
    )


# --- reading --------------------------------------------------------------------------


def read_spans(
    group: Group, spans: Sequence[Span], read: Callable[[int, int], Any]
) -> Iterator[Array]:
    """Yield the samples of each span in order; neighbouring spans are read together."""
    max_samples = max(1, _MAX_READ_NBYTES // (8 * len(group.channels)))
    index = 0
    while index < len(spans):
        first, last = spans[index]
        end = index + 1
        while end < len(spans) and _can_read_together(
            spans[end], first, last, max_samples
        ):
            last = max(last, spans[end][1])
            end += 1
        x = read(first, last)
        for span_first, span_last in spans[index:end]:
            yield x[:, span_first - first : span_last - first]
        index = end


def _can_read_together(span: Span, first: int, last: int, max_samples: int) -> bool:
    """Tell whether a span is near enough to be read together with the samples [first,
    last).
    """
    begin, end = span
    gap = begin - last
    return (
        begin >= first
        and gap <= _MAX_GAP_SPANS * (end - begin)
        and end - first <= max_samples
    )


@dataclass(frozen=True, slots=True)
class _EpochSegmentReader:
    """SampleReader of the segments of all epochs, one after another, as if they were
    one signal.

    segments_per_epoch  segments of a stretch, `hop` apart in it
    needs_finite  what is not finite is refused, naming where in the recording it is
    """

    selection: EpochSelection
    nperseg: int
    hop: int
    segments_per_epoch: int
    needs_finite: bool

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """Return samples [start, stop) of the concatenated segments; see
        SampleReader.
        """
        group = self.selection.group
        selected = tuple(
            channel for channel in group.channels if channel.index in channels
        )
        read_group = replace(group, channels=selected)
        first, last = start // self.nperseg, -(-stop // self.nperseg)
        spans = [
            self._range_span(segment_range)
            for segment_range in self._segment_ranges(first, last)
        ]
        segments = []

        def read_raw(begin: int, end: int) -> Array:
            return np.asarray(group.reader.read(channels, begin, end))

        for (begin, _), x in zip(
            spans, read_spans(read_group, spans, read_raw), strict=True
        ):
            if self.needs_finite:
                check_finite(x, read_group, begin)
            windows = np.lib.stride_tricks.sliding_window_view(x, self.nperseg, axis=1)
            segments.append(windows[:, :: self.hop].reshape(len(x), -1))
        skip = start - first * self.nperseg
        return np.concatenate(segments, axis=1)[:, skip : skip + stop - start]

    def _segment_ranges(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield the segments [first, last) by epoch: the epoch and its own range
        [first, last).
        """
        for epoch in range(
            first // self.segments_per_epoch, -(-last // self.segments_per_epoch)
        ):
            first_of_epoch = epoch * self.segments_per_epoch
            yield (
                epoch,
                max(0, first - first_of_epoch),
                min(self.segments_per_epoch, last - first_of_epoch),
            )

    def _range_span(self, segment_range: tuple[int, int, int]) -> Span:
        """Return the samples that a range of an epoch's segments covers."""
        epoch, first, last = segment_range
        begin = self.selection.start_sample(epoch)
        return begin + first * self.hop, begin + (last - 1) * self.hop + self.nperseg


def segments_as_group(
    selection: EpochSelection,
    nperseg: int,
    hop: int,
    segments_per_epoch: int,
    *,
    needs_finite: bool,
) -> Group:
    """Return a group whose samples are the segments of all epochs, one after another.

    Cut anew every `nperseg` samples, it gives the segments of every stretch and no
    other: what averages over a signal averages over the stretches.

    needs_finite  samples that are not finite are refused, naming channel and time
    """
    return replace(
        selection.group,
        n_samples=len(selection.events) * segments_per_epoch * nperseg,
        reader=_EpochSegmentReader(
            selection, nperseg, hop, segments_per_epoch, needs_finite
        ),
        first=0,
        gaps=(),
    )


def _microvolts_per_unit(channel: Any, context: str) -> float:
    """Return the microvolts of a channel's unit; raise UsageError if it is not in
    volts.
    """
    scale = _MICROVOLTS.get(channel.unit)
    if scale is None:
        unit = f"the unit {channel.unit!r}" if channel.unit else "no known unit"
        raise UsageError(
            context,
            f"channel {channel.name!r} has {unit}",
            "a limit in µV requires channels with a unit of voltage (V, mV, µV, nV)",
            Advice(
                "select only channels with a unit of voltage: {}",
                channels=Blank("NAMES"),
            ),
        )
    return scale
