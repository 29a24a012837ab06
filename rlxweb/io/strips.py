"""Samples that lie in chunks, read by whole chunks so that none is decoded twice.

A block of samples rarely ends where a chunk does: the rest of the last chunks is kept
for the block that follows, where they are not too large to be held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlxweb.forked import ForkLock
from rlxweb.io.contents import Samples

HELD_NBYTES = 32 << 20
"""Most bytes of samples that are kept from one block to the next."""

Take = Callable[[tuple[int, ...], int, int], Samples]
"""Samples [start, stop) of some channels, (C, T)."""


class Strips:
    """Reads by `take`, along the samples.

    units  samples of a chunk, or of what holds several; the longest that can be held
           counts, so they come in falling order
    """

    def __init__(
        self,
        take: Take,
        n_samples: int,
        units: Sequence[int],
        dtype: np.dtype[np.generic],
    ) -> None:
        self._take, self._n_samples, self._units = take, n_samples, units
        self._dtype = dtype
        self._strip: tuple[tuple[int, ...], int, Samples] | None = None
        self._lock = ForkLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        unit = self._unit(len(channels))
        if not unit:
            return self._take(channels, start, stop)
        out = np.empty((len(channels), stop - start), self._dtype)
        at = start
        with self._lock:
            while at < stop:
                at = self._fill(out, channels, start, at, stop, unit)
        return out

    def _fill(
        self,
        out: Samples,
        channels: tuple[int, ...],
        start: int,
        at: int,
        stop: int,
        unit: int,
    ) -> int:
        """Put some samples from `at` on into `out`; gives where they end."""
        whole = stop if stop == self._n_samples else stop // unit * unit
        if at % unit == 0 and whole > at:
            out[:, at - start : whole - start] = self._take(channels, at, whole)
            return whole
        first = at // unit * unit
        kept = self._strip
        if kept is None or kept[:2] != (channels, first):
            past = min(first + unit, self._n_samples)
            kept = channels, first, self._take(channels, first, past)
            self._strip = kept
        past = min(stop, first + unit)
        out[:, at - start : past - start] = kept[2][:, at - first : past - first]
        return past

    def _unit(self, n_channels: int) -> int:
        """Samples of the chunks that are held; 0 where none can be."""
        width = n_channels * self._dtype.itemsize
        return next((n for n in self._units if n * width <= HELD_NBYTES), 0)


def rows_of(
    channels: tuple[int, ...],
) -> tuple[slice | list[int], list[int] | None]:
    """What to ask an array for, and which rows of the answer are the channels.

    Arrays in chunks take neighbours as a slice, others in rising order only.
    """
    rows = sorted(set(channels))
    is_dense = rows[-1] - rows[0] + 1 == len(rows)
    which = slice(rows[0], rows[-1] + 1) if is_dense else rows
    if list(channels) == rows:
        return which, None
    place = {channel: at for at, channel in enumerate(rows)}
    return which, [place[channel] for channel in channels]
