"""Header of an EDF or BDF file, read once: where the samples are and their scale.

Owns every header field that is used, each checked before a sample is touched. Knows
nothing of how samples are read, nor which channels are taken.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass

import numpy as np

from rlxweb.core.errors import RecordingError
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.calendar_dates import parse_edf_date

BDF_MAGIC = b"\xffBIOSEMI"
_MAX_SIGNALS = 9999  # what its four digits can say
_MAX_RECORDS = 99_999_999
_MIN_RECORD_S = 1e-6
ANNOTATION_LABELS = ("edf annotations", "bdf annotations")
# Some write the comma of their country.
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?")
# The signal fields that are used: the bytes before each, per signal, and its width. A
# column has one entry per signal.
_COLUMNS = {
    "label": (0, 16),
    "unit": (96, 8),
    "physical minimum": (104, 8),
    "physical maximum": (112, 8),
    "digital minimum": (120, 8),
    "digital maximum": (128, 8),
    "samples per record": (216, 8),
}


@dataclass(frozen=True, slots=True)
class EdfSignal:
    """Signal of every data record: physical = (digital + offset) * gain.

    samples_per_record  per record
    record_offset  its first byte inside a record
    gain, offset  both NaN where the header gives no valid calibration
    calibration_problem  then what the header says instead
    """

    label: str
    unit: str
    samples_per_record: int
    record_offset: int
    gain: float
    offset: float
    is_annotation: bool
    calibration_problem: str = ""


@dataclass(frozen=True, slots=True)
class EdfHeader:
    """Parsed header: version, records and signals of the file.

    version     "EDF", "BDF+D" …
    n_records   those that are there, whole
    has_guessed_duration  True when the header gave no length of a record
    begun       seconds of the day at the beginning; None where it tells no time
    date        the day of it
    """

    version: str
    nbytes: int
    n_records: int
    record_s: float
    has_guessed_duration: bool
    sample_nbytes: int
    signals: tuple[EdfSignal, ...]
    begun: float | None = None
    date: datetime.date | None = None

    @property
    def digital(self) -> np.dtype[np.signedinteger]:
        """Return the dtype of the samples as stored; NumPy has no 24-bit integers."""
        return np.dtype(np.int32 if self.sample_nbytes == 3 else np.int16)

    @property
    def record_nbytes(self) -> int:
        """Return the bytes of a data record."""
        return (
            sum(signal.samples_per_record for signal in self.signals)
            * self.sample_nbytes
        )


def parse_header(source: ByteSource) -> EdfHeader:
    """Parse the header and check it against the length of the file.

    A file that is longer or shorter than its header says holds the whole data records
    that are there, as MNE reads it, with a warning.

    Errors   RecordingError for a header that is cut and a field that cannot be.
    """
    head = source.read_head(256 * (_MAX_SIGNALS + 1))
    kind = "BDF" if head.startswith(BDF_MAGIC) else "EDF"
    if len(head) < 256:
        raise _truncated_header_error(source, kind, 256)
    count = _parse_int(source, "number of signals", head[252:256], 0, _MAX_SIGNALS)
    nbytes = 256 * (count + 1)
    if len(head) < nbytes:
        raise _truncated_header_error(source, kind, nbytes)
    _parse_int(source, "header length", head[184:192], nbytes, nbytes)
    sample_nbytes = 3 if kind == "BDF" else 2
    signals = _parse_signals(source, head[256:nbytes], count, kind, sample_nbytes)
    declared_records = _parse_int(
        source, "number of data records", head[236:244], -1, _MAX_RECORDS
    )
    reserved_field = head[192:197].decode("latin-1")
    version = reserved_field if reserved_field in (f"{kind}+C", f"{kind}+D") else kind
    record_s, is_guessed = _record_duration(source, head[244:252], signals)
    record_nbytes = sample_nbytes * sum(signal.samples_per_record for signal in signals)
    n_records = _count_records(
        source, declared_records, nbytes, record_nbytes, record_s
    )
    begun = _parse_time_of_day(head[176:184])
    date = parse_edf_date(head[168:176], head[88:168])
    layout = version, nbytes, n_records, record_s, is_guessed, sample_nbytes, signals
    return EdfHeader(*layout, begun, date)


def _parse_time_of_day(field: bytes) -> float | None:
    """Parse hh.mm.ss as seconds; return None if it is no time."""
    parts = field.decode("latin-1").strip().split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    hours, minutes, seconds = map(int, parts)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return 3600.0 * hours + 60.0 * minutes + seconds


def _record_duration(
    source: ByteSource, field: bytes, signals: tuple[EdfSignal, ...]
) -> tuple[float, bool]:
    """Return the duration of a data record, and whether it is guessed: 1 s for 0 s, as
    MNE does.
    """
    record_s = _parse_duration(source, field)
    # Records of annotations alone may last 0 s, records of signals may not.
    if record_s >= _MIN_RECORD_S or all(
        signal.is_annotation or not signal.samples_per_record for signal in signals
    ):
        return record_s, False
    if record_s:
        raise source.error(
            f"the data record duration is {record_s:g} s",
            f"must be at least {_MIN_RECORD_S:g} s if the file has signals",
        )
    return 1.0, True


def _count_records(
    source: ByteSource,
    declared: int,
    header_nbytes: int,
    record_nbytes: int,
    record_s: float,
) -> int:
    """Return the number of complete data records; warn if the header declares
    another.
    """
    available, extra_nbytes = divmod(
        source.nbytes - header_nbytes, max(1, record_nbytes)
    )
    if record_nbytes == 0:
        return max(declared, 0)
    remainder_text = (
        f"; an incomplete record of {extra_nbytes} bytes is skipped"
        if extra_nbytes
        else ""
    )
    if declared == -1:
        # Written while recording and never closed: whole records are what there is.
        if extra_nbytes:
            source.warn(
                f"the recording was not closed properly: found {available} data "
                f"records{remainder_text}"
            )
    elif available < declared:
        source.warn(
            f"the file is truncated: the header declares {declared} data records, "
            f"the file has {available}{remainder_text}; the last "
            f"{(declared - available) * record_s:.6g} s are missing"
        )
    elif available > declared or extra_nbytes:
        source.warn(
            f"the file is longer than declared: the header declares {declared} data "
            f"records; all {available} in the file are read{remainder_text}"
        )
    return available


def _parse_signals(
    source: ByteSource, columns: bytes, count: int, kind: str, sample_nbytes: int
) -> tuple[EdfSignal, ...]:
    """Parse the signal fields of the header."""
    try:
        columns.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "latin-1"
    signals = []
    record_offset = 0
    for row in range(count):
        fields = {}
        for name, (before, nbytes) in _COLUMNS.items():
            first = count * before + row * nbytes
            fields[name] = columns[first : first + nbytes]
        label, unit = (
            fields[name].decode(encoding, "replace").rstrip(" \0")
            for name in ("label", "unit")
        )
        samples_per_record = _parse_int(
            source, "samples per record", fields["samples per record"], 0, 99_999_999
        )
        # By whatever hand: a label with a blank in front or in capitals, a BDF+ file
        # that was made an EDF+ file.
        is_annotation = label.strip().casefold() in ANNOTATION_LABELS
        gain, offset = _gain_and_offset(fields)
        calibration_problem = _calibration_problem(fields) if math.isnan(gain) else ""
        signals.append(
            EdfSignal(
                label,
                unit,
                samples_per_record,
                record_offset,
                gain,
                offset,
                is_annotation,
                calibration_problem,
            )
        )
        record_offset += samples_per_record * sample_nbytes
    return tuple(signals)


def _gain_and_offset(fields: dict[str, bytes]) -> tuple[float, float]:
    """Return the gain and offset of the four limits; both NaN if the limits give no
    scale.
    """
    try:
        digital_min, digital_max, physical_min, physical_max = (
            _parse_number(fields[f"{kind} {end}"])
            for kind in ("digital", "physical")
            for end in ("minimum", "maximum")
        )
        gain = (physical_max - physical_min) / (digital_max - digital_min)
        offset = physical_max / gain - digital_max
    except ArithmeticError:
        return math.nan, math.nan
    is_valid = math.isfinite(gain) and math.isfinite(offset)
    return (gain, offset) if is_valid else (math.nan, math.nan)


def _calibration_problem(fields: dict[str, bytes]) -> str:
    """Return the reason why a signal has no calibration, with the text of its four
    limits.
    """
    physical, digital = (
        " to ".join(
            _field_text(fields[f"{kind} {end}"]) or "?"
            for end in ("minimum", "maximum")
        )
        for kind in ("physical", "digital")
    )
    return f"has no valid calibration (physical {physical}, digital {digital})"


def _parse_number(field: bytes) -> float:
    """Parse a number with a point or a comma; return NaN for other text."""
    text = _field_text(field)
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else math.nan


def _field_text(field: bytes) -> str:
    """Return the text of a header field without padding."""
    return field.decode("latin-1").strip(" \0")


def _truncated_header_error(
    source: ByteSource, kind: str, needed_nbytes: int
) -> RecordingError:
    """Return the error for a header that is cut short."""
    return source.error(
        f"the {kind} header is truncated",
        f"expected {needed_nbytes} bytes, got {source.nbytes}",
        "copy the file again from its source",
    )


def _parse_int(
    source: ByteSource, field_name: str, field: bytes, low: int, high: int
) -> int:
    """Parse an integer field; raise RecordingError if it is out of range."""
    text = _field_text(field)
    value = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
    if value is None or not low <= value <= high:
        allowed = str(low) if low == high else f"{low} to {high}"
        raise source.error(
            f"the header field {field_name!r} is {text!r}", f"must be {allowed}"
        )
    return value


def _parse_duration(source: ByteSource, field: bytes) -> float:
    """Parse the duration of a data record; raise RecordingError if it is invalid."""
    value = _parse_number(field)
    if not math.isfinite(value) or value < 0:
        raise source.error(
            f"the header field 'duration of a data record' is {_field_text(field)!r}",
            "must be a number of seconds, at least 0",
        )
    return value
