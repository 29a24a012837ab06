"""Reader for the samples of a Zarr array, by whole chunks, with a warning for missing
ones.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import RecordingWarning
from rlxweb.io.chunked_array_reader import ChunkedReader, array_selection
from rlxweb.io.format_reader_interface import Samples

if TYPE_CHECKING:
    from rlxweb.io.zarr_recording import ZarrSource


class ZarrReader:
    """SampleReader for an array (channels, samples), (samples, channels) or (samples,).

    dtype  of what is read
    """

    def __init__(
        self,
        source: ZarrSource,
        array: Any,
        is_samples_first: bool,
        dtype: np.dtype[np.generic],
    ) -> None:
        self._source, self._array, self._dtype = source, array, dtype
        self._is_samples_first = is_samples_first
        self._is_one_dimensional = len(array.shape) == 1
        axis = 0 if is_samples_first or self._is_one_dimensional else 1
        shards = array.shards
        # The longest first: a shard is one object, and its index is read with it.
        chunk_lengths = [
            int(shape[axis]) for shape in (shards, array.chunks) if shape is not None
        ]
        self._chunked_reader = ChunkedReader(
            self._read_range, int(array.shape[axis]), chunk_lengths, dtype
        )
        self._has_warned = False

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples [start, stop) of the channels, (C, T)."""
        if self._source.is_closed:
            raise self._source.error(
                "the recording is closed", hint="open the recording again"
            )
        return self._chunked_reader.read(channels, start, stop)

    def _read_range(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples [start, stop) through zarr, which reads whole chunks, and warn
        of missing chunks.
        """
        span = slice(start, stop)
        with self._source.translate_errors(f"samples {start} to {stop} cannot be read"):
            samples = self._read_array(channels, span)
        if self._source.missing_chunks:
            self._warn_missing(start, stop)
        return samples.astype(self._dtype, copy=False)

    def _read_array(self, channels: tuple[int, ...], span: slice) -> Samples:
        """Read a range of samples from the zarr array, (C, T)."""
        if self._is_one_dimensional:
            return np.asarray(self._array[span])[None]
        selection, order = array_selection(channels)
        index_array = self._array.oindex
        samples = (
            index_array[span, selection].T
            if self._is_samples_first
            else index_array[selection, span]
        )
        return np.asarray(samples) if order is None else np.asarray(samples)[order]

    def _warn_missing(self, start: int, stop: int) -> None:
        """Warn once that a part of the recording was never written."""
        source = self._source
        first_key, count = source.missing_chunks[0], len(source.missing_chunks)
        source.missing_chunks.clear()
        if self._has_warned:
            return
        self._has_warned = True
        more = f" and {count - 1} more" if count > 1 else ""
        text = (
            f"part of the array was never written: chunk {first_key!r}{more}, in "
            f"samples {start} to {stop}; this part is read as the fill value "
            f"{self._array.fill_value}"
        )
        source.warn(text)
        warnings.warn(RecordingWarning(source.context, text), stacklevel=2)
