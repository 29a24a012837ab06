"""Reader of audio files through libsndfile: FLAC, Ogg, MP3, AIFF, AU, CAF and more.

The one place where soundfile is loaded, and not before such a file is opened. Samples
mean what those of a WAV file mean: integers become [-1, 1) by a power of two. What is
packed without loss is read by seeking. What is packed with loss is walked from its
begin, for a seek in it may end some samples off; so the same samples are the same
numbers however they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import not_installed
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.byte_source_file_object import SourceFile
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
)
from rlxweb.io.sequential_decoder_seeking import SequentialReader

_INSTALL_HINT = "pip install 'rlxweb[audio]'"
# Bits of the full scale: of these integers are read as they are stored.
_BITS_BY_SUBTYPE: Final = {
    "PCM_S8": 8,
    "PCM_U8": 8,
    "PCM_16": 16,
    "PCM_24": 24,
    "ULAW": 16,
    "ALAW": 16,
}
_FLOAT64_SUBTYPES: Final = ("PCM_32", "DOUBLE")
_LOSSLESS_SUBTYPES: Final = (*_BITS_BY_SUBTYPE, *_FLOAT64_SUBTYPES, "FLOAT")
# Pieces of a walk are of one length: libsndfile gives an Opus file other last samples
# where it is read by odd ones.
_CHUNK_SAMPLES: Final = 1 << 16
_UNKNOWN_LENGTH: Final = 1 << 60
_TAG_NBYTES: Final = 1 << 16
_REMAINDER_NBYTES: Final = 1 << 12
_LAST_PAGE_FLAG: Final = 4  # a flag of a page of Ogg


def read_audio(source: ByteSource, feature: str = "") -> FileContents:
    """Read the layout of an audio file: its channels, its rate and a reader of its
    samples.

    feature  it is that needs soundfile, where it does not go without saying

    Errors   RecordingError for a broken file and an unknown coding; Unsupported where
             soundfile is missing
    """
    file = _open_soundfile(source, feature)
    subtype, bits = str(file.subtype), _BITS_BY_SUBTYPE.get(str(file.subtype))
    source.check_limit("channels", file.channels, 1024)
    is_exact = bool(
        subtype in _LOSSLESS_SUBTYPES and file.seekable() and file.format != "OGG"
    )
    physical_dtype = np.float64 if subtype in _FLOAT64_SUBTYPES else np.float32
    digital = None if bits is None else np.dtype(np.int32 if bits > 16 else np.int16)
    dtype = np.dtype(physical_dtype) if digital is None or not is_exact else digital
    n_samples, fs, channels = int(file.frames), float(file.samplerate), file.channels
    reader: Any
    if is_exact:
        _warn_if_truncated(source, file)
        shift = 0 if bits is None else 8 * dtype.itemsize - bits
        reader = _SeekableAudioReader(source, file, dtype, shift)
    else:
        if file.format not in ("OGG", "MP3"):  # those are counted
            _warn_if_truncated(source, file)
        file.close()
        digital = None
        decoder = _AudioDecoder(source, channels, dtype)
        n_samples = _sample_count(source, str(file.format), n_samples, decoder)
        reader = SequentialReader(source, decoder, dtype)
    stream = ChannelStream(
        tuple(range(channels)),
        fs,
        n_samples,
        np.dtype(physical_dtype),
        reader,
        digital=digital,
    )
    gain = 1.0 if digital is None or bits is None else 2.0 ** (1 - bits)
    return FileContents(
        str(file.format), (FileChannel("", gain=gain),) * channels, (stream,)
    )


class _SeekableAudioReader:
    """SampleReader of a file that can be read from any sample by seeking."""

    def __init__(
        self, source: ByteSource, file: Any, dtype: np.dtype[Any], shift: int
    ) -> None:
        self._source, self._file = source, file
        self._dtype, self._shift = dtype, shift
        self._lock = ForkSafeLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels, (C, T)."""
        with self._lock, _translate_errors(self._source, self._file.name):
            self._file.seek(start)
            frames = self._file.read(stop - start, self._dtype.name, always_2d=True)
        if len(frames) < stop - start:
            raise self._source.error(
                "the file ends early",
                f"expected samples {start} to {stop}, got {len(frames)} samples",
                "copy the file again from its source",
            )
        samples = np.ascontiguousarray(frames[:, channels].T)
        return samples >> self._shift if self._shift else samples


class _AudioDecoder:
    """Sequential decoder of a file that can only be decoded from its beginning."""

    def __init__(
        self, source: ByteSource, n_channels: int, dtype: np.dtype[Any]
    ) -> None:
        self._source, self._dtype = source, dtype
        self._all_channels = tuple(range(n_channels))
        self.end_offset = 0  # of the bytes that were read where a walk ended

    def restart_sample(self, sample: int) -> int:
        """Return 0: decoding always begins at the first sample."""
        return 0

    def decode_chunks(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """Yield the samples of the channels in chunks, from the first sample on."""
        file = _open_soundfile(self._source)
        try:
            while True:
                with _translate_errors(self._source, file.name):
                    frames = file.read(_CHUNK_SAMPLES, self._dtype.name, always_2d=True)
                if not len(frames):
                    self.end_offset = file.name.tell()
                    return
                yield np.ascontiguousarray(frames[:, channels].T)
        finally:
            file.close()

    def count_samples(self) -> int:
        """Return the number of samples, found by decoding all of them."""
        return sum(
            chunk.shape[1] for chunk in self.decode_chunks(self._all_channels[:1], 0)
        )


def soundfile_library(context: str) -> Any:
    """Return the module soundfile.

    Raises
    ------
    Unsupported
        It is not installed, or lacks libsndfile.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # the second where libsndfile is missing
        raise not_installed(context, "soundfile", _INSTALL_HINT) from error
    return soundfile


def _open_soundfile(source: ByteSource, feature: str = "") -> Any:
    """Open a source with soundfile."""
    soundfile = soundfile_library(
        f"{source.context}, {feature}" if feature else source.context
    )
    raw = SourceFile(source, is_quiet=True)
    with _translate_errors(source, raw):
        return soundfile.SoundFile(raw)


@contextmanager
def _translate_errors(source: ByteSource, raw: Any) -> Iterator[None]:
    """Translate libsndfile's errors to RecordingError; an error of the source itself
    takes precedence.

    raw  the file it reads
    """
    try:
        yield
    except (RuntimeError, ValueError, TypeError, OSError, AssertionError) as error:
        message = str(getattr(error, "error_string", "")) or error_reason(error)
        raise raw.fault or source.error(
            f"libsndfile cannot read the file ({message})",
            hint="copy the file again from its source",
        ) from error


def _warn_if_truncated(source: ByteSource, file: Any) -> None:
    """Warn about a truncated file, of which libsndfile's log tells; the samples that
    are there are read.
    """
    for line in str(file.extra_info).splitlines():
        if "(should be" in line:
            source.warn(f"the file length differs from the header ({line.strip()})")
            return


def _sample_count(
    source: ByteSource, file_format: str, claimed: int, decoder: _AudioDecoder
) -> int:
    """Return the number of samples: the declared one, or a counted one where that is
    unreliable.

    An MP3 tells it in a header that LAME began; else libsndfile guesses from the size.
    """
    if file_format == "OGG" and not _has_last_page(source):
        source.warn("the file is truncated: the last page is missing")
    declared_nbytes = (
        _declared_nbytes(source) if file_format == "MP3" else source.nbytes
    )
    if 0 < claimed < _UNKNOWN_LENGTH and abs(declared_nbytes - source.nbytes) < 4096:
        return claimed
    decoded_samples = decoder.count_samples()
    remainder = source.peek(decoder.end_offset, _REMAINDER_NBYTES)
    if (
        file_format == "MP3"
        and decoder.end_offset < source.nbytes - _REMAINDER_NBYTES
        and _has_mpeg_frames(remainder)
    ):
        raise source.error(
            "the header declares no length, and libsndfile estimates too few samples",
            f"the {decoded_samples} decoded samples end at byte "
            f"{decoder.end_offset} of {source.nbytes}",
            "convert the file to FLAC or WAV, or write the length into the header",
        )
    if declared_nbytes > source.nbytes and decoded_samples < claimed:
        missing = (
            f"the header declares {claimed} samples, the file has {decoded_samples}"
        )
        source.warn(f"the file is truncated: {missing}")
    return decoded_samples


def _has_mpeg_frames(raw: bytes) -> bool:
    """Tell whether the bytes contain MPEG audio frames."""
    return len(re.findall(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", raw)) > 1


def _has_last_page(source: ByteSource) -> bool:
    """Tell whether the last page of an Ogg file is marked as the last."""
    tail = source.peek(max(0, source.nbytes - _TAG_NBYTES), _TAG_NBYTES)
    page_offset = tail.rfind(b"OggS")
    return 0 <= page_offset < len(tail) - 5 and bool(
        tail[page_offset + 5] & _LAST_PAGE_FLAG
    )


def _declared_nbytes(source: ByteSource) -> int:
    """Return the length that an MP3 file's tag declares, in bytes; 0 without one.

    Source  LAME, "MP3 Info Tag revision 1": mark, flags, frames, bytes
    """
    head = source.read_head(_TAG_NBYTES)
    tag_offset = max(head.find(b"Xing"), head.find(b"Info"))
    flags = int.from_bytes(head[tag_offset + 4 : tag_offset + 8], "big")
    if tag_offset < 0 or flags & 3 != 3:
        return 0
    return tag_offset + int.from_bytes(head[tag_offset + 12 : tag_offset + 16], "big")
