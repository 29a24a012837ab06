"""Reader for chunked arrays that reads whole chunks, so that none is decoded twice.

A block of samples rarely ends where a chunk does: the rest of the last chunks is kept
for the block that follows, where they are not too large to be held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.io.format_reader_interface import Samples

MAX_CACHED_NBYTES = 32 << 20
"""Maximum size of the samples that are cached from one block to the next."""

ReadRange = Callable[[tuple[int, ...], int, int], Samples]
"""Function that returns samples [start, stop) of some channels, (C, T)."""


class ChunkedReader:
    """SampleReader that reads whole chunks by `read_range` and caches the last one.

    chunk_lengths  samples of a chunk, or of what holds several; the longest that can be
                   held counts, so they come in falling order
    """

    def __init__(
        self,
        read_range: ReadRange,
        n_samples: int,
        chunk_lengths: Sequence[int],
        dtype: np.dtype[np.generic],
    ) -> None:
        self._read_range, self._n_samples, self._chunk_lengths = (
            read_range,
            n_samples,
            chunk_lengths,
        )
        self._dtype = dtype
        self._cached_chunk: tuple[tuple[int, ...], int, Samples] | None = None
        self._lock = ForkSafeLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples [start, stop) of the channels, (C, T)."""
        chunk_length = self._chunk_length(len(channels))
        if not chunk_length:
            return self._read_range(channels, start, stop)
        out = np.empty((len(channels), stop - start), self._dtype)
        position = start
        with self._lock:
            while position < stop:
                position = self._fill_next(
                    out, channels, start, position, stop, chunk_length
                )
        return out

    def _fill_next(
        self,
        out: Samples,
        channels: tuple[int, ...],
        start: int,
        position: int,
        stop: int,
        chunk_length: int,
    ) -> int:
        """Write the next samples from `position` on into `out`, and return where they
        end.
        """
        whole_stop = (
            stop if stop == self._n_samples else stop // chunk_length * chunk_length
        )
        if position % chunk_length == 0 and whole_stop > position:
            out[:, position - start : whole_stop - start] = self._read_range(
                channels, position, whole_stop
            )
            return whole_stop
        chunk_start = position // chunk_length * chunk_length
        cached = self._cached_chunk
        if cached is None or cached[:2] != (channels, chunk_start):
            end = min(chunk_start + chunk_length, self._n_samples)
            cached = channels, chunk_start, self._read_range(channels, chunk_start, end)
            self._cached_chunk = cached
        end = min(stop, chunk_start + chunk_length)
        out[:, position - start : end - start] = cached[2][
            :, position - chunk_start : end - chunk_start
        ]
        return end

    def _chunk_length(self, n_channels: int) -> int:
        """Return the length in samples of the chunks that are cached; 0 if they are too
        large.
        """
        row_nbytes = n_channels * self._dtype.itemsize
        return next(
            (n for n in self._chunk_lengths if n * row_nbytes <= MAX_CACHED_NBYTES), 0
        )


def array_selection(
    channels: tuple[int, ...],
) -> tuple[slice | list[int], list[int] | None]:
    """Return the index that selects the channels from an array, and the order of the
    resulting rows (None if unchanged).

    Arrays in chunks take neighbours as a slice, others in rising order only.
    """
    rows = sorted(set(channels))
    is_dense = rows[-1] - rows[0] + 1 == len(rows)
    selection = slice(rows[0], rows[-1] + 1) if is_dense else rows
    if list(channels) == rows:
        return selection, None
    row_of_channel = {channel: row for row, channel in enumerate(rows)}
    return selection, [row_of_channel[channel] for channel in channels]
