"""The header of a WAV file, read once: how its samples are coded and where they lie.

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

from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

PCM, FLOAT, A_LAW, MU_LAW = 1, 3, 6, 7
_BITS = {PCM: range(1, 65), FLOAT: (32, 64), A_LAW: (8,), MU_LAW: (8,)}
_OTHER = {2: "Microsoft ADPCM", 17: "IMA ADPCM", 49: "GSM", 85: "MP3"}
EXTENSIBLE = 0xFFFE
# What follows the format tag in the GUID of a subformat: Microsoft's own, and that of
# ambisonic files.
SUBFORMATS = (
    (0x0000, 0x0010, bytes.fromhex("800000aa00389b71")),
    (0x0721, 0x11D3, bytes.fromhex("8644c8c1ca000000")),
)
_NAME = re.compile(rb"[ -~]{4}")
# Written for "not known yet", and in RF64 for "see ds64".
_OPEN_END = 0xFFFFFFFF


class OtherCoding(Exception):
    """Samples of a coding that is left to libsndfile: ADPCM, GSM, MP3 …"""


@dataclass(frozen=True, slots=True)
class WavFormat:
    """How samples are coded.

    order   of the bytes of a number, "<" or ">"
    tag     PCM, FLOAT, A_LAW or MU_LAW
    width   bytes of one sample; fewer bits of it may be in use, the upper ones
    """

    order: str
    tag: int
    width: int
    channels: int
    fs: int

    @property
    def frame_nbytes(self) -> int:
        """Bytes of one sample of every channel."""
        return self.channels * self.width


class _Chunk(NamedTuple):
    name: bytes
    at: int
    nbytes: int


def find_samples(source: ByteSource) -> tuple[WavFormat, int, int]:
    """The format, the offset of the first sample, and the number of whole frames.

    Errors   RecordingError for a broken header; OtherCoding
    """
    kind, order = _check_riff(source)
    wave, long_size = None, None
    seen = 0
    for chunk in _chunks(source, order):
        seen += 1
        if chunk.name == b"ds64" and kind in (b"RF64", b"BW64"):
            long_size = struct.unpack("<Q", _body(source, chunk, 16)[8:16])[0]
        elif chunk.name == b"fmt ":
            wave = _parse_format(source, order, _body(source, chunk, 16))
        elif chunk.name == b"data":
            if wave is None:
                raise source.error("its samples come before their format")
            said = chunk.nbytes
            if said == _OPEN_END and long_size is not None:
                said = long_size
            nbytes = _measure(source, order, wave, chunk.at, said)
            return wave, chunk.at, nbytes // wave.frame_nbytes
    if seen == bounds.WAV_CHUNKS:
        raise source.error(
            "its samples ('data') do not come early enough",
            f"looked for in the first {seen} chunks",
        )
    missing = "samples ('data')" if wave else "format ('fmt ')"
    raise source.error(
        f"the file ends before its {missing}",
        f"{source.nbytes} bytes",
        "copy the file again from where it came",
    )


def _check_riff(source: ByteSource) -> tuple[bytes, str]:
    head = source.head(12)
    if len(head) < 12 or head[8:] != b"WAVE":
        raise source.error("the file begins like a WAV file but is none")
    return head[:4], ">" if head[:4] == b"RIFX" else "<"


def _chunks(source: ByteSource, order: str, at: int = 12) -> Iterator[_Chunk]:
    """The first chunks of a file; the last may claim more than there is."""
    for _ in range(bounds.WAV_CHUNKS):
        if at + 8 > source.nbytes:
            return
        name, nbytes = struct.unpack(f"{order}4sI", source.read(at, 8))
        yield _Chunk(name, at + 8, nbytes)
        at += 8 + nbytes
        # A chunk of odd length is followed by a byte of padding, which some forget.
        if nbytes % 2 and source.peek(at, 4) not in (b"data", b"fmt "):
            at += 1


def _body(source: ByteSource, chunk: _Chunk, least: int) -> bytes:
    """The first bytes of a small chunk, at most 64 of them."""
    if chunk.nbytes < least:
        raise source.error(
            "a header of the WAV file is too short",
            f"{chunk.nbytes} bytes, needs {least}",
        )
    return source.read(chunk.at, min(chunk.nbytes, 64))


def _parse_format(source: ByteSource, order: str, body: bytes) -> WavFormat:
    tag, channels, fs, rate, frame, bits = struct.unpack(f"{order}HHIIHH", body[:16])
    if tag == EXTENSIBLE:
        tag = _subformat(source, order, body)
    if tag not in _BITS:
        raise OtherCoding(_OTHER.get(tag, f"format {tag}"))
    if not channels or not fs:
        raise source.error(f"its header says {channels} channels at {fs} Hz")
    if tag in (A_LAW, MU_LAW):
        bits = 8  # there is no other; some write the bits that they stand for
    if bits not in _BITS[tag]:
        name, allowed = "PCM" if tag == PCM else "float", _BITS[tag]
        raise source.error(
            f"samples of {bits} bits",
            f"{name} has {allowed[0]} to {allowed[-1]} bits",
            "convert it first",
        )
    width = _width(source, tag, channels, bits, frame, rate == fs * frame)
    return WavFormat(order, tag, width, channels, fs)


def _width(
    source: ByteSource, tag: int, channels: int, bits: int, frame: int, confirmed: bool
) -> int:
    """Bytes of one sample, by its bits and by the bytes of a frame.

    Integers may lie in wider containers than they need, the upper bits in use. Where
    the two disagree the bytes of a second decide: `confirmed` when they fit the frame.
    """
    least = -(-bits // 8)
    width, rest = divmod(frame, channels)
    if width == least and not rest:
        return width
    by_frame = tag == PCM and confirmed and not rest and 1 <= width <= 8
    if by_frame and width > least:
        return width
    source.warn(
        f"its header gives {frame} bytes to a frame, {channels} channels of {bits} "
        f"bits need {channels * least}; the {'former' if by_frame else 'latter'} is "
        "taken"
    )
    return width if by_frame else least


def _subformat(source: ByteSource, order: str, body: bytes) -> int:
    """The format tag of an extensible header."""
    if len(body) >= 40:
        tag, *rest = struct.unpack(f"{order}IHH8s", body[24:40])
        if tuple(rest) in SUBFORMATS:
            return int(tag)
    raise source.error("an extensible WAV file of an unknown subformat")


def _measure(
    source: ByteSource, order: str, wave: WavFormat, at: int, said: int
) -> int:
    """Bytes of whole frames that are there; a warning where the header says else."""
    there, frame = source.nbytes - at, wave.frame_nbytes
    if said == _OPEN_END or (said == 0 and not _only_chunks(source, order, at, 1)):
        nbytes = there - there % frame
        source.warn(
            f"its header does not say how long it is (length {said}): all "
            f"{nbytes // frame} samples to the end of the file are read"
        )
        return nbytes
    if said > there:
        nbytes = there - there % frame
        source.warn(
            f"the file is cut short: its header says {said} bytes of samples, "
            f"{there} are there; the last {(said - nbytes) / frame / wave.fs:.6g} s "
            "are missing"
        )
        return nbytes
    if said % frame:
        source.warn(
            f"its samples end in the middle of a frame: {said} bytes, {frame} to a "
            f"frame; the last {said % frame} bytes are left out"
        )
    # Lengths beyond 4 GiB do not fit the field, and some writers do not care.
    if not _only_chunks(source, order, at + said + said % 2, 7):
        source.warn(
            f"the file goes on for {there - said} bytes behind its samples, which are "
            "left out"
        )
    return said - said % frame


def _only_chunks(source: ByteSource, order: str, at: int, spare: int) -> bool:
    """True when the rest of the file is whole chunks, but for a few bytes to spare."""
    end, seen = at, 0
    for chunk in _chunks(source, order, at):
        end, seen = chunk.at + chunk.nbytes, seen + 1
        if end > source.nbytes or not _NAME.fullmatch(chunk.name):
            return False
    return source.nbytes - end <= spare or seen == bounds.WAV_CHUNKS
