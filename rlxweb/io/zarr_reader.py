"""Reads samples of a Zarr array by whole chunks; tells of those that are missing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.errors import RecordingWarning
from rlxweb.io.contents import Samples
from rlxweb.io.strips import Strips, rows_of

if TYPE_CHECKING:
    from rlxweb.io.zarr_store import ZarrSource


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
        shards = array.shards
        # The longest first: a shard is one object, and its index is read with it.
        units = [
            int(shape[axis]) for shape in (shards, array.chunks) if shape is not None
        ]
        self._strips = Strips(self._taken, int(array.shape[axis]), units, dtype)
        self._has_told = False

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        if self._source.is_closed:
            raise self._source.error("the recording is closed", hint="open it again")
        return self._strips.read(channels, start, stop)

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
        which, order = rows_of(channels)
        take = self._array.oindex
        found = take[span, which].T if self._is_turned else take[which, span]
        return np.asarray(found) if order is None else np.asarray(found)[order]

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
