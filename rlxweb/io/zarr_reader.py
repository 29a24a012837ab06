"""Reads samples of a Zarr array by whole chunks, so that none is decoded twice.

A block of samples rarely ends where a chunk does: the rest of the last chunks is kept
for the block that follows, where they are not too large to be held.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.errors import RecordingWarning
from rlxweb.io.contents import Samples

if TYPE_CHECKING:
    from rlxweb.io.zarr_store import ZarrSource

HELD_NBYTES = 32 << 20
"""Most bytes of samples that are kept from one block to the next."""


class ZarrReader:
    """Samples of an array of (channels, samples), of (samples, channels), or of one.

    dtype  of what is read
    """

    def __init__(
        self,
        source: ZarrSource,
        array: Any,
        is_turned: bool,
        dtype: np.dtype[np.generic],
    ) -> None:
        self._source, self._array, self._dtype = source, array, dtype
        self._is_turned = is_turned
        self._is_flat = len(array.shape) == 1
        axis = 0 if is_turned or self._is_flat else 1
        self._n_samples = int(array.shape[axis])
        shards = array.shards
        # The longest first: a shard is one object, and its index is read with it.
        self._units = [
            int(shape[axis]) for shape in (shards, array.chunks) if shape is not None
        ]
        self._strip: tuple[tuple[int, ...], int, Samples] | None = None
        self._has_told = False
        self._lock = threading.Lock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        if self._source.is_closed:
            raise self._source.error("the recording is closed", hint="open it again")
        unit = self._unit(len(channels))
        if not unit:
            return self._taken(channels, start, stop)
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
            out[:, at - start : whole - start] = self._taken(channels, at, whole)
            return whole
        first = at // unit * unit
        kept = self._strip
        if kept is None or kept[:2] != (channels, first):
            past = min(first + unit, self._n_samples)
            kept = channels, first, self._taken(channels, first, past)
            self._strip = kept
        past = min(stop, first + unit)
        out[:, at - start : past - start] = kept[2][:, at - first : past - first]
        return past

    def _unit(self, n_channels: int) -> int:
        """Samples of the chunks or shards that are held; 0 where none can be."""
        width = n_channels * self._dtype.itemsize
        return next((n for n in self._units if n * width <= HELD_NBYTES), 0)

    def _taken(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) as zarr gives them, which reads whole chunks."""
        span = slice(start, stop)
        with self._source.faults(f"samples {start} to {stop} cannot be read"):
            samples = self._by_zarr(channels, span)
        if self._source.missing:
            self._tell_missing(start, stop)
        return samples.astype(self._dtype, copy=False)

    def _by_zarr(self, channels: tuple[int, ...], span: slice) -> Samples:
        if self._is_flat:
            return np.asarray(self._array[span])[None]
        rows = sorted(set(channels))
        is_dense = rows[-1] - rows[0] + 1 == len(rows)
        which = slice(rows[0], rows[-1] + 1) if is_dense else rows
        take = self._array.oindex
        found = take[span, which].T if self._is_turned else take[which, span]
        found = np.asarray(found)
        if list(channels) == rows:
            return found
        place = {channel: at for at, channel in enumerate(rows)}
        return found[[place[channel] for channel in channels]]

    def _tell_missing(self, start: int, stop: int) -> None:
        """Say once that a part of the recording was never written."""
        source = self._source
        first, count = source.missing[0], len(source.missing)
        source.missing.clear()
        if self._has_told:
            return
        self._has_told = True
        more = f" and {count - 1} more" if count > 1 else ""
        text = (
            f"a part of it was never written, first chunk {first!r}{more} of samples "
            f"{start} to {stop}; the fill value {self._array.fill_value} stands there"
        )
        source.warn(text)
        warnings.warn(RecordingWarning(source.doing, text), stacklevel=2)
