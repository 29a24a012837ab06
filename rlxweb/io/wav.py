"""WAV files: integer PCM of 8 to 32 bits and float, plain, extensible and RF64.

Owns the RIFF chunks and the scale: integers become [-1, 1) by a power of two, exactly,
float32 up to 24 bits and float64 for 32. The standard library's `wave` cannot read
float or extensible files, hence a small strict reader of our own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlxweb.digital import BITS
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_IN_DS64 = 0xFFFFFFFF
# A subformat is its format tag followed by this fixed tail.
_SUBFORMAT_TAIL = bytes.fromhex("000000001000800000aa00389b71")
_OTHER = {
    2: "Microsoft ADPCM",
    6: "A-law",
    7: "mu-law",
    17: "IMA ADPCM",
    49: "GSM",
    85: "MP3",
}
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}


@dataclass(frozen=True, slots=True)
class _Format:
    tag: int
    bits: int
    channels: int
    fs: int

    @property
    def frame_nbytes(self) -> int:
        return self.channels * self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.generic]:
        wide = self.bits == 64 or (self.tag == _PCM and self.bits == 32)
        return np.dtype(np.float64 if wide else np.float32)

    @property
    def digital(self) -> np.dtype[np.signedinteger] | None:
        """Of PCM of up to 24 bits as it is read."""
        if self.tag != _PCM or self.bits > BITS:
            return None
        return np.dtype(np.int32 if self.bits == 24 else np.int16)

    @property
    def gain(self) -> float:
        """A power of two that brings integers into [-1, 1)."""
        return 2.0 ** (1 - self.bits) if self.tag == _PCM else 1.0


def read_wav(source: ByteSource) -> Contents:
    """What a WAV file holds.

    Errors   RecordingError for a broken, cut or compressed file.
    """
    wave, offset, nbytes = _find_data(source)
    if nbytes % wave.frame_nbytes:
        raise source.error(
            "its samples end in the middle of a frame",
            f"{nbytes} bytes of samples, {wave.frame_nbytes} bytes in a frame",
            "write the file again",
        )
    reader = _WavReader(source, wave, offset)
    stream = Stream(
        tuple(range(wave.channels)),
        float(wave.fs),
        nbytes // wave.frame_nbytes,
        wave.dtype,
        reader,
        digital=wave.digital,
    )
    found = Found("", gain=wave.gain)
    return Contents("WAV", (found,) * wave.channels, (stream,))


@dataclass(frozen=True, slots=True)
class _WavReader:
    source: ByteSource
    wave: _Format
    offset: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        wave = self.wave
        step = wave.frame_nbytes
        raw = self.source.read(self.offset + start * step, (stop - start) * step)
        # Taken from the bytes first: only the wanted channels are widened.
        frames = np.frombuffer(raw, np.uint8).reshape(stop - start, wave.channels, -1)
        return _decode(np.ascontiguousarray(frames[:, channels].swapaxes(0, 1)), wave)


def _decode(raw: npt.NDArray[np.uint8], wave: _Format) -> Samples:
    """Samples (C, T) from their bytes (C, T, width): PCM of up to 24 bits as it is."""
    raw = raw.reshape(raw.shape[0], -1)
    if wave.tag == _FLOAT:
        return raw.view(f"<f{wave.bits // 8}").astype(wave.dtype, copy=False)
    whole: npt.NDArray[np.signedinteger]
    if wave.bits == 8:
        whole = raw.astype(np.int16) - 128
    elif wave.bits == 24:
        whole = decode_int24(raw)
    else:
        whole = raw.view(f"<i{wave.bits // 8}")
    if wave.digital is not None:
        return whole.astype(wave.digital, copy=False)
    return whole.astype(wave.dtype) * wave.gain


def _find_data(source: ByteSource) -> tuple[_Format, int, int]:
    """Format, offset and length of the samples, by walking the chunks."""
    kind = _check_riff(source)
    at, wave, long_size = 12, None, None
    while True:
        if at + 8 > source.nbytes:
            missing = "samples ('data')" if wave else "format ('fmt ')"
            raise source.error(
                f"the file ends before its {missing}",
                f"{source.nbytes} bytes",
                "copy the file again from where it came",
            )
        name, nbytes = struct.unpack("<4sI", source.read(at, 8))
        at += 8
        if name == b"ds64" and kind != b"RIFF":
            long_size = struct.unpack("<Q", _chunk(source, at, nbytes, 28)[8:16])[0]
        elif name == b"fmt ":
            wave = _parse_format(source, _chunk(source, at, nbytes, 16))
        elif name == b"data":
            if wave is None:
                raise source.error("its samples come before their format")
            if nbytes == _IN_DS64 and long_size is not None:
                nbytes = long_size
            there = source.nbytes - at
            if nbytes > there:
                raise source.error(
                    "the file is cut short",
                    f"its header says {nbytes} bytes of samples, {there} are there",
                    "copy it again, or let an audio tool repair its header",
                )
            return wave, at, nbytes
        at += nbytes + nbytes % 2


def _check_riff(source: ByteSource) -> bytes:
    head = source.head(12)
    kind = head[:4]
    if kind == b"RIFX":
        raise source.error(
            "a big-endian WAV file (RIFX)",
            "rlxweb reads RIFF and RF64",
            "convert it to a plain WAV file",
        )
    if len(head) < 12 or head[8:] != b"WAVE":
        raise source.error("the file begins like a WAV file but is none")
    return kind


def _chunk(source: ByteSource, at: int, nbytes: int, least: int) -> bytes:
    """The first bytes of a small chunk, at most 64 of them."""
    if nbytes < least:
        raise source.error(
            "a header of the WAV file is too short", f"{nbytes} bytes, needs {least}"
        )
    return source.read(at, min(nbytes, 64))


def _parse_format(source: ByteSource, body: bytes) -> _Format:
    tag, channels, fs, _, frame, bits = struct.unpack("<HHIIHH", body[:16])
    if tag == _EXTENSIBLE:
        if len(body) < 40 or body[26:40] != _SUBFORMAT_TAIL:
            raise source.error("an extensible WAV file of an unknown subformat")
        tag = struct.unpack("<H", body[24:26])[0]
    if tag not in _BITS:
        raise source.error(
            f"its samples are compressed ({_OTHER.get(tag, f'format {tag}')})",
            "rlxweb reads integer PCM and float",
            "convert it to PCM first",
        )
    if bits not in _BITS[tag]:
        allowed = ", ".join(map(str, _BITS[tag]))
        raise source.error(
            f"samples of {bits} bits",
            f"{'PCM' if tag == _PCM else 'float'} has {allowed} bits here",
            "convert it first",
        )
    if not channels or not fs:
        raise source.error(f"its header says {channels} channels at {fs} Hz")
    wave = _Format(tag, bits, channels, fs)
    if frame != wave.frame_nbytes:
        raise source.error(
            "its header contradicts itself",
            f"{frame} bytes in a frame, {channels} channels of {bits} bits need "
            f"{wave.frame_nbytes}",
        )
    return wave
