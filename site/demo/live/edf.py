"""EDF and BDF on NumPy alone, for a tab, where edfio is not to be had.

Owns the calibration fields of the header and the samples of a window. Where the samples
lie, the file's length and the choice of channels are rlxweb's own readers' business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlxweb.errors import RecordingError
from rlxweb.io import Channel, Group, Recording
from rlxweb.io.channels import TRIGGER_REASON, choose_channels, is_trigger, unique_names
from rlxweb.io.contents import Found
from rlxweb.io.edf_header import (
    BDF_MAGIC,
    EDF_MAGIC,
    MOST_SIGNALS,
    Geometry,
    check_size,
    parse_geometry,
)
from rlxweb.io.pcm import decode_int24
from rlxweb.io.source import ByteSource, open_source

MOST_BYTES = 256 << 20  # of records that one window takes into the tab's memory
# Widths of the header's columns, in order; each holds one entry per signal.
COLUMNS = {
    "label": 16,
    "transducer": 80,
    "unit": 8,
    "physical minimum": 8,
    "physical maximum": 8,
    "digital minimum": 8,
    "digital maximum": 8,
    "filters": 80,
    "samples": 8,
}


def is_edf(path: str) -> bool:
    """Does the file begin like EDF or BDF?"""
    with Path(path).open("rb") as file:
        return file.read(8) in (EDF_MAGIC, BDF_MAGIC)


def open_edf(path: str) -> Recording:
    """An EDF, EDF+, BDF or BDF+ file as groups of channels, one per rate.

    Errors   RecordingError for a broken or cut file and for one with gaps (EDF+D).
    """
    source = open_source(path)
    try:
        head = source.head(256 * (MOST_SIGNALS + 1))
        shape = parse_geometry(source, head)
        check_size(source, shape)
        if shape.version.endswith("+D"):
            raise RecordingError(
                source.doing,
                f"{shape.version} files may have gaps",
                "a spectrum is not averaged over gaps",
                "read it with rlxweb on a desktop, which checks where they are",
            )
        return assemble(source, shape, head)
    except BaseException:
        source.close()
        raise


def assemble(source: ByteSource, shape: Geometry, head: bytes) -> Recording:
    """The recording: its ordinary channels, grouped by samples per record."""
    scales, found = [], []
    for at, label in enumerate(shape.labels):
        scale = None if shape.is_annotation(at) else calibration(head, shape, at)
        scales.append(scale)
        found.append(
            Found(label, text(head, shape, "unit", at), *refused(scale, shape, at))
        )
    names = unique_names([channel.label for channel in found])
    taken = choose_channels(source.doing, found, names, None)
    reader = EdfSamples(source, shape, tuple(scales))
    groups = {}
    for at in taken:
        channel = Channel(names[at], found[at].label, found[at].unit, at)
        groups.setdefault(shape.samples[at], []).append(channel)
    if not shape.n_records:
        raise RecordingError(source.doing, "it holds no samples", "0 data records")
    made = tuple(
        Group(
            source.name,
            samples / shape.record_s,
            tuple(channels),
            samples * shape.n_records,
            np.dtype(np.float64),
            reader,
        )
        for samples, channels in groups.items()
    )
    left_out = tuple(
        (name, channel.why_not)
        for name, channel in zip(names, found, strict=True)
        if channel.why_not
    )
    return Recording(source.name, shape.version, made, left_out, source)


def refused(scale: tuple[float, float] | None, shape: Geometry, at: int):
    """(why a signal is not taken, could it be by name) for `Found`."""
    if shape.is_annotation(at):
        return "holds annotations (text)", False
    if not shape.samples[at]:
        return "holds no samples", False
    if scale is None:
        return "has no valid calibration", False
    return (TRIGGER_REASON if is_trigger(shape.labels[at]) else ""), True


def calibration(head: bytes, shape: Geometry, at: int) -> tuple[float, float] | None:
    """(gain, offset) so that physical = (digital + offset) * gain; None without one."""
    fields = (
        "digital minimum",
        "digital maximum",
        "physical minimum",
        "physical maximum",
    )
    try:
        low, high, bottom, top = (float(text(head, shape, f, at)) for f in fields)
        gain = (top - bottom) / (high - low)
        offset = top / gain - high
    except (ValueError, ZeroDivisionError):
        return None
    return (gain, offset) if np.isfinite([gain, offset]).all() else None


def text(head: bytes, shape: Geometry, column: str, at: int) -> str:
    """One field of one signal, as the header has it."""
    signals = len(shape.labels)
    before = list(COLUMNS)[: list(COLUMNS).index(column)]
    width = COLUMNS[column]
    first = 256 + signals * sum(COLUMNS[name] for name in before) + at * width
    return head[first : first + width].decode("latin-1").strip(" \0")


@dataclass(frozen=True, slots=True)
class EdfSamples:
    """Windows of some channels that share a number of samples per record."""

    source: ByteSource
    shape: Geometry
    scales: tuple[tuple[float, float] | None, ...]

    def read(self, channels: Sequence[int], start: int, stop: int) -> np.ndarray:
        """Samples [start, stop) in the channels' units, float64 (C, T)."""
        shape = self.shape
        per_record = shape.samples[channels[0]]
        first, last = start // per_record, -(-stop // per_record)
        self.check_room((last - first) * shape.record_nbytes)
        raw = self.source.read(
            shape.header_nbytes + first * shape.record_nbytes,
            (last - first) * shape.record_nbytes,
        )
        records = np.frombuffer(raw, np.uint8).reshape(last - first, -1)
        begin = start - first * per_record
        out = np.empty((len(channels), stop - start))
        for row, at in enumerate(channels):
            own = records[:, shape.offset(at) :][:, : per_record * shape.width]
            gain, offset = self.scales[at]
            out[row] = (self.whole(own)[begin : begin + stop - start] + offset) * gain
        return out

    def check_room(self, nbytes: int) -> None:
        """Refuse a window whose records are too much for a tab."""
        if nbytes > MOST_BYTES:
            raise RecordingError(
                self.source.doing,
                f"this window lies in {nbytes:,} bytes of data records",
                f"at most {MOST_BYTES:,} are read at once",
                "choose a smaller n_fft or fewer segments",
            )

    def whole(self, raw: np.ndarray) -> np.ndarray:
        """The file's integers, in order of time."""
        flat = np.ascontiguousarray(raw).reshape(-1)
        return decode_int24(flat) if self.shape.width == 3 else flat.view("<i2")
