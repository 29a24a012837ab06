"""Source of raw numbers from a pipe."""

from __future__ import annotations

import select
import sys
from typing import IO, Final

import numpy as np

from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.live.source import SampleChunk, StreamInfo, arrival_clock

SAMPLE_FORMATS: Final = {
    "f32": "<f4",
    "f64": "<f8",
    "i16": "<i2",
    "i32": "<i4",
    "u8": "u1",
}
"""NumPy dtypes of the sample formats, little-endian."""
_MAX_READ_NBYTES = 1 << 20
_CONTEXT = "reading samples from a pipe"


class RawPipeSource:
    """Source of frames, each with one sample of every channel.

    Errors   UsageError for a kind there is not, and for no channels.
    """

    can_wait = True

    def __init__(
        self, file: IO[bytes], sample_format: str, n_channels: int, fs: float
    ) -> None:
        if sample_format not in SAMPLE_FORMATS or n_channels < 1:
            raise UsageError(
                _CONTEXT,
                f"got {n_channels} channels of sample type {sample_format!r}",
                "expected at least 1 channel and one of the sample types "
                f"{', '.join(SAMPLE_FORMATS)}",
            )
        self._file, self._dtype = file, np.dtype(SAMPLE_FORMATS[sample_format])
        self._frame_nbytes = n_channels * self._dtype.itemsize
        self._partial_frame = b""
        names = tuple(f"ch{index + 1}" for index in range(n_channels))
        self.stream_info = StreamInfo("stdin", fs, names)

    def read(self, timeout_s: float) -> SampleChunk | None:
        """Return the next samples, see `SignalSource`; raise RecordingError if the pipe
        ends inside a frame.
        """
        if not _is_readable(self._file, timeout_s):
            return None
        # read1 gives what is there, and waits only where nothing is.
        data: bytes = self._file.read1(_MAX_READ_NBYTES)  # type: ignore[attr-defined]
        if not data:
            if self._partial_frame:
                raise RecordingError(
                    _CONTEXT,
                    f"the data ends with {len(self._partial_frame)} bytes of an "
                    "incomplete frame",
                    f"a frame of {len(self.stream_info.channels)} channels has "
                    f"{self._frame_nbytes} bytes",
                    "use the number of channels and the sample type of the sending "
                    "program",
                )
            raise EOFError
        data = self._partial_frame + data
        n_complete = len(data) - len(data) % self._frame_nbytes
        self._partial_frame = data[n_complete:]
        if not n_complete:
            return None
        flat = np.frombuffer(data[:n_complete], self._dtype)
        rows = flat.reshape(-1, len(self.stream_info.channels)).T
        samples = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
        return SampleChunk(np.ascontiguousarray(samples), arrival_clock())

    def close(self) -> None:
        """Do nothing: the pipe belongs to the caller."""


def _is_readable(file: IO[bytes], timeout_s: float) -> bool:
    """Return whether the file can be read without waiting longer than the timeout."""
    if sys.platform == "win32":
        return True  # pipes cannot be asked there; the thread waits in read1
    try:
        return bool(select.select([file], [], [], timeout_s)[0])
    except (OSError, ValueError):
        return True  # a plain file; reading it does not wait
