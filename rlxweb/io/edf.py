"""The samples of EDF and BDF files, on NumPy alone, straight from the file.

Owns the reading of data records, as integers, and the EDF+D rule. A window is read a
few records at a time, so a file may be larger than memory; a file that is cut while it
is read is an error, where a memory map would end the process. Nothing is averaged over
a gap: a discontinuous file is taken only when its records prove contiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from rlxweb.io.annotations import MOST, Annotation, parsed
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.edf_header import Header, Signal, parse_header
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource

_CHUNK_NBYTES = 4 << 20
_GUESS = "its header says that a data record lasts 0 s; 1 s is taken, as MNE does"
_ONSET = re.compile(rb"([+-]\d+(?:\.\d*)?)\x14")


def read_edf(source: ByteSource) -> Contents:
    """What an EDF, EDF+, BDF or BDF+ file holds.

    Errors   RecordingError for a broken header and for gaps.
    """
    header = parse_header(source)
    found = tuple(map(_found, header.signals))
    # The signals that can be taken, by their number of samples per record.
    members: dict[int, list[int]] = {}
    for at, channel in enumerate(found):
        if channel.nameable:
            members.setdefault(header.signals[at].samples, []).append(at)
    if header.version.endswith("+D") and members:
        _check_contiguous(source, header)
    reader = _EdfReader(source, header)
    streams = tuple(
        Stream(
            tuple(group),
            samples / header.record_s,
            samples * header.n_records,
            np.dtype(np.float64),
            reader,
            digital=header.digital,
            guess=_GUESS if header.is_guess else "",
        )
        for samples, group in members.items()
    )
    return Contents(
        header.version,
        found,
        streams,
        begun=header.begun,
        notes=partial(_notes, source, header),
    )


def _found(signal: Signal) -> Found:
    """A signal's place among the channels."""
    for why_not, applies in (
        ("holds annotations (text)", signal.is_annotation),
        ("holds no samples", signal.samples == 0),
        (signal.why_not, bool(signal.why_not)),
    ):
        if applies:
            return Found(signal.label, signal.unit, why_not, False)
    why_not = TRIGGER_REASON if is_trigger(signal.label) else ""
    scale = signal.gain, signal.offset
    return Found(signal.label, signal.unit, why_not, True, *scale)


@dataclass(frozen=True, slots=True)
class _EdfReader:
    source: ByteSource
    header: Header

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) as stored; all channels share a rate.

        Several whole records at a time, or of a record too long to hold only the bytes
        that are wanted.
        """
        header, width = self.header, self.header.width
        out = np.empty((len(channels), stop - start), header.digital)
        signals = [header.signals[at] for at in channels]
        samples = signals[0].samples
        most = _CHUNK_NBYTES // header.record_nbytes
        last = -(-stop // samples)
        for record in range(start // samples, last, max(most, 1)):
            count = min(max(most, 1), last - record)
            at = record * samples
            low, high = max(start - at, 0), min(stop - at, count * samples)
            here = header.nbytes + record * header.record_nbytes
            raw = self.source.read(here, count * header.record_nbytes) if most else b""
            records = np.frombuffer(raw, np.uint8).reshape(count, -1)
            for row, signal in enumerate(signals):
                if most:
                    own = records[:, signal.at : signal.at + samples * width]
                    digital = self._decode(own)[low:high]
                else:
                    first = here + signal.at + low * width
                    raw = self.source.read(first, (high - low) * width)
                    digital = self._decode(np.frombuffer(raw, np.uint8))
                out[row, at + low - start : at + high - start] = digital
        return out

    def _decode(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.signedinteger]:
        raw = np.ascontiguousarray(raw).reshape(-1)
        return decode_int24(raw) if self.header.width == 3 else raw.view("<i2")


def _notes(source: ByteSource, header: Header) -> tuple[Annotation, ...]:
    """All annotations of the file, by their onsets.

    Errors   RecordingError for more than are read.
    """
    keepers = [s for s in header.signals if s.is_annotation]
    if not keepers or not header.n_records or "+" not in header.version:
        return ()
    origin = _onset(source, header, keepers[0], 0)
    found: list[Annotation] = []
    for record in range(header.n_records):
        here = header.nbytes + record * header.record_nbytes
        for keeper in keepers:
            raw = source.read(here + keeper.at, keeper.samples * header.width)
            found += (n._replace(onset=n.onset - origin) for n in parsed(raw))
        source.at_most("annotations", len(found), MOST)
    return tuple(sorted(found))


def _check_contiguous(source: ByteSource, header: Header) -> None:
    """Each record must begin where the one before ended, to half a sample."""
    keeper = next((s for s in header.signals if s.is_annotation), None)
    if keeper is None:
        raise source.error(
            f"an {header.version} file without an annotation channel",
            "its records carry their times there",
        )
    most = max((s.samples for s in header.signals if not s.is_annotation), default=1)
    slack = 0.5 * header.record_s / max(most, 1)
    origin = 0.0
    for record in range(header.n_records):
        onset = _onset(source, header, keeper, record)
        origin = onset if record == 0 else origin
        expected = origin + record * header.record_s
        if abs(onset - expected) > slack:
            raise source.error(
                f"the recording has a gap: data record {record} begins at {onset:g} s "
                f"where {expected:g} s would go on",
                "a spectrum is not averaged over gaps",
                "cut the file into its contiguous parts",
            )


def _onset(source: ByteSource, header: Header, keeper: Signal, record: int) -> float:
    raw = source.read(
        header.nbytes + record * header.record_nbytes + keeper.at,
        # An onset is a few characters; the rest of the record is annotations.
        min(keeper.samples * header.width, 64),
    )
    match = _ONSET.match(raw)
    if match is None:
        raise source.error(
            f"data record {record} of the {header.version} file carries no time"
        )
    return float(match.group(1))
