"""Write EDF+ and BDF+ files record by record, in bounded memory.

Owns the header and the order of the bytes. Integers that an EDF file gave are written
as they are where their scale can be told again; else the data is walked once for its
range and once to be written. edfio writes these files too, but holds all of the samples
in memory.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.calendar_dates import format_edf_date
from rlxweb.io.edf_annotation_writer import (
    EdfAnnotationChannel,
    is_stored_exactly,
    place_annotations,
)
from rlxweb.io.edf_header import ANNOTATION_LABELS, BDF_MAGIC
from rlxweb.io.edf_writer_record_duration import EdfRecordLayout, choose_record_layout
from rlxweb.io.edf_writer_scale import EdfScale, copied_scale, finest_scale
from rlxweb.io.recording import Group
from rlxweb.io.write_job import (
    BLOCK_NBYTES,
    WriteErrorTracker,
    WriteJob,
    WrittenChannel,
    WrittenGroup,
    check_full_scale,
    check_integers_finite,
)

_SAMPLE_NBYTES: Final = {"EDF": 2, "BDF": 3}
_ASCII_REPLACEMENTS: Final = {
    0xB5: "u",  # the sign of micro, and the Greek letter
    0x3BC: "u",
    0x2126: "Ohm",  # the sign of ohms, and theirs
    0x3A9: "Ohm",
    0xB0: "deg",
}
_NON_PRINTABLE: Final = re.compile(r"[^ -~]")
_LABEL_WIDTH: Final = 16
_IDENTIFICATION_WIDTH: Final = 80
_MAX_CHANNELS: Final = 9998
_UNIT_WIDTH: Final = 8
_DAY_S: Final = 86_400


class _EdfGroupEncoder:
    """Encoder of a group's channels: their labels, units, scales and integers in the
    file.
    """

    def __init__(
        self,
        group: Group,
        names: Sequence[str],
        units: Sequence[str],
        scales: Sequence[EdfScale],
    ) -> None:
        self.group, self.names = group, names
        self.units, self.scales = units, scales
        self._errors = WriteErrorTracker(len(names))
        # Of the channels, as columns (C, 1).
        self._factor, self._gain, self._offset, self._low, self._high = (
            np.array([[float(getattr(scale, field_name))] for scale in scales])
            for field_name in ("factor", "gain", "offset", "digital_min", "digital_max")
        )

    def encode_samples(self, start: int, stop: int, job: WriteJob) -> NDArray[np.int32]:
        """Return the integers (C, stop - start); past the end, repeat each channel's
        last one.
        """
        group = self.group
        length, available_stop = stop - start, min(stop, group.n_samples)
        start = min(start, available_stop - 1)
        data = group.read(start, available_stop)
        check_integers_finite(data, group, start, job)
        if job.full_scale is not None:
            check_full_scale(data, group, start, job.full_scale, job.context)
        values = np.asarray(data, np.float64) * self._factor
        codes = np.rint(values / self._gain - self._offset)
        np.clip(codes, self._low, self._high, out=codes)
        reference = data if (self._factor == 1).all() else values
        self._errors.update(reference, (codes + self._offset) * self._gain)
        return _pad_edge(codes.astype(np.int32), length)

    def written_group(self, fs: float, n_samples: int) -> WrittenGroup:
        """Return the report of the group as written, with the largest error of each
        channel.
        """
        channels = tuple(
            WrittenChannel(
                channel.name,
                label,
                unit,
                abs(scale.gain),
                0.0 if scale.is_copied else float(error),
            )
            for channel, label, unit, scale, error in zip(
                self.group.channels,
                self.names,
                self.units,
                self.scales,
                self._errors.max_error,
                strict=True,
            )
        )
        return WrittenGroup(fs, n_samples, channels)


def write_edf(file: IO[bytes], job: WriteJob) -> tuple[WrittenGroup, ...]:
    """Write the groups as an EDF+ or BDF+ file, all channels at their own rates.

    Raises
    ------
    NotFinite
        A sample is NaN or infinite.
    UsageError
        Rates, ranges, lengths or channels do not fit.
    """
    kind = job.format_label
    n_channels = sum(len(group.channels) for group in job.groups)
    if n_channels > _MAX_CHANNELS:
        raise UsageError(
            job.context,
            f"got {n_channels} channels",
            f"{kind} supports at most {_MAX_CHANNELS}, plus the annotation channel",
            Advice("select fewer channels: {}", channels=Blank("NAMES")),
        )
    record_layout = choose_record_layout(job.groups, _SAMPLE_NBYTES[kind], job.context)
    encoders = _make_encoders(job)
    begun = job.begun or 0.0
    subsecond = begun - math.floor(begun)
    notes = place_annotations(
        job.annotations, record_layout.n_records, record_layout.record_s, subsecond
    )
    _record_losses(job, record_layout)
    start_second = math.floor(begun) % _DAY_S
    identification, date_text = _identification(encoders, record_layout, job)
    file.write(
        _build_header(
            encoders,
            record_layout,
            notes,
            start_second,
            (identification, date_text),
            kind,
        )
    )
    for chunk in _encode_records(
        encoders, record_layout, notes, job, _SAMPLE_NBYTES[kind]
    ):
        file.write(chunk)
    return tuple(
        encoder.written_group(fs, n * record_layout.n_records)
        for encoder, fs, n in zip(
            encoders, record_layout.rates, record_layout.samples_per_record, strict=True
        )
    )


def _encode_records(
    encoders: Sequence[_EdfGroupEncoder],
    record_layout: EdfRecordLayout,
    notes: EdfAnnotationChannel,
    job: WriteJob,
    width: int,
) -> Iterator[bytes]:
    """Yield the data records, a block of them at a time."""
    samples_per_record = sum(
        n * len(encoder.names)
        for n, encoder in zip(record_layout.samples_per_record, encoders, strict=True)
    )
    records_per_block = max(1, BLOCK_NBYTES // (8 * max(1, samples_per_record)))
    annotation_nbytes = -(-notes.record_nbytes // width) * width
    for first_record in range(0, record_layout.n_records, records_per_block):
        count = min(records_per_block, record_layout.n_records - first_record)
        parts = []
        for encoder, n in zip(encoders, record_layout.samples_per_record, strict=True):
            start, stop = first_record * n, (first_record + count) * n
            counts = encoder.encode_samples(start, stop, job)
            little_endian = np.ascontiguousarray(counts, "<i2" if width == 2 else "<i4")
            raw = little_endian.view(np.uint8).reshape(len(counts), count, n, -1)[
                ..., :width
            ]
            parts.append(raw.swapaxes(0, 1).reshape(count, -1))
            job.report_progress(
                max(0, min(stop, encoder.group.n_samples) - start) * len(counts)
            )
        annotation_blocks = [
            notes.record_bytes(first_record + index).ljust(annotation_nbytes, b"\0")
            for index in range(count)
        ]
        annotation_bytes = np.frombuffer(b"".join(annotation_blocks), np.uint8).reshape(
            count, -1
        )
        yield np.concatenate([*parts, annotation_bytes], axis=1).tobytes()


def _pad_edge(counts: NDArray[Any], length: int) -> NDArray[Any]:
    """Repeat the last column up to a length."""
    missing = length - counts.shape[1]
    return np.pad(counts, ((0, 0), (0, missing)), "edge") if missing else counts


# --- scales ---------------------------------------------------------------------------


def _make_encoders(job: WriteJob) -> list[_EdfGroupEncoder]:
    """Return an encoder for each group."""
    names = iter(
        _edf_labels([name for group in job.groups for name in group.names], job)
    )
    bits = 8 * _SAMPLE_NBYTES[job.format_label]
    encoders = []
    for group in job.groups:
        labels = [next(names) for _ in group.channels]
        scale_units = _channel_scales(job, group, -(1 << bits - 1), (1 << bits - 1) - 1)
        scales = [scale for scale, _ in scale_units]
        units = [unit for _, unit in scale_units]
        encoders.append(
            _EdfGroupEncoder(
                group, labels, [_edf_unit(unit, job) for unit in units], scales
            )
        )
    return encoders


def _channel_scales(
    job: WriteJob, group: Group, low: int, high: int
) -> list[tuple[EdfScale, str]]:
    """Return the scale and the unit of each channel."""
    if job.full_scale is not None:
        full_scale = job.full_scale
        shared_scale = finest_scale(-full_scale, full_scale, low, high, job.context)
        return [(shared_scale, channel.unit) for channel in group.channels]
    scales = []
    for channel, a, b in zip(group.channels, *_stored_ranges(job, group), strict=True):
        if group.digital is not None:
            copied = copied_scale(channel, (int(a), int(b)), low, high)
            if copied is not None:
                scales.append((copied, channel.unit))
                continue
        low_end, high_end = sorted(
            channel.gain * (float(end) + channel.offset) for end in (a, b)
        )
        # Eight characters say little of a few millionths of a volt.
        is_volt = channel.unit == "V" and max(-low_end, high_end) < 1
        factor, unit = (1e6, "uV") if is_volt else (1.0, channel.unit)
        scales.append(
            (finest_scale(low_end, high_end, low, high, job.context, factor), unit)
        )
    return scales


def _stored_ranges(job: WriteJob, group: Group) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the minimum and the maximum of each channel, as stored."""
    minima = np.full(len(group.channels), np.inf)
    maxima = -minima
    block_samples = max(1, BLOCK_NBYTES // (8 * len(group.channels)))
    for block in group.stored_blocks(block_samples):
        values = block.data.counts if isinstance(block.data, Digital) else block.data
        check_integers_finite(values, group, block.start, job)
        np.minimum(minima, values.min(axis=1), out=minima)
        np.maximum(maxima, values.max(axis=1), out=maxima)
        job.report_progress(values.size)
    return minima, maxima


# --- words ----------------------------------------------------------------------------


def _record_losses(job: WriteJob, record_layout: EdfRecordLayout) -> None:
    """Note padding, changed rates, an unknown time of day and changed annotations."""
    for group, n in zip(job.groups, record_layout.samples_per_record, strict=True):
        n_padded = n * record_layout.n_records - group.n_samples
        if n_padded:
            job.losses.append(
                f"the last data record is padded: the last of {group.n_samples} "
                f"samples at {group.fs:g} Hz is repeated {n_padded} times"
            )
    for group, fs in zip(job.groups, record_layout.rates, strict=True):
        if not math.isclose(fs, group.fs, rel_tol=1e-9):
            job.losses.append(f"the rate {group.fs:.12g} Hz is stored as {fs:.12g} Hz")
    if job.begun is None:
        job.losses.append(
            f"the start time is unknown; {job.format_label} stores midnight"
        )
    n_changed = sum(not is_stored_exactly(note) for note in job.annotations)
    if n_changed:
        job.losses.append(
            f"{n_changed} of {len(job.annotations)} annotations are changed: "
            f"{job.format_label} does not support empty texts, spaces around a "
            "text, control characters or negative durations"
        )


def _edf_labels(names: Sequence[str], job: WriteJob) -> list[str]:
    """Return unique labels of at most 16 printable ASCII characters."""
    labels: dict[str, None] = {}
    for name in names:
        ascii_name = _to_ascii(name).strip() or "ch"
        if ascii_name.casefold() in ANNOTATION_LABELS:
            ascii_name = f"_{ascii_name}"
        label, n = ascii_name[:_LABEL_WIDTH], 1
        while label in labels:
            n += 1
            suffix = f"~{n}"
            label = ascii_name[: _LABEL_WIDTH - len(suffix)] + suffix
        labels[label] = None
    changed = [
        f"{a!r} becomes {b!r}" for a, b in zip(names, labels, strict=True) if a != b
    ]
    if changed:
        remainder = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        message = (
            f"channel names are reduced to {_LABEL_WIDTH} ASCII characters: "
            f"{', '.join(changed[:4])}{remainder}"
        )
        job.losses.append(message)
    return list(labels)


def _edf_unit(unit: str, job: WriteJob) -> str:
    """Return a unit in at most 8 ASCII characters."""
    plain = _to_ascii(unit.translate(_ASCII_REPLACEMENTS)).strip()[:_UNIT_WIDTH]
    if plain != unit and unit.translate(_ASCII_REPLACEMENTS) != plain:
        message = f"the unit {unit!r} is stored as {plain!r}"
        if message not in job.losses:
            job.losses.append(message)
    return plain


def _to_ascii(text: str) -> str:
    """Strip diacritics and replace every other non-ASCII character by a question
    mark.
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_ASCII_REPLACEMENTS))
    base = "".join(c for c in decomposed if not unicodedata.combining(c))
    return _NON_PRINTABLE.sub("?", base)


def _identification(
    encoders: Sequence[_EdfGroupEncoder], record_layout: EdfRecordLayout, job: WriteJob
) -> tuple[str, str]:
    """Return the header's recording identification and start date.

    EDF+ allows further subfields: of a padded file, `samples=` has the samples of a
    channel before the padding, of each rate in the order of the signals. edfio shows it
    as `additional`, and MNE passes over it.
    """
    date_text, identification = format_edf_date(job.date)
    lengths = [encoder.group.n_samples for encoder in encoders]
    padded = [n * record_layout.n_records for n in record_layout.samples_per_record]
    if lengths == padded:
        return identification, date_text
    extended = f"{identification} samples={','.join(map(str, lengths))}"
    if len(extended) <= _IDENTIFICATION_WIDTH:
        return extended, date_text
    job.losses.append(
        "the header has no space to store the number of samples before padding"
    )
    return identification, date_text


def _build_header(
    encoders: Sequence[_EdfGroupEncoder],
    record_layout: EdfRecordLayout,
    notes: EdfAnnotationChannel,
    start_second: int,
    identification: tuple[str, str],
    kind: str,
) -> bytes:
    """Return the bytes of the header."""
    low = -(1 << 8 * _SAMPLE_NBYTES[kind] - 1)
    high = (1 << 8 * _SAMPLE_NBYTES[kind] - 1) - 1
    signal_fields: list[tuple[object, ...]] = [
        (
            name,
            unit,
            scale.physical_min,
            scale.physical_max,
            scale.digital_min,
            scale.digital_max,
            n,
        )
        for encoder, n in zip(encoders, record_layout.samples_per_record, strict=True)
        for name, unit, scale in zip(
            encoder.names, encoder.units, encoder.scales, strict=True
        )
    ]
    annotation_samples = -(-notes.record_nbytes // _SAMPLE_NBYTES[kind])
    signal_fields.append(
        (f"{kind} Annotations", "", -1, 1, low, high, annotation_samples)
    )
    hours = start_second // 3600
    minutes = start_second // 60 % 60
    seconds = start_second % 60
    magic = "0".ljust(8).encode() if kind == "EDF" else BDF_MAGIC
    recording_text, date_text = identification
    header_fields: list[tuple[object, int]] = [
        ("X X X X", 80),  # who it is of, a recording of ours does not know
        (recording_text, _IDENTIFICATION_WIDTH),
        (date_text, 8),
        (f"{hours:02}.{minutes:02}.{seconds:02}", 8),
        (256 * (len(signal_fields) + 1), 8),
        (f"{kind}+C", 44),
        (record_layout.n_records, 8),
        (record_layout.duration_text, 8),
        (len(signal_fields), 4),
    ]
    label, unit, physical_min, physical_max, digital_min, digital_max, samples = zip(
        *signal_fields, strict=True
    )
    blank = ("",) * len(signal_fields)
    for values, width in (
        (label, _LABEL_WIDTH),
        (blank, 80),
        (unit, _UNIT_WIDTH),
        (physical_min, 8),
        (physical_max, 8),
        (digital_min, 8),
        (digital_max, 8),
        (blank, 80),
        (samples, 8),
        (blank, 32),
    ):
        header_fields += [(value, width) for value in values]
    return magic + b"".join(
        str(field_value).ljust(width).encode() for field_value, width in header_fields
    )
