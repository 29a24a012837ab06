"""NPZ files: one array of a zip archive, unpacked once into a spooled file.

Owns which member is the recording and what its neighbours `fs` and `channels` say about
it. A zip member cannot be read by ranges, so it is copied out first: small ones stay in
memory, large ones go to the temporary folder, and the archive's checksum is checked.
"""

from __future__ import annotations

import io
import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import numpy as np

from rlxweb.errors import RecordingError, UnknownName, did_you_mean
from rlxweb.io.contents import Contents, Layout, Samples
from rlxweb.io.npy import NpyHeader, is_sample_dtype, parse_header, read_npy
from rlxweb.io.source import ByteSource
from rlxweb.whole_file import reason

_IN_MEMORY_NBYTES = 8 << 20
_SMALL_NBYTES = 1 << 20
_BESIDE = ("fs", "channels")
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# An encrypted member is a RuntimeError, an unknown method NotImplementedError.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


def read_npz(source: ByteSource, array: str | None, layout: Layout) -> Contents:
    """What one array of an NPZ file holds; `source` is the unpacked array from then on.

    Errors   RecordingError for a broken archive or when several arrays could be
             meant; UnknownName when `array` is not in it.
    """
    with _open(source) as archive:
        name = archive.pick(array)
        fs, labels = archive.rate(), archive.labels()
        unpacked, nbytes = archive.unpack(name)
    source.become(unpacked, nbytes)
    return replace(read_npy(source, layout, labels, fs), format="NPZ")


@contextmanager
def _open(source: ByteSource) -> Iterator[_Archive]:
    """The open archive; whatever zip makes of broken bytes is a RecordingError."""
    try:
        with zipfile.ZipFile(source.file) as file:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in file.infolist()
                if info.filename.endswith(".npy")
            }
            yield _Archive(source, file, members)
    except (RecordingError, UnknownName):
        raise
    except _BROKEN as error:
        raise source.error(
            f"the archive is broken or cut short ({reason(error)})",
            hint="write it again with numpy.savez",
        ) from error


@dataclass(frozen=True, slots=True)
class _Archive:
    """An open archive and its arrays by name."""

    source: ByteSource
    file: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]

    def pick(self, array: str | None) -> str:
        """The member that is the recording."""
        listed = ", ".join(map(repr, self.members)) or "none"
        if array is not None:
            if array in self.members:
                return array
            raise UnknownName(
                self.source.doing,
                f"there is no array {array!r}",
                f"arrays: {listed}",
                did_you_mean(array, self.members),
            )
        able = [n for n in self.members if n not in _BESIDE and self._could_be(n)]
        if len(able) == 1:
            return able[0]
        if not able:
            raise self.source.error(
                "no array in it could be a recording",
                f"arrays: {listed}; wanted: numbers, 1 or 2 axes",
            )
        raise self.source.error(
            f"{len(able)} arrays could be the recording: {', '.join(map(repr, able))}",
            "one is read at a time",
            "name it (array=, --array)",
        )

    def rate(self) -> float | None:
        value = self._small("fs")
        if value is None or value.size != 1 or value.dtype.kind not in "iuf":
            return None
        fs = float(value.item())
        return fs if math.isfinite(fs) and fs > 0 else None

    def labels(self) -> tuple[str, ...] | None:
        value = self._small("channels")
        if value is None or value.dtype.kind != "U" or value.ndim != 1:
            return None
        return tuple(map(str, value))

    def unpack(self, name: str) -> tuple[BinaryIO, int]:
        """The member in a temporary file, and its length."""
        info = self.members[name]
        if info.compress_type not in _READABLE:
            raise self.source.error(
                f"its array is packed by zip method {info.compress_type}",
                "stored and deflated members are read",
                "write it with numpy.savez or savez_compressed",
            )
        spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_NBYTES)
        try:
            with self.file.open(info) as member:
                shutil.copyfileobj(member, spool)
        except BaseException:
            spool.close()
            raise
        return cast(BinaryIO, spool), spool.tell()

    def _header(self, name: str) -> NpyHeader:
        with self.file.open(self.members[name]) as member:
            return parse_header(member.read(_SMALL_NBYTES), self.source)

    def _could_be(self, name: str) -> bool:
        header = self._header(name)
        return is_sample_dtype(header.dtype) and len(header.shape) in (1, 2)

    def _small(self, name: str) -> Samples | None:
        """A short member as an array; None for none, a long one or one of objects."""
        header = self._header(name) if name in self.members else None
        if header is None or header.dtype.hasobject or header.nbytes > _SMALL_NBYTES:
            return None
        raw = io.BytesIO(self.file.read(self.members[name]))
        return np.asarray(np.load(raw, allow_pickle=False))
