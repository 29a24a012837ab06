"""EDF and BDF files: the header through edfio, the samples straight from the file.

Owns the geometry of data records and the EDF+D rule. edfio reads a BDF file whole and
an EDF file through a memory map; neither serves a file larger than memory or one that
is cut while it is read, so only its header parser is used. Nothing is averaged over a
gap: a discontinuous file is taken only when its records prove contiguous.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RecordingError
from rlxweb.io.choose import TRIGGER_REASON, is_trigger
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource

if TYPE_CHECKING:
    from edfio import Bdf, BdfSignal, Edf, EdfSignal

BDF_MAGIC = b"\xffBIOSEMI"
EDF_MAGIC = b"0       "

_MOST_SIGNALS = 9999
_CHUNK_NBYTES = 4 << 20
# A row of the result, its first sample, and the file's integers.
_Piece = tuple[int, int, npt.NDArray[np.signedinteger]]
_ONSET = re.compile(rb"([+-]\d+(?:\.\d*)?)\x14")


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Where things lie: `labels` and `samples` are those of one data record."""

    kind: str
    version: str
    header_nbytes: int
    n_records: int
    record_s: float
    labels: tuple[str, ...]
    samples: tuple[int, ...]

    @property
    def width(self) -> int:
        return 3 if self.kind == "BDF" else 2

    @property
    def record_nbytes(self) -> int:
        return sum(self.samples) * self.width

    def offset(self, signal: int) -> int:
        """Of a signal's first byte inside a data record."""
        return sum(self.samples[:signal]) * self.width

    def is_annotation(self, signal: int) -> bool:
        return self.labels[signal] == f"{self.kind} Annotations"


@dataclass(frozen=True, slots=True)
class _Scale:
    """physical = (digital + offset) * gain, in edfio's order of operations."""

    gain: float
    offset: float


def read_edf(source: ByteSource) -> Contents:
    """What an EDF, EDF+, BDF or BDF+ file holds.

    Errors   RecordingError for a broken or cut file, for gaps, and when edfio is not
             installed.
    """
    head = source.head(256 * (_MOST_SIGNALS + 1))
    shape = _parse_geometry(source, head)
    _check_size(source, shape)
    if shape.version.endswith("+D"):
        _check_contiguous(source, shape)
    header = _edfio_header(source, shape, head[: shape.header_nbytes])
    found: list[Found] = []
    scales: list[_Scale | None] = []
    signals = iter(header.signals)
    for at in range(len(shape.labels)):
        if shape.is_annotation(at):
            channel = Found(shape.labels[at], "", "holds annotations (text)", False)
            scale = None
        else:
            channel, scale = _describe(next(signals), shape.samples[at])
        found.append(channel)
        scales.append(scale)
    reader = _EdfReader(source, shape, tuple(scales))
    return Contents(shape.version, tuple(found), _streams(shape, found, reader))


def _streams(
    shape: _Geometry, found: list[Found], reader: _EdfReader
) -> tuple[Stream, ...]:
    """The signals that can be taken, by their number of samples per record."""
    members: dict[int, list[int]] = {}
    for at, channel in enumerate(found):
        if channel.nameable:
            members.setdefault(shape.samples[at], []).append(at)
    return tuple(
        Stream(
            tuple(group),
            samples / shape.record_s,
            samples * shape.n_records,
            np.dtype(np.float64),
            reader,
        )
        for samples, group in members.items()
    )


def _describe(
    signal: EdfSignal | BdfSignal, samples: int
) -> tuple[Found, _Scale | None]:
    """A signal's place among the channels and its scale; None when it has none."""
    label, unit = signal.label, signal.physical_dimension
    if samples == 0:
        return Found(label, unit, "holds no samples", False), None
    try:
        low, high = signal.digital_min, signal.digital_max
        gain = (signal.physical_max - signal.physical_min) / (high - low)
        offset = signal.physical_max / gain - high
    except (ValueError, ArithmeticError):
        gain = offset = math.nan
    if not math.isfinite(gain) or not math.isfinite(offset):
        return Found(label, unit, "has no valid calibration", False), None
    why_not = TRIGGER_REASON if is_trigger(label) else ""
    return Found(label, unit, why_not), _Scale(gain, offset)


@dataclass(frozen=True, slots=True)
class _EdfReader:
    source: ByteSource
    shape: _Geometry
    scales: tuple[_Scale | None, ...]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) in physical units; all channels share a rate."""
        out = np.empty((len(channels), stop - start), np.float64)
        walk = (
            self._by_records
            if self.shape.record_nbytes <= _CHUNK_NBYTES
            else self._inside_records
        )
        for row, at, digital in walk(channels, start, stop):
            scale = self.scales[channels[row]]
            if scale is None:
                raise RecordingError(
                    self.source.doing, f"channel {channels[row]} has no samples"
                )
            piece = out[row, at - start : at - start + len(digital)]
            np.add(digital, scale.offset, out=piece)
            piece *= scale.gain
        return out

    def _by_records(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> Iterator[_Piece]:
        """(row, first sample, digital values), several whole records at a time."""
        shape = self.shape
        samples = shape.samples[channels[0]]
        most = _CHUNK_NBYTES // shape.record_nbytes
        last = -(-stop // samples)
        for record in range(start // samples, last, most):
            count = min(most, last - record)
            raw = self.source.read(
                shape.header_nbytes + record * shape.record_nbytes,
                count * shape.record_nbytes,
            )
            records = np.frombuffer(raw, np.uint8).reshape(count, -1)
            at = record * samples
            low, high = max(start - at, 0), min(stop - at, count * samples)
            for row, channel in enumerate(channels):
                first = shape.offset(channel)
                own = records[:, first : first + samples * shape.width]
                yield row, at + low, self._decode(own)[low:high]

    def _inside_records(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> Iterator[_Piece]:
        """The same for records too long to hold: only the wanted bytes of each."""
        shape = self.shape
        samples = shape.samples[channels[0]]
        for record in range(start // samples, -(-stop // samples)):
            at = record * samples
            low, high = max(start - at, 0), min(stop - at, samples)
            here = shape.header_nbytes + record * shape.record_nbytes
            for row, channel in enumerate(channels):
                raw = self.source.read(
                    here + shape.offset(channel) + low * shape.width,
                    (high - low) * shape.width,
                )
                yield row, at + low, self._decode(np.frombuffer(raw, np.uint8))

    def _decode(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.signedinteger]:
        raw = np.ascontiguousarray(raw).reshape(-1)
        return decode_int24(raw) if self.shape.width == 3 else raw.view("<i2")


# --- the header -------------------------------------------------------------------


def _parse_geometry(source: ByteSource, head: bytes) -> _Geometry:
    """The fields that place the samples, each checked before edfio sees them."""
    kind = "BDF" if head.startswith(BDF_MAGIC) else "EDF"
    if len(head) < 256:
        raise _short_header(source, kind, 256)
    n_signals = _int(source, "number of signals", head[252:256], 0, _MOST_SIGNALS)
    header_nbytes = 256 * (n_signals + 1)
    if len(head) < header_nbytes:
        raise _short_header(source, kind, header_nbytes)
    _int(source, "header length", head[184:192], header_nbytes, header_nbytes)
    labels = [
        head[at : at + 16].decode("latin-1").rstrip(" \0")
        for at in range(256, 256 + 16 * n_signals, 16)
    ]
    first = 256 + 216 * n_signals
    samples = [
        _int(source, "samples per record", head[at : at + 8], 0, 99_999_999)
        for at in range(first, first + 8 * n_signals, 8)
    ]
    n_records = _int(source, "number of data records", head[236:244], -1, 99_999_999)
    width = 3 if kind == "BDF" else 2
    if n_records == -1:
        # Written while recording and never closed: whole records are what there is.
        n_records = (source.nbytes - header_nbytes) // max(1, width * sum(samples))
    plus = head[192:197].decode("latin-1")
    version = plus if plus in (f"{kind}+C", f"{kind}+D") else kind
    record_s = _seconds(source, head[244:252])
    shape = _Geometry(
        kind,
        version,
        header_nbytes,
        n_records,
        record_s,
        tuple(labels),
        tuple(samples),
    )
    has_signal = any(
        count and not shape.is_annotation(at) for at, count in enumerate(samples)
    )
    if has_signal and record_s <= 0:
        raise RecordingError(
            source.doing,
            f"its data records last {record_s:g} s",
            "more than 0 s when there are signals",
        )
    return shape


def _short_header(source: ByteSource, kind: str, needs: int) -> RecordingError:
    return RecordingError(
        source.doing,
        f"the {kind} header is cut short",
        f"{needs} bytes needed, {source.nbytes} are there",
        "copy the file again from where it came",
    )


def _int(source: ByteSource, what: str, field: bytes, low: int, high: int) -> int:
    text = field.decode("latin-1").strip(" \0")
    value = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
    if value is None or not low <= value <= high:
        allowed = str(low) if low == high else f"{low} … {high}"
        raise RecordingError(
            source.doing, f"its header gives {text!r} as {what}", f"allowed {allowed}"
        )
    return value


def _seconds(source: ByteSource, field: bytes) -> float:
    text = field.decode("latin-1").strip(" \0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise RecordingError(
            source.doing, f"its header gives {text!r} as the length of a data record"
        )
    return value


def _check_size(source: ByteSource, shape: _Geometry) -> None:
    needs = shape.header_nbytes + shape.n_records * shape.record_nbytes
    if source.nbytes == needs:
        return
    cut = source.nbytes < needs
    raise RecordingError(
        source.doing,
        "the file is cut short" if cut else "the file is longer than its header says",
        f"{shape.n_records} data records need {needs} bytes, "
        f"{source.nbytes} are there",
        "copy it again" if cut else "repair the number of records in its header",
    )


def _edfio_header(source: ByteSource, shape: _Geometry, header: bytes) -> Edf | Bdf:
    """edfio's view of the header alone; it warns that no records follow."""
    edfio = load_edfio(source.doing)
    try:
        header.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "latin-1"
    read = edfio.read_bdf if shape.kind == "BDF" else edfio.read_edf
    if not shape.record_nbytes:
        raise RecordingError(source.doing, "no channel in it holds samples")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed: Edf | Bdf = read(io.BytesIO(header), header_encoding=encoding)
    except (ValueError, ArithmeticError, NameError) as error:
        raise RecordingError(
            source.doing, f"its {shape.kind} header cannot be read ({error})"
        ) from error
    return parsed


def load_edfio(doing: str) -> ModuleType:
    """The edfio package; RecordingError with the way to get it when it is missing."""
    try:
        import edfio
    except ImportError as error:
        raise RecordingError(
            doing,
            "EDF and BDF files need the package edfio, which is not installed",
            hint="pip install rlxweb[eeg]",
        ) from error
    return edfio


# --- EDF+D --------------------------------------------------------------------------


def _check_contiguous(source: ByteSource, shape: _Geometry) -> None:
    """Each record must begin where the one before ended, to half a sample."""
    keeper = next((at for at in range(len(shape.labels)) if shape.is_annotation(at)), -1)
    if keeper < 0:
        raise RecordingError(
            source.doing,
            f"an {shape.version} file without an annotation channel",
            "its records carry their times there",
        )
    most = max(
        (n for at, n in enumerate(shape.samples) if not shape.is_annotation(at)),
        default=1,
    )
    slack = 0.5 * shape.record_s / max(most, 1)
    origin = 0.0
    for record in range(shape.n_records):
        onset = _onset(source, shape, keeper, record)
        origin = onset if record == 0 else origin
        expected = origin + record * shape.record_s
        if abs(onset - expected) > slack:
            raise RecordingError(
                source.doing,
                f"the recording has a gap: data record {record} begins at {onset:g} s "
                f"where {expected:g} s would go on",
                "a spectrum is not averaged over gaps",
                "cut the file into its contiguous parts",
            )


def _onset(source: ByteSource, shape: _Geometry, keeper: int, record: int) -> float:
    raw = source.read(
        shape.header_nbytes + record * shape.record_nbytes + shape.offset(keeper),
        # An onset is a few characters; the rest of the record is annotations.
        min(shape.samples[keeper] * shape.width, 64),
    )
    match = _ONSET.match(raw)
    if match is None:
        raise RecordingError(
            source.doing,
            f"data record {record} of the {shape.version} file carries no time",
        )
    return float(match.group(1))
