"""Pages of a Parquet file before pyarrow unpacks them: how much each claims.

pyarrow makes room for what the header of a page says and unpacks to the end of what is
packed. So the headers are read first; a page of a small file may not claim gigabytes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rlxweb.errors import shown
from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

_HEAD_NBYTES: Final = 1 << 16
_DEEPEST: Final = 16
_WRONG_TYPE: Final = (LookupError, TypeError, ValueError, AttributeError)
# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _WHOLE = 1, 2, 3, (4, 5, 6)
_DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 7, 8, 9, 10, 12


class _Damaged(Exception):
    """A header that is no Thrift."""


def columns_of(source: ByteSource) -> list[dict[str, Column]]:
    """Return where the pages of each column lie, for each group of rows.

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
    source.at_most("bytes of footer", nbytes, bounds.HEADER_NBYTES)
    raw = source.peek(source.nbytes - 8 - nbytes, nbytes)
    try:
        footer, _ = _Reader(raw).whole()
        return [
            dict(_column(chunk[3]) for chunk in group.get(1, ()))
            for group in footer.get(4, ())
        ]
    except (_Damaged, *_WRONG_TYPE) as error:
        raise source.error(
            "its footer is damaged", hint="copy it again from where it came"
        ) from error


def _column(about: dict[int, Any]) -> tuple[str, Column]:
    name = about[3][0].decode("utf-8", "replace")
    begin, nbytes = _number(about[9]), _number(about[7])
    if 11 in about and 0 < _number(about[11]) < begin:
        begin = _number(about[11])
    return name, Column(name, begin, begin + nbytes)


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Damaged
    return value


class Column(NamedTuple):
    """A column in a group of rows: its name, and where its pages begin and end."""

    name: str
    begin: int
    end: int


def check_pages(source: ByteSource, column: Column) -> None:
    """Refuse a column whose pages claim more than the file may unpack to.

    Raises
    ------
    RecordingError
        See above, and for a header of a page that cannot be read.

    References
    ----------
    parquet.thrift: PageHeader.
    """
    place, end = column.begin, min(column.end, source.nbytes)
    while 0 <= place < end:
        try:
            header, nbytes = _Reader(source.peek(place, _HEAD_NBYTES)).whole()
            unpacked, packed = _number(header[2]), _number(header[3])
            if unpacked < 0 or packed < 0:
                raise _Damaged
        except (_Damaged, *_WRONG_TYPE) as error:
            raise source.error(
                f"a page of its column {shown(column.name)} is damaged",
                hint="copy it again from where it came",
            ) from error
        source.unpacks(f"a page of its column {shown(column.name)}", unpacked)
        place += nbytes + packed


class _Reader:
    """A struct of Thrift's compact protocol.

    A field that comes twice is damage: readers differ in which of them they take.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def whole(self) -> tuple[dict[int, Any], int]:
        """Return the struct by the numbers of its fields, and its length."""
        return self._struct(0), self._at

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise _Damaged
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            field = field + step if step else self._zigzag()
            if field in found:
                raise _Damaged
            found[field] = kind == _TRUE
            if kind not in (_TRUE, _FALSE):
                found[field] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _WHOLE:
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_BYTE, _DOUBLE):
            return self._take(1 if kind == _BYTE else 8)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self._struct(depth + 1)
        raise _Damaged

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._varint()
        if count > len(self._raw) or depth > _DEEPEST:
            raise _Damaged
        if kind in (_TRUE, _FALSE):
            return [self._byte() == _TRUE for _ in range(count)]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _take(self, nbytes: int) -> bytes:
        begin, self._at = self._at, self._at + nbytes
        if self._at > len(self._raw):
            raise _Damaged
        return self._raw[begin : self._at]

    def _byte(self) -> int:
        return self._take(1)[0]

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
