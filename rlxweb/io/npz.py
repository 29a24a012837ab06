"""NPZ files: one array of a zip archive and what stands beside it.

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

from rlxweb.advice import Advice, Blank
from rlxweb.errors import RecordingError, UnknownName, did_you_mean
from rlxweb.io import bounds
from rlxweb.io.annotations import MOST, Annotation
from rlxweb.io.as_file import SourceFile
from rlxweb.io.attributes import RATES
from rlxweb.io.clock import Clock, HeldTimes, agreed, find_rate, runs_one_way
from rlxweb.io.clock_names import ClockName, clock_name
from rlxweb.io.contents import Contents, Layout, Samples, listed
from rlxweb.io.days import DAY_S, day_of_iso
from rlxweb.io.npy import (
    HEAD_NBYTES,
    Notes,
    NpyHeader,
    is_sample_dtype,
    judge,
    parse_header,
    read_npy,
)
from rlxweb.io.source import ByteSource
from rlxweb.io.unpacking import check_room, store
from rlxweb.whole_file import reason

_IN_MEMORY_NBYTES = 8 << 20
_PIECE_NBYTES = 1 << 16
_BESIDE = ("fs", "channels", "units", "begun", "date", "annotations")
_NOTED = ("onset", "duration", "text")
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = struct.Struct("<4s22x2H")
_REPAIR = "write it again with numpy.savez"
_ENCRYPTED = 1  # a bit of a member's flags
# What zipfile has no code for is a NotImplementedError, which is a RuntimeError.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


def read_npz(source: ByteSource, array: str | None, layout: Layout) -> Contents:
    """What one array of an NPZ file holds; `source` is that array alone from then on.

    Errors   RecordingError for a broken archive, for one that would unpack to more than
             is allowed, or when several arrays could be meant; UnknownName when `array`
             is not in it; NotWritten when the temporary folder is full.
    """
    with _open(source) as archive:
        name = archive.pick(array)
        info = archive.members[name]
        _, n_samples, _ = judge(source, archive.header(name), layout, info.file_size)
        notes = archive.notes(name)
        clock, whose = archive.clock(name, n_samples)
        told = archive.rate_name(name)
        fs, tolerance, timing = agreed(
            source, notes.fs, f"array {told!r}", clock, whose
        )
        if info.compress_type == zipfile.ZIP_STORED:
            archive.check_stored(info)
            place = archive.place(info)
            unpacked = None
        else:
            unpacked = archive.unpack(info)
    if unpacked is None:
        source.narrow(place, info.file_size)
    else:
        source.become(unpacked, info.file_size)
    found = read_npy(source, layout, notes)
    stream = replace(found.streams[0], fs=fs, tolerance=tolerance, timing=timing)
    found = replace(found, streams=(stream,))
    return replace(found, format="NPZ", rate_note=archive.rate_note(name))


class _Judged(SourceFile):
    """The archive's file as zipfile sees it: long reads are refused, not allocated.

    zipfile reads the list of members in one piece, as long as the archive says it is.
    """

    def read(self, size: int | None = -1) -> bytes:
        there = self._source.nbytes - self.tell()
        size = there if size is None or size < 0 else size
        self._source.at_most(
            "bytes of members' names", size, bounds.ARCHIVE_INDEX_NBYTES
        )
        return super().read(size)


@contextmanager
def _open(source: ByteSource) -> Iterator[_Archive]:
    """The open archive; whatever zip makes of broken bytes is a RecordingError."""
    try:
        with zipfile.ZipFile(cast(BinaryIO, _Judged(source))) as file:
            infos = [i for i in file.infolist() if i.filename.endswith(".npy")]
            source.at_most("arrays", len(infos), bounds.ARRAYS)
            members = {info.filename.removesuffix(".npy"): info for info in infos}
            yield _Archive(source, file, members)
    except (RecordingError, UnknownName):
        raise
    except _BROKEN as error:
        raise source.error(
            f"the archive is broken or cut short ({reason(error)})", hint=_REPAIR
        ) from error


@dataclass(frozen=True, slots=True)
class _Archive:
    """An open archive and its arrays by name."""

    source: ByteSource
    file: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]

    def pick(self, array: str | None) -> str:
        """The member that is the recording."""
        if array is not None:
            if array in self.members:
                return array
            raise UnknownName(
                self.source.doing,
                f"there is no array {array!r}",
                f"arrays: {listed(self.members)}",
                did_you_mean(array, self.members),
            )
        able = [n for n in self.members if n not in _BESIDE and self._could_be(n)]
        able = [n for n in able if not _is_note(n)] or able
        if len(able) == 1:
            return able[0]
        if not able:
            raise self.source.error(
                "no array in it could be a recording",
                f"arrays: {listed(self.members)}; wanted: numbers, 1 or 2 axes",
            )
        raise self.source.error(
            f"{len(able)} arrays could be the recording: {listed(able)}",
            "one is read at a time",
            Advice("name it: {}", array=Blank("NAME")),
        )

    def notes(self, name: str) -> Notes:
        """What stands beside an array: `fs`, or `a_fs` for an array `a_b`; and so on.

        What does not mean anything is told and passed over.
        """
        return Notes(
            self._rate(self.rate_name(name)),
            self._texts(self._beside(name, "channels")),
            self._texts(self._beside(name, "units")),
            self._begun(self._beside(name, "begun")),
            self._annotations(self._beside(name, "annotations")),
            self._date(self._beside(name, "date")),
        )

    def rate_name(self, name: str) -> str:
        """Return the name of the array that would say the rate of another."""
        names = (self._beside(name, one) for one in RATES)
        return next((one for one in names if one in self.members), "fs")

    def rate_note(self, name: str) -> str:
        """Return the reason why there is no rate."""
        at = self.rate_name(name)
        if at in self.members:
            return f"its {at!r} is no rate; one number above 0 would be"
        return f"there is no array {at!r} in it"

    def clock(self, name: str, n_samples: int) -> tuple[Clock, str]:
        """Return the clock of the array of times beside the samples, and its name."""
        for own, info in self.members.items():
            said = clock_name(own)
            if said is None or own == name or own in _BESIDE or _shut(info):
                continue
            header = self.header(own)
            is_times = header.dtype.kind in "iufMm" and header.nbytes
            if not is_times or math.prod(header.shape) != n_samples:
                continue
            nbytes = header.offset + header.nbytes
            if nbytes != info.file_size or nbytes > bounds.UNPACKED_NBYTES:
                continue
            raw = self.whole(info)
            times = np.frombuffer(raw, header.dtype, -1, header.offset)
            if times.dtype.kind in "Mm":
                said = ClockName(1.0)
            held = HeldTimes(times)
            if said.is_letter and not runs_one_way(held, 0, n_samples):
                continue
            return find_rate(held, 0, said, n_samples), f"its array {own!r}"
        return Clock(), ""

    def whole(self, info: zipfile.ZipInfo) -> bytes:
        """Return the bytes of a member; it is no longer than the caller allows."""
        with self.file.open(info) as member:
            return b"".join(iter(lambda: member.read(_PIECE_NBYTES), b""))

    def check_stored(self, info: zipfile.ZipInfo) -> None:
        """Read a member through once: zipfile compares its checksum at the end."""
        if info.compress_size != info.file_size:
            raise zipfile.BadZipFile(
                f"a stored array of {info.file_size} bytes takes {info.compress_size}"
            )
        if info.file_size > bounds.SUMMED_NBYTES:
            return
        with self.file.open(info) as member:
            while member.read(_PIECE_NBYTES):
                pass

    def place(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes of a stored member begin in the file."""
        head = self.source.read(info.header_offset, _LOCAL_HEADER.size)
        _, name_nbytes, extra_nbytes = _LOCAL_HEADER.unpack(head)
        return info.header_offset + len(head) + int(name_nbytes) + int(extra_nbytes)

    def unpack(self, info: zipfile.ZipInfo) -> BinaryIO:
        """A compressed member in a temporary file."""
        self._check_unpackable(info)
        is_small = info.file_size <= _IN_MEMORY_NBYTES
        out = io.BytesIO() if is_small else tempfile.TemporaryFile()
        try:
            with self.file.open(info) as member:
                while piece := member.read(_PIECE_NBYTES):
                    store(self.source, out, piece)
            store(self.source, out, b"")
            if out.tell() != info.file_size:
                raise zipfile.BadZipFile(
                    f"its array has {out.tell()} bytes, {info.file_size} are claimed"
                )
        except BaseException:
            out.close()
            raise
        return cast(BinaryIO, out)

    def header(self, name: str) -> NpyHeader:
        info = self.members[name]
        if why := _shut(info):
            raise self.source.error(
                f"its array {name!r} {why}",
                "stored and deflated members are read",
                "write it with numpy.savez or savez_compressed",
            )
        with self.file.open(info) as member:
            return parse_header(member.read(HEAD_NBYTES), self.source)

    def _check_unpackable(self, info: zipfile.ZipInfo) -> None:
        stored = "write it with numpy.savez: what is not packed is read in place"
        self.source.at_most(
            "bytes of unpacked array", info.file_size, bounds.UNPACKED_NBYTES, stored
        )
        if info.file_size <= _IN_MEMORY_NBYTES:
            return
        check_room(self.source, info.file_size, stored)

    def _could_be(self, name: str) -> bool:
        if _shut(self.members[name]):
            return True  # whoever picks it is told
        header = self.header(name)
        return is_sample_dtype(header.dtype) and len(header.shape) in (1, 2)

    def _beside(self, name: str, what: str) -> str:
        own = name[: name.rfind("_") + 1] + what
        return own if own in self.members else what

    def _rate(self, name: str) -> float | None:
        value = self._small(name)
        if value is None:
            return None
        fs = float(value.item()) if value.size == 1 and value.dtype.kind in "iuf" else 0
        if math.isfinite(fs) and fs > 0:
            return fs
        self.source.warn(f"its {name!r} is no rate and is passed over")
        return None

    def _begun(self, name: str) -> float | None:
        value = self._small(name)
        if value is None:
            return None
        if value.size == 1 and value.dtype.kind in "iuf":
            begun = float(value.item())
            if 0 <= begun < 2 * DAY_S:
                return begun
        self.source.warn(f"its {name!r} is no time of day and is passed over")
        return None

    def _date(self, name: str) -> datetime.date | None:
        value = self._small(name)
        if value is None:
            return None
        day = day_of_iso(value.item()) if value.size == 1 else None
        if day is None:
            self.source.warn(f"its {name!r} is no date and is passed over")
        return day

    def _annotations(self, name: str) -> tuple[Annotation, ...]:
        """Those of a structured array of onset, duration and text."""
        value = self._small(name, bounds.ANNOTATIONS_NBYTES)
        if value is None or not value.size:
            return ()
        if value.ndim == 1 and [one[0] for one in value.dtype.descr] == [*_NOTED]:
            self.source.at_most("annotations", len(value), MOST)
            found = _annotations_of(value)
            if found is not None:
                return tuple(sorted(found))
        self.source.warn(f"its {name!r} are no annotations and are passed over")
        return ()

    def _texts(self, name: str) -> tuple[str, ...]:
        value = self._small(name)
        if value is None:
            return ()
        if value.dtype.kind == "S":
            value = np.char.decode(value.astype(np.bytes_), "utf-8", "replace")
        if value.dtype.kind == "U" and value.ndim <= 1 and _is_text(value):
            return tuple(map(str, value.reshape(-1)))
        self.source.warn(f"its {name!r} are no names and are passed over")
        return ()

    def _small(self, name: str, most: int = bounds.NOTE_NBYTES) -> Samples | None:
        """A short member as an array; None where there is none or it is not short."""
        if name not in self.members:
            return None
        info = self.members[name]
        why, header = _shut(info), None
        if not why:
            header = self.header(name)
            why = _no_note(header, info.file_size, most)
        if why or header is None:
            self.source.warn(f"its {name!r} {why} and is passed over")
            return None
        raw = self.whole(info)
        return np.frombuffer(raw, header.dtype, -1, header.offset).reshape(header.shape)


def _is_note(name: str) -> bool:
    """Tell whether an array goes by the name of a rate or of times."""
    return name in RATES or clock_name(name) is not None


def _shut(info: zipfile.ZipInfo) -> str:
    """Why a member is not even opened; "" where it is.

    Of bz2 and LZMA zipfile unpacks at least one block to give a single byte, and a
    block of a few bytes may unpack to hundreds of megabytes.
    """
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.compress_type not in _READABLE:
        return f"is packed by zip method {info.compress_type}"
    return ""


def _no_note(header: NpyHeader, nbytes: int, most: int) -> str:
    """Why a member of so many bytes says nothing about a recording; "" if it may."""
    if header.dtype.hasobject:
        return "holds Python objects"
    if nbytes > most:
        return f"takes {nbytes} bytes, {most} at most are read"
    if header.offset + header.nbytes != nbytes or not header.nbytes:
        return f"takes {nbytes} bytes, its header says {header.nbytes}"
    return ""


def _annotations_of(value: Any) -> list[Annotation] | None:
    """Those of a structured array; None where its parts are not what they say."""
    onsets, durations, texts = (np.ascontiguousarray(value[part]) for part in _NOTED)
    is_time = onsets.dtype.kind == durations.dtype.kind == "f"
    if not (is_time and texts.dtype.kind == "U" and _is_text(texts)):
        return None
    if not (np.isfinite(onsets).all() and np.isfinite(durations).all()):
        return None
    rows = zip(onsets.tolist(), durations.tolist(), texts.tolist(), strict=True)
    return [Annotation(*row) for row in rows]


def _is_text(value: Samples) -> bool:
    """True when all its characters exist: NumPy gives no text for others."""
    number = np.dtype(np.uint32).newbyteorder(value.dtype.byteorder)
    return bool(value.reshape(-1).view(number).max() <= sys.maxunicode)
