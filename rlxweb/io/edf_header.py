"""The header of an EDF or BDF file: where the samples lie, and edfio's view of it.

Owns the fields that place samples in the file, each checked before edfio sees them, and
the only import of edfio for reading. Knows nothing of how samples are read or scaled.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from rlxweb.errors import RecordingError
from rlxweb.io.source import ByteSource

if TYPE_CHECKING:
    from edfio import Bdf, Edf

BDF_MAGIC = b"\xffBIOSEMI"
EDF_MAGIC = b"0       "
MOST_SIGNALS = 9999
_SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where things lie: `labels` and `samples` are those of one data record."""

    kind: str
    version: str
    header_nbytes: int
    n_records: int
    record_s: float
    labels: tuple[str, ...]
    samples: tuple[int, ...]

    @property
    def width(self) -> int:
        return 3 if self.kind == "BDF" else 2

    @property
    def record_nbytes(self) -> int:
        return sum(self.samples) * self.width

    def offset(self, signal: int) -> int:
        """Of a signal's first byte inside a data record."""
        return sum(self.samples[:signal]) * self.width

    def is_annotation(self, signal: int) -> bool:
        return self.labels[signal] == f"{self.kind} Annotations"


def parse_geometry(source: ByteSource, head: bytes) -> Geometry:
    """The fields that place the samples, each checked before edfio sees them."""
    kind = "BDF" if head.startswith(BDF_MAGIC) else "EDF"
    if len(head) < 256:
        raise _short_header(source, kind, 256)
    n_signals = _int(source, "number of signals", head[252:256], 0, MOST_SIGNALS)
    header_nbytes = 256 * (n_signals + 1)
    if len(head) < header_nbytes:
        raise _short_header(source, kind, header_nbytes)
    _int(source, "header length", head[184:192], header_nbytes, header_nbytes)
    labels = [
        head[at : at + 16].decode("latin-1").rstrip()
        for at in range(256, 256 + 16 * n_signals, 16)
    ]
    first = 256 + 216 * n_signals
    samples = [
        _int(source, "samples per record", head[at : at + 8], 0, 99_999_999)
        for at in range(first, first + 8 * n_signals, 8)
    ]
    n_records = _int(source, "number of data records", head[236:244], -1, 99_999_999)
    width = 3 if kind == "BDF" else 2
    if n_records == -1:
        # Written while recording and never closed: whole records are what there is.
        n_records = -(-(source.nbytes - header_nbytes) // max(1, width * sum(samples)))
    plus = head[192:197].decode("latin-1")
    version = plus if plus in (f"{kind}+C", f"{kind}+D") else kind
    shape = Geometry(
        kind,
        version,
        header_nbytes,
        n_records,
        _seconds(source, head[244:252]),
        tuple(labels),
        tuple(samples),
    )
    _check_duration(source, shape)
    return shape


def _check_duration(source: ByteSource, shape: Geometry) -> None:
    """Records of annotations alone may last 0 s, records of signals may not."""
    has_signal = any(
        count and not shape.is_annotation(at) for at, count in enumerate(shape.samples)
    )
    if has_signal and shape.record_s < _SHORTEST_S:
        raise RecordingError(
            source.doing,
            f"its data records last {shape.record_s:g} s",
            f"at least {_SHORTEST_S:g} s when there are signals",
        )


def _short_header(source: ByteSource, kind: str, needs: int) -> RecordingError:
    return RecordingError(
        source.doing,
        f"the {kind} header is cut short",
        f"{needs} bytes needed, {source.nbytes} are there",
        "copy the file again from where it came",
    )


def _int(source: ByteSource, what: str, field: bytes, low: int, high: int) -> int:
    text = field.decode("latin-1").strip(" \0")
    value = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
    if value is None or not low <= value <= high:
        allowed = str(low) if low == high else f"{low} … {high}"
        raise RecordingError(
            source.doing, f"its header gives {text!r} as {what}", f"allowed {allowed}"
        )
    return value


def _seconds(source: ByteSource, field: bytes) -> float:
    text = field.decode("latin-1").strip(" \0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise RecordingError(
            source.doing, f"its header gives {text!r} as the length of a data record"
        )
    return value


def check_size(source: ByteSource, shape: Geometry) -> None:
    """Refuse a file whose length is not what its header says."""
    needs = shape.header_nbytes + shape.n_records * shape.record_nbytes
    if source.nbytes == needs:
        return
    cut = source.nbytes < needs
    raise RecordingError(
        source.doing,
        "the file is cut short" if cut else "the file is longer than its header says",
        f"{shape.n_records} data records need {needs} bytes, {source.nbytes} are there",
        "copy it again" if cut else "repair the number of records in its header",
    )


def edfio_header(source: ByteSource, shape: Geometry, header: bytes) -> Edf | Bdf:
    """The header as edfio reads it, without the records it warns are missing."""
    edfio = load_edfio(source.doing)
    try:
        header.decode("utf-8")
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "latin-1"
    read = edfio.read_bdf if shape.kind == "BDF" else edfio.read_edf
    if not shape.record_nbytes:
        raise RecordingError(source.doing, "no channel in it holds samples")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed: Edf | Bdf = read(io.BytesIO(header), header_encoding=encoding)
    except (ValueError, ArithmeticError, NameError) as error:
        raise RecordingError(
            source.doing, f"its {shape.kind} header cannot be read ({error})"
        ) from error
    # Two readings of one header: they must agree on which channels hold text.
    ordinary = sum(not shape.is_annotation(at) for at in range(len(shape.labels)))
    if len(parsed.signals) != ordinary:
        raise RecordingError(
            source.doing,
            "the labels in its header cannot be told apart",
            f"{ordinary} signals by their labels, {len(parsed.signals)} by edfio",
        )
    return parsed


def load_edfio(doing: str) -> ModuleType:
    """The edfio package; RecordingError with the way to get it when it is missing."""
    try:
        import edfio
    except ImportError as error:
        raise RecordingError(
            doing,
            "EDF and BDF files need the package edfio, which is not installed",
            hint="pip install rlxweb[eeg]",
        ) from error
    return edfio
