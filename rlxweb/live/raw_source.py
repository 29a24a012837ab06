"""Numbers from a pipe, as an amplifier's program writes them."""

from __future__ import annotations

import select
import sys
from typing import IO, Final

import numpy as np

from rlxweb.errors import RecordingError, UsageError
from rlxweb.live.source import Chunk, Stream, arrived

KINDS: Final = {
    "f32": "<f4",
    "f64": "<f8",
    "i16": "<i2",
    "i32": "<i4",
    "u8": "u1",
}
"""How a sample is written, little-endian."""
_MOST = 1 << 20
_DOING = "reading samples from a pipe"


class RawSource:
    """Frames of one sample of every channel, one after the other.

    Errors   UsageError for a kind there is not, and for no channels.
    """

    can_wait = True

    def __init__(self, file: IO[bytes], kind: str, n_channels: int, fs: float) -> None:
        if kind not in KINDS or n_channels < 1:
            raise UsageError(
                _DOING,
                f"{n_channels} channels of {kind!r}",
                f"1 or more, of {', '.join(KINDS)}",
            )
        self._file, self._dtype = file, np.dtype(KINDS[kind])
        self._frame = n_channels * self._dtype.itemsize
        self._rest = b""
        names = tuple(f"ch{at + 1}" for at in range(n_channels))
        self.stream = Stream("stdin", fs, names)

    def read(self, timeout_s: float) -> Chunk | None:
        """See `Source`. Errors  RecordingError where the pipe ends inside a frame."""
        if not _is_readable(self._file, timeout_s):
            return None
        # read1 gives what is there, and waits only where nothing is.
        data: bytes = self._file.read1(_MOST)  # type: ignore[attr-defined]
        if not data:
            if self._rest:
                raise RecordingError(
                    _DOING,
                    f"it ends with {len(self._rest)} bytes of a frame",
                    f"a frame of {len(self.stream.channels)} channels has "
                    f"{self._frame}",
                    "is the number of channels or the kind another?",
                )
            raise EOFError
        data = self._rest + data
        whole = len(data) - len(data) % self._frame
        self._rest = data[whole:]
        if not whole:
            return None
        flat = np.frombuffer(data[:whole], self._dtype)
        rows = flat.reshape(-1, len(self.stream.channels)).T
        wide = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
        return Chunk(np.ascontiguousarray(wide), arrived())

    def close(self) -> None:
        """The pipe is its owner's."""


def _is_readable(file: IO[bytes], timeout_s: float) -> bool:
    if sys.platform == "win32":
        return True  # pipes cannot be asked there; the thread waits in read1
    try:
        return bool(select.select([file], [], [], timeout_s)[0])
    except (OSError, ValueError):
        return True  # a plain file; reading it does not wait
