"""Neurodata Without Borders: a series of an NWB file, its rate, unit and electrodes.

Owns what NWB's names mean; loads no library of its own, for an NWB file is HDF5. A
series is (samples, channels), in the SI's units by a conversion that it tells, and
voltages are given in uV.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlxweb.digital import is_digital
from rlxweb.errors import shown
from rlxweb.io import bounds
from rlxweb.io.annotations import MOST, Annotation
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.clock import Clock, find_rate
from rlxweb.io.clock_names import ClockName
from rlxweb.io.contents import Contents, Found, SampleReader, Samples, Stream
from rlxweb.io.days import DAY_S, moved
from rlxweb.io.hdf5 import ArrayReader, Times, faults, is_numbers, oriented, picked
from rlxweb.io.hdf5_access import (
    all_arrays,
    attribute,
    check_array,
    child,
    has_child,
    is_array,
    whole,
)
from rlxweb.io.npy import native
from rlxweb.io.si_units import usual
from rlxweb.io.source import ByteSource

_NOT_HERE: Final = "specifications/"
_LABELS: Final = ("label", "channel_name", "electrode_name", "name")
_WORDS: Final = (
    "annotation",
    "label",
    "event_type",
    "condition",
    "trial_type",
    "stage",
)


def read_nwb(source: ByteSource, file: Any, array: str | None) -> Contents:
    """What one series of an NWB file holds.

    array    its name, "acquisition/ElectricalSeries"

    Errors   those of `read_hdf5`
    Source   NWB core schema 2: TimeSeries, ElectricalSeries
    """
    with faults(source):
        arrays, virtual = all_arrays(source, file)
        there = {
            name.removesuffix("/data"): data
            for name, data in arrays.items()
            if _is_series(name, data)
        }
        asked = array.strip("/").removesuffix("/data") if array else None
        name = picked(source, there, asked, [*there], virtual)
        data, series = there[name], there[name].parent
        n_channels, n_samples, is_turned = oriented(source, name, data, "samples-first")
        clock, first = _clock(source, series, n_samples)
        labels = _labels(source, file, series, n_channels)
        scale = _scale(source, series, data, n_channels)
        begun, day = _moment(source, file, first)
    own = native(data.dtype)
    digital = own if is_digital(own) else None
    reader: SampleReader = ArrayReader(source, data, is_turned, n_samples)
    dtype: np.dtype[Any] = np.dtype(np.float64)
    if digital is None and scale.is_plain:
        dtype = own
    elif digital is None:
        reader = _Scaled(reader, scale)
    found = tuple(
        Found(
            label,
            scale.unit,
            TRIGGER_REASON if is_trigger(label) else "",
            gain=float(gain) if digital is not None else 1.0,
            offset=float(scale.offset / gain) if digital is not None else 0.0,
        )
        for label, gain in zip(labels, scale.gains, strict=True)
    )
    stream = Stream(
        tuple(range(n_channels)),
        clock.fs,
        n_samples,
        dtype,
        reader,
        clock.tolerance,
        digital=digital,
        timing=clock.timing("its array of timestamps"),
    )
    return Contents(
        "NWB",
        found,
        (stream,),
        "",
        begun,
        partial(_notes, source, file, arrays, first),
        day,
    )


def _is_series(name: str, data: Any) -> bool:
    inside, _, own = name.rpartition("/")
    if own != "data" or not inside or name.startswith(_NOT_HERE):
        return False
    has_times = any(
        has_child(data.parent, time) for time in ("starting_time", "timestamps")
    )
    return has_times and is_numbers(data) and len(data.shape) in (1, 2)


def _clock(source: ByteSource, series: Any, n_samples: int) -> tuple[Clock, float]:
    """The rate of a series, and its first sample in seconds of the session."""
    begin = child(source, series, "starting_time")
    if is_array(begin):
        fs = float(attribute(source, begin, "rate", math.nan))
        if not (math.isfinite(fs) and fs > 0):
            return Clock(
                problem=f"is absent, and its starting_time has the rate {fs:g}"
            ), 0.0
        return Clock(fs), float(whole(source, begin))
    times = child(source, series, "timestamps")
    if not is_array(times):
        return Clock(problem="is a link to nothing"), 0.0
    check_array(source, times)
    if not is_numbers(times) or times.size != n_samples or not n_samples:
        return Clock(problem=f"has {times.size} times for {n_samples} samples"), 0.0
    rows = Times(source, times)
    return find_rate(rows, 0, ClockName(1.0), n_samples), float(
        rows.read((0,), 0, 1)[0, 0]
    )


def _labels(source: ByteSource, file: Any, series: Any, n_channels: int) -> list[str]:
    """The names of the electrodes, where the series leads to them."""
    region = child(source, series, "electrodes")
    reference = attribute(source, region, "table") if is_array(region) else None
    if not reference or region.size != n_channels:
        return [""] * n_channels
    table = file[reference]
    rows = [int(row) for row in whole(source, region).ravel()]
    column = next((name for name in _LABELS if name in table), "id")
    labels = child(source, table, column)
    if not is_array(labels) or labels.size > bounds.CHANNELS:
        return [""] * n_channels
    texts = [_text(one) for one in whole(source, labels).ravel()]
    if not all(0 <= row < len(texts) for row in rows):
        source.warn("its electrodes are not all in their table; they are numbered")
        return [""] * n_channels
    return [texts[row] if column != "id" else f"electrode {texts[row]}" for row in rows]


@dataclass(frozen=True, slots=True)
class _Scale:
    """A sample stands for gain · value + offset, in `unit`; a gain per channel."""

    gains: npt.NDArray[np.float64]
    offset: float
    unit: str

    @property
    def is_plain(self) -> bool:
        return bool((self.gains == 1.0).all()) and self.offset == 0.0


def _scale(source: ByteSource, series: Any, data: Any, n_channels: int) -> _Scale:
    factor, unit = usual(_text(attribute(source, data, "unit", "")))
    conversion = float(attribute(source, data, "conversion", 1.0))
    offset = float(attribute(source, data, "offset", 0.0))
    gains = np.full(n_channels, conversion * factor)
    own = child(source, series, "channel_conversion")
    if is_array(own) and own.size == n_channels:
        gains *= np.asarray(whole(source, own), np.float64).ravel()
    if not (np.isfinite(gains).all() and gains.all() and math.isfinite(offset)):
        raise source.error(
            f"its conversion is {conversion:g}, its offset {offset:g}",
            "both are finite, and no conversion is 0",
        )
    return _Scale(gains, offset * factor, "" if unit in ("n/a", "unknown") else unit)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Samples in the unit of a scale; a SampleReader."""

    reader: SampleReader
    scale: _Scale

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader."""
        own = self.reader.read(channels, start, stop).astype(np.float64)
        gains = self.scale.gains[list(channels), None]
        return np.asarray(own * gains + self.scale.offset)


def _moment(
    source: ByteSource, file: Any, first: float
) -> tuple[float | None, date | None]:
    """Time of day and day of the first sample, in the zone that the file tells."""
    for name in ("timestamps_reference_time", "session_start_time"):
        moment = child(source, file, name)
        if not is_array(moment) or moment.size != 1:
            continue
        try:
            began = datetime.fromisoformat(_text(whole(source, moment).item()))
        except ValueError:
            continue
        of_day = 3600 * began.hour + 60 * began.minute + began.second
        since = of_day + began.microsecond * 1e-6 + first
        return since % DAY_S, moved(began.date(), since)
    return None, None


def _notes(
    source: ByteSource, file: Any, arrays: dict[str, Any], first: float
) -> tuple[Annotation, ...]:
    """What series of annotations, events and intervals say, by onset."""
    if source.file.closed:
        raise source.error("the recording is closed", hint="open it again")
    found: list[Annotation] = []
    with faults(source):
        groups = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
        for name in groups:
            if name and not name.startswith(_NOT_HERE):
                own = name.rpartition("/")[2]
                found += _of_group(source, file[name], own, first)
            source.at_most("annotations", len(found), MOST)
    return tuple(sorted(found))


def _of_group(
    source: ByteSource, group: Any, name: str, first: float
) -> Iterator[Annotation]:
    kind = _text(attribute(source, group, "neurodata_type", ""))
    onsets, ends, words = {
        "AnnotationSeries": ("timestamps", "", "data"),
        "EventsTable": ("timestamp", "duration", ""),
        "TimeIntervals": ("start_time", "stop_time", ""),
    }.get(kind, ("", "", ""))
    begin: Any = child(source, group, onsets) if onsets else None
    if not is_array(begin) or begin.size > MOST:
        return

    def column(name: str) -> Any:
        """Return the column of that name; None where it does not fit the onsets."""
        found: Any = child(source, group, name) if name else None
        if not is_array(found) or found.size != begin.size:
            return None
        if found.dtype.kind == "c":
            raise source.error(
                f"its array {shown(found.name)} holds complex numbers",
                "times are real numbers, and labels are texts",
            )
        return whole(source, found, bounds.ANNOTATIONS_NBYTES).ravel()

    times = np.asarray(column(onsets), np.float64)
    until = column(ends)
    until = np.zeros_like(times) if until is None else np.asarray(until, np.float64)
    if kind == "TimeIntervals":
        until = until - times
    words = words or next((word for word in _WORDS if word in group), "")
    said = column(words)
    texts = [name] * len(times) if said is None else [_text(one) for one in said]
    for onset, duration, text in zip(times, until, texts, strict=True):
        if math.isfinite(onset):
            lasts = float(duration) if math.isfinite(duration) else 0.0
            yield Annotation(float(onset) - first, max(lasts, 0.0), text)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
