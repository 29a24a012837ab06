"""Read a series of an NWB (Neurodata Without Borders) file with its rate, unit and
electrodes.

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

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.errors import shown
from rlxweb.io import file_limits
from rlxweb.io.annotations import MAX_ANNOTATIONS, Annotation
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.calendar_dates import SECONDS_PER_DAY, shift_date
from rlxweb.io.channel_selection import TRIGGER_REASON, is_trigger
from rlxweb.io.clock_column_names import ClockName
from rlxweb.io.clock_column_rate import ClockRate, find_rate
from rlxweb.io.conventional_units import conventional_unit
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    SampleReader,
    Samples,
)
from rlxweb.io.hdf5_checked_access import (
    check_array,
    get_child,
    has_child,
    is_array,
    list_arrays,
    read_attribute,
    read_small_array,
)
from rlxweb.io.hdf5_reader import (
    Hdf5ArrayReader,
    Hdf5Times,
    array_orientation,
    is_numeric,
    select_array,
    translate_h5py_errors,
)
from rlxweb.io.npy_reader import native_dtype

_SPECIFICATIONS_PREFIX: Final = "specifications/"
_LABEL_COLUMNS: Final = ("label", "channel_name", "electrode_name", "name")
_TEXT_COLUMNS: Final = (
    "annotation",
    "label",
    "event_type",
    "condition",
    "trial_type",
    "stage",
)


def read_nwb(source: ByteSource, file: Any, array: str | None) -> FileContents:
    """Read one series of an NWB file as a recording.

    array    its name, "acquisition/ElectricalSeries"

    Errors   those of `read_hdf5`
    Source   NWB core schema 2: TimeSeries, ElectricalSeries
    """
    with translate_h5py_errors(source):
        arrays, virtual = list_arrays(source, file)
        series_arrays = {
            name.removesuffix("/data"): data
            for name, data in arrays.items()
            if _is_series(name, data)
        }
        requested = array.strip("/").removesuffix("/data") if array else None
        name = select_array(source, series_arrays, requested, [*series_arrays], virtual)
        data, series = series_arrays[name], series_arrays[name].parent
        n_channels, n_samples, is_samples_first = array_orientation(
            source, name, data, "samples-first"
        )
        clock, first = _series_clock(source, series, n_samples)
        labels = _electrode_labels(source, file, series, n_channels)
        scale = _read_scale(source, series, data, n_channels)
        begun, day = _first_sample_time(source, file, first)
    stored_dtype = native_dtype(data.dtype)
    digital = stored_dtype if is_digital_dtype(stored_dtype) else None
    reader: SampleReader = Hdf5ArrayReader(source, data, is_samples_first, n_samples)
    dtype: np.dtype[Any] = np.dtype(np.float64)
    if digital is None and scale.is_identity:
        dtype = stored_dtype
    elif digital is None:
        reader = _NwbScaledReader(reader, scale)
    channels = tuple(
        FileChannel(
            label,
            scale.unit,
            TRIGGER_REASON if is_trigger(label) else "",
            gain=float(gain) if digital is not None else 1.0,
            offset=float(scale.offset / gain) if digital is not None else 0.0,
        )
        for label, gain in zip(labels, scale.gains, strict=True)
    )
    stream = ChannelStream(
        tuple(range(n_channels)),
        clock.fs,
        n_samples,
        dtype,
        reader,
        clock.tolerance,
        digital=digital,
        uncertain_timing=clock.uncertain_timing("the timestamps array"),
    )
    return FileContents(
        "NWB",
        channels,
        (stream,),
        "",
        begun,
        partial(_read_annotations, source, file, arrays, first),
        day,
    )


def _is_series(name: str, data: Any) -> bool:
    """Return whether an array is the data of a time series."""
    parent, _, base_name = name.rpartition("/")
    if base_name != "data" or not parent or name.startswith(_SPECIFICATIONS_PREFIX):
        return False
    has_times = any(
        has_child(data.parent, time) for time in ("starting_time", "timestamps")
    )
    return has_times and is_numeric(data) and len(data.shape) in (1, 2)


def _series_clock(
    source: ByteSource, series: Any, n_samples: int
) -> tuple[ClockRate, float]:
    """Return the clock of a series, and its first sample in seconds of the session."""
    start_time = get_child(source, series, "starting_time")
    if is_array(start_time):
        fs = float(read_attribute(source, start_time, "rate", math.nan))
        if not (math.isfinite(fs) and fs > 0):
            return ClockRate(
                problem=f"is missing, and starting_time has the invalid rate {fs:g}"
            ), 0.0
        return ClockRate(fs), float(read_small_array(source, start_time))
    times = get_child(source, series, "timestamps")
    if not is_array(times):
        return ClockRate(problem="is a broken link"), 0.0
    check_array(source, times)
    if not is_numeric(times) or times.size != n_samples or not n_samples:
        return ClockRate(problem=f"has {times.size} times for {n_samples} samples"), 0.0
    rows = Hdf5Times(source, times)
    return find_rate(rows, 0, ClockName(1.0), n_samples), float(
        rows.read((0,), 0, 1)[0, 0]
    )


def _electrode_labels(
    source: ByteSource, file: Any, series: Any, n_channels: int
) -> list[str]:
    """Return the names of the electrodes that a series refers to; empty texts for
    none.
    """
    region = get_child(source, series, "electrodes")
    reference = read_attribute(source, region, "table") if is_array(region) else None
    if not reference or region.size != n_channels:
        return [""] * n_channels
    table = file[reference]
    rows = [int(row) for row in read_small_array(source, region).ravel()]
    column = next((name for name in _LABEL_COLUMNS if name in table), "id")
    labels = get_child(source, table, column)
    if not is_array(labels) or labels.size > file_limits.CHANNELS:
        return [""] * n_channels
    texts = [_to_text(value) for value in read_small_array(source, labels).ravel()]
    if not all(0 <= row < len(texts) for row in rows):
        source.warn(
            "some electrodes are missing from the electrode table; channels are "
            "numbered instead of named"
        )
        return [""] * n_channels
    return [texts[row] if column != "id" else f"electrode {texts[row]}" for row in rows]


@dataclass(frozen=True, slots=True)
class _NwbScale:
    """Conversion of samples, gain · value + offset in `unit`, with one gain per
    channel.
    """

    gains: npt.NDArray[np.float64]
    offset: float
    unit: str

    @property
    def is_identity(self) -> bool:
        """True if the conversion changes nothing."""
        return bool((self.gains == 1.0).all()) and self.offset == 0.0


def _read_scale(
    source: ByteSource, series: Any, data: Any, n_channels: int
) -> _NwbScale:
    """Read the conversion of a series to its unit."""
    factor, unit = conventional_unit(_to_text(read_attribute(source, data, "unit", "")))
    conversion = float(read_attribute(source, data, "conversion", 1.0))
    offset = float(read_attribute(source, data, "offset", 0.0))
    gains = np.full(n_channels, conversion * factor)
    channel_factors = get_child(source, series, "channel_conversion")
    if is_array(channel_factors) and channel_factors.size == n_channels:
        gains *= np.asarray(
            read_small_array(source, channel_factors), np.float64
        ).ravel()
    if not (np.isfinite(gains).all() and gains.all() and math.isfinite(offset)):
        raise source.error(
            f"conversion is {conversion:g}, offset is {offset:g}",
            "conversion and offset must be finite, and the conversion of each channel "
            "must not be 0",
        )
    return _NwbScale(gains, offset * factor, "" if unit in ("n/a", "unknown") else unit)


@dataclass(frozen=True, slots=True)
class _NwbScaledReader:
    """Reader of samples converted by a scale; a SampleReader."""

    reader: SampleReader
    scale: _NwbScale

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return converted samples [start, stop) of the channels, (C, T); see
        SampleReader.
        """
        samples = self.reader.read(channels, start, stop).astype(np.float64)
        gains = self.scale.gains[list(channels), None]
        return np.asarray(samples * gains + self.scale.offset)


def _first_sample_time(
    source: ByteSource, file: Any, first: float
) -> tuple[float | None, date | None]:
    """Return the time of day and the date of the first sample, in the file's time
    zone.
    """
    for name in ("timestamps_reference_time", "session_start_time"):
        moment = get_child(source, file, name)
        if not is_array(moment) or moment.size != 1:
            continue
        try:
            session_start = datetime.fromisoformat(
                _to_text(read_small_array(source, moment).item())
            )
        except ValueError:
            continue
        second_of_day = (
            3600 * session_start.hour + 60 * session_start.minute + session_start.second
        )
        start_s = second_of_day + session_start.microsecond * 1e-6 + first
        return start_s % SECONDS_PER_DAY, shift_date(session_start.date(), start_s)
    return None, None


def _read_annotations(
    source: ByteSource, file: Any, arrays: dict[str, Any], first: float
) -> tuple[Annotation, ...]:
    """Return the annotations, events and intervals of the file, by onset."""
    if source.file.closed:
        raise source.error("the recording is closed", hint="open the recording again")
    annotations: list[Annotation] = []
    with translate_h5py_errors(source):
        groups = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
        for name in groups:
            if name and not name.startswith(_SPECIFICATIONS_PREFIX):
                base_name = name.rpartition("/")[2]
                annotations += _group_annotations(source, file[name], base_name, first)
            source.check_limit("annotations", len(annotations), MAX_ANNOTATIONS)
    return tuple(sorted(annotations))


def _group_annotations(
    source: ByteSource, group: Any, name: str, first: float
) -> Iterator[Annotation]:
    """Yield the annotations of one group, if it is of a type that has any."""
    kind = _to_text(read_attribute(source, group, "neurodata_type", ""))
    onsets, ends, text_column = {
        "AnnotationSeries": ("timestamps", "", "data"),
        "EventsTable": ("timestamp", "duration", ""),
        "TimeIntervals": ("start_time", "stop_time", ""),
    }.get(kind, ("", "", ""))
    onset_array: Any = get_child(source, group, onsets) if onsets else None
    if not is_array(onset_array) or onset_array.size > MAX_ANNOTATIONS:
        return

    def read_column(name: str) -> Any:
        """Return the column of that name; None where its length differs from the
        onsets.
        """
        data: Any = get_child(source, group, name) if name else None
        if not is_array(data) or data.size != onset_array.size:
            return None
        if data.dtype.kind == "c":
            raise source.error(
                f"array {shown(data.name)} contains complex numbers",
                "times must be real numbers, and labels must be text",
            )
        return read_small_array(source, data, file_limits.ANNOTATIONS_NBYTES).ravel()

    times = np.asarray(read_column(onsets), np.float64)
    durations = read_column(ends)
    durations = (
        np.zeros_like(times) if durations is None else np.asarray(durations, np.float64)
    )
    if kind == "TimeIntervals":
        durations = durations - times
    text_column = text_column or next(
        (column_name for column_name in _TEXT_COLUMNS if column_name in group), ""
    )
    values = read_column(text_column)
    texts = (
        [name] * len(times) if values is None else [_to_text(value) for value in values]
    )
    for onset, duration, text in zip(times, durations, texts, strict=True):
        if math.isfinite(onset):
            seconds = float(duration) if math.isfinite(duration) else 0.0
            yield Annotation(float(onset) - first, max(seconds, 0.0), text)


def _to_text(value: Any) -> str:
    """Decode bytes, and convert anything else to text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
