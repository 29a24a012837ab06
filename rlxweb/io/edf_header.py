"""The header of an EDF or BDF file, read once: where the samples lie and their scale.

Owns every header field that is used, each checked before a sample is touched. Knows
nothing of how samples are read, nor which channels are taken.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from rlxweb.errors import RecordingError
from rlxweb.io.source import ByteSource

BDF_MAGIC = b"\xffBIOSEMI"
_MOST_SIGNALS = 9999
_SHORTEST_S = 1e-6
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
    """

    label: str
    unit: str
    samples: int
    at: int
    gain: float
    offset: float
    is_annotation: bool


@dataclass(frozen=True, slots=True)
class Header:
    """What the file is and where its records lie; `version` is "EDF", "BDF+D" …"""

    version: str
    nbytes: int
    n_records: int
    record_s: float
    width: int
    signals: tuple[Signal, ...]

    @property
    def digital(self) -> np.dtype[np.signedinteger]:
        """Of the samples as stored; NumPy has no type of 24 bits."""
        return np.dtype(np.int32 if self.width == 3 else np.int16)

    @property
    def record_nbytes(self) -> int:
        return sum(signal.samples for signal in self.signals) * self.width


def parse_header(source: ByteSource) -> Header:
    """The header, proved against the length of the file.

    Errors   RecordingError for a field that cannot be, a file cut short or too long.
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
    n_records = _int(source, "number of data records", head[236:244], -1, 99_999_999)
    if n_records == -1:
        # Written while recording and never closed: whole records are what there is.
        record_nbytes = width * sum(signal.samples for signal in signals)
        n_records = -(-(source.nbytes - nbytes) // max(1, record_nbytes))
    plus = head[192:197].decode("latin-1")
    version = plus if plus in (f"{kind}+C", f"{kind}+D") else kind
    record_s = _seconds(source, head[244:252])
    # Records of annotations alone may last 0 s, records of signals may not.
    has_signal = any(s.samples and not s.is_annotation for s in signals)
    if has_signal and record_s < _SHORTEST_S:
        raise source.error(
            f"its data records last {record_s:g} s",
            f"at least {_SHORTEST_S:g} s when there are signals",
        )
    header = Header(version, nbytes, n_records, record_s, width, signals)
    _check_size(source, header)
    return header


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
        is_annotation = label == f"{kind} Annotations"
        scale = _gain_and_offset(own)
        signals.append(Signal(label, unit, samples, at, *scale, is_annotation))
        at += samples * width
    return tuple(signals)


def _gain_and_offset(own: dict[str, bytes]) -> tuple[float, float]:
    try:
        low, high, bottom, top = (
            float(_text(own[f"{kind} {end}"]))
            for kind in ("digital", "physical")
            for end in ("minimum", "maximum")
        )
        gain = (top - bottom) / (high - low)
        offset = top / gain - high
    except (ValueError, ArithmeticError):
        return math.nan, math.nan
    valid = math.isfinite(gain) and math.isfinite(offset)
    return (gain, offset) if valid else (math.nan, math.nan)


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
    text = _text(field)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise source.error(f"its header gives {text!r} as the length of a data record")
    return value


def _check_size(source: ByteSource, header: Header) -> None:
    """Refuse a file whose length is not what its header says."""
    needs = header.nbytes + header.n_records * header.record_nbytes
    if source.nbytes == needs:
        return
    cut = source.nbytes < needs
    raise source.error(
        "the file is cut short" if cut else "the file is longer than its header says",
        f"{header.n_records} data records need {needs} bytes, {source.nbytes} are "
        "there",
        "copy it again" if cut else "repair the number of records in its header",
    )
