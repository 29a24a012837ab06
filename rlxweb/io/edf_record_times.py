"""Times of the data records of an EDF+ file, and the gaps of an EDF+D file.

Owns the times that records carry and the rule of what a gap is; reads no sample.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from rlxweb.core.errors import RecordingError
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.edf_header import EdfHeader, EdfSignal
from rlxweb.io.format_reader_interface import SampleReader, Samples, Span

_ONSET: Final = re.compile(rb"([+-]\d+(?:\.(\d*))?)\x14")
_MAX_ONSET_NBYTES: Final = 64
"""Bytes in which a record's onset is searched; the rest of the record is annotations.
"""
_MAX_CHECKED_RECORDS: Final = 1 << 20
"""Maximum number of records whose times are compared one by one."""
_LAST_DIGIT_SHARE: Final = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive data records without a gap.

    first_record  number of the first of them
    n_records  how many
    start_s  when it begins, in seconds from the first record of the file
    """

    first_record: int
    n_records: int
    start_s: float


def annotation_signals(header: EdfHeader) -> list[EdfSignal]:
    """Return the annotation signals; the first stores the time of every record."""
    return [signal for signal in header.signals if signal.is_annotation]


def read_record_onset(
    source: ByteSource, header: EdfHeader, time_signal: EdfSignal, record: int
) -> tuple[float, int]:
    """Return the seconds at which a record begins, and the decimals they are written
    with.

    Errors   RecordingError where it does not tell.
    Source   EDF+ specification, 2.2.4: time keeping of data records
    """
    raw = source.read(
        header.nbytes + record * header.record_nbytes + time_signal.record_offset,
        min(time_signal.samples_per_record * header.sample_nbytes, _MAX_ONSET_NBYTES),
    )
    match = _ONSET.match(raw)
    if match is None:
        raise source.error(
            f"data record {record} of the {header.version} file has no start time"
        )
    return float(match.group(1)), len(match.group(2) or b"")


def find_record_runs(source: ByteSource, header: EdfHeader) -> tuple[RecordRun, ...]:
    """Return the runs of an EDF+D file, in order.

    A gap is longer than half a sample, and than the last digit that the times are
    written with: those of a clock that runs a little faster than the sampling rate says
    leave none, and it is told how far both part.

    Errors   RecordingError for a record without a time, and for one that begins before
             the one before it ended.
    """
    time_signals = annotation_signals(header)
    if not time_signals:
        raise source.error(
            f"the {header.version} file has no annotation channel",
            "an annotation channel must contain the record times",
        )
    onsets = [
        read_record_onset(source, header, time_signals[0], record)
        for record in range(header.n_records)
    ]
    tolerance = _time_tolerance(
        header, max((decimals for _, decimals in onsets), default=0)
    )
    runs: list[RecordRun] = []
    max_deviation = 0.0
    for record, (onset, _) in enumerate(onsets):
        delay = onset - onsets[record - 1][0] - header.record_s if record else 0.0
        if delay < -tolerance:
            previous_end = onsets[record - 1][0] + header.record_s
            raise source.error(
                f"data record {record} starts at {onset:.10g} s, before the "
                f"previous record ends at {previous_end:.10g} s",
                "data records must be in time order without overlap",
            )
        if record == 0 or delay > tolerance:
            runs.append(RecordRun(record, 0, onset - onsets[0][0]))
        run = runs[-1] = replace(runs[-1], n_records=runs[-1].n_records + 1)
        expected_onset = (
            onsets[0][0] + run.start_s + (run.n_records - 1) * header.record_s
        )
        max_deviation = max(max_deviation, abs(onset - expected_onset))
    if max_deviation > tolerance:
        source.warn(
            f"the data record times differ by up to {max_deviation:.3g} s from the "
            "times computed from the sampling rate: the computed times are used"
        )
    return tuple(runs)


def check_continuous(source: ByteSource, header: EdfHeader) -> None:
    """Compare the record times of an EDF+C file with its claim to have no gap.

    Where the last record begins when it should, none of the others is looked at.

    Warns    of gaps and overlaps: the samples are read one after another, as the file
             says, and what is behind a gap lies too early
    """
    time_signals, n_records = annotation_signals(header), header.n_records
    if not time_signals or n_records < 2 or header.has_guessed_duration:
        return
    ends = [
        _try_record_onset(source, header, time_signals[0], record)
        for record in (0, n_records - 1)
    ]
    deviation = 0.0
    if None not in ends:
        (begin, decimals), (end, end_decimals) = (
            end_onset for end_onset in ends if end_onset is not None
        )
        deviation = end - begin - (n_records - 1) * header.record_s
        if abs(deviation) <= _time_tolerance(header, max(decimals, end_decimals)):
            return
    if n_records > _MAX_CHECKED_RECORDS and None not in ends:
        source.warn(
            f"the header declares no gaps ({header.version}), but the start time of "
            f"the last data record deviates by {deviation:.6g} s: samples are read "
            "without gaps"
        )
        return
    onsets = [
        (record, onset_and_decimals)
        for record in range(min(n_records, _MAX_CHECKED_RECORDS))
        if (
            onset_and_decimals := _try_record_onset(
                source, header, time_signals[0], record
            )
        )
        is not None
    ]
    tolerance = _time_tolerance(
        header, max((decimals for _, (_, decimals) in onsets), default=0)
    )
    delays = [
        (record, onset - previous_onset - (record - previous_record) * header.record_s)
        for (previous_record, (previous_onset, _)), (record, (onset, _)) in pairwise(
            onsets
        )
    ]
    gaps = [(record, delay) for record, delay in delays if delay > tolerance]
    overlaps = [(record, delay) for record, delay in delays if delay < -tolerance]
    claim = f"the header declares no gaps ({header.version})"
    rule = "samples are read without gaps; annotation times are not changed"
    if gaps or overlaps:
        findings = " and ".join(
            f"{len(delays)} {noun}{'s' * (len(delays) != 1)} "
            f"({abs(sum(delay for _, delay in delays)):.6g} s in total)"
            for noun, delays in (("gap", gaps), ("overlap", overlaps))
            if delays
        )
        first_record = min([*gaps, *overlaps])[0]
        source.warn(
            f"{claim}, but the data record times have {findings}, the first at "
            f"{first_record * header.record_s:.6g} s: {rule}"
        )
    elif onsets:
        deviation = onsets[-1][1][0] - onsets[0][1][0]
        deviation -= (onsets[-1][0] - onsets[0][0]) * header.record_s
        if abs(deviation) > tolerance:
            source.warn(
                f"the data record times differ by up to {abs(deviation):.3g} s from "
                "the times computed from the sampling rate: the computed times are used"
            )


def _try_record_onset(
    source: ByteSource, header: EdfHeader, time_signal: EdfSignal, record: int
) -> tuple[float, int] | None:
    """Return a record's onset and its decimals, or None if it has none."""
    try:
        return read_record_onset(source, header, time_signal, record)
    except RecordingError:
        return None  # an EDF+C file that tells no time there is read all the same


def _time_tolerance(header: EdfHeader, decimals: int) -> float:
    """Return the deviation in seconds up to which a record time counts as on time."""
    max_samples = max(
        (
            signal.samples_per_record
            for signal in header.signals
            if not signal.is_annotation
        ),
        default=1,
    )
    digit = _LAST_DIGIT_SHARE * 10.0**-decimals if decimals else 0.0
    return max(0.5 * header.record_s / max(max_samples, 1), digit)


def warn_about_gaps(
    source: ByteSource, header: EdfHeader, runs: tuple[RecordRun, ...]
) -> None:
    """Warn about the number, the length and the treatment of gaps."""
    ends = [run.start_s + run.n_records * header.record_s for run in runs]
    gaps = [
        next_run.start_s - end for next_run, end in zip(runs[1:], ends, strict=False)
    ]
    if gaps:
        gaps_text = (
            f"a gap of {gaps[0]:.6g} s"
            if len(gaps) == 1
            else f"{len(gaps)} gaps, {sum(gaps):.6g} s in total, the first of "
            f"{gaps[0]:.6g} s"
        )
        source.warn(
            f"the recording has {gaps_text} at {ends[0]:.6g} s: missing samples are "
            "NaN, and no segment spans a gap"
        )


@dataclass(frozen=True, slots=True)
class GappedReader:
    """Stored samples at the times they were recorded, with zeros in the gaps.

    run_starts  the first sample of each run by time
    run_ends  the first behind it
    file_starts  the first in the file
    dtype   of what the file stores
    """

    reader: SampleReader
    run_starts: tuple[int, ...]
    run_ends: tuple[int, ...]
    file_starts: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop), zeros where nothing was recorded; see
        SampleReader.
        """
        parts = []
        run = bisect_right(self.run_starts, start) - 1
        while start < stop:
            run_start, run_end = self.run_starts[run], self.run_ends[run]
            next_start = (
                self.run_starts[run + 1] if run + 1 < len(self.run_starts) else run_end
            )
            if start < run_end:
                shift = run_start - self.file_starts[run]
                chunk_end = min(stop, run_end)
                parts.append(
                    self.reader.read(channels, start - shift, chunk_end - shift)
                )
                start = chunk_end
            if start < stop:
                chunk_end = min(stop, next_start)
                parts.append(np.zeros((len(channels), chunk_end - start), self.dtype))
                start = chunk_end
            run += 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def build_gapped_reader(
    reader: SampleReader,
    header: EdfHeader,
    runs: tuple[RecordRun, ...],
    samples_per_record: int,
) -> tuple[SampleReader, int, tuple[Span, ...]]:
    """Return a reader by time, the number of samples up to the end, and the gaps, at
    one rate.

    samples_per_record  of a data record
    """
    if len(runs) < 2:
        return reader, samples_per_record * sum(run.n_records for run in runs), ()
    run_starts, run_ends = [0], [runs[0].n_records * samples_per_record]
    for run in runs[1:]:
        run_start = round(run.start_s * samples_per_record / header.record_s)
        # A gap shorter than a sample of this rate still parts what it parts.
        run_starts.append(max(run_start, run_ends[-1] + 1))
        run_ends.append(run_starts[-1] + run.n_records * samples_per_record)
    file_starts = tuple(run.first_record * samples_per_record for run in runs)
    gaps = tuple(zip(run_ends, run_starts[1:], strict=False))
    gapped_reader = GappedReader(
        reader, tuple(run_starts), tuple(run_ends), file_starts, header.digital
    )
    return gapped_reader, run_ends[-1], gaps
