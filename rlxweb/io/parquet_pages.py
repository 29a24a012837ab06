"""Pages of a Parquet file before pyarrow unpacks them: how much each claims.

pyarrow makes room for what the header of a page says and unpacks to the end of what is
packed. So the headers are read first; a page of a small file may not claim gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rlxweb.io.source import ByteSource

_HEAD_NBYTES: Final = 1 << 16
_DEEPEST: Final = 16
# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (
    1,
    2,
    3,
    7,
    8,
    9,
    10,
    12,
)


class _Damaged(Exception):
    """A header that is no Thrift."""


def check_pages(source: ByteSource, chunk: Any) -> None:
    """Refuse a column whose pages claim more than the file may unpack to.

    chunk  pyarrow's metadata of a column in a group of rows

    Source  parquet.thrift: PageHeader
    """
    name = f"a page of its column {chunk.path_in_schema!r}"
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        place = min(place, chunk.dictionary_page_offset)
    end = min(place + chunk.total_compressed_size, source.nbytes)
    while 0 <= place < end:
        raw = source.peek(place, _HEAD_NBYTES)
        try:
            header, nbytes = _Reader(raw).numbers()
            unpacked, packed = header[2], header[3]
        except (_Damaged, LookupError, RecursionError):
            return  # pyarrow says what is wrong
        if unpacked < 0 or packed < 0:
            return
        source.unpacks(name, unpacked)
        place += nbytes + packed


class _Reader:
    """A struct of Thrift's compact protocol."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def numbers(self) -> tuple[dict[int, int], int]:
        """Return the numbers of a struct by their fields, and its length."""
        found: dict[int, int] = {}
        self._struct(found, 0)
        return found, self._at

    def _struct(self, found: dict[int, int], depth: int) -> None:
        if depth > _DEEPEST:
            raise _Damaged
        field = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            field = field + step if step else self._zigzag()
            if kind in (_TRUE, _FALSE):
                continue
            value = self._value(kind, depth)
            if value is not None:
                found[field] = value

    def _value(self, kind: int, depth: int) -> int | None:
        if kind in (4, 5, 6):
            return self._zigzag()
        skips: dict[int, Callable[[], object]] = {
            _BYTE: lambda: self._skip(1),
            _DOUBLE: lambda: self._skip(8),
            _BINARY: lambda: self._skip(self._varint()),
            _LIST: lambda: self._list(depth),
            _SET: lambda: self._list(depth),
            _STRUCT: lambda: self._struct({}, depth + 1),
        }
        if kind not in skips:
            raise _Damaged
        skips[kind]()
        return None

    def _list(self, depth: int) -> None:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._varint()
        if count > len(self._raw):
            raise _Damaged
        for _ in range(count):
            if kind in (_TRUE, _FALSE):
                self._skip(1)
            else:
                self._value(kind, depth + 1)

    def _byte(self) -> int:
        self._skip(1)
        return self._raw[self._at - 1]

    def _skip(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at > len(self._raw):
            raise _Damaged

    def _varint(self) -> int:
        value = shift = 0
        while True:
            one = self._byte()
            value |= (one & 127) << shift
            shift += 7
            if one < 128:
                return value
            if shift > 63:
                raise _Damaged

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
