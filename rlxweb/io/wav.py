"""The samples of WAV files: integers of 1 to 64 bits, float, mu-law and A-law.

Owns the scale: integers become [-1, 1) by a power of two, exactly, float32 up to 24
bits and float64 above. The standard library's `wave` reads neither float nor extensible
nor big-endian files, hence a small strict reader of our own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rlxweb.digital import BITS
from rlxweb.io import g711
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.pcm import decode_int24, decode_wide
from rlxweb.io.source import ByteSource
from rlxweb.io.wav_header import (
    A_LAW,
    FLOAT,
    MU_LAW,
    OtherCoding,
    WavFormat,
    find_samples,
)

_PIECE_NBYTES = 4 << 20


def read_wav(source: ByteSource) -> Contents:
    """What a WAV file holds; a file that was cut holds what is left of it.

    Packed samples are read as those of every other audio file are: by libsndfile.

    Errors   RecordingError for a broken header and for samples of an unknown coding;
             Unsupported for packed samples where soundfile is missing
    """
    try:
        wave, offset, n_samples = find_samples(source)
    except OtherCoding as coding:
        from rlxweb.io.audio import read_audio

        return replace(read_audio(source, f"samples of {coding}"), format="WAV")
    digital = _digital(wave)
    stream = Stream(
        tuple(range(wave.channels)),
        float(wave.fs),
        n_samples,
        _dtype(wave),
        _WavReader(source, wave, offset),
        digital=digital,
    )
    gain = 1.0 if digital is None else _gain(wave)
    return Contents("WAV", (Found("", gain=gain),) * wave.channels, (stream,))


def _dtype(wave: WavFormat) -> np.dtype[np.generic]:
    """Of the values: the narrower float that holds them exactly."""
    wide = wave.width > (4 if wave.tag == FLOAT else 3)
    return np.dtype(np.float64 if wide else np.float32)


def _digital(wave: WavFormat) -> np.dtype[np.signedinteger] | None:
    """Of integers of up to 24 bits, which are given as they are read."""
    if wave.tag == FLOAT or 8 * wave.width > BITS:
        return None
    return np.dtype(np.int32 if wave.width == 3 else np.int16)


def _gain(wave: WavFormat) -> float:
    """A power of two that brings integers into [-1, 1)."""
    return 2.0 ** (1 - _full_bits(wave))


def _full_bits(wave: WavFormat) -> int:
    """Bits of the full scale of the integers that a sample is decoded to."""
    if wave.tag in (MU_LAW, A_LAW):
        return 16
    return 8 * wave.width if wave.width <= 4 else 64


@dataclass(frozen=True, slots=True)
class _WavReader:
    source: ByteSource
    wave: WavFormat
    offset: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) as stored, a few at a time: frames may be long."""
        out = np.empty(
            (len(channels), stop - start), _digital(self.wave) or _dtype(self.wave)
        )
        most = max(1, _PIECE_NBYTES // self.wave.frame_nbytes)
        for at in range(start, stop, most):
            past = min(at + most, stop)
            out[:, at - start : past - start] = self._piece(channels, at, past)
        return out

    def _piece(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        wave, step = self.wave, self.wave.frame_nbytes
        raw = self.source.read(self.offset + start * step, (stop - start) * step)
        # Taken from the bytes first: only the wanted channels are widened.
        frames = np.frombuffer(raw, np.uint8).reshape(stop - start, wave.channels, -1)
        mine = frames[:, channels].swapaxes(0, 1)
        if wave.order == ">":
            mine = mine[..., ::-1]
        return _decode(np.ascontiguousarray(mine), wave)


def _decode(raw: npt.NDArray[np.uint8], wave: WavFormat) -> Samples:
    """Samples (C, T) from their bytes (C, T, width), the lowest first."""
    if wave.tag == FLOAT:
        return raw.view(f"<f{wave.width}")[..., 0]
    digital = _digital(wave)
    if digital is None:
        return _integers(raw, wave).astype(np.float64) * _gain(wave)
    return _integers(raw, wave).astype(digital, copy=False)


def _integers(
    raw: npt.NDArray[np.uint8], wave: WavFormat
) -> npt.NDArray[np.signedinteger]:
    if wave.tag in (MU_LAW, A_LAW):
        return (g711.mu_law() if wave.tag == MU_LAW else g711.a_law())[raw[..., 0]]
    if wave.width == 1:
        # Samples of 8 bits and fewer have no sign.
        return raw[..., 0].astype(np.int16) - 128
    if wave.width == 3:
        return decode_int24(raw)[..., 0]
    if wave.width > 4:
        return decode_wide(raw)
    return raw.view(f"<i{wave.width}")[..., 0]
