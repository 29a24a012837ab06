"""When the data records of an EDF+ file begin, and where an EDF+D file has gaps.

Owns the times that records carry and the rule of what a gap is; reads no sample.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from rlxweb.errors import RecordingError
from rlxweb.io.contents import SampleReader, Samples, Span
from rlxweb.io.edf_header import Header, Signal
from rlxweb.io.source import ByteSource

_ONSET: Final = re.compile(rb"([+-]\d+(?:\.(\d*))?)\x14")
_ONSET_NBYTES: Final = 64
"""An onset is a few characters; the rest of the record is annotations."""
_MOST_RECORDS: Final = 1 << 20
"""Whose times are looked at one by one; more than days have seconds."""
_A_WHOLE_DIGIT: Final = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Run:
    """Data records that follow each other without a gap.

    first    number of the first of them
    count    how many
    begin_s  when it begins, in seconds from the first record of the file
    """

    first: int
    count: int
    begin_s: float


def keepers_of(header: Header) -> list[Signal]:
    """The annotation signals; the first keeps the time of every record."""
    return [signal for signal in header.signals if signal.is_annotation]


def onset_of(
    source: ByteSource, header: Header, keeper: Signal, record: int
) -> tuple[float, int]:
    """Seconds at which a record begins, and the decimals they are written with.

    Errors   RecordingError where it does not tell.
    Source   EDF+ specification, 2.2.4: time keeping of data records
    """
    raw = source.read(
        header.nbytes + record * header.record_nbytes + keeper.at,
        min(keeper.samples * header.width, _ONSET_NBYTES),
    )
    match = _ONSET.match(raw)
    if match is None:
        raise source.error(
            f"data record {record} of the {header.version} file carries no time"
        )
    return float(match.group(1)), len(match.group(2) or b"")


def runs_of(source: ByteSource, header: Header) -> tuple[Run, ...]:
    """The runs of an EDF+D file, in order.

    A gap is longer than half a sample, and than the last digit that the times are
    written with: those of a clock that runs a little faster than the sampling rate says
    leave none, and it is told how far both part.

    Errors   RecordingError for a record without a time, and for one that begins before
             the one before it ended.
    """
    keepers = keepers_of(header)
    if not keepers:
        raise source.error(
            f"an {header.version} file without an annotation channel",
            "its records carry their times there",
        )
    told = [
        onset_of(source, header, keepers[0], record)
        for record in range(header.n_records)
    ]
    slack = _slack(header, max((decimals for _, decimals in told), default=0))
    runs: list[Run] = []
    apart = 0.0
    for record, (onset, _) in enumerate(told):
        late = onset - told[record - 1][0] - header.record_s if record else 0.0
        if late < -slack:
            ended = told[record - 1][0] + header.record_s
            raise source.error(
                f"data record {record} begins at {onset:.10g} s, before the one before "
                f"it ended at {ended:.10g} s",
                "the records of a file follow each other in time",
            )
        if record == 0 or late > slack:
            runs.append(Run(record, 0, onset - told[0][0]))
        run = runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
        lies = told[0][0] + run.begin_s + (run.count - 1) * header.record_s
        apart = max(apart, abs(onset - lies))
    if apart > slack:
        source.warn(
            f"the times of its data records and its sampling rate part by up to "
            f"{apart:.3g} s: samples lie where the rate puts them"
        )
    return tuple(runs)


def check_continuous(source: ByteSource, header: Header) -> None:
    """Compare the times of the records of an EDF+C file with its claim to have no gap.

    Where the last record begins when it should, none of the others is looked at.

    Warns    of gaps and overlaps: the samples are read one after another, as the file
             says, and what is behind a gap lies too early
    """
    keepers, n = keepers_of(header), header.n_records
    if not keepers or n < 2 or header.is_guess:
        return
    ends = [_onset_or_none(source, header, keepers[0], record) for record in (0, n - 1)]
    off = 0.0
    if None not in ends:
        (begin, decimals), (end, more) = (one for one in ends if one is not None)
        off = end - begin - (n - 1) * header.record_s
        if abs(off) <= _slack(header, max(decimals, more)):
            return
    if n > _MOST_RECORDS and None not in ends:
        source.warn(
            f"its header says that it has no gaps ({header.version}), but its last "
            f"data record begins {off:.6g} s off: samples are read one after another"
        )
        return
    told = [
        (record, own)
        for record in range(min(n, _MOST_RECORDS))
        if (own := _onset_or_none(source, header, keepers[0], record)) is not None
    ]
    slack = _slack(header, max((decimals for _, (_, decimals) in told), default=0))
    late = [
        (record, onset - before - (record - previous) * header.record_s)
        for (previous, (before, _)), (record, (onset, _)) in pairwise(told)
    ]
    gaps = [(record, by) for record, by in late if by > slack]
    overlaps = [(record, by) for record, by in late if by < -slack]
    claim = f"its header says that it has no gaps ({header.version})"
    rule = (
        "samples are read as if each record followed the one before, annotations keep "
        "their times"
    )
    if gaps or overlaps:
        many = f"{len(gaps)} gap{'s' * (len(gaps) != 1)}"
        lost = sum(by for _, by in gaps)
        back = (
            f" and {len(overlaps)} overlap{'s' * (len(overlaps) != 1)} of "
            f"{-sum(by for _, by in overlaps):.6g} s"
            if overlaps
            else ""
        )
        first = min([*gaps, *overlaps])[0]
        source.warn(
            f"{claim}, but the times of its data records have {many} of {lost:.6g} s"
            f"{back}, the first at {first * header.record_s:.6g} s: {rule}"
        )
    elif told:
        off = told[-1][1][0] - told[0][1][0]
        off -= (told[-1][0] - told[0][0]) * header.record_s
        if abs(off) > slack:
            source.warn(
                f"the times of its data records and its sampling rate part by up to "
                f"{abs(off):.3g} s: samples lie where the rate puts them"
            )


def _onset_or_none(
    source: ByteSource, header: Header, keeper: Signal, record: int
) -> tuple[float, int] | None:
    try:
        return onset_of(source, header, keeper, record)
    except RecordingError:
        return None  # an EDF+C file that tells no time there is read all the same


def _slack(header: Header, decimals: int) -> float:
    most = max((s.samples for s in header.signals if not s.is_annotation), default=1)
    digit = _A_WHOLE_DIGIT * 10.0**-decimals if decimals else 0.0
    return max(0.5 * header.record_s / max(most, 1), digit)


def warn_of_gaps(source: ByteSource, header: Header, runs: tuple[Run, ...]) -> None:
    """Say how many gaps there are, how long, and what becomes of them."""
    ends = [run.begin_s + run.count * header.record_s for run in runs]
    gaps = [b.begin_s - end for b, end in zip(runs[1:], ends, strict=False)]
    if gaps:
        many = "a gap" if len(gaps) == 1 else f"{len(gaps)} gaps,"
        first = "" if len(gaps) == 1 else f", the first {gaps[0]:.6g} s"
        source.warn(
            f"the recording has {many} of {sum(gaps):.6g} s{first} after "
            f"{ends[0]:.6g} s: what was not recorded is NaN, and no segment reaches "
            "over it"
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """Stored samples at the times they were recorded.

    begins  the first sample of each run by time
    ends    the first behind it
    stored  the first in the file
    dtype   of what the file stores
    """

    reader: SampleReader
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    stored: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader; zeros where nothing was recorded."""
        parts = []
        at = bisect_right(self.begins, start) - 1
        while start < stop:
            begin, end = self.begins[at], self.ends[at]
            next_one = self.begins[at + 1] if at + 1 < len(self.begins) else end
            if start < end:
                back = begin - self.stored[at]
                last = min(stop, end)
                parts.append(self.reader.read(channels, start - back, last - back))
                start = last
            if start < stop:
                last = min(stop, next_one)
                parts.append(np.zeros((len(channels), last - start), self.dtype))
                start = last
            at += 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def placed(
    reader: SampleReader, header: Header, runs: tuple[Run, ...], samples: int
) -> tuple[SampleReader, int, tuple[Span, ...]]:
    """A reader by time, the samples up to the end and the gaps, at one rate.

    samples  of a data record
    """
    if len(runs) < 2:
        return reader, samples * sum(run.count for run in runs), ()
    begins, ends = [0], [runs[0].count * samples]
    for run in runs[1:]:
        begin = round(run.begin_s * samples / header.record_s)
        # A gap shorter than a sample of this rate still parts what it parts.
        begins.append(max(begin, ends[-1] + 1))
        ends.append(begins[-1] + run.count * samples)
    stored = tuple(run.first * samples for run in runs)
    gaps = tuple(zip(ends, begins[1:], strict=False))
    by_time = Placed(reader, tuple(begins), tuple(ends), stored, header.digital)
    return by_time, ends[-1], gaps
