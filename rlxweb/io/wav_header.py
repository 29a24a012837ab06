"""Parser for the headers of WAV files: the coding of the samples and their position.

Owns the chunks of RIFF, RIFX (big-endian) and RF64/BW64 files and the `fmt ` chunk.
A length that cannot be is mended and told; other codings are left to libsndfile.
Knows nothing of how a sample is decoded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource

PCM, FLOAT, A_LAW, MU_LAW = 1, 3, 6, 7
_SAMPLE_BITS = {PCM: range(1, 65), FLOAT: (32, 64), A_LAW: (8,), MU_LAW: (8,)}
_OTHER_CODINGS = {2: "Microsoft ADPCM", 17: "IMA ADPCM", 49: "GSM", 85: "MP3"}
EXTENSIBLE = 0xFFFE
# What follows the format tag in the GUID of a subformat: Microsoft's own, and that of
# ambisonic files.
SUBFORMATS = (
    (0x0000, 0x0010, bytes.fromhex("800000aa00389b71")),
    (0x0721, 0x11D3, bytes.fromhex("8644c8c1ca000000")),
)
_CHUNK_NAME = re.compile(rb"[ -~]{4}")
# Written for "not known yet", and in RF64 for "see ds64".
_UNKNOWN_LENGTH = 0xFFFFFFFF


class UnsupportedWavCoding(Exception):
    """Coding that only libsndfile decodes: ADPCM, GSM, MP3 and others."""


@dataclass(frozen=True, slots=True)
class WavFormat:
    """Coding of the samples of a WAV file.

    byte_order  of the bytes of a number, "<" or ">"
    coding  PCM, FLOAT, A_LAW or MU_LAW
    sample_nbytes  bytes of one sample; fewer bits of it may be in use, the upper ones
    """

    byte_order: str
    coding: int
    sample_nbytes: int
    n_channels: int
    fs: int

    @property
    def frame_nbytes(self) -> int:
        """Number of bytes of one sample of every channel."""
        return self.n_channels * self.sample_nbytes


class _RiffChunk(NamedTuple):
    """Chunk of a RIFF file: its name, the offset of its body, and the length of
    that.
    """

    name: bytes
    offset: int
    nbytes: int


def find_samples(source: ByteSource) -> tuple[WavFormat, int, int]:
    """Return the format, the offset of the first sample, and the number of complete
    frames.

    Errors   RecordingError for a broken header; UnsupportedWavCoding
    """
    riff_kind, byte_order = _parse_riff_header(source)
    wav_format, long_size = None, None
    n_chunks = 0
    for chunk in _iterate_chunks(source, byte_order):
        n_chunks += 1
        if chunk.name == b"ds64" and riff_kind in (b"RF64", b"BW64"):
            long_size = struct.unpack("<Q", _read_chunk_body(source, chunk, 16)[8:16])[
                0
            ]
        elif chunk.name == b"fmt ":
            wav_format = _parse_format(
                source, byte_order, _read_chunk_body(source, chunk, 16)
            )
        elif chunk.name == b"data":
            if wav_format is None:
                raise source.error(
                    "the samples (chunk 'data') come before the format (chunk 'fmt ')"
                )
            stated_nbytes = chunk.nbytes
            if stated_nbytes == _UNKNOWN_LENGTH and long_size is not None:
                stated_nbytes = long_size
            nbytes = _available_nbytes(
                source, byte_order, wav_format, chunk.offset, stated_nbytes
            )
            return wav_format, chunk.offset, nbytes // wav_format.frame_nbytes
    if n_chunks == file_limits.WAV_CHUNKS:
        raise source.error(
            "no samples (chunk 'data') found near the start of the file",
            f"searched the first {n_chunks} chunks",
        )
    missing = "samples (chunk 'data')" if wav_format else "format (chunk 'fmt ')"
    raise source.error(
        f"the file ends before the {missing}",
        f"the file has {source.nbytes} bytes",
        "copy the file again from its source",
    )


def _parse_riff_header(source: ByteSource) -> tuple[bytes, str]:
    """Return the kind of RIFF file and its byte order. Raises RecordingError for
    another file.
    """
    head = source.read_head(12)
    if len(head) < 12 or head[8:] != b"WAVE":
        raise source.error(
            "the file starts like a WAV file, but the form type is not WAVE"
        )
    return head[:4], ">" if head[:4] == b"RIFX" else "<"


def _iterate_chunks(
    source: ByteSource, byte_order: str, offset: int = 12
) -> Iterator[_RiffChunk]:
    """Yield the first chunks of a file; the last may be longer than the file."""
    for _ in range(file_limits.WAV_CHUNKS):
        if offset + 8 > source.nbytes:
            return
        name, nbytes = struct.unpack(f"{byte_order}4sI", source.read(offset, 8))
        yield _RiffChunk(name, offset + 8, nbytes)
        offset += 8 + nbytes
        # A chunk of odd length is followed by a byte of padding, which some forget.
        if nbytes % 2 and source.peek(offset, 4) not in (b"data", b"fmt "):
            offset += 1


def _read_chunk_body(source: ByteSource, chunk: _RiffChunk, min_nbytes: int) -> bytes:
    """Return the first bytes of a small chunk, at most 64. Raises RecordingError for a
    shorter one than needed.
    """
    if chunk.nbytes < min_nbytes:
        raise source.error(
            "a header chunk of the WAV file is too short",
            f"got {chunk.nbytes} bytes, expected at least {min_nbytes}",
        )
    return source.read(chunk.offset, min(chunk.nbytes, 64))


def _parse_format(source: ByteSource, byte_order: str, body: bytes) -> WavFormat:
    """Parse the body of the `fmt ` chunk."""
    coding, n_channels, fs, bytes_per_second, frame_nbytes, bits = struct.unpack(
        f"{byte_order}HHIIHH", body[:16]
    )
    if coding == EXTENSIBLE:
        coding = _parse_subformat(source, byte_order, body)
    if coding not in _SAMPLE_BITS:
        raise UnsupportedWavCoding(_OTHER_CODINGS.get(coding, f"format {coding}"))
    if not n_channels or not fs:
        raise source.error(
            f"the header declares {n_channels} channels at {fs} Hz",
            "both numbers must be at least 1",
        )
    if coding in (A_LAW, MU_LAW):
        bits = 8  # there is no other; some write the bits that they stand for
    if bits not in _SAMPLE_BITS[coding]:
        allowed = "PCM supports 1 to 64" if coding == PCM else "float supports 32 or 64"
        raise source.error(
            f"got samples of {bits} bits",
            f"{allowed} bits",
            "convert the samples to a supported number of bits",
        )
    sample_nbytes = _sample_nbytes(
        source,
        coding,
        n_channels,
        bits,
        frame_nbytes,
        bytes_per_second == fs * frame_nbytes,
    )
    return WavFormat(byte_order, coding, sample_nbytes, n_channels, fs)


def _sample_nbytes(
    source: ByteSource,
    coding: int,
    n_channels: int,
    bits: int,
    frame_nbytes: int,
    is_confirmed: bool,
) -> int:
    """Return the bytes of one sample, from its bits and from the bytes of a frame.

    Integers may lie in wider containers than they need, the upper bits in use. Where
    the two disagree the bytes of a second decide: `is_confirmed` when they fit the
    frame.
    """
    min_nbytes = -(-bits // 8)
    sample_nbytes, remainder = divmod(frame_nbytes, n_channels)
    if sample_nbytes == min_nbytes and not remainder:
        return sample_nbytes
    frame_is_plausible = (
        coding == PCM and is_confirmed and not remainder and 1 <= sample_nbytes <= 8
    )
    if frame_is_plausible and sample_nbytes > min_nbytes:
        return sample_nbytes
    min_frame_nbytes = n_channels * min_nbytes
    source.warn(
        f"the header declares {frame_nbytes} bytes per frame, but {n_channels} "
        f"channels of {bits} bits need {min_frame_nbytes}; "
        f"{frame_nbytes if frame_is_plausible else min_frame_nbytes} bytes are used"
    )
    return sample_nbytes if frame_is_plausible else min_nbytes


def _parse_subformat(source: ByteSource, byte_order: str, body: bytes) -> int:
    """Return the format tag in an extensible header. Raises RecordingError for an
    unknown subformat.
    """
    if len(body) >= 40:
        coding, *guid_parts = struct.unpack(f"{byte_order}IHH8s", body[24:40])
        if tuple(guid_parts) in SUBFORMATS:
            return int(coding)
    raise source.error("the extensible WAV file has an unknown subformat")


def _available_nbytes(
    source: ByteSource,
    byte_order: str,
    wav_format: WavFormat,
    offset: int,
    stated_nbytes: int,
) -> int:
    """Return the bytes of complete frames in the file, with a warning if the header
    contradicts them.
    """
    available, frame_nbytes = source.nbytes - offset, wav_format.frame_nbytes
    if stated_nbytes == _UNKNOWN_LENGTH or (
        stated_nbytes == 0 and not _has_only_chunks(source, byte_order, offset, 1)
    ):
        nbytes = available - available % frame_nbytes
        source.warn(
            f"the header declares no valid length ({stated_nbytes}): all "
            f"{nbytes // frame_nbytes} samples to the end of the file are read"
        )
        return nbytes
    if stated_nbytes > available:
        nbytes = available - available % frame_nbytes
        source.warn(
            f"the file is truncated: the header declares {stated_nbytes} bytes of "
            f"samples, the file has {available}; the last "
            f"{(stated_nbytes - nbytes) / frame_nbytes / wav_format.fs:.6g} s are "
            "missing"
        )
        return nbytes
    if stated_nbytes % frame_nbytes:
        source.warn(
            f"the last frame is incomplete: {stated_nbytes} bytes of samples, "
            f"{frame_nbytes} bytes per frame; the last "
            f"{stated_nbytes % frame_nbytes} bytes are skipped"
        )
    # Lengths beyond 4 GiB do not fit the field, and some writers do not care.
    if not _has_only_chunks(
        source, byte_order, offset + stated_nbytes + stated_nbytes % 2, 7
    ):
        source.warn(f"{available - stated_nbytes} bytes after the samples are skipped")
    return stated_nbytes - stated_nbytes % frame_nbytes


def _has_only_chunks(
    source: ByteSource, byte_order: str, offset: int, max_spare_nbytes: int
) -> bool:
    """Return whether the rest of the file is complete chunks, except for up to
    `max_spare_nbytes` bytes.
    """
    end, n_chunks = offset, 0
    for chunk in _iterate_chunks(source, byte_order, offset):
        end, n_chunks = chunk.offset + chunk.nbytes, n_chunks + 1
        if end > source.nbytes or not _CHUNK_NAME.fullmatch(chunk.name):
            return False
    return source.nbytes - end <= max_spare_nbytes or n_chunks == file_limits.WAV_CHUNKS
