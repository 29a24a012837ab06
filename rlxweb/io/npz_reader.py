"""Read one array of an NPZ file as a recording, with the metadata stored beside it.

Owns which member is the recording, and what `fs`, `channels` and `units` say about it.
A stored member is read in place. A compressed one cannot be read by ranges, so it is
unpacked first: small ones stay in memory, large ones go to the temporary folder, none
gets larger than its own header says. Checksums are compared, but for very long stored
members.
"""

from __future__ import annotations

import datetime
import io
import math
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

import numpy as np

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, UnknownName, did_you_mean
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import file_limits
from rlxweb.io.annotations import MAX_ANNOTATIONS, Annotation
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.byte_source_file_object import SourceFile
from rlxweb.io.calendar_dates import SECONDS_PER_DAY, parse_iso_date
from rlxweb.io.clock_column_names import ClockName, parse_clock_name
from rlxweb.io.clock_column_rate import (
    ClockRate,
    TimeArray,
    find_rate,
    is_mostly_monotonic,
    reconcile_rates,
)
from rlxweb.io.decompression_storage import check_free_space, write_chunk
from rlxweb.io.format_reader_interface import (
    ArrayLayout,
    FileContents,
    Samples,
    format_names,
)
from rlxweb.io.npy_reader import (
    MAX_HEADER_NBYTES,
    ArrayMetadata,
    NpyHeader,
    is_sample_dtype,
    parse_header,
    read_npy,
    validate_orientation,
)
from rlxweb.io.zarr_hdf5_attributes import RATE_ATTRIBUTES

_MAX_IN_MEMORY_NBYTES = 8 << 20
_CHUNK_NBYTES = 1 << 16
_METADATA_NAMES = ("fs", "channels", "units", "begun", "date", "annotations")
_ANNOTATION_FIELDS = ("onset", "duration", "text")
_SUPPORTED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = struct.Struct("<4s22x2H")
_REWRITE_HINT = "write the file again with numpy.savez"
_ENCRYPTED_FLAG = 1  # a bit of a member's flags
# What zipfile has no code for is a NotImplementedError, which is a RuntimeError.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


def read_npz(
    source: ByteSource, array: str | None, layout: ArrayLayout
) -> FileContents:
    """Read one array of an NPZ file as a recording and narrow `source` to that array.

    Errors   RecordingError for a broken archive, for one that would unpack to more than
             is allowed, or when several arrays could be meant; UnknownName when `array`
             is not in it; NotWritten when the temporary folder is full.
    """
    with _open_archive(source) as archive:
        name = archive.select_array(array)
        info = archive.members[name]
        _, n_samples, _ = validate_orientation(
            source, archive.read_header(name), layout, info.file_size
        )
        metadata = archive.read_metadata(name)
        clock, clock_source = archive.find_clock(name, n_samples)
        rate_array = archive.rate_array_name(name)
        fs, tolerance, timing = reconcile_rates(
            source, metadata.fs, f"array {rate_array!r}", clock, clock_source
        )
        if info.compress_type == zipfile.ZIP_STORED:
            archive.verify_checksum(info)
            data_offset = archive.data_offset(info)
            unpacked = None
        else:
            unpacked = archive.decompress_member(info)
    if unpacked is None:
        source.restrict(data_offset, info.file_size)
    else:
        source.replace_file(unpacked, info.file_size)
    contents = read_npy(source, layout, metadata)
    stream = replace(
        contents.streams[0], fs=fs, tolerance=tolerance, uncertain_timing=timing
    )
    contents = replace(contents, streams=(stream,))
    return replace(contents, format="NPZ", rate_note=archive.missing_rate_reason(name))


class _BoundedArchiveFile(SourceFile):
    """Archive file for zipfile that refuses long reads instead of allocating them.

    zipfile reads the list of members in one piece, as long as the archive says it is.
    """

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes, at most as many as an archive index may have."""
        remaining = self._source.nbytes - self.tell()
        size = remaining if size is None or size < 0 else size
        self._source.check_limit(
            "bytes in member names", size, file_limits.ARCHIVE_INDEX_NBYTES
        )
        return super().read(size)


@contextmanager
def _open_archive(source: ByteSource) -> Iterator[_NpzArchive]:
    """Open the archive and turn zip errors over broken bytes into a RecordingError."""
    try:
        with zipfile.ZipFile(cast(BinaryIO, _BoundedArchiveFile(source))) as file:
            infos = [i for i in file.infolist() if i.filename.endswith(".npy")]
            source.check_limit("arrays", len(infos), file_limits.ARRAYS)
            members = {info.filename.removesuffix(".npy"): info for info in infos}
            yield _NpzArchive(source, file, members)
    except (RecordingError, UnknownName):
        raise
    except _ARCHIVE_ERRORS as error:
        raise source.error(
            f"the archive is damaged or truncated ({error_reason(error)})",
            hint=_REWRITE_HINT,
        ) from error


@dataclass(frozen=True, slots=True)
class _NpzArchive:
    """Open NPZ archive and its arrays by name."""

    source: ByteSource
    file: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]

    def select_array(self, array: str | None) -> str:
        """Return the name of the member that is the recording."""
        if array is not None:
            if array in self.members:
                return array
            raise UnknownName(
                self.source.context,
                f"no array is named {array!r}",
                f"available arrays: {format_names(self.members)}",
                did_you_mean(array, self.members),
            )
        candidates = [
            n
            for n in self.members
            if n not in _METADATA_NAMES and self._is_candidate(n)
        ]
        candidates = [n for n in candidates if not _is_metadata_name(n)] or candidates
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise self.source.error(
                "the file contains no array suitable as a recording",
                "expected an array of numbers with 1 or 2 axes (arrays in the file: "
                f"{format_names(self.members)})",
            )
        raise self.source.error(
            f"{len(candidates)} arrays are possible recordings: "
            f"{format_names(candidates)}",
            "only one array can be read at a time",
            Advice("pass {}", array=Blank("NAME")),
        )

    def read_metadata(self, name: str) -> ArrayMetadata:
        """Read the metadata of an array: `fs`, or `a_fs` for an array `a_b`, and so on.

        What does not mean anything is told and passed over.
        """
        return ArrayMetadata(
            self._read_rate(self.rate_array_name(name)),
            self._read_texts(self._metadata_name(name, "channels")),
            self._read_texts(self._metadata_name(name, "units")),
            self._read_start_time(self._metadata_name(name, "begun")),
            self._read_annotations(self._metadata_name(name, "annotations")),
            self._read_date(self._metadata_name(name, "date")),
        )

    def rate_array_name(self, name: str) -> str:
        """Return the name of the array that would hold the rate of another."""
        names = (self._metadata_name(name, candidate) for candidate in RATE_ATTRIBUTES)
        return next(
            (candidate for candidate in names if candidate in self.members), "fs"
        )

    def missing_rate_reason(self, name: str) -> str:
        """Return the reason why an array has no rate."""
        rate_name = self.rate_array_name(name)
        if rate_name in self.members:
            return f"array {rate_name!r} is not a valid rate (one number above 0)"
        return f"the file has no array {rate_name!r}"

    def find_clock(self, name: str, n_samples: int) -> tuple[ClockRate, str]:
        """Return the clock of an array of times beside the samples, and that array's
        name.
        """
        for array_name, info in self.members.items():
            parsed_name = parse_clock_name(array_name)
            if (
                parsed_name is None
                or array_name == name
                or array_name in _METADATA_NAMES
                or _unreadable_reason(info)
            ):
                continue
            header = self.read_header(array_name)
            is_times = header.dtype.kind in "iufMm" and header.nbytes
            if not is_times or math.prod(header.shape) != n_samples:
                continue
            nbytes = header.data_offset + header.nbytes
            if nbytes != info.file_size or nbytes > file_limits.UNPACKED_NBYTES:
                continue
            raw = self.read_member(info)
            times = np.frombuffer(raw, header.dtype, -1, header.data_offset)
            if times.dtype.kind in "Mm":
                parsed_name = ClockName(1.0)
            time_rows = TimeArray(times)
            if parsed_name.is_letter and not is_mostly_monotonic(
                time_rows, 0, n_samples
            ):
                continue
            return find_rate(
                time_rows, 0, parsed_name, n_samples
            ), f"array {array_name!r}"
        return ClockRate(), ""

    def read_member(self, info: zipfile.ZipInfo) -> bytes:
        """Return all bytes of a member, whose size the caller has checked."""
        with self.file.open(info) as member:
            return b"".join(iter(lambda: member.read(_CHUNK_NBYTES), b""))

    def verify_checksum(self, info: zipfile.ZipInfo) -> None:
        """Read a stored member once, so that zipfile compares its checksum."""
        if info.compress_size != info.file_size:
            raise zipfile.BadZipFile(
                f"an uncompressed array of {info.file_size} bytes is stored in "
                f"{info.compress_size} bytes"
            )
        if info.file_size > file_limits.CHECKSUM_NBYTES:
            return
        with self.file.open(info) as member:
            while member.read(_CHUNK_NBYTES):
                pass

    def data_offset(self, info: zipfile.ZipInfo) -> int:
        """Return the offset of a stored member's bytes in the file."""
        head = self.source.read(info.header_offset, _LOCAL_HEADER.size)
        _, name_nbytes, extra_nbytes = _LOCAL_HEADER.unpack(head)
        return info.header_offset + len(head) + int(name_nbytes) + int(extra_nbytes)

    def decompress_member(self, info: zipfile.ZipInfo) -> BinaryIO:
        """Decompress a member into memory or a temporary file."""
        self._check_unpackable(info)
        is_small = info.file_size <= _MAX_IN_MEMORY_NBYTES
        out = io.BytesIO() if is_small else tempfile.TemporaryFile()
        try:
            with self.file.open(info) as member:
                while chunk := member.read(_CHUNK_NBYTES):
                    write_chunk(self.source, out, chunk)
            write_chunk(self.source, out, b"")
            if out.tell() != info.file_size:
                raise zipfile.BadZipFile(
                    f"the archive declares {info.file_size} bytes, the array has "
                    f"{out.tell()}"
                )
        except BaseException:
            out.close()
            raise
        return cast(BinaryIO, out)

    def read_header(self, name: str) -> NpyHeader:
        """Read the NPY header of a member."""
        info = self.members[name]
        if refusal := _unreadable_reason(info):
            raise self.source.error(
                f"array {name!r} {refusal}",
                "arrays must not be encrypted, and deflate is the only supported "
                "compression",
                "write the file with numpy.savez or savez_compressed",
            )
        with self.file.open(info) as member:
            return parse_header(member.read(MAX_HEADER_NBYTES), self.source)

    def _check_unpackable(self, info: zipfile.ZipInfo) -> None:
        """Check that a member may be unpacked and that there is room for it."""
        hint = "write the file with numpy.savez: uncompressed arrays are read in place"
        self.source.check_limit(
            "bytes in the decompressed array",
            info.file_size,
            file_limits.UNPACKED_NBYTES,
            hint,
        )
        if info.file_size <= _MAX_IN_MEMORY_NBYTES:
            return
        check_free_space(self.source, info.file_size, hint)

    def _is_candidate(self, name: str) -> bool:
        """Return whether a member could be the recording."""
        if _unreadable_reason(self.members[name]):
            return True  # whoever picks it is told
        header = self.read_header(name)
        return is_sample_dtype(header.dtype) and len(header.shape) in (1, 2)

    def _metadata_name(self, name: str, metadata_name: str) -> str:
        """Return the name of the member with an array's metadata of one kind."""
        prefixed_name = name[: name.rfind("_") + 1] + metadata_name
        return prefixed_name if prefixed_name in self.members else metadata_name

    def _read_rate(self, name: str) -> float | None:
        value = self._read_metadata_array(name)
        if value is None:
            return None
        fs = float(value.item()) if value.size == 1 and value.dtype.kind in "iuf" else 0
        if math.isfinite(fs) and fs > 0:
            return fs
        self.source.warn(f"array {name!r} is not a valid rate and is ignored")
        return None

    def _read_start_time(self, name: str) -> float | None:
        value = self._read_metadata_array(name)
        if value is None:
            return None
        if value.size == 1 and value.dtype.kind in "iuf":
            begun = float(value.item())
            if 0 <= begun < 2 * SECONDS_PER_DAY:
                return begun
        self.source.warn(f"array {name!r} is not a valid time of day and is ignored")
        return None

    def _read_date(self, name: str) -> datetime.date | None:
        value = self._read_metadata_array(name)
        if value is None:
            return None
        day = parse_iso_date(value.item()) if value.size == 1 else None
        if day is None:
            self.source.warn(f"array {name!r} is not a valid date and is ignored")
        return day

    def _read_annotations(self, name: str) -> tuple[Annotation, ...]:
        """Read annotations from a structured array of onset, duration and text."""
        value = self._read_metadata_array(name, file_limits.ANNOTATIONS_NBYTES)
        if value is None or not value.size:
            return ()
        if value.ndim == 1 and [field[0] for field in value.dtype.descr] == [
            *_ANNOTATION_FIELDS
        ]:
            self.source.check_limit("annotations", len(value), MAX_ANNOTATIONS)
            annotations = _parse_annotations(value)
            if annotations is not None:
                return tuple(sorted(annotations))
        self.source.warn(
            f"array {name!r} does not contain valid annotations and is ignored"
        )
        return ()

    def _read_texts(self, name: str) -> tuple[str, ...]:
        value = self._read_metadata_array(name)
        if value is None:
            return ()
        if value.dtype.kind == "S":
            value = np.char.decode(value.astype(np.bytes_), "utf-8", "replace")
        if value.dtype.kind == "U" and value.ndim <= 1 and _is_valid_text(value):
            return tuple(map(str, value.reshape(-1)))
        self.source.warn(f"array {name!r} does not contain valid text and is ignored")
        return ()

    def _read_metadata_array(
        self, name: str, max_nbytes: int = file_limits.NPZ_METADATA_NBYTES
    ) -> Samples | None:
        """Read a small member as an array; None where it is absent or not small."""
        if name not in self.members:
            return None
        info = self.members[name]
        refusal, header = _unreadable_reason(info), None
        if not refusal:
            header = self.read_header(name)
            refusal = _invalid_metadata_reason(header, info.file_size, max_nbytes)
        if refusal or header is None:
            self.source.warn(f"array {name!r} {refusal} and is ignored")
            return None
        raw = self.read_member(info)
        return np.frombuffer(raw, header.dtype, -1, header.data_offset).reshape(
            header.shape
        )


def _is_metadata_name(name: str) -> bool:
    """Return whether an array has the name of a rate or of times."""
    return name in RATE_ATTRIBUTES or parse_clock_name(name) is not None


def _unreadable_reason(info: zipfile.ZipInfo) -> str:
    """Return the reason why a member is not opened; "" if it is.

    Of bz2 and LZMA zipfile unpacks at least one block to give a single byte, and a
    block of a few bytes may unpack to hundreds of megabytes.
    """
    if info.flag_bits & _ENCRYPTED_FLAG:
        return "is encrypted"
    if info.compress_type not in _SUPPORTED_METHODS:
        return f"is compressed with zip method {info.compress_type}"
    return ""


def _invalid_metadata_reason(header: NpyHeader, nbytes: int, max_nbytes: int) -> str:
    """Return the reason why a member cannot be metadata; "" if it can."""
    if header.dtype.hasobject:
        return "contains Python objects"
    if nbytes > max_nbytes:
        return f"has {nbytes} bytes, more than the limit of {max_nbytes},"
    if header.data_offset + header.nbytes != nbytes or not header.nbytes:
        return f"has {nbytes} bytes, but its header declares {header.nbytes},"
    return ""


def _parse_annotations(value: Any) -> list[Annotation] | None:
    """Parse a structured array of annotations; None where its fields have wrong
    types.
    """
    onsets, durations, texts = (
        np.ascontiguousarray(value[part]) for part in _ANNOTATION_FIELDS
    )
    is_time = onsets.dtype.kind == durations.dtype.kind == "f"
    if not (is_time and texts.dtype.kind == "U" and _is_valid_text(texts)):
        return None
    if not (np.isfinite(onsets).all() and np.isfinite(durations).all()):
        return None
    rows = zip(onsets.tolist(), durations.tolist(), texts.tolist(), strict=True)
    return [Annotation(*row) for row in rows]


def _is_valid_text(value: Samples) -> bool:
    """Return whether all characters exist; NumPy cannot convert others to text."""
    code_dtype = np.dtype(np.uint32).newbyteorder(value.dtype.byteorder)
    return bool(value.reshape(-1).view(code_dtype).max() <= sys.maxunicode)
