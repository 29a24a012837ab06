"""The tags of a MATLAB 5 file, walked before SciPy reads them.

SciPy's reader takes the type of an element for an index and ends the process where a
damaged file says a type that there is not. So each element is what its place demands,
and lies in the one around it, before the file is handed on.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

_HEAD_NBYTES: Final = 128
_MATRIX, _PACKED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_NUMBERS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
_TEXTS: Final = frozenset({1, 2, 3, 4, 16, 17, 18})
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE = 1, 2, 3, 4, 5
_FUNCTION, _OPAQUE = 16, 17
_IS_COMPLEX: Final = 0x0800
_HELD_NBYTES: Final = 1 << 16
_DEEPEST: Final = 60
_MOST_ELEMENTS: Final = 20_000_000
_MOST_TEXT: Final = 4096
# Where a set of EEGLAB says in which file its samples are.
_NAME_OF_SAMPLES: Final = (("data",), ("EEG", "data"), ("EEG", "EEG", "data"))


class _Wrong(Exception):
    """A tag that cannot be there."""


def check_matlab(source: ByteSource) -> list[str]:
    """Check that every element of a MATLAB 5 file may stand where it stands.

    Returns
    -------
    list of str
        The texts that stand where a set of EEGLAB names the file of its samples.

    Raises
    ------
    RecordingError
        For a file that is cut or damaged.

    References
    ----------
    MathWorks, "MAT-File Format", version 5.
    """
    order = "<" if source.peek(126, 2) == b"IM" else ">"
    place = _HEAD_NBYTES
    names: list[str] = []
    try:
        while place < source.nbytes:
            kind, nbytes = struct.unpack(f"{order}2I", source.read(place, 8))
            place += 8
            if place + nbytes > source.nbytes:
                raise _Wrong(f"an element ends at byte {place + nbytes}")
            if kind == _PACKED:
                inner = _Unpacked(source, place, nbytes)
                tags = _Tags(inner.take, order, names)
                kind, size = tags.pair()
                tags.matrix(kind, size)
                inner.finish()
            else:
                plain = _Plain(source, place)
                _Tags(plain.take, order, names).matrix(kind, nbytes)
            place += nbytes
    except (_Wrong, zlib.error, struct.error, RecursionError) as error:
        raise source.error(
            f"it is a MATLAB file that is cut short or damaged ({error})",
            f"{source.nbytes} bytes are there",
            "copy the file again from where it came",
        ) from error
    return names


class _Plain:
    """Bytes of the file from a place on, of which a piece is held."""

    def __init__(self, source: ByteSource, place: int) -> None:
        self._source, self._place = source, place
        self._held, self._begin = b"", 0

    def take(self, nbytes: int, is_wanted: bool) -> bytes:
        at = self._place - self._begin
        self._place += nbytes
        if not is_wanted:
            return b""
        if not 0 <= at <= len(self._held) - nbytes:
            self._begin, at = self._place - nbytes, 0
            self._held = self._source.peek(self._begin, max(nbytes, _HELD_NBYTES))
        if len(self._held) < at + nbytes:
            raise _Wrong("an element ends early")
        return self._held[at : at + nbytes]


class _Unpacked:
    """Bytes of a packed element, unpacked a little at a time."""

    def __init__(self, source: ByteSource, place: int, nbytes: int) -> None:
        self._source, self._place, self._end = source, place, place + nbytes
        self._zlib = zlib.decompressobj()
        self._there, self._total = b"", 0

    def take(self, nbytes: int, is_wanted: bool) -> bytes:
        kept = bytearray()
        while nbytes:
            if not self._there and not self._more():
                raise _Wrong("a packed element ends early")
            piece = self._there[:nbytes]
            self._there = self._there[len(piece) :]
            nbytes -= len(piece)
            if is_wanted:
                kept += piece
        return bytes(kept)

    def _more(self) -> bool:
        raw = self._zlib.unconsumed_tail
        if not raw and self._place < self._end:
            size = min(bounds.PIECE_NBYTES, self._end - self._place)
            raw = self._source.read(self._place, size)
            self._place += size
        self._there = self._zlib.decompress(raw, bounds.PIECE_NBYTES) if raw else b""
        self._total += len(self._there)
        self._source.unpacks("its packed arrays", self._total)
        return bool(self._there) or bool(raw and not self._zlib.eof and self._more())

    def finish(self) -> None:
        """Read to the end, where the checksum is."""
        while self._more():
            pass
        if not self._zlib.eof:
            raise _Wrong("a packed element ends early")


class _Tags:
    """A walk along elements; `take` gives the next bytes, or passes over them.

    names  collects the names of files with samples
    """

    def __init__(
        self, take: Callable[[int, bool], bytes], order: str, names: list[str]
    ) -> None:
        self._take, self._order, self._names = take, order, names
        self._tag = struct.Struct(f"{order}2I")
        self._at = self._count = 0

    def pair(self) -> tuple[int, int]:
        self._at += 8
        kind, nbytes = self._tag.unpack(self._take(8, True))
        return int(kind), int(nbytes)

    def matrix(
        self, kind: int, nbytes: int, path: tuple[str, ...] = (), field: str = ""
    ) -> None:
        """Pass over a matrix whose tag was read.

        path, field  names of the structs around it, and its own in the last of them
        """
        if kind != _MATRIX:
            raise _Wrong(f"an element of type {kind} where a matrix stands")
        if len(path) > _DEEPEST:
            raise _Wrong(f"arrays in arrays, {len(path)} deep")
        end = self._at + nbytes
        if nbytes:
            self._inside(end, path, field)
        if self._at > end:
            raise _Wrong("an element reaches out of its array")
        self._take(end - self._at, False)
        self._at = end

    def _inside(self, end: int, path: tuple[str, ...], field: str) -> None:
        flags = self._values(_UINT32, end, 8)[0]
        kind, is_complex = flags & 0xFF, bool(flags & _IS_COMPLEX)
        if kind == _OPAQUE:
            for _ in range(3):
                self._element({_INT8}, end)
            return self._arrays((*path, field), [""], 1, end)
        shape = self._values(_INT32, end)
        if len(shape) < 2:
            raise _Wrong(f"an array of {len(shape)} axes")
        nbytes = self._element({_INT8}, end, most=_MOST_TEXT)
        own = field if path else self._raw[:nbytes].decode("latin-1")
        path = (*path, own)
        if kind == _CELL:
            return self._arrays(path, [""], prod(shape), end)
        if kind == _FUNCTION:
            return self._arrays(path, [""], 1, end)
        if kind in (_STRUCT, _OBJECT):
            fields = self._fields(end, is_object=kind == _OBJECT)
            return self._arrays(path, fields, prod(shape), end)
        if not _CHAR <= kind <= 15:
            raise _Wrong(f"an array of class {kind}")
        if kind == _CHAR:
            self._text(end, is_name=path in _NAME_OF_SAMPLES)
        else:
            parts = 3 if kind == _SPARSE else 1
            for _ in range(parts + is_complex):
                self._element(_NUMBERS, end)
        return None

    def _text(self, end: int, *, is_name: bool) -> None:
        nbytes = self._element(_TEXTS, end, most=_MOST_TEXT if is_name else 0)
        if not is_name:
            return
        if nbytes > _MOST_TEXT:
            raise _Wrong(f"a file's name of {nbytes} bytes")
        little = "le" if self._order == "<" else "be"
        pages = {4: f"utf-16-{little}", 17: f"utf-16-{little}", 18: f"utf-32-{little}"}
        text = self._raw[:nbytes].decode(pages.get(self._kind, "utf-8"), "replace")
        self._names.append(text.rstrip("\0"))

    def _fields(self, end: int, *, is_object: bool) -> list[str]:
        """Return the names of the fields of a struct or an object."""
        if is_object:
            self._element({_INT8}, end)
        (width,) = self._values(_INT32, end, 4)
        nbytes = self._element({_INT8}, end, most=_HELD_NBYTES)
        if width == 0 or nbytes % width or nbytes > _HELD_NBYTES:
            raise _Wrong(f"names of {width} characters in {nbytes} bytes")
        raw = self._raw[:nbytes]
        return [
            raw[at : at + width].split(b"\0")[0].decode("latin-1")
            for at in range(0, nbytes, width)
        ]

    def _arrays(
        self, path: tuple[str, ...], fields: Sequence[str], count: int, end: int
    ) -> None:
        """Pass over the arrays of a cell array or a struct: `count` for each field."""
        total = count * len(fields)
        if total > _MOST_ELEMENTS or 8 * total > end - self._at:
            raise _Wrong(f"{total} arrays in {end - self._at} bytes")
        for _ in range(count if fields else 0):
            for field in fields:
                self.matrix(*self.pair(), path, field)

    def _values(self, kind: int, end: int, wanted: int = 0) -> tuple[int, ...]:
        """Whole numbers of 32 bits."""
        nbytes = self._element({kind}, end, most=256)
        if nbytes % 4 or not nbytes or nbytes > 256 or wanted not in (0, nbytes):
            raise _Wrong(f"{nbytes} bytes of numbers")
        return struct.unpack(f"{self._order}{nbytes // 4}I", self._raw[:nbytes])

    def _element(
        self, kinds: set[int] | frozenset[int], end: int, *, most: int = 0
    ) -> int:
        """Pass over an element of one of these types; return how many bytes it has.

        most  an element of so many bytes is held in `_raw`, its type in `_kind`
        """
        self._count += 1
        if self._count > _MOST_ELEMENTS or self._at + 8 > end:
            raise _Wrong("an element reaches out of its array")
        raw = self._take(8, True)
        self._at += 8
        first, nbytes = self._tag.unpack(raw)
        is_small = first >> 16
        kind, nbytes = (first & 0xFFFF, first >> 16) if is_small else (first, nbytes)
        if kind not in kinds or (is_small and nbytes > 4):
            raise _Wrong(f"an element of type {kind} and {nbytes} bytes")
        self._raw, self._kind = raw[4:], kind
        if not is_small:
            whole = -(-nbytes // 8) * 8
            if self._at + nbytes > end:
                raise _Wrong("an element reaches out of its array")
            self._raw = self._take(min(whole, end - self._at), nbytes <= most)
            self._at += min(whole, end - self._at)
        return int(nbytes)
