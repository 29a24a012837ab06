"""Bytes for one binary file: whole words, aligned, the same bytes once."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import IO, Any

from rlxweb.backends.protocol import Array, as_bytes
from rlxweb.errors import LimitExceeded
from rlxweb.gpu.recording import RecordedWrite

MOST_BYTES = 2**31 - 1
"""What every browser can hold in one ArrayBuffer."""
_ALIGN = 16
_STEP = 16 << 20


class Weights:
    """What will be in the file, in order; nothing is copied before it is written."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._parts: list[tuple[memoryview, bytes]] = []
        self._known: dict[tuple[bytes, int], int] = {}

    def add(self, one: RecordedWrite) -> int:
        """Where it lies in the file. Errors  LimitExceeded for more than MOST_BYTES."""
        return self._add(one.data, one.tail)

    def add_array(self, array: Array) -> tuple[int, int]:
        """(from, bytes without the padding) of an array."""
        data = as_bytes(array)
        return self._add(data, bytes(-data.nbytes % 4)), data.nbytes

    def _add(self, data: memoryview, tail: bytes) -> int:
        digest = sha256(data)
        digest.update(tail)
        key = digest.digest(), data.nbytes + len(tail)
        if key not in self._known:
            self._known[key] = self.nbytes
            self._parts.append((data, tail))
            self.nbytes += -(-key[1] // _ALIGN) * _ALIGN
            if self.nbytes > MOST_BYTES:
                raise LimitExceeded(
                    "export",
                    f"the weights are {self.nbytes:,} bytes or more",
                    f"a page reads them into one buffer, of at most {MOST_BYTES:,}",
                    "export parts of the graph, or smaller weights",
                )
        return self._known[key]

    def write(self, file: IO[Any], tell: Callable[[int], None] | None = None) -> None:
        """All of it. `tell` hears how many bytes came next."""
        for data, tail in self._parts:
            for at in range(0, data.nbytes, _STEP):
                part = data[at : at + _STEP]
                file.write(part)
                if tell is not None:
                    tell(part.nbytes)
            length = data.nbytes + len(tail)
            file.write(tail + bytes(-length % _ALIGN))
