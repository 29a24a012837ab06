"""NPZ files: one array of a zip archive, unpacked once into a spooled file.

Owns which member is the recording and what its neighbours `fs` and `channels` say about
it. A zip member cannot be read by ranges, so it is copied out first: small ones stay in
memory, large ones go to the temporary folder, and the archive's checksum is checked.
"""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import numpy as np

from rlxweb.errors import RecordingError, UnknownName, did_you_mean
from rlxweb.io.contents import Contents
from rlxweb.io.npy import Layout, NpyHeader, is_sample_dtype, parse_header, read_npy
from rlxweb.io.source import ByteSource, reason

_IN_MEMORY_NBYTES = 8 << 20
_PIECE_NBYTES = 1 << 20
_SMALL_NBYTES = 1 << 20
_BESIDE = ("fs", "channels")
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npz(
    source: ByteSource, array: str | None, layout: Layout
) -> tuple[Contents, ByteSource]:
    """What one array of an NPZ file holds, and the unpacked file it is read from.

    Errors   RecordingError for a broken archive or when several arrays could be
             meant; UnknownName when `array` is not in it.
    """
    with _archive(source) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        name = _pick(source, archive, members, array)
        fs = _rate(source, archive, members.get("fs"))
        labels = _labels(source, archive, members.get("channels"))
        unpacked = _unpack(source, archive, members[name])
    try:
        contents = read_npy(unpacked, layout, labels, fs)
    except RecordingError:
        unpacked.close()
        raise
    return Contents("NPZ", contents.channels, contents.streams), unpacked


@contextmanager
def _archive(source: ByteSource) -> Iterator[zipfile.ZipFile]:
    """The open archive; whatever zip makes of broken bytes is a RecordingError."""
    try:
        with zipfile.ZipFile(source.file) as archive:
            yield archive
    except (RecordingError, UnknownName):
        raise
    # An encrypted member is a RuntimeError, an unknown method NotImplementedError.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,
        ValueError,
    ) as error:
        raise RecordingError(
            source.doing,
            f"the archive is broken or cut short ({reason(error)})",
            hint="write it again with numpy.savez",
        ) from error


def _pick(
    source: ByteSource,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    array: str | None,
) -> str:
    """The member that is the recording."""
    listed = ", ".join(map(repr, members)) or "none"
    if array is not None:
        if array in members:
            return array
        raise UnknownName(
            source.doing,
            f"there is no array {array!r}",
            f"arrays: {listed}",
            did_you_mean(array, members),
        )
    able = [
        name
        for name, info in members.items()
        if name not in _BESIDE and _could_be(_header(source, archive, info))
    ]
    if len(able) == 1:
        return able[0]
    if not able:
        raise RecordingError(
            source.doing,
            "no array in it could be a recording",
            f"arrays: {listed}; wanted: numbers, 1 or 2 axes",
        )
    raise RecordingError(
        source.doing,
        f"{len(able)} arrays could be the recording: {', '.join(map(repr, able))}",
        "one is read at a time",
        "name it (array=, --array)",
    )


def _could_be(header: NpyHeader) -> bool:
    return is_sample_dtype(header.dtype) and len(header.shape) in (1, 2)


def _header(
    source: ByteSource, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> NpyHeader:
    with archive.open(info) as member:
        return parse_header(member.read(_SMALL_NBYTES), source.doing)


def _small(
    source: ByteSource, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None:
    """A short member as an array; None when it is long or holds objects."""
    header = _header(source, archive, info)
    if header.dtype.hasobject or header.nbytes > _SMALL_NBYTES:
        return None
    loaded = np.load(io.BytesIO(archive.read(info)), allow_pickle=False)
    return np.asarray(loaded)


def _rate(
    source: ByteSource, archive: zipfile.ZipFile, info: zipfile.ZipInfo | None
) -> float | None:
    if info is None:
        return None
    value = _small(source, archive, info)
    if value is None or value.size != 1 or value.dtype.kind not in "iuf":
        return None
    fs = float(value.item())
    return fs if math.isfinite(fs) and fs > 0 else None


def _labels(
    source: ByteSource, archive: zipfile.ZipFile, info: zipfile.ZipInfo | None
) -> tuple[str, ...] | None:
    if info is None:
        return None
    value = _small(source, archive, info)
    if value is None or value.dtype.kind != "U" or value.ndim != 1:
        return None
    return tuple(map(str, value))


def _unpack(
    source: ByteSource, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> ByteSource:
    if info.compress_type not in _READABLE:
        raise RecordingError(
            source.doing,
            f"its array is packed by zip method {info.compress_type}",
            "stored and deflated members are read",
            "write it with numpy.savez or savez_compressed",
        )
    spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_NBYTES)
    try:
        nbytes = 0
        with archive.open(info) as member:
            while piece := member.read(_PIECE_NBYTES):
                spool.write(piece)
                nbytes += len(piece)
    except BaseException:
        spool.close()
        raise
    return ByteSource(cast(BinaryIO, spool), source.name, nbytes)
