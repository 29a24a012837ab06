"""NPY files: one NumPy array on disk, read by ranges without loading it whole.

Owns the header (parsed by NumPy, never unpickled) and where each sample lies. One axis
is one channel; two are (channels, samples), or (samples, channels) when the caller's
layout says so. The shape is never guessed from its numbers.
"""

from __future__ import annotations

import datetime
import io
import math
import warnings
from dataclasses import dataclass
from tokenize import TokenError

import numpy as np

from rlxweb.advice import Advice
from rlxweb.digital import is_digital
from rlxweb.io import bounds
from rlxweb.io.annotations import Annotation
from rlxweb.io.contents import Contents, Found, Layout, Samples, Stream
from rlxweb.io.source import ByteSource
from rlxweb.whole_file import reason

_DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
_PIECE_NBYTES = 4 << 20
HEAD_NBYTES = 12 + bounds.NPY_HEADER_CHARS
"""What must be read of a file to parse its header: mark, version, length, text."""

# The header is a Python literal; NumPy passes on whatever a broken one provokes.
PARSER_ERRORS = (
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    MemoryError,
    RecursionError,
    TokenError,
)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of an NPY file says, and where its data begins."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[np.generic]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Notes:
    """What an NPZ file says beside its array; None or empty where it says nothing.

    units   one per channel, or a single one for all
    begun   time of day at the first sample, in seconds
    date    the day of it
    """

    fs: float | None = None
    channels: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    begun: float | None = None
    annotations: tuple[Annotation, ...] = ()
    date: datetime.date | None = None


def parse_header(head: bytes, source: ByteSource) -> NpyHeader:
    """The header in the first bytes of an NPY file; `source` is what errors name.

    Errors   RecordingError when it is cut, broken, overlong or of an unknown version.
    """
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        parse, length = {
            (1, 0): (np.lib.format.read_array_header_1_0, head[8:10]),
            (2, 0): (np.lib.format.read_array_header_2_0, head[8:12]),
        }.get(version, (None, b""))
        if parse is None:
            raise ValueError(f"version {version[0]}.{version[1]} of the format")
        claimed = int.from_bytes(length, "little")
        source.at_most("bytes of header", claimed, bounds.NPY_HEADER_CHARS)
        with warnings.catch_warnings():
            # Headers by Python 2 are read all the same.
            warnings.simplefilter("ignore")
            shape, is_fortran, dtype = parse(stream)
    except PARSER_ERRORS as error:
        raise source.error(
            f"its NPY header cannot be read ({reason(error)})",
            hint="write it again with numpy.save",
        ) from error
    if any(not 0 <= dim < 1 << 60 for dim in shape):
        raise source.error(f"its NPY header says {_shape(shape)}")
    return NpyHeader(tuple(map(int, shape)), bool(is_fortran), dtype, stream.tell())


def read_npy(
    source: ByteSource, layout: Layout, notes: Notes | None = None
) -> Contents:
    """What an NPY file holds; `notes` are an NPZ file's own words on it.

    Errors   RecordingError for a cut file, a dtype without samples, a rank above 2.
    """
    notes = notes or Notes()
    header = parse_header(source.head(HEAD_NBYTES), source)
    n_channels, n_samples, channel_major = judge(source, header, layout, source.nbytes)
    reader = _NpyReader(source, header, n_channels, n_samples, channel_major)
    dtype = native(header.dtype)
    stream = Stream(
        tuple(range(n_channels)),
        notes.fs,
        n_samples,
        dtype,
        reader,
        digital=dtype if is_digital(dtype) else None,
    )
    labels = (
        _fitted(source, "channels", notes.channels, n_channels) or [""] * n_channels
    )
    units = notes.units * n_channels if len(notes.units) == 1 else notes.units
    units = _fitted(source, "units", units, n_channels) or ("",) * n_channels
    return Contents(
        "NPY",
        tuple(map(Found, labels, units)),
        (stream,),
        begun=notes.begun,
        notes=lambda: notes.annotations,
        date=notes.date,
    )


def judge(
    source: ByteSource, header: NpyHeader, layout: Layout, nbytes: int
) -> tuple[int, int, bool]:
    """Channels, samples, and whether each channel's samples lie together.

    nbytes   that the array takes on disk, its header included
    Errors   RecordingError for a header that is no recording's or does not fit.
    """
    _check_dtype(source, header.dtype)
    n_channels, n_samples, channel_major = _orient(source, header, layout)
    turned = "samples-first" if layout == "channels-first" else "channels-first"
    source.at_most(
        f"channels ({_shape(header.shape)} is read {layout})",
        n_channels,
        bounds.CHANNELS,
        Advice(f"is it {turned}? then say so: {{}}", layout=turned),
    )
    there = nbytes - header.offset
    if there != header.nbytes:
        cut = there < header.nbytes
        raise source.error(
            "the file is cut short" if cut else "the file is too long",
            f"{_shape(header.shape)} of {header.dtype} needs {header.nbytes} bytes, "
            f"{there} are there",
            "write it again with numpy.save",
        )
    return n_channels, n_samples, channel_major


def _shape(shape: tuple[int, ...]) -> str:
    """A shape as it stands in messages, where it may be anything."""
    # Python does not print integers of thousands of digits.
    listed = ", ".join(str(n) if abs(n) < 1 << 64 else "…" for n in shape[:6])
    return f"shape [{listed}{', …' * (len(shape) > 6)}]"


def _fitted(
    source: ByteSource, what: str, texts: tuple[str, ...], n_channels: int
) -> tuple[str, ...]:
    """`texts`, one per channel or none at all."""
    if texts and len(texts) != n_channels:
        raise source.error(
            f"its '{what}' do not fit its array",
            f"{len(texts)} for {n_channels} channels",
            "write as many as there are channels",
        )
    return texts


def native(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The dtype samples are given in: native order, float16 widened to float32."""
    if dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class _NpyReader:
    source: ByteSource
    header: NpyHeader
    n_channels: int
    n_samples: int
    channel_major: bool

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        dtype, width = self.header.dtype, self.header.dtype.itemsize
        out = np.empty((len(channels), stop - start), native(dtype))
        # Whole rows are one walk, parts of many rows are many.
        many = self.channel_major and stop - start < self.n_samples
        places = len(channels) if many else 1
        self.source.expect(places, self.header.offset, self.n_samples * width)
        if self.channel_major:
            for row, channel in enumerate(channels):
                first = (channel * self.n_samples + start) * width
                out[row] = self._elements(first, stop - start)
            return out
        most = max(1, _PIECE_NBYTES // (self.n_channels * width))
        for at in range(start, stop, most):
            past = min(at + most, stop)
            first = at * self.n_channels * width
            frames = self._elements(first, (past - at) * self.n_channels)
            piece = frames.reshape(past - at, -1)[:, channels].T
            out[:, at - start : past - start] = piece
        return out

    def _elements(self, first: int, count: int) -> Samples:
        header = self.header
        raw = self.source.read(header.offset + first, count * header.dtype.itemsize)
        return np.frombuffer(raw, header.dtype)


def _orient(
    source: ByteSource, header: NpyHeader, layout: Layout
) -> tuple[int, int, bool]:
    """Channels, samples, and whether each channel's samples lie together."""
    shape = header.shape
    if len(shape) not in (1, 2):
        raise source.error(
            f"its array has {len(shape)} axes, {_shape(shape)}",
            "1 axis (one channel) or 2 (channels, samples)",
            "reshape it, or save each part as a file",
        )
    if len(shape) == 1:
        return 1, shape[0], True
    channels_first = layout == "channels-first"
    n_channels, n_samples = shape if channels_first else shape[::-1]
    # C order keeps the last axis together, Fortran order the first.
    return n_channels, n_samples, channels_first != header.is_fortran


def is_sample_dtype(dtype: np.dtype[np.generic]) -> bool:
    """True for the number types a recording can hold."""
    return dtype == np.float16 or dtype.newbyteorder("=").str[1:] in _DTYPES


def _check_dtype(source: ByteSource, dtype: np.dtype[np.generic]) -> None:
    if is_sample_dtype(dtype):
        return
    if dtype.hasobject:
        problem, hint = "its array holds Python objects", "save numbers instead"
    elif dtype.kind == "c":
        problem, hint = "its array is complex", "save real and imaginary part apart"
    else:
        problem, hint = f"its array holds {dtype}", "cast it before saving"
    raise source.error(problem, "samples are int8 to int64 or float16 to float64", hint)
