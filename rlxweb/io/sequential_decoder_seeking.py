"""Reader for samples that can only be decoded sequentially, with a cache of recent
chunks.

Owns which pieces are kept, when the walk goes on and when it begins anew. Blocks that
overlap cost no second walk; going far back costs one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.format_reader_interface import Samples

MAX_CACHED_NBYTES = 32 << 20
"""Maximum size of the cached chunks, not counting the last one."""


class SequentialDecoder(Protocol):
    """Decoder that yields samples in order from certain restart points."""

    def restart_sample(self, sample: int) -> int:
        """Return the last sample, not after `sample`, at which decoding can start."""
        ...

    def decode_chunks(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """Yield all samples from restart sample `first` to the end in chunks (C, n)
        with n above 0.
        """
        ...


class SequentialReader:
    """SampleReader for the samples of a sequential decoder."""

    def __init__(
        self,
        source: RecordingSource,
        decoder: SequentialDecoder,
        dtype: np.dtype[np.generic],
    ) -> None:
        self._source, self._decoder, self._dtype = source, decoder, dtype
        self._lock = ForkSafeLock()
        self._restart((), 0)
        register_child_callback(self, SequentialReader._reset_after_fork)

    def _reset_after_fork(self) -> None:
        """Restart decoding after a fork: another thread of the parent may have been
        decoding.
        """
        self._restart((), 0)

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples [start, stop) of the channels, (C, T)."""
        out = np.empty((len(channels), stop - start), self._dtype)
        position = start
        with self._lock:
            while position < stop:
                first, samples = self._find_chunk(channels, position)
                end = min(stop, first + samples.shape[1])
                out[:, position - start : end - start] = samples[
                    :, position - first : end - first
                ]
                position = end
        return out

    def _find_chunk(
        self, channels: tuple[int, ...], sample: int
    ) -> tuple[int, Samples]:
        """Return the chunk that holds a sample, and the index of its first sample."""
        if channels == self._channels:
            for first, samples in self._cached_chunks:
                if first <= sample < first + samples.shape[1]:
                    return first, samples
        origin = self._decoder.restart_sample(sample)
        if channels != self._channels or not origin <= self._next_sample <= sample:
            self._restart(channels, origin)
        while True:
            first, samples = self._next_sample, self._decode_next()
            self._next_sample += samples.shape[1]
            self._cached_chunks.append((first, samples))
            self._evict()
            if sample < self._next_sample:
                return first, samples

    def _decode_next(self) -> Samples:
        """Decode the next chunk; after a failure the next call restarts decoding."""
        try:
            samples = next(self._chunks, None)
        except BaseException:
            self._restart((), 0)
            raise
        if samples is not None:
            return samples
        position = self._next_sample
        self._restart((), 0)
        raise self._source.error(
            "the file ends early",
            f"expected samples after the first {position}, got none",
            "copy the file again from its source",
        )

    def _restart(self, channels: tuple[int, ...], first: int) -> None:
        """Start decoding these channels at sample `first` with an empty cache."""
        self._channels, self._next_sample = channels, first
        self._cached_chunks: deque[tuple[int, Samples]] = deque()
        self._chunks = (
            self._decoder.decode_chunks(channels, first) if channels else iter(())
        )

    def _evict(self) -> None:
        """Remove the oldest chunks while the cache is too large."""
        cached_nbytes = sum(samples.nbytes for _, samples in self._cached_chunks)
        while cached_nbytes > MAX_CACHED_NBYTES and len(self._cached_chunks) > 1:
            cached_nbytes -= self._cached_chunks.popleft()[1].nbytes
