"""Where stretches around annotations lie in a group of channels, and reading them.

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

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number
from rlxweb.errors import UsageError
from rlxweb.io.annotations import Annotation
from rlxweb.io.contents import Span
from rlxweb.io.recording import Group, check_finite, sample_number

Array = NDArray[Any]

_MICROVOLTS: Final = {"V": 1e6, "mV": 1e3, "uV": 1.0, "µV": 1.0, "μV": 1.0, "nV": 1e-3}
_HELD_NBYTES: Final = 8 << 20
"""Of float64 samples that are read at once."""
_NEAR: Final = 8
"""Stretches lie near each other where no more than so many fit between."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Stretches of `count` samples in a group, by the annotations they are around.

    first     from the sample of an annotation to the first of its stretch
    events    the annotations of those that are kept
    beyond    of those that reach beyond an end of the recording, or into a gap
    rejected  of those that swing too far
    bad       of those that reach into what is annotated as bad
    """

    group: Group
    first: int
    count: int
    events: tuple[Annotation, ...]
    beyond: tuple[Annotation, ...] = ()
    rejected: tuple[Annotation, ...] = ()
    bad: tuple[Annotation, ...] = ()

    @property
    def times(self) -> NDArray[np.float64]:
        """(T,) seconds from the annotation."""
        return (self.first + np.arange(self.count)) / self.group.fs

    @property
    def n_all(self) -> int:
        """How many annotations there were."""
        lost = self.beyond, self.rejected, self.bad
        return len(self.events) + sum(map(len, lost))

    def begin(self, at: int) -> int:
        """The group's number of the first sample of stretch `at`."""
        return _begin(self.group, self.events[at], self.first)

    def of(self, texts: Sequence[str]) -> Cut:
        """Those around annotations of these very words."""

        def some(notes: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
            return tuple(one for one in notes if one.text in texts)

        return replace(
            self,
            events=some(self.events),
            beyond=some(self.beyond),
            rejected=some(self.rejected),
            bad=some(self.bad),
        )

    def data(self, first: int = 0, last: int | None = None) -> NDArray[np.float64]:
        """(E, C, T) of the stretches [first, last), in the channels' units."""
        last = len(self.events) if last is None else last
        out = np.empty((last - first, len(self.group.channels), self.count))
        spans = [(b, b + self.count) for b in map(self.begin, range(first, last))]
        for at, x in enumerate(read_spans(self.group, spans, self.group.read)):
            out[at] = x
        return out

    def parts(self) -> Iterator[Span]:
        """Stretches [first, last) that may be held at once, one after another."""
        wide = max(1, self.count * len(self.group.channels))
        step = max(1, _HELD_NBYTES // (8 * wide))
        for at in range(0, len(self.events), step):
            yield at, min(at + step, len(self.events))

    def outside(self, stretches: Sequence[Annotation]) -> Cut:
        """Without those that reach into one of these stretches."""
        begins = np.array([one.onset for one in stretches])
        ends = begins + np.array([one.duration for one in stretches])
        fs = self.group.fs
        kept: list[Annotation] = []
        gone: list[Annotation] = []
        for at, note in enumerate(self.events):
            first = (self.begin(at) + self.group.first) / fs
            reaches = (begins < first + self.count / fs) & (ends > first)
            (gone if reaches.any() else kept).append(note)
        return replace(self, events=tuple(kept), bad=(*self.bad, *gone))

    def below(self, limit_uv: float, progress: Callable[[int], object] = bool) -> Cut:
        """Without those in which a channel swings by more, from peak to peak.

        limit_uv  in microvolts
        progress  is told how many samples were looked at, all channels counted

        Errors    UsageError for a limit of 0 or less, and for a channel that is not in
                  volts
        """
        doing = f"rejecting epochs of {self.group.recording!r}"
        limit = number("reject", limit_uv, doing)
        if limit <= 0:
            raise UsageError(doing, f"reject is {limit:g} µV", "above 0")
        scale = np.array([_microvolts(one, doing) for one in self.group.channels])
        kept: list[Annotation] = []
        gone: list[Annotation] = []
        for first, last in self.parts():
            x = self.data(first, last)
            swings = np.ptp(x, axis=2) * scale
            # What is not finite swings no less.
            for note, is_kept in zip(
                self.events[first:last], (swings <= limit).all(axis=1), strict=True
            ):
                (kept if is_kept else gone).append(note)
            progress(x.size)
        return replace(self, events=tuple(kept), rejected=(*self.rejected, *gone))


def cut(
    group: Group, notes: Sequence[Annotation], tmin: float, tmax: float, doing: str
) -> Cut:
    """From `tmin` up to `tmax` seconds around each annotation.

    Errors   UsageError where no sample lies between
    """
    low, high = (number(*one, doing) for one in (("tmin", tmin), ("tmax", tmax)))
    first = sample_number(low, group.fs)
    count = sample_number(high - low, group.fs)
    if count < 1:
        raise UsageError(doing, f"tmax is {high:g} s", f"after tmin, {low:g} s")
    kept: list[Annotation] = []
    beyond: list[Annotation] = []
    for note in notes:
        begin = _begin(group, note, first)
        is_whole = group.is_whole(begin, begin + count)
        (kept if is_whole else beyond).append(note)
    return Cut(group, first, count, tuple(kept), tuple(beyond))


def _begin(group: Group, note: Annotation, first: int) -> int:
    # Of a stretch of the recording, the first sample has a number of its own.
    return sample_number(note.onset, group.fs) - group.first + first


def check_any(found: Cut, doing: str, what: str = "") -> None:
    """Errors  UsageError where no epoch is left, with the reasons.

    what   they are: " of 'Stim 1'"
    """
    if found.events:
        return
    hint: str = "give a shorter epoch"
    reasons = []
    if found.beyond:
        or_gap = " or in a gap" if found.group.gaps else ""
        reasons.append(f"{len(found.beyond)} beyond an end{or_gap}")
    if found.bad:
        reasons.append(f"{len(found.bad)} annotated as bad")
        hint = Advice("keep those: {}", keep_bad=True)
    if found.rejected:
        reasons.append(f"{len(found.rejected)} above peak to peak")
        hint = Advice("give a larger {}", reject=Blank("UV"))
    raise UsageError(
        doing,
        f"no epoch{what} is left of {found.n_all}: {', '.join(reasons)}",
        f"it has {found.group.seconds:g} s",
        hint,
    )


# --- reading --------------------------------------------------------------------------


def read_spans(
    group: Group, spans: Sequence[Span], read: Callable[[int, int], Any]
) -> Iterator[Array]:
    """What `read` gives for each span, in their order; near ones are read together."""
    most = max(1, _HELD_NBYTES // (8 * len(group.channels)))
    at = 0
    while at < len(spans):
        first, last = spans[at]
        end = at + 1
        while end < len(spans) and _joins(spans[end], first, last, most):
            last = max(last, spans[end][1])
            end += 1
        x = read(first, last)
        for own_first, own_last in spans[at:end]:
            yield x[:, own_first - first : own_last - first]
        at = end


def _joins(span: Span, first: int, last: int, most: int) -> bool:
    begin, end = span
    gap = begin - last
    return begin >= first and gap <= _NEAR * (end - begin) and end - first <= most


@dataclass(frozen=True, slots=True)
class _Segments:
    """Segments of all stretches, one behind the other, as if they were one signal.

    each      segments of a stretch, `hop` apart in it
    is_looked_at  what is not finite is refused, naming where in the recording it is
    """

    cut: Cut
    nperseg: int
    hop: int
    each: int
    is_looked_at: bool

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """See SampleReader."""
        group = self.cut.group
        kept = tuple(one for one in group.channels if one.index in channels)
        part = replace(group, channels=kept)
        first, last = start // self.nperseg, -(-stop // self.nperseg)
        spans = [self._span(at) for at in self._runs(first, last)]
        out = []

        def read(begin: int, end: int) -> Array:
            return np.asarray(group.reader.read(channels, begin, end))

        for (begin, _), x in zip(spans, read_spans(part, spans, read), strict=True):
            if self.is_looked_at:
                check_finite(x, part, begin)
            windows = np.lib.stride_tricks.sliding_window_view(x, self.nperseg, axis=1)
            out.append(windows[:, :: self.hop].reshape(len(x), -1))
        skip = start - first * self.nperseg
        return np.concatenate(out, axis=1)[:, skip : skip + stop - start]

    def _runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The segments [first, last) by stretch: which, and its own [first, last)."""
        for at in range(first // self.each, -(-last // self.each)):
            base = at * self.each
            yield at, max(0, first - base), min(self.each, last - base)

    def _span(self, run: tuple[int, int, int]) -> Span:
        at, first, last = run
        begin = self.cut.begin(at)
        return begin + first * self.hop, begin + (last - 1) * self.hop + self.nperseg


def segments_of(
    found: Cut, nperseg: int, hop: int, each: int, *, is_looked_at: bool
) -> Group:
    """A group whose samples are the segments of all stretches, end to end.

    Cut anew every `nperseg` samples, it gives the segments of every stretch and no
    other: what averages over a signal averages over the stretches.

    is_looked_at  samples that are not finite are refused, naming channel and time
    """
    return replace(
        found.group,
        n_samples=len(found.events) * each * nperseg,
        reader=_Segments(found, nperseg, hop, each, is_looked_at),
        first=0,
        gaps=(),
    )


def _microvolts(channel: Any, doing: str) -> float:
    scale = _MICROVOLTS.get(channel.unit)
    if scale is None:
        unit = f"{channel.unit!r}" if channel.unit else "no unit that is known"
        raise UsageError(
            doing,
            f"channel {channel.name!r} has {unit}",
            "a limit in µV is of channels in volts",
            Advice("take those alone: {}", channels=Blank("NAMES")),
        )
    return scale
