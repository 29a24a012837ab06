"""The header of an EDF or BDF file, read once: where the samples lie and their scale.

Owns every header field that is used, each checked before a sample is touched. Knows
nothing of how samples are read, nor which channels are taken.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass

import numpy as np

from rlxweb.errors import RecordingError
from rlxweb.io.days import day_of_edf
from rlxweb.io.source import ByteSource

BDF_MAGIC = b"\xffBIOSEMI"
_MOST_SIGNALS = 9999  # what its four digits can say
_MOST_RECORDS = 99_999_999
_SHORTEST_S = 1e-6
ANNOTATIONS = ("edf annotations", "bdf annotations")
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
class Signal:
    """One signal of every data record: physical = (digital + offset) * gain.

    samples       per record
    at            its first byte inside a record
    gain, offset  both NaN where the header gives no valid calibration
    why_not       then what the header says instead
    """

    label: str
    unit: str
    samples: int
    at: int
    gain: float
    offset: float
    is_annotation: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """What the file is and where its records lie.

    version     "EDF", "BDF+D" …
    n_records   those that are there, whole
    is_guess    True when the header gave no length of a record
    begun       seconds of the day at the beginning; None where it tells no time
    date        the day of it
    """

    version: str
    nbytes: int
    n_records: int
    record_s: float
    is_guess: bool
    width: int
    signals: tuple[Signal, ...]
    begun: float | None = None
    date: datetime.date | None = None

    @property
    def digital(self) -> np.dtype[np.signedinteger]:
        """Of the samples as stored; NumPy has no type of 24 bits."""
        return np.dtype(np.int32 if self.width == 3 else np.int16)

    @property
    def record_nbytes(self) -> int:
        return sum(signal.samples for signal in self.signals) * self.width


def parse_header(source: ByteSource) -> Header:
    """The header, proved against the length of the file.

    A file that is longer or shorter than its header says holds the whole data records
    that are there, as MNE reads it, with a warning.

    Errors   RecordingError for a header that is cut and a field that cannot be.
    """
    head = source.head(256 * (_MOST_SIGNALS + 1))
    kind = "BDF" if head.startswith(BDF_MAGIC) else "EDF"
    if len(head) < 256:
        raise _short_header(source, kind, 256)
    count = _int(source, "number of signals", head[252:256], 0, _MOST_SIGNALS)
    nbytes = 256 * (count + 1)
    if len(head) < nbytes:
        raise _short_header(source, kind, nbytes)
    _int(source, "header length", head[184:192], nbytes, nbytes)
    width = 3 if kind == "BDF" else 2
    signals = _signals(source, head[256:nbytes], count, kind, width)
    said = _int(source, "number of data records", head[236:244], -1, _MOST_RECORDS)
    plus = head[192:197].decode("latin-1")
    version = plus if plus in (f"{kind}+C", f"{kind}+D") else kind
    record_s, guessed = _record_seconds(source, head[244:252], signals)
    record_nbytes = width * sum(signal.samples for signal in signals)
    n_records = _count_records(source, said, nbytes, record_nbytes, record_s)
    begun = _time_of_day(head[176:184])
    day = day_of_edf(head[168:176], head[88:168])
    own = version, nbytes, n_records, record_s, guessed, width, signals
    return Header(*own, begun, day)


def _time_of_day(field: bytes) -> float | None:
    """hh.mm.ss as seconds; None for what is no time."""
    parts = field.decode("latin-1").strip().split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    hours, minutes, seconds = map(int, parts)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return 3600.0 * hours + 60.0 * minutes + seconds


def _record_seconds(
    source: ByteSource, field: bytes, signals: tuple[Signal, ...]
) -> tuple[float, bool]:
    """Seconds of a data record, and whether that is a guess: MNE's, for 0 s."""
    record_s = _seconds(source, field)
    # Records of annotations alone may last 0 s, records of signals may not.
    if record_s >= _SHORTEST_S or all(
        s.is_annotation or not s.samples for s in signals
    ):
        return record_s, False
    if record_s:
        raise source.error(
            f"its data records last {record_s:g} s",
            f"at least {_SHORTEST_S:g} s when there are signals",
        )
    return 1.0, True


def _count_records(
    source: ByteSource, said: int, begin: int, record_nbytes: int, record_s: float
) -> int:
    """The whole data records that are there; a warning where the header says else."""
    there, rest = divmod(source.nbytes - begin, max(1, record_nbytes))
    if record_nbytes == 0:
        return max(said, 0)
    left = f", and {rest} bytes of one more are left out" if rest else ""
    if said == -1:
        # Written while recording and never closed: whole records are what there is.
        if rest:
            source.warn(f"the file was never closed: {there} data records{left}")
    elif there < said:
        source.warn(
            f"the file is cut short: its header says {said} data records, {there} are "
            f"there{left}; the last {(said - there) * record_s:.6g} s are missing"
        )
    elif there > said or rest:
        source.warn(
            f"the file is longer than its header says: {said} data records, {there} "
            f"are there and read{left}"
        )
    return there


def _signals(
    source: ByteSource, columns: bytes, count: int, kind: str, width: int
) -> tuple[Signal, ...]:
    try:
        columns.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "latin-1"
    signals = []
    at = 0
    for row in range(count):
        own = {}
        for name, (before, nbytes) in _COLUMNS.items():
            first = count * before + row * nbytes
            own[name] = columns[first : first + nbytes]
        label, unit = (
            own[name].decode(encoding, "replace").rstrip(" \0")
            for name in ("label", "unit")
        )
        samples = _int(
            source, "samples per record", own["samples per record"], 0, 99_999_999
        )
        # By whatever hand: a label with a blank in front or in capitals, a BDF+ file
        # that was made an EDF+ file.
        is_annotation = label.strip().casefold() in ANNOTATIONS
        gain, offset = _gain_and_offset(own)
        why_not = _no_calibration(own) if math.isnan(gain) else ""
        signals.append(
            Signal(label, unit, samples, at, gain, offset, is_annotation, why_not)
        )
        at += samples * width
    return tuple(signals)


def _gain_and_offset(own: dict[str, bytes]) -> tuple[float, float]:
    """Both NaN where the four limits give no scale."""
    try:
        low, high, bottom, top = (
            _number(own[f"{kind} {end}"])
            for kind in ("digital", "physical")
            for end in ("minimum", "maximum")
        )
        gain = (top - bottom) / (high - low)
        offset = top / gain - high
    except ArithmeticError:
        return math.nan, math.nan
    valid = math.isfinite(gain) and math.isfinite(offset)
    return (gain, offset) if valid else (math.nan, math.nan)


def _no_calibration(own: dict[str, bytes]) -> str:
    """Why a signal has none, with what its four fields say."""
    physical, digital = (
        " to ".join(
            _text(own[f"{kind} {end}"]) or "?" for end in ("minimum", "maximum")
        )
        for kind in ("physical", "digital")
    )
    return f"has no valid calibration (physical {physical}, digital {digital})"


def _number(field: bytes) -> float:
    text = _text(field)
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else math.nan


def _text(field: bytes) -> str:
    return field.decode("latin-1").strip(" \0")


def _short_header(source: ByteSource, kind: str, needs: int) -> RecordingError:
    return source.error(
        f"the {kind} header is cut short",
        f"{needs} bytes needed, {source.nbytes} are there",
        "copy the file again from where it came",
    )


def _int(source: ByteSource, what: str, field: bytes, low: int, high: int) -> int:
    text = _text(field)
    value = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
    if value is None or not low <= value <= high:
        allowed = str(low) if low == high else f"{low} … {high}"
        raise source.error(f"its header gives {text!r} as {what}", f"allowed {allowed}")
    return value


def _seconds(source: ByteSource, field: bytes) -> float:
    value = _number(field)
    if not math.isfinite(value) or value < 0:
        raise source.error(
            f"its header gives {_text(field)!r} as the length of a data record"
        )
    return value
