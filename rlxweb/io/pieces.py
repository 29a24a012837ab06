"""Reads what can only be walked through: samples that come one piece after the other.

Owns which pieces are kept, when the walk goes on and when it begins anew. Blocks that
overlap cost no second walk; going far back costs one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from rlxweb.forked import ForkLock, watch
from rlxweb.io.contents import Samples
from rlxweb.io.source import Source

KEPT_NBYTES = 32 << 20
"""Most bytes of pieces that are kept, but for the last one."""


class Walk(Protocol):
    """A way through the samples."""

    def origin(self, at: int) -> int:
        """The last sample not after `at` at which a walk can begin."""
        ...

    def pieces(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """All from sample `first`, an origin, to the end: (C, n) with n above 0."""
        ...


class PieceReader:
    """Samples of a walk; a SampleReader."""

    def __init__(self, source: Source, walk: Walk, dtype: np.dtype[np.generic]) -> None:
        self._source, self._walk, self._dtype = source, walk, dtype
        self._lock = ForkLock()
        self._begin((), 0)
        watch(self, PieceReader._in_child)

    def _in_child(self) -> None:
        """Start the walk again: another thread may have been in the middle of it."""
        self._begin((), 0)

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        out = np.empty((len(channels), stop - start), self._dtype)
        at = start
        with self._lock:
            while at < stop:
                first, samples = self._piece(channels, at)
                past = min(stop, first + samples.shape[1])
                out[:, at - start : past - start] = samples[
                    :, at - first : past - first
                ]
                at = past
        return out

    def _piece(self, channels: tuple[int, ...], at: int) -> tuple[int, Samples]:
        """The piece that holds sample `at`, and its first sample."""
        if channels == self._channels:
            for first, samples in self._kept:
                if first <= at < first + samples.shape[1]:
                    return first, samples
        origin = self._walk.origin(at)
        if channels != self._channels or not origin <= self._next <= at:
            self._begin(channels, origin)
        while True:
            first, samples = self._next, self._after()
            self._next += samples.shape[1]
            self._kept.append((first, samples))
            self._forget()
            if at < self._next:
                return first, samples

    def _after(self) -> Samples:
        """The next piece; a walk that failed begins anew when it is asked again."""
        try:
            samples = next(self._coming, None)
        except BaseException:
            self._begin((), 0)
            raise
        if samples is not None:
            return samples
        at = self._next
        self._begin((), 0)
        raise self._source.error(
            "the file ends early",
            f"no sample from {at} on is there",
            "copy the file again from where it came",
        )

    def _begin(self, channels: tuple[int, ...], first: int) -> None:
        self._channels, self._next = channels, first
        self._kept: deque[tuple[int, Samples]] = deque()
        self._coming = self._walk.pieces(channels, first) if channels else iter(())

    def _forget(self) -> None:
        held = sum(samples.nbytes for _, samples in self._kept)
        while held > KEPT_NBYTES and len(self._kept) > 1:
            held -= self._kept.popleft()[1].nbytes
