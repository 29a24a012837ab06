"""Audio files through libsndfile: FLAC, Ogg, MP3, AIFF, AU, CAF and more.

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

from rlxweb.errors import not_installed
from rlxweb.forked import ForkLock
from rlxweb.io.as_file import SourceFile
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.pieces import PieceReader
from rlxweb.io.source import ByteSource
from rlxweb.whole_file import reason

_EXTRA = "pip install 'rlxweb[audio]'"
# Bits of the full scale: of these integers are read as they are stored.
_BITS: Final = {
    "PCM_S8": 8,
    "PCM_U8": 8,
    "PCM_16": 16,
    "PCM_24": 24,
    "ULAW": 16,
    "ALAW": 16,
}
_WIDE: Final = ("PCM_32", "DOUBLE")
_SEEKABLE: Final = (*_BITS, *_WIDE, "FLOAT")
# Pieces of a walk are of one length: libsndfile gives an Opus file other last samples
# where it is read by odd ones.
_PIECE: Final = 1 << 16
_UNKNOWN: Final = 1 << 60
_TAG_NBYTES: Final = 1 << 16
_LEFT_NBYTES: Final = 1 << 12
_LAST: Final = 4  # a flag of a page of Ogg


def read_audio(source: ByteSource, what: str = "") -> Contents:
    """What an audio file holds.

    what     it is that needs soundfile, where it does not go without saying

    Errors   RecordingError for a broken file and an unknown coding; Unsupported where
             soundfile is missing
    """
    file = _opened(source, what)
    coding, bits = str(file.subtype), _BITS.get(str(file.subtype))
    source.at_most("channels", file.channels, 1024)
    is_exact = bool(coding in _SEEKABLE and file.seekable() and file.format != "OGG")
    wide = np.float64 if coding in _WIDE else np.float32
    digital = None if bits is None else np.dtype(np.int32 if bits > 16 else np.int16)
    dtype = np.dtype(wide) if digital is None or not is_exact else digital
    n_samples, fs, channels = int(file.frames), float(file.samplerate), file.channels
    reader: Any
    if is_exact:
        _tell_of_a_cut(source, file)
        shift = 0 if bits is None else 8 * dtype.itemsize - bits
        reader = _Seeking(source, file, dtype, shift)
    else:
        if file.format not in ("OGG", "MP3"):  # those are counted
            _tell_of_a_cut(source, file)
        file.close()
        digital = None
        walk = _Decoding(source, channels, dtype)
        n_samples = _length(source, str(file.format), n_samples, walk)
        reader = PieceReader(source, walk, dtype)
    stream = Stream(
        tuple(range(channels)),
        fs,
        n_samples,
        np.dtype(wide),
        reader,
        digital=digital,
    )
    gain = 1.0 if digital is None or bits is None else 2.0 ** (1 - bits)
    return Contents(str(file.format), (Found("", gain=gain),) * channels, (stream,))


class _Seeking:
    """Samples of a file in which every one is found at once; a SampleReader."""

    def __init__(
        self, source: ByteSource, file: Any, dtype: np.dtype[Any], shift: int
    ) -> None:
        self._source, self._file = source, file
        self._dtype, self._shift = dtype, shift
        self._lock = ForkLock()

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        with self._lock, _faults(self._source, self._file.name):
            self._file.seek(start)
            found = self._file.read(stop - start, self._dtype.name, always_2d=True)
        if len(found) < stop - start:
            raise self._source.error(
                "the file ends early",
                f"samples {start} to {stop} wanted, {len(found)} of them are there",
                "copy the file again from where it came",
            )
        own = np.ascontiguousarray(found[:, channels].T)
        return own >> self._shift if self._shift else own


class _Decoding:
    """The way through a file that can only be decoded from its begin; a Walk."""

    def __init__(
        self, source: ByteSource, n_channels: int, dtype: np.dtype[Any]
    ) -> None:
        self._source, self._dtype = source, dtype
        self._all = tuple(range(n_channels))
        self.end = 0  # of the bytes that were read where a walk ended

    def origin(self, at: int) -> int:
        """See Walk."""
        return 0

    def pieces(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """See Walk."""
        file = _opened(self._source)
        try:
            while True:
                with _faults(self._source, file.name):
                    found = file.read(_PIECE, self._dtype.name, always_2d=True)
                if not len(found):
                    self.end = file.name.tell()
                    return
                yield np.ascontiguousarray(found[:, channels].T)
        finally:
            file.close()

    def count(self) -> int:
        """How many samples there are, by decoding them all."""
        return sum(piece.shape[1] for piece in self.pieces(self._all[:1], 0))


def soundfile_library(doing: str) -> Any:
    """The module soundfile.

    Raises
    ------
    Unsupported
        It is not installed, or lacks libsndfile.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # the second where libsndfile is missing
        raise not_installed(doing, "soundfile", _EXTRA) from error
    return soundfile


def _opened(source: ByteSource, what: str = "") -> Any:
    soundfile = soundfile_library(f"{source.doing}, {what}" if what else source.doing)
    raw = SourceFile(source, is_quiet=True)
    with _faults(source, raw):
        return soundfile.SoundFile(raw)


@contextmanager
def _faults(source: ByteSource, raw: Any) -> Iterator[None]:
    """Whatever libsndfile says is a RecordingError, or else what the file itself said.

    raw  the file it reads
    """
    try:
        yield
    except (RuntimeError, ValueError, TypeError, OSError, AssertionError) as error:
        said = str(getattr(error, "error_string", "")) or reason(error)
        raise raw.fault or source.error(
            f"libsndfile cannot read it ({said})",
            hint="copy the file again from where it came",
        ) from error


def _tell_of_a_cut(source: ByteSource, file: Any) -> None:
    """What is there of a file that was cut is taken, and libsndfile's log says so."""
    for line in str(file.extra_info).splitlines():
        if "(should be" in line:
            source.warn(
                f"the file is cut short or longer than it says ({line.strip()})"
            )
            return


def _length(source: ByteSource, form: str, claimed: int, walk: _Decoding) -> int:
    """How many samples there are: as the file says, or counted where it may not know.

    An MP3 tells it in a header that LAME began; else libsndfile guesses from the size.
    """
    if form == "OGG" and not _has_last_page(source):
        source.warn("the file is cut short: its last page is missing")
    told = _told_nbytes(source) if form == "MP3" else source.nbytes
    if 0 < claimed < _UNKNOWN and abs(told - source.nbytes) < 4096:
        return claimed
    there = walk.count()
    left = source.peek(walk.end, _LEFT_NBYTES)
    if form == "MP3" and walk.end < source.nbytes - _LEFT_NBYTES and _is_mpeg(left):
        raise source.error(
            "it does not say how long it is, and libsndfile guesses too little",
            f"{there} samples end at byte {walk.end} of {source.nbytes}",
            "convert it to FLAC or WAV, or write its header anew",
        )
    if told > source.nbytes and there < claimed:
        missing = f"{claimed} samples are claimed, {there} are there"
        source.warn(f"the file is cut short: {missing}")
    return there


def _is_mpeg(raw: bytes) -> bool:
    """Do frames of MP3 begin there?"""
    return len(re.findall(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", raw)) > 1


def _has_last_page(source: ByteSource) -> bool:
    """Is the last page of an Ogg file marked as the last?"""
    tail = source.peek(max(0, source.nbytes - _TAG_NBYTES), _TAG_NBYTES)
    last = tail.rfind(b"OggS")
    return 0 <= last < len(tail) - 5 and bool(tail[last + 5] & _LAST)


def _told_nbytes(source: ByteSource) -> int:
    """How long an MP3 file says it is; 0 where it does not.

    Source  LAME, "MP3 Info Tag revision 1": mark, flags, frames, bytes
    """
    head = source.head(_TAG_NBYTES)
    at = max(head.find(b"Xing"), head.find(b"Info"))
    flags = int.from_bytes(head[at + 4 : at + 8], "big")
    if at < 0 or flags & 3 != 3:
        return 0
    return at + int.from_bytes(head[at + 12 : at + 16], "big")
