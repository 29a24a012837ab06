"""The bytes of an open recording as the file object that other libraries ask for."""

from __future__ import annotations

import io
from typing import Any

from rlxweb.errors import RecordingError
from rlxweb.io.source import ByteSource


class SourceFile(io.RawIOBase):
    """A source with a position of its own; nothing is written.

    is_quiet  what goes wrong is kept as `fault`, and the file ends there: for libraries
              that lose an exception on the way through C
    """

    def __init__(self, source: ByteSource, *, is_quiet: bool = False) -> None:
        super().__init__()
        self._source = source
        self._place = 0
        self._is_quiet = is_quiet
        self.fault: RecordingError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = (0, self._place, self._source.nbytes)[whence]
        self._place = max(0, begin + offset)
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        there = max(0, self._source.nbytes - self._place)
        nbytes = there if size is None or size < 0 else min(size, there)
        try:
            data = self._source.peek(self._place, nbytes)
        except RecordingError as error:
            if not self._is_quiet:
                raise
            self.fault = error
            return b""
        self._place += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
