"""Read NPY files: one NumPy array on disk, read by ranges without loading it whole.

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

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.message_text import Advice
from rlxweb.io import file_limits
from rlxweb.io.annotations import Annotation
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.format_reader_interface import (
    ArrayLayout,
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
)

_SAMPLE_DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
_CHUNK_NBYTES = 4 << 20
MAX_HEADER_NBYTES = 12 + file_limits.NPY_HEADER_CHARS
"""Bytes that must be read to parse any header: magic, version, length, text."""

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
    """Parsed header of an NPY file, and the offset of its data."""

    shape: tuple[int, ...]
    is_fortran_order: bool
    dtype: np.dtype[np.generic]
    data_offset: int

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Metadata that an NPZ file stores beside its array; None or empty where absent.

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
    """Parse the header in the first bytes of an NPY file; errors name `source`.

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
            raise ValueError(
                f"format version {version[0]}.{version[1]} is not supported"
            )
        header_nbytes = int.from_bytes(length, "little")
        source.check_limit(
            "bytes in the header", header_nbytes, file_limits.NPY_HEADER_CHARS
        )
        with warnings.catch_warnings():
            # Headers by Python 2 are read all the same.
            warnings.simplefilter("ignore")
            shape, is_fortran_order, dtype = parse(stream)
    except PARSER_ERRORS as error:
        raise source.error(
            f"the NPY header cannot be read ({error_reason(error)})",
            hint="write the file again with numpy.save",
        ) from error
    if any(not 0 <= dim < 1 << 60 for dim in shape):
        raise source.error(f"the NPY header declares an invalid {_format_shape(shape)}")
    return NpyHeader(
        tuple(map(int, shape)), bool(is_fortran_order), dtype, stream.tell()
    )


def read_npy(
    source: ByteSource, layout: ArrayLayout, metadata: ArrayMetadata | None = None
) -> FileContents:
    """Read an NPY file as a recording, with the metadata that an NPZ file gives for it.

    Errors   RecordingError for a cut file, a dtype without samples, a rank above 2.
    """
    metadata = metadata or ArrayMetadata()
    header = parse_header(source.read_head(MAX_HEADER_NBYTES), source)
    n_channels, n_samples, is_channel_major = validate_orientation(
        source, header, layout, source.nbytes
    )
    reader = _NpyReader(source, header, n_channels, n_samples, is_channel_major)
    dtype = native_dtype(header.dtype)
    stream = ChannelStream(
        tuple(range(n_channels)),
        metadata.fs,
        n_samples,
        dtype,
        reader,
        digital=dtype if is_digital_dtype(dtype) else None,
    )
    labels = (
        _check_text_count(source, "channels", metadata.channels, n_channels)
        or [""] * n_channels
    )
    units = metadata.units * n_channels if len(metadata.units) == 1 else metadata.units
    units = _check_text_count(source, "units", units, n_channels) or ("",) * n_channels
    return FileContents(
        "NPY",
        tuple(map(FileChannel, labels, units)),
        (stream,),
        begun=metadata.begun,
        read_annotations=lambda: metadata.annotations,
        date=metadata.date,
    )


def validate_orientation(
    source: ByteSource, header: NpyHeader, layout: ArrayLayout, nbytes: int
) -> tuple[int, int, bool]:
    """Validate an array as a recording; return the numbers of channels and samples, and
    whether it is channel-major.

    nbytes   that the array takes on disk, its header included
    Errors   RecordingError for a header that is no recording's or does not fit.
    """
    _check_dtype(source, header.dtype)
    n_channels, n_samples, is_channel_major = _orientation(source, header, layout)
    other_layout = "samples-first" if layout == "channels-first" else "channels-first"
    source.check_limit(
        f"channels ({_format_shape(header.shape)} is read as {layout})",
        n_channels,
        file_limits.CHANNELS,
        Advice(f"if the array is {other_layout}, pass {{}}", layout=other_layout),
    )
    available = nbytes - header.data_offset
    if available != header.nbytes:
        is_short = available < header.nbytes
        raise source.error(
            "the file is truncated" if is_short else "the file is too long",
            f"an array of {_format_shape(header.shape)} and dtype {header.dtype} "
            f"needs {header.nbytes} bytes, got {available}",
            "write the file again with numpy.save",
        )
    return n_channels, n_samples, is_channel_major


def _format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape of any size for a message."""
    # Python does not print integers of thousands of digits.
    dims_text = ", ".join(str(n) if abs(n) < 1 << 64 else "…" for n in shape[:6])
    return f"shape [{dims_text}{', …' * (len(shape) > 6)}]"


def _check_text_count(
    source: ByteSource, label: str, texts: tuple[str, ...], n_channels: int
) -> tuple[str, ...]:
    """Return the texts after checking that there is one per channel, or none."""
    if texts and len(texts) != n_channels:
        noun = "entry" if len(texts) == 1 else "entries"
        raise source.error(
            f"the metadata array '{label}' does not match the samples",
            f"got {len(texts)} {noun} for {n_channels} channels",
            "write one entry per channel",
        )
    return texts


def native_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype in which samples are given: native byte order, float16 widened
    to float32.
    """
    if dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class _NpyReader:
    """Reader of the samples of an NPY file; a SampleReader."""

    source: ByteSource
    header: NpyHeader
    n_channels: int
    n_samples: int
    is_channel_major: bool

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels, (C, T)."""
        dtype, itemsize = self.header.dtype, self.header.dtype.itemsize
        out = np.empty((len(channels), stop - start), native_dtype(dtype))
        # Whole rows are one walk, parts of many rows are many.
        is_partial = self.is_channel_major and stop - start < self.n_samples
        n_reads = len(channels) if is_partial else 1
        self.source.set_access_pattern(
            n_reads, self.header.data_offset, self.n_samples * itemsize
        )
        if self.is_channel_major:
            for row, channel in enumerate(channels):
                offset = (channel * self.n_samples + start) * itemsize
                out[row] = self._read_elements(offset, stop - start)
            return out
        max_frames = max(1, _CHUNK_NBYTES // (self.n_channels * itemsize))
        for chunk_start in range(start, stop, max_frames):
            chunk_stop = min(chunk_start + max_frames, stop)
            offset = chunk_start * self.n_channels * itemsize
            frames = self._read_elements(
                offset, (chunk_stop - chunk_start) * self.n_channels
            )
            chunk = frames.reshape(chunk_stop - chunk_start, -1)[:, channels].T
            out[:, chunk_start - start : chunk_stop - start] = chunk
        return out

    def _read_elements(self, offset: int, count: int) -> Samples:
        header = self.header
        raw = self.source.read(
            header.data_offset + offset, count * header.dtype.itemsize
        )
        return np.frombuffer(raw, header.dtype)


def _orientation(
    source: ByteSource, header: NpyHeader, layout: ArrayLayout
) -> tuple[int, int, bool]:
    """Return the numbers of channels and samples, and whether the array is
    channel-major.
    """
    shape = header.shape
    if len(shape) not in (1, 2):
        raise source.error(
            f"the array has {len(shape)} axes, {_format_shape(shape)}",
            "expected 1 axis (one channel) or 2 (channels, samples)",
            "reshape the array, or save each part to a separate file",
        )
    if len(shape) == 1:
        return 1, shape[0], True
    is_channels_first = layout == "channels-first"
    n_channels, n_samples = shape if is_channels_first else shape[::-1]
    # C order keeps the last axis together, Fortran order the first.
    return n_channels, n_samples, is_channels_first != header.is_fortran_order


def is_sample_dtype(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a recording can hold this dtype."""
    return dtype == np.float16 or dtype.newbyteorder("=").str[1:] in _SAMPLE_DTYPES


def _check_dtype(source: ByteSource, dtype: np.dtype[np.generic]) -> None:
    """Refuse an array whose dtype cannot be samples."""
    if is_sample_dtype(dtype):
        return
    if dtype.hasobject:
        problem, hint = "the array contains Python objects", "save numbers instead"
    elif dtype.kind == "c":
        problem = "the array is complex"
        hint = "save the real and imaginary parts separately"
    else:
        problem, hint = f"the array has dtype {dtype}", "cast the array before saving"
    raise source.error(
        problem, "samples must be int8 to int64 or float16 to float64", hint
    )
