"""EDF and BDF files: the header through edfio, the samples straight from the file.

Owns reading and scaling of data records, and the EDF+D rule. edfio reads a BDF file
whole and an EDF file through a memory map; neither serves a file larger than memory or
one that is cut while it is read, so only its header parser is used. Nothing is averaged
over a gap: a discontinuous file is taken only when its records prove contiguous.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RecordingError
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.edf_header import (
    MOST_SIGNALS,
    Geometry,
    check_size,
    edfio_header,
    parse_geometry,
)
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource

if TYPE_CHECKING:
    from edfio import BdfSignal, EdfSignal

_CHUNK_NBYTES = 4 << 20
# A row of the result, its first sample, and the file's integers.
_Piece = tuple[int, int, npt.NDArray[np.signedinteger]]
_ONSET = re.compile(rb"([+-]\d+(?:\.\d*)?)\x14")


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
    head = source.head(256 * (MOST_SIGNALS + 1))
    shape = parse_geometry(source, head)
    check_size(source, shape)
    if shape.version.endswith("+D"):
        _check_contiguous(source, shape)
    header = edfio_header(source, shape, head[: shape.header_nbytes])
    found: list[Found] = []
    scales: list[_Scale | None] = []
    signals: Iterator[EdfSignal | BdfSignal] = iter(header.signals)
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
    shape: Geometry, found: list[Found], reader: _EdfReader
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
    shape: Geometry
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


def _check_contiguous(source: ByteSource, shape: Geometry) -> None:
    """Each record must begin where the one before ended, to half a sample."""
    keeper = next(
        (at for at in range(len(shape.labels)) if shape.is_annotation(at)), -1
    )
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


def _onset(source: ByteSource, shape: Geometry, keeper: int, record: int) -> float:
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
