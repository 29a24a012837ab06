"""The samples of EDF and BDF files, on NumPy alone, straight from the file.

Owns the reading of data records, as integers. A window is read a few records at a time,
so a file may be larger than memory; a file that is cut while it is read is an error,
where a memory map would end the process. Where a discontinuous file has gaps is told
by `edf_time`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RecordingError, shown
from rlxweb.io.annotations import MOST, Annotation, is_utf8, parsed
from rlxweb.io.channels import ANNOTATIONS_REASON, TRIGGER_REASON, is_trigger
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.edf_header import Header, Signal, parse_header
from rlxweb.io.edf_time import (
    Run,
    check_continuous,
    keepers_of,
    onset_of,
    placed,
    runs_of,
    warn_of_gaps,
)
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource

_CHUNK_NBYTES = 4 << 20
_GUESS = "its header says that a data record lasts 0 s; 1 s is taken, as MNE does"


def read_edf(source: ByteSource) -> Contents:
    """What an EDF, EDF+, BDF or BDF+ file holds.

    Errors   RecordingError for a broken header, and for an EDF+D file whose records
             tell no time or overlap.
    Warns    of gaps
    """
    header = parse_header(source)
    found = tuple(map(_found, header.signals))
    # The signals that can be taken, by their number of samples per record.
    members: dict[int, list[int]] = {}
    for at, channel in enumerate(found):
        if channel.nameable:
            members.setdefault(header.signals[at].samples, []).append(at)
    runs: tuple[Run, ...] = (Run(0, header.n_records, 0.0),)
    if header.version.endswith("+C") and members:
        check_continuous(source, header)
    if header.version.endswith("+D") and members:
        runs = runs_of(source, header)
        warn_of_gaps(source, header, runs)
    stored = _EdfReader(source, header)
    streams = []
    for samples, group in members.items():
        reader, n_samples, gaps = placed(stored, header, runs, samples)
        streams.append(
            Stream(
                tuple(group),
                samples / header.record_s,
                n_samples,
                np.dtype(np.float64),
                reader,
                digital=header.digital,
                guess=_GUESS if header.is_guess else "",
                gaps=gaps,
            )
        )
    return Contents(
        header.version,
        found,
        tuple(streams),
        begun=_begun(source, header),
        notes=partial(_notes, source, header),
        date=header.date,
    )


def _begun(source: ByteSource, header: Header) -> float | None:
    """The time of day at the first sample: the header's, and what the first record has
    of a second more.
    """
    keepers = keepers_of(header)
    is_told = keepers and "+" in header.version and header.n_records
    if header.begun is None or not is_told:
        return header.begun
    more = 0.0
    with suppress(RecordingError):  # whoever asks for annotations is told
        more, _ = onset_of(source, header, keepers[0], 0)
    return header.begun + (more if 0 <= more < 1 else 0.0)


def _found(signal: Signal) -> Found:
    """A signal's place among the channels."""
    for why_not, applies in (
        (ANNOTATIONS_REASON, signal.is_annotation),
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
    keepers = keepers_of(header)
    if not keepers or not header.n_records or "+" not in header.version:
        return ()
    origin, _ = onset_of(source, header, keepers[0], 0)
    found: list[Annotation] = []
    others: list[str] = []
    for record in range(header.n_records):
        here = header.nbytes + record * header.record_nbytes
        for keeper in keepers:
            raw = source.read(here + keeper.at, keeper.samples * header.width)
            own = [n._replace(onset=n.onset - origin) for n in parsed(raw)]
            found += own
            if own and not raw.isascii() and not is_utf8(raw):
                others += (n.text for n in own if not n.text.isascii())
        source.at_most("annotations", len(found), MOST)
    if others:
        source.warn_once(
            f"{len(others)} of its annotations are not UTF-8, as EDF+ asks for, and "
            f"are read as Latin-1: {shown(others[0])}"
        )
    return tuple(sorted(found))
