"""Adapter that shows the bytes of a byte source as a read-only Python file object."""

from __future__ import annotations

import io
from typing import Any

from rlxweb.core.errors import RecordingError
from rlxweb.io.byte_source import ByteSource


class SourceFile(io.RawIOBase):
    """Read-only file object over a byte source, with a position of its own.

    is_quiet  what goes wrong is kept as `fault`, and the file ends there: for libraries
              that lose an exception on the way through C
    """

    def __init__(self, source: ByteSource, *, is_quiet: bool = False) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._is_quiet = is_quiet
        self.fault: RecordingError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._source.nbytes)[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        remaining = max(0, self._source.nbytes - self._position)
        nbytes = remaining if size is None or size < 0 else min(size, remaining)
        try:
            data = self._source.peek(self._position, nbytes)
        except RecordingError as error:
            if not self._is_quiet:
                raise
            self.fault = error
            return b""
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
