"""Reader of EDF and BDF files, on NumPy alone, straight from the file.

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

from rlxweb.core.errors import RecordingError, shown
from rlxweb.io.annotations import (
    MAX_ANNOTATIONS,
    Annotation,
    is_utf8,
    parse_annotations,
)
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.channel_selection import ANNOTATIONS_REASON, TRIGGER_REASON, is_trigger
from rlxweb.io.edf_header import EdfHeader, EdfSignal, parse_header
from rlxweb.io.edf_record_times import (
    RecordRun,
    annotation_signals,
    build_gapped_reader,
    check_continuous,
    find_record_runs,
    read_record_onset,
    warn_about_gaps,
)
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
)
from rlxweb.io.pcm_integer_decoding import decode_int24

_CHUNK_NBYTES = 4 << 20
_GUESSED_DURATION = (
    "the header declares a data record duration of 0 s; 1 s is assumed, as in MNE"
)


def read_edf(source: ByteSource) -> FileContents:
    """Read the layout of an EDF, EDF+, BDF or BDF+ file: its channels and readers of
    their samples.

    Errors   RecordingError for a broken header, and for an EDF+D file whose records
             tell no time or overlap.
    Warns    of gaps
    """
    header = parse_header(source)
    channels = tuple(map(_describe_signal, header.signals))
    # The signals that can be taken, by their number of samples per record.
    indices_by_samples: dict[int, list[int]] = {}
    for index, channel in enumerate(channels):
        if channel.is_selectable:
            indices_by_samples.setdefault(
                header.signals[index].samples_per_record, []
            ).append(index)
    runs: tuple[RecordRun, ...] = (RecordRun(0, header.n_records, 0.0),)
    if header.version.endswith("+C") and indices_by_samples:
        check_continuous(source, header)
    if header.version.endswith("+D") and indices_by_samples:
        runs = find_record_runs(source, header)
        warn_about_gaps(source, header, runs)
    stored_reader = _EdfReader(source, header)
    streams = []
    for samples_per_record, channel_indices in indices_by_samples.items():
        reader, n_samples, gaps = build_gapped_reader(
            stored_reader, header, runs, samples_per_record
        )
        streams.append(
            ChannelStream(
                tuple(channel_indices),
                samples_per_record / header.record_s,
                n_samples,
                np.dtype(np.float64),
                reader,
                digital=header.digital,
                guess_reason=_GUESSED_DURATION if header.has_guessed_duration else "",
                gaps=gaps,
            )
        )
    return FileContents(
        header.version,
        channels,
        tuple(streams),
        begun=_start_time_of_day(source, header),
        read_annotations=partial(_read_annotations, source, header),
        date=header.date,
    )


def _start_time_of_day(source: ByteSource, header: EdfHeader) -> float | None:
    """Return the time of day at the first sample: the header's plus the first record's
    fraction of a second.
    """
    time_signals = annotation_signals(header)
    has_record_times = time_signals and "+" in header.version and header.n_records
    if header.begun is None or not has_record_times:
        return header.begun
    first_onset = 0.0
    with suppress(RecordingError):  # whoever asks for annotations is told
        first_onset, _ = read_record_onset(source, header, time_signals[0], 0)
    return header.begun + (first_onset if 0 <= first_onset < 1 else 0.0)


def _describe_signal(signal: EdfSignal) -> FileChannel:
    """Describe a signal as a channel of the file."""
    for exclusion_reason, applies in (
        (ANNOTATIONS_REASON, signal.is_annotation),
        ("contains no samples", signal.samples_per_record == 0),
        (signal.calibration_problem, bool(signal.calibration_problem)),
    ):
        if applies:
            return FileChannel(signal.label, signal.unit, exclusion_reason, False)
    exclusion_reason = TRIGGER_REASON if is_trigger(signal.label) else ""
    scale = signal.gain, signal.offset
    return FileChannel(signal.label, signal.unit, exclusion_reason, True, *scale)


@dataclass(frozen=True, slots=True)
class _EdfReader:
    """SampleReader of the stored data records of an EDF or BDF file."""

    source: ByteSource
    header: EdfHeader

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) as stored; all channels share a rate.

        Several whole records at a time, or of a record too long to hold only the bytes
        that are wanted.
        """
        header, width = self.header, self.header.sample_nbytes
        out = np.empty((len(channels), stop - start), header.digital)
        signals = [header.signals[first_sample] for first_sample in channels]
        samples_per_record = signals[0].samples_per_record
        records_per_read = _CHUNK_NBYTES // header.record_nbytes
        end_record = -(-stop // samples_per_record)
        for record in range(
            start // samples_per_record, end_record, max(records_per_read, 1)
        ):
            count = min(max(records_per_read, 1), end_record - record)
            first_sample = record * samples_per_record
            low = max(start - first_sample, 0)
            high = min(stop - first_sample, count * samples_per_record)
            offset = header.nbytes + record * header.record_nbytes
            raw = (
                self.source.read(offset, count * header.record_nbytes)
                if records_per_read
                else b""
            )
            records = np.frombuffer(raw, np.uint8).reshape(count, -1)
            for row, signal in enumerate(signals):
                if records_per_read:
                    signal_bytes = records[
                        :,
                        signal.record_offset : signal.record_offset
                        + samples_per_record * width,
                    ]
                    digital = self._decode(signal_bytes)[low:high]
                else:
                    first_byte = offset + signal.record_offset + low * width
                    raw = self.source.read(first_byte, (high - low) * width)
                    digital = self._decode(np.frombuffer(raw, np.uint8))
                out[row, first_sample + low - start : first_sample + high - start] = (
                    digital
                )
        return out

    def _decode(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.signedinteger]:
        """Decode the bytes of samples as integers of 16 or 24 bits."""
        raw = np.ascontiguousarray(raw).reshape(-1)
        return decode_int24(raw) if self.header.sample_nbytes == 3 else raw.view("<i2")


def _read_annotations(source: ByteSource, header: EdfHeader) -> tuple[Annotation, ...]:
    """Return all annotations of the file, sorted by onset.

    Errors   RecordingError for more than are read.
    """
    annotation_channels = annotation_signals(header)
    if not annotation_channels or not header.n_records or "+" not in header.version:
        return ()
    origin, _ = read_record_onset(source, header, annotation_channels[0], 0)
    annotations: list[Annotation] = []
    non_utf8_texts: list[str] = []
    for record in range(header.n_records):
        record_start = header.nbytes + record * header.record_nbytes
        for signal in annotation_channels:
            raw = source.read(
                record_start + signal.record_offset,
                signal.samples_per_record * header.sample_nbytes,
            )
            record_annotations = [
                annotation._replace(onset=annotation.onset - origin)
                for annotation in parse_annotations(raw)
            ]
            annotations += record_annotations
            if record_annotations and not raw.isascii() and not is_utf8(raw):
                non_utf8_texts += (
                    annotation.text
                    for annotation in record_annotations
                    if not annotation.text.isascii()
                )
        source.check_limit("annotations", len(annotations), MAX_ANNOTATIONS)
    if non_utf8_texts:
        count = len(non_utf8_texts)
        subject = "1 annotation is" if count == 1 else f"{count} annotations are"
        source.warn_once(
            f"EDF+ requires UTF-8, but {subject} not valid UTF-8 (first: "
            f"{shown(non_utf8_texts[0])}); Latin-1 is used instead"
        )
    return tuple(sorted(annotations))
