"""Timing of the stages of an analysis: reading, checking, estimating, searching.

A stage is what the caller waits for: what is read ahead on a thread costs here what is
still missing when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, TypeVar

from rlxweb.cost.chrome_trace import TraceSpan
from rlxweb.cost.roofline import ProfileEntry
from rlxweb.io.format_reader_interface import SampleReader, Samples
from rlxweb.io.recording import Group
from rlxweb.results.ran import Stage

T = TypeVar("T")
_TRACE_LINE = "analysis"


@dataclass(slots=True)
class RunningStage:
    """Stage that is running; its operations are known when it is done."""

    flops: float = 0.0


class StageTimer:
    """Recorder of the time spans of one analysis, in order.

    clock   nanoseconds
    """

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._start_ns = clock()
        self.spans: list[TraceSpan] = []

    @contextmanager
    def stage(self, label: str, kind: str, nbytes: int = 0) -> Iterator[RunningStage]:
        """Record what is done in the block as a stage, unless it raises."""
        start_ns, running = self._clock(), RunningStage()
        yield running
        self._record(start_ns, ProfileEntry(label, kind, 0.0, running.flops, nbytes))

    def time_items(
        self, label: str, kind: str, items: Iterable[T], nbytes: Callable[[T], int]
    ) -> Iterator[T]:
        """Yield the items, and record the wait for each as a stage."""
        iterator = iter(items)
        while True:
            start_ns = self._clock()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self._record(start_ns, ProfileEntry(label, kind, 0.0, 0.0, nbytes(item)))
            yield item

    def _record(self, start_ns: int, entry: ProfileEntry) -> None:
        timed_entry = replace(entry, ns=float(self._clock() - start_ns))
        self.spans.append(
            TraceSpan(_TRACE_LINE, float(start_ns - self._start_ns), timed_entry)
        )

    @property
    def total_ns(self) -> float:
        """Nanoseconds from the creation of this to the end of the last stage."""
        return max((span.start_ns + span.entry.ns for span in self.spans), default=0.0)

    def merged_stages(self) -> list[ProfileEntry]:
        """Return the stages merged by name, in the order of the first of each."""
        by_label: dict[str, list[ProfileEntry]] = {}
        for span in self.spans:
            by_label.setdefault(span.entry.label, []).append(span.entry)
        return [_merge_entries(entries) for entries in by_label.values()]

    @property
    def total_s(self) -> float:
        """Seconds from the creation of this to the end of the last stage."""
        return self.total_ns * 1e-9

    def stage_seconds(self) -> tuple[Stage, ...]:
        """Return the stages merged by kind, in seconds; no moment is in two of them."""
        ns_by_kind: dict[str, float] = {}
        outermost: list[TraceSpan] = []  # those that are in no other one so far
        for span in self.spans:
            own_ns = span.entry.ns
            # A stage is noted when it ends, so after all that lie in it.
            while outermost and outermost[-1].start_ns >= span.start_ns:
                own_ns -= outermost.pop().entry.ns
            outermost.append(span)
            ns_by_kind[span.entry.kind] = ns_by_kind.get(span.entry.kind, 0.0) + own_ns
        return tuple(Stage(kind, ns * 1e-9) for kind, ns in ns_by_kind.items())

    def as_json(self) -> dict[str, Any]:
        """Return the merged stages as plain data; times in nanoseconds."""
        return {
            "total_ns": self.total_ns,
            "stages": [part.as_json() for part in self.merged_stages()],
        }


def _merge_entries(entries: list[ProfileEntry]) -> ProfileEntry:
    first = entries[0]
    return ProfileEntry(
        first.label,
        first.kind,
        sum(entry.ns for entry in entries),
        sum(entry.flops for entry in entries),
        sum(entry.nbytes for entry in entries),
        len(entries),
        len(entries),
    )


@dataclass(frozen=True, slots=True)
class _StageTimedReader:
    """Sample reader whose reads are recorded as a stage."""

    reader: SampleReader
    stages: StageTimer

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples as a stage; see SampleReader."""
        with self.stages.stage("read", "read"):
            return self.reader.read(channels, start, stop)


def time_reads(group: Group, stages: StageTimer) -> Group:
    """Return the same group, whose reads and preprocessing are recorded as stages."""
    return replace(group, reader=_StageTimedReader(group.reader, stages))
