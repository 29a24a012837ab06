"""Where the time of an analysis goes: reading, checking, estimating, searching.

A stage is what the caller waits for: what is read ahead on a thread costs here what is
still missing when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, TypeVar

from rlxweb.cost.roofline import Spent
from rlxweb.cost.trace import Span
from rlxweb.io.contents import SampleReader, Samples
from rlxweb.io.recording import Group
from rlxweb.results.ran import Stage

T = TypeVar("T")
_LINE = "analysis"


@dataclass(slots=True)
class Doing:
    """A stage that goes on; its operations are known when it is done."""

    flops: float = 0.0


class Stages:
    """The spans of one analysis, in order.

    clock   nanoseconds
    """

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._begun = clock()
        self.spans: list[Span] = []

    @contextmanager
    def stage(self, label: str, kind: str, nbytes: int = 0) -> Iterator[Doing]:
        """What is done in the block is a stage, unless it breaks off."""
        begun, doing = self._clock(), Doing()
        yield doing
        self._note(begun, Spent(label, kind, 0.0, doing.flops, nbytes))

    def each(
        self, label: str, kind: str, made: Iterable[T], nbytes: Callable[[T], int]
    ) -> Iterator[T]:
        """The items, and the wait for each as a stage."""
        taken = iter(made)
        while True:
            begun = self._clock()
            try:
                one = next(taken)
            except StopIteration:
                return
            self._note(begun, Spent(label, kind, 0.0, 0.0, nbytes(one)))
            yield one

    def _note(self, begun: int, what: Spent) -> None:
        spent = replace(what, ns=float(self._clock() - begun))
        self.spans.append(Span(_LINE, float(begun - self._begun), spent))

    @property
    def total_ns(self) -> float:
        """From the making of this to the end of the last stage."""
        return max((one.begun_ns + one.spent.ns for one in self.spans), default=0.0)

    def parts(self) -> list[Spent]:
        """Stages of one name together, in the order of their first."""
        found: dict[str, list[Spent]] = {}
        for span in self.spans:
            found.setdefault(span.spent.label, []).append(span.spent)
        return [_together(some) for some in found.values()]

    @property
    def total_s(self) -> float:
        """The same in seconds."""
        return self.total_ns * 1e-9

    def told(self) -> tuple[Stage, ...]:
        """The stages of one kind together, in seconds; no moment is in two of them."""
        found: dict[str, float] = {}
        outside: list[Span] = []  # those that are in no other one so far
        for span in self.spans:
            own = span.spent.ns
            # A stage is noted when it ends, so after all that lie in it.
            while outside and outside[-1].begun_ns >= span.begun_ns:
                own -= outside.pop().spent.ns
            outside.append(span)
            found[span.spent.kind] = found.get(span.spent.kind, 0.0) + own
        return tuple(Stage(kind, ns * 1e-9) for kind, ns in found.items())

    def as_json(self) -> dict[str, Any]:
        """The stages together, as plain data; times in nanoseconds."""
        return {
            "total_ns": self.total_ns,
            "stages": [part.as_json() for part in self.parts()],
        }


def _together(some: list[Spent]) -> Spent:
    first = some[0]
    return Spent(
        first.label,
        first.kind,
        sum(one.ns for one in some),
        sum(one.flops for one in some),
        sum(one.nbytes for one in some),
        len(some),
        len(some),
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    """A reader whose reads are a stage."""

    reader: SampleReader
    stages: Stages

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader."""
        with self.stages.stage("read", "read"):
            return self.reader.read(channels, start, stop)


def timed(group: Group, stages: Stages) -> Group:
    """The same group, whose reads are told: the file's, and what makes them ready."""
    return replace(group, reader=_Timed(group.reader, stages))
