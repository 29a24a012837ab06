"""Reader for the samples of WAV files: integers of 1 to 64 bits, float, mu-law and
A-law.

Owns the scale: integers become [-1, 1) by a power of two, exactly, float32 up to 24
bits and float64 above. The standard library's `wave` reads neither float nor extensible
nor big-endian files, hence a small strict reader of our own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rlxweb.core.adc_samples import MAX_BITS
from rlxweb.io import g711
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
)
from rlxweb.io.pcm_integer_decoding import decode_int24, decode_wide
from rlxweb.io.wav_header import (
    A_LAW,
    FLOAT,
    MU_LAW,
    UnsupportedWavCoding,
    WavFormat,
    find_samples,
)

_MAX_READ_NBYTES = 4 << 20


def read_wav(source: ByteSource) -> FileContents:
    """Read the contents of a WAV file; a truncated file holds the samples that are
    left.

    Packed samples are read as those of every other audio file are: by libsndfile.

    Errors   RecordingError for a broken header and for samples of an unknown coding;
             Unsupported for packed samples where soundfile is missing
    """
    try:
        wav_format, offset, n_samples = find_samples(source)
    except UnsupportedWavCoding as coding:
        from rlxweb.io.libsndfile_reader import read_audio

        return replace(read_audio(source, f"samples of {coding}"), format="WAV")
    digital_dtype = _digital_dtype(wav_format)
    stream = ChannelStream(
        tuple(range(wav_format.n_channels)),
        float(wav_format.fs),
        n_samples,
        _physical_dtype(wav_format),
        _WavReader(source, wav_format, offset),
        digital=digital_dtype,
    )
    gain = 1.0 if digital_dtype is None else _integer_gain(wav_format)
    return FileContents(
        "WAV", (FileChannel("", gain=gain),) * wav_format.n_channels, (stream,)
    )


def _physical_dtype(wav_format: WavFormat) -> np.dtype[np.generic]:
    """Return the narrower float dtype that represents the values exactly."""
    needs_float64 = wav_format.sample_nbytes > (4 if wav_format.coding == FLOAT else 3)
    return np.dtype(np.float64 if needs_float64 else np.float32)


def _digital_dtype(wav_format: WavFormat) -> np.dtype[np.signedinteger] | None:
    """Return the dtype of integers of up to 24 bits, which are read as they are stored;
    None for other samples.
    """
    if wav_format.coding == FLOAT or 8 * wav_format.sample_nbytes > MAX_BITS:
        return None
    return np.dtype(np.int32 if wav_format.sample_nbytes == 3 else np.int16)


def _integer_gain(wav_format: WavFormat) -> float:
    """Return the power of two that scales integers to [-1, 1)."""
    return 2.0 ** (1 - _full_scale_bits(wav_format))


def _full_scale_bits(wav_format: WavFormat) -> int:
    """Return the number of bits of the integers' full scale after decoding."""
    if wav_format.coding in (MU_LAW, A_LAW):
        return 16
    return 8 * wav_format.sample_nbytes if wav_format.sample_nbytes <= 4 else 64


@dataclass(frozen=True, slots=True)
class _WavReader:
    """SampleReader for a WAV file."""

    source: ByteSource
    wav_format: WavFormat
    offset: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples [start, stop) as stored, in parts, because frames may be
        long.
        """
        out = np.empty(
            (len(channels), stop - start),
            _digital_dtype(self.wav_format) or _physical_dtype(self.wav_format),
        )
        max_frames = max(1, _MAX_READ_NBYTES // self.wav_format.frame_nbytes)
        for part_start in range(start, stop, max_frames):
            part_stop = min(part_start + max_frames, stop)
            out[:, part_start - start : part_stop - start] = self._read_frames(
                channels, part_start, part_stop
            )
        return out

    def _read_frames(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read and decode samples [start, stop) in one step."""
        wav_format, frame_nbytes = self.wav_format, self.wav_format.frame_nbytes
        raw = self.source.read(
            self.offset + start * frame_nbytes, (stop - start) * frame_nbytes
        )
        # Taken from the bytes first: only the wanted channels are widened.
        frames = np.frombuffer(raw, np.uint8).reshape(
            stop - start, wav_format.n_channels, -1
        )
        selected = frames[:, channels].swapaxes(0, 1)
        if wav_format.byte_order == ">":
            selected = selected[..., ::-1]
        return _decode_samples(np.ascontiguousarray(selected), wav_format)


def _decode_samples(raw: npt.NDArray[np.uint8], wav_format: WavFormat) -> Samples:
    """Decode samples (C, T) from little-endian bytes (C, T, width)."""
    if wav_format.coding == FLOAT:
        return raw.view(f"<f{wav_format.sample_nbytes}")[..., 0]
    digital_dtype = _digital_dtype(wav_format)
    if digital_dtype is None:
        return _decode_integers(raw, wav_format).astype(np.float64) * _integer_gain(
            wav_format
        )
    return _decode_integers(raw, wav_format).astype(digital_dtype, copy=False)


def _decode_integers(
    raw: npt.NDArray[np.uint8], wav_format: WavFormat
) -> npt.NDArray[np.signedinteger]:
    """Decode integers, mu-law and A-law from little-endian bytes (C, T, width)."""
    if wav_format.coding in (MU_LAW, A_LAW):
        return (
            g711.mu_law_table() if wav_format.coding == MU_LAW else g711.a_law_table()
        )[raw[..., 0]]
    if wav_format.sample_nbytes == 1:
        # Samples of 8 bits and fewer have no sign.
        return raw[..., 0].astype(np.int16) - 128
    if wav_format.sample_nbytes == 3:
        return decode_int24(raw)[..., 0]
    if wav_format.sample_nbytes > 4:
        return decode_wide(raw)
    return raw.view(f"<i{wav_format.sample_nbytes}")[..., 0]
