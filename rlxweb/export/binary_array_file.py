"""Binary file of aligned, deduplicated arrays: the weights and test vectors of an
exported plan.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import IO, Any

from rlxweb.core.errors import LimitExceeded
from rlxweb.engines.protocol import Array, as_bytes
from rlxweb.gpu.command_recording_port import RecordedWrite

MAX_FILE_NBYTES = 2**31 - 1
"""Largest size that every browser can hold in one ArrayBuffer."""
_ALIGNMENT = 16
_WRITE_CHUNK_NBYTES = 16 << 20


class BinaryFile:
    """Contents of a binary file in order; nothing is copied before the file is
    written.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._blocks: list[tuple[memoryview, bytes]] = []
        self._offsets: dict[tuple[bytes, int], int] = {}

    def add_write(self, write: RecordedWrite) -> int:
        """Add a recorded write and return its offset; raise LimitExceeded beyond
        MAX_FILE_NBYTES.
        """
        return self._add_bytes(write.data, write.tail)

    def add_array(self, array: Array) -> tuple[int, int]:
        """Add an array and return (offset, bytes without the padding)."""
        data = as_bytes(array)
        return self._add_bytes(data, bytes(-data.nbytes % 4)), data.nbytes

    def _add_bytes(self, data: memoryview, tail: bytes) -> int:
        """Add bytes unless the file already has them, and return their offset."""
        digest = sha256(data)
        digest.update(tail)
        key = digest.digest(), data.nbytes + len(tail)
        if key not in self._offsets:
            self._offsets[key] = self.nbytes
            self._blocks.append((data, tail))
            self.nbytes += -(-key[1] // _ALIGNMENT) * _ALIGNMENT
            if self.nbytes > MAX_FILE_NBYTES:
                raise LimitExceeded(
                    "export",
                    f"the weights take at least {self.nbytes:,} bytes",
                    f"a page reads the weights into one buffer of at most "
                    f"{MAX_FILE_NBYTES:,} bytes",
                    "export a part of the graph, or use smaller weights",
                )
        return self._offsets[key]

    def write(self, file: IO[Any], tell: Callable[[int], None] | None = None) -> None:
        """Write all blocks; `tell` is called with the number of bytes after each
        step.
        """
        for data, tail in self._blocks:
            for start in range(0, data.nbytes, _WRITE_CHUNK_NBYTES):
                chunk = data[start : start + _WRITE_CHUNK_NBYTES]
                file.write(chunk)
                if tell is not None:
                    tell(chunk.nbytes)
            length = data.nbytes + len(tail)
            file.write(tail + bytes(-length % _ALIGNMENT))
