"""Validate the element tags of a MATLAB 5 file before SciPy reads it.

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

from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource

_HEADER_NBYTES: Final = 128
_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_NUMERIC_TYPES: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
_TEXT_TYPES: Final = frozenset({1, 2, 3, 4, 16, 17, 18})
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE = 1, 2, 3, 4, 5
_FUNCTION, _OPAQUE = 16, 17
_COMPLEX_FLAG: Final = 0x0800
_BUFFER_NBYTES: Final = 1 << 16
_MAX_DEPTH: Final = 60
_MAX_ELEMENTS: Final = 20_000_000
_MAX_TEXT_NBYTES: Final = 4096
# Where a set of EEGLAB says in which file its samples are.
_SAMPLE_FILE_PATHS: Final = (("data",), ("EEG", "data"), ("EEG", "EEG", "data"))


class _InvalidMatTag(Exception):
    """Error for a tag that is not allowed at its place."""


def check_matlab5(source: ByteSource) -> list[str]:
    """Check that every element of a MATLAB 5 file is allowed at its place.

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
    byte_order = "<" if source.peek(126, 2) == b"IM" else ">"
    offset = _HEADER_NBYTES
    names: list[str] = []
    try:
        while offset < source.nbytes:
            kind, nbytes = struct.unpack(f"{byte_order}2I", source.read(offset, 8))
            offset += 8
            if offset + nbytes > source.nbytes:
                raise _InvalidMatTag(f"an element ends at byte {offset + nbytes}")
            if kind == _COMPRESSED:
                reader = _CompressedElementReader(source, offset, nbytes)
                tags = _MatTagWalker(reader.take, byte_order, names)
                kind, size = tags.read_tag()
                tags.skip_matrix(kind, size)
                reader.finish()
            else:
                stored = _StoredElementReader(source, offset)
                _MatTagWalker(stored.take, byte_order, names).skip_matrix(kind, nbytes)
            offset += nbytes
    except (_InvalidMatTag, zlib.error, struct.error, RecursionError) as error:
        raise source.error(
            f"the MATLAB file is truncated or damaged ({error})",
            f"the file has {source.nbytes} bytes",
            "copy the file again from its source",
        ) from error
    return names


class _StoredElementReader:
    """Buffered forward reader of the file's bytes from an offset on."""

    def __init__(self, source: ByteSource, offset: int) -> None:
        self._source, self._position = source, offset
        self._buffer, self._buffer_start = b"", 0

    def take(self, nbytes: int, is_wanted: bool) -> bytes:
        """Return the next bytes, or skip them and return none."""
        start = self._position - self._buffer_start
        self._position += nbytes
        if not is_wanted:
            return b""
        if not 0 <= start <= len(self._buffer) - nbytes:
            self._buffer_start, start = self._position - nbytes, 0
            self._buffer = self._source.peek(
                self._buffer_start, max(nbytes, _BUFFER_NBYTES)
            )
        if len(self._buffer) < start + nbytes:
            raise _InvalidMatTag("an element ends early")
        return self._buffer[start : start + nbytes]


class _CompressedElementReader:
    """Forward reader of a compressed element, which it unpacks in small chunks."""

    def __init__(self, source: ByteSource, offset: int, nbytes: int) -> None:
        self._source, self._position, self._end = source, offset, offset + nbytes
        self._zlib = zlib.decompressobj()
        self._pending, self._total = b"", 0

    def take(self, nbytes: int, is_wanted: bool) -> bytes:
        """Return the next bytes, or skip them and return none."""
        result = bytearray()
        while nbytes:
            if not self._pending and not self._decompress_more():
                raise _InvalidMatTag("a compressed element ends early")
            chunk = self._pending[:nbytes]
            self._pending = self._pending[len(chunk) :]
            nbytes -= len(chunk)
            if is_wanted:
                result += chunk
        return bytes(result)

    def _decompress_more(self) -> bool:
        """Unpack the next chunk; return whether there was one."""
        raw = self._zlib.unconsumed_tail
        if not raw and self._position < self._end:
            size = min(file_limits.CHUNK_NBYTES, self._end - self._position)
            raw = self._source.read(self._position, size)
            self._position += size
        self._pending = (
            self._zlib.decompress(raw, file_limits.CHUNK_NBYTES) if raw else b""
        )
        self._total += len(self._pending)
        self._source.check_unpacked_size("the decompressed arrays", self._total)
        return bool(self._pending) or bool(
            raw and not self._zlib.eof and self._decompress_more()
        )

    def finish(self) -> None:
        """Read to the end, which verifies the checksum."""
        while self._decompress_more():
            pass
        if not self._zlib.eof:
            raise _InvalidMatTag("a compressed element ends early")


class _MatTagWalker:
    """Walker over the elements of a file, which checks every tag; `take` reads or skips
    bytes.

    names  collects the names of files with samples
    """

    def __init__(
        self, take: Callable[[int, bool], bytes], byte_order: str, names: list[str]
    ) -> None:
        self._take_bytes, self._byte_order, self._sample_files = take, byte_order, names
        self._tag_struct = struct.Struct(f"{byte_order}2I")
        self._position = self._element_count = 0

    def read_tag(self) -> tuple[int, int]:
        """Read a tag: the type and the size in bytes."""
        self._position += 8
        kind, nbytes = self._tag_struct.unpack(self._take_bytes(8, True))
        return int(kind), int(nbytes)

    def skip_matrix(
        self, kind: int, nbytes: int, path: tuple[str, ...] = (), field: str = ""
    ) -> None:
        """Check and skip a matrix whose tag was read.

        path, field  names of the structs around it, and its own in the last of them
        """
        if kind != _MATRIX:
            raise _InvalidMatTag(f"expected a matrix, got an element of type {kind}")
        if len(path) > _MAX_DEPTH:
            raise _InvalidMatTag(
                f"arrays are nested {len(path)} deep, expected at most {_MAX_DEPTH}"
            )
        end = self._position + nbytes
        if nbytes:
            self._check_matrix_body(end, path, field)
        if self._position > end:
            raise _InvalidMatTag("an element extends beyond its array")
        self._take_bytes(end - self._position, False)
        self._position = end

    def _check_matrix_body(self, end: int, path: tuple[str, ...], field: str) -> None:
        """Check the elements of a matrix: flags, shape, name and data."""
        flags = self._read_integers(_UINT32, end, 8)[0]
        kind, is_complex = flags & 0xFF, bool(flags & _COMPLEX_FLAG)
        if kind == _OPAQUE:
            for _ in range(3):
                self._skip_element({_INT8}, end)
            return self._skip_arrays((*path, field), [""], 1, end)
        shape = self._read_integers(_INT32, end)
        if len(shape) < 2:
            raise _InvalidMatTag(f"an array has {len(shape)} axes, expected at least 2")
        nbytes = self._skip_element({_INT8}, end, max_kept_nbytes=_MAX_TEXT_NBYTES)
        name = field if path else self._element_bytes[:nbytes].decode("latin-1")
        path = (*path, name)
        if kind == _CELL:
            return self._skip_arrays(path, [""], prod(shape), end)
        if kind == _FUNCTION:
            return self._skip_arrays(path, [""], 1, end)
        if kind in (_STRUCT, _OBJECT):
            fields = self._read_field_names(end, is_object=kind == _OBJECT)
            return self._skip_arrays(path, fields, prod(shape), end)
        if not _CHAR <= kind <= 15:
            raise _InvalidMatTag(f"an array has unknown class {kind}")
        if kind == _CHAR:
            self._check_text(end, is_name=path in _SAMPLE_FILE_PATHS)
        else:
            parts = 3 if kind == _SPARSE else 1
            for _ in range(parts + is_complex):
                self._skip_element(_NUMERIC_TYPES, end)
        return None

    def _check_text(self, end: int, *, is_name: bool) -> None:
        """Check a text; keep it if it is the name of a sample file."""
        nbytes = self._skip_element(
            _TEXT_TYPES, end, max_kept_nbytes=_MAX_TEXT_NBYTES if is_name else 0
        )
        if not is_name:
            return
        if nbytes > _MAX_TEXT_NBYTES:
            raise _InvalidMatTag(
                f"the text of EEGLAB field 'data' has {nbytes} bytes, expected at most "
                f"{_MAX_TEXT_NBYTES}"
            )
        endianness = "le" if self._byte_order == "<" else "be"
        encodings = {
            4: f"utf-16-{endianness}",
            17: f"utf-16-{endianness}",
            18: f"utf-32-{endianness}",
        }
        text = self._element_bytes[:nbytes].decode(
            encodings.get(self._element_type, "utf-8"), "replace"
        )
        self._sample_files.append(text.rstrip("\0"))

    def _read_field_names(self, end: int, *, is_object: bool) -> list[str]:
        """Return the names of the fields of a struct or an object."""
        if is_object:
            self._skip_element({_INT8}, end)
        (width,) = self._read_integers(_INT32, end, 4)
        nbytes = self._skip_element({_INT8}, end, max_kept_nbytes=_BUFFER_NBYTES)
        if width == 0 or nbytes % width or nbytes > _BUFFER_NBYTES:
            raise _InvalidMatTag(
                f"got {nbytes} bytes of field names with {width} bytes per name"
            )
        raw = self._element_bytes[:nbytes]
        return [
            raw[start : start + width].split(b"\0")[0].decode("latin-1")
            for start in range(0, nbytes, width)
        ]

    def _skip_arrays(
        self, path: tuple[str, ...], fields: Sequence[str], count: int, end: int
    ) -> None:
        """Check and skip the arrays of a cell array or struct, `count` for each
        field.
        """
        total = count * len(fields)
        if total > _MAX_ELEMENTS or 8 * total > end - self._position:
            raise _InvalidMatTag(
                f"an array declares {total} nested arrays in {end - self._position} "
                "bytes"
            )
        for _ in range(count if fields else 0):
            for field in fields:
                self.skip_matrix(*self.read_tag(), path, field)

    def _read_integers(
        self, kind: int, end: int, expected_nbytes: int = 0
    ) -> tuple[int, ...]:
        """Read an element of 32-bit integers."""
        nbytes = self._skip_element({kind}, end, max_kept_nbytes=256)
        if (
            nbytes % 4
            or not nbytes
            or nbytes > 256
            or expected_nbytes not in (0, nbytes)
        ):
            raise _InvalidMatTag(f"got an array of integers with {nbytes} bytes")
        return struct.unpack(
            f"{self._byte_order}{nbytes // 4}I", self._element_bytes[:nbytes]
        )

    def _skip_element(
        self, kinds: set[int] | frozenset[int], end: int, *, max_kept_nbytes: int = 0
    ) -> int:
        """Check and skip an element of one of these types; return its size in bytes.

        max_kept_nbytes  an element of so many bytes is held in `_element_bytes`, its
                         type in `_element_type`
        """
        self._element_count += 1
        if self._element_count > _MAX_ELEMENTS or self._position + 8 > end:
            raise _InvalidMatTag("an element extends beyond its array")
        raw = self._take_bytes(8, True)
        self._position += 8
        first_word, nbytes = self._tag_struct.unpack(raw)
        is_small = first_word >> 16
        kind, nbytes = (
            (first_word & 0xFFFF, first_word >> 16)
            if is_small
            else (first_word, nbytes)
        )
        if kind not in kinds or (is_small and nbytes > 4):
            raise _InvalidMatTag(
                f"got an unexpected element of type {kind} with {nbytes} bytes"
            )
        self._element_bytes, self._element_type = raw[4:], kind
        if not is_small:
            padded_nbytes = -(-nbytes // 8) * 8
            if self._position + nbytes > end:
                raise _InvalidMatTag("an element extends beyond its array")
            self._element_bytes = self._take_bytes(
                min(padded_nbytes, end - self._position), nbytes <= max_kept_nbytes
            )
            self._position += min(padded_nbytes, end - self._position)
        return int(nbytes)
