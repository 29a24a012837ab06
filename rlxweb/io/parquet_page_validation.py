"""Check how much each page of a Parquet file claims before pyarrow unpacks it.

pyarrow makes room for what the header of a page says and unpacks to the end of what is
packed. So the headers are read first; a page of a small file may not claim gigabytes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rlxweb.core.errors import shown
from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource

_HEAD_NBYTES: Final = 1 << 16
_MAX_DEPTH: Final = 16
_STRUCTURE_ERRORS: Final = (LookupError, TypeError, ValueError, AttributeError)
# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _INTEGERS = 1, 2, 3, (4, 5, 6)
_DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 7, 8, 9, 10, 12


class _InvalidThrift(Exception):
    """Error for bytes that are no Thrift struct."""


def list_column_chunks(source: ByteSource) -> list[dict[str, ParquetColumnChunk]]:
    """Return the column chunks of each row group by column name, as the footer lists
    them.

    By the footer itself: pyarrow ends the process over some damaged ones when it is
    asked for this.

    Raises
    ------
    RecordingError
        For a footer that cannot be read.

    References
    ----------
    parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData.
    """
    nbytes = int.from_bytes(source.peek(source.nbytes - 8, 4), "little")
    source.check_limit("bytes in the footer", nbytes, file_limits.HEADER_NBYTES)
    raw = source.peek(source.nbytes - 8 - nbytes, nbytes)
    try:
        footer, _ = _ThriftReader(raw).read_struct()
        return [
            dict(_parse_column_chunk(chunk[3]) for chunk in group.get(1, ()))
            for group in footer.get(4, ())
        ]
    except (_InvalidThrift, *_STRUCTURE_ERRORS) as error:
        raise source.error(
            "the footer is damaged", hint="copy the file again from its source"
        ) from error


def _parse_column_chunk(fields: dict[int, Any]) -> tuple[str, ParquetColumnChunk]:
    """Return the name and the byte range of a column chunk from its metadata."""
    name = fields[3][0].decode("utf-8", "replace")
    start, nbytes = _require_integer(fields[9]), _require_integer(fields[7])
    if 11 in fields and 0 < _require_integer(fields[11]) < start:
        start = _require_integer(fields[11])
    return name, ParquetColumnChunk(name, start, start + nbytes)


def _require_integer(value: object) -> int:
    """Return an integer field; raise an error for any other type."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _InvalidThrift
    return value


class ParquetColumnChunk(NamedTuple):
    """Column chunk of a row group: its name, and the range of bytes with its pages."""

    name: str
    begin: int
    end: int


def check_pages(source: ByteSource, chunk: ParquetColumnChunk) -> None:
    """Refuse a column chunk whose pages claim more than the file may unpack to.

    Raises
    ------
    RecordingError
        See above, and for a header of a page that cannot be read.

    References
    ----------
    parquet.thrift: PageHeader.
    """
    offset, end = chunk.begin, min(chunk.end, source.nbytes)
    while 0 <= offset < end:
        try:
            header, nbytes = _ThriftReader(
                source.peek(offset, _HEAD_NBYTES)
            ).read_struct()
            unpacked, packed = _require_integer(header[2]), _require_integer(header[3])
            if unpacked < 0 or packed < 0:
                raise _InvalidThrift
        except (_InvalidThrift, *_STRUCTURE_ERRORS) as error:
            raise source.error(
                f"a page of column {shown(chunk.name)} is damaged",
                hint="copy the file again from its source",
            ) from error
        source.check_unpacked_size(f"a page of column {shown(chunk.name)}", unpacked)
        offset += nbytes + packed


class _ThriftReader:
    """Reader of a struct in Thrift's compact protocol.

    A field that comes twice is damage: readers differ in which of them they take.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw, self._position = raw, 0

    def read_struct(self) -> tuple[dict[int, Any], int]:
        """Return the struct's fields by number, and its length in bytes."""
        return self._read_fields(0), self._position

    def _read_fields(self, depth: int) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise _InvalidThrift
        fields: dict[int, Any] = {}
        field = 0
        while head := self._read_byte():
            kind, step = head & 15, head >> 4
            field = field + step if step else self._read_zigzag()
            if field in fields:
                raise _InvalidThrift
            fields[field] = kind == _TRUE
            if kind not in (_TRUE, _FALSE):
                fields[field] = self._read_value(kind, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._read_zigzag()
        if kind == _BINARY:
            return self._take_bytes(self._read_varint())
        if kind in (_BYTE, _DOUBLE):
            return self._take_bytes(1 if kind == _BYTE else 8)
        if kind in (_LIST, _SET):
            return self._read_list(depth)
        if kind == _STRUCT:
            return self._read_fields(depth + 1)
        raise _InvalidThrift

    def _read_list(self, depth: int) -> list[Any]:
        head = self._read_byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._read_varint()
        if count > len(self._raw) or depth > _MAX_DEPTH:
            raise _InvalidThrift
        if kind in (_TRUE, _FALSE):
            return [self._read_byte() == _TRUE for _ in range(count)]
        return [self._read_value(kind, depth + 1) for _ in range(count)]

    def _take_bytes(self, nbytes: int) -> bytes:
        start, self._position = self._position, self._position + nbytes
        if self._position > len(self._raw):
            raise _InvalidThrift
        return self._raw[start : self._position]

    def _read_byte(self) -> int:
        return self._take_bytes(1)[0]

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise _InvalidThrift

    def _read_zigzag(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
