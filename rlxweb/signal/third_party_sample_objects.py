"""Samples held by objects of other libraries: their sampling rate, their names and
their array.

An object is told by the module its class comes from, so nothing is imported for it: who
made one has loaded its library. MNE's Raw, Epochs and Evoked, tables of pandas, polars
and pyarrow, xarray's DataArray, and our own recordings. Which column is a clock, and in
which unit, is told by `io.clock`, as it is for files.
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import RecordingWarning, UsageError, shown
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.io.annotations import is_bad_text
from rlxweb.io.clock_column_names import ClockName, parse_clock_name, seconds_of_unit
from rlxweb.io.clock_column_rate import (
    ClockRate,
    find_ramps,
    is_mostly_monotonic,
    ramp_warning,
    rate_in_likely_unit,
)
from rlxweb.io.epochs import Epochs
from rlxweb.io.recording import Group, Recording
from rlxweb.io.time_parsing import parse_time, parse_times
from rlxweb.results.labels import Labels

_MAX_JITTER: Final = 0.3
"""Maximum deviation of a time from an even grid, as a share of a step; rounded time
stamps stay below it.
"""
_MIN_UNIX_SECONDS: Final = 1e9
"""Seconds since 1970 of the year 2001; row numbers do not get so large."""
_GAP_FACTOR: Final = 1.5
"""Step, in median steps, above which there is a gap."""


class ObjectSamples(NamedTuple):
    """Samples and metadata of an object of another library.

    source   it is, for messages
    fs       Hz; None where it does not say
    labels   of its axes but time
    read_samples  (…, T), or a recording's own form; read when it is called
    other_rates  rates by other units, where its times name none and could be in several
    unit_warning  a warning where nobody says which it is
    """

    source: str
    fs: float | None
    labels: Labels
    read_samples: Callable[[], Any]
    other_rates: tuple[float, ...] = ()
    unit_warning: str = ""


def inspect_object(x: Any, context: str) -> ObjectSamples | None:
    """Return the samples and metadata of an object; None for an array or anything else
    that is not supported.

    context  for messages; "": only whether it is one is asked
    Errors   UsageError for one that holds no samples of one even rate.
    """
    if isinstance(x, Group | Recording):
        return _inspect_recording(x, context)
    if isinstance(x, Epochs):
        start_time = float(x.times[0])
        labels = Labels(
            ("epoch", "channel"), (None, x.names), x.unit, begins=start_time, event=True
        )
        return ObjectSamples("the epochs", x.fs, labels, lambda: x.data)
    for cls in type(x).__mro__:
        reader = _READERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if reader is not None:
            return (
                reader(x, context)
                if context
                else ObjectSamples("", None, Labels(), list)
            )
    return None


def _inspect_recording(x: Group | Recording, context: str) -> ObjectSamples:
    """Inspect a recording of one rate, or one of its groups."""
    if isinstance(x, Recording):
        if len(x.groups) != 1 and context:
            rates = ", ".join(f"{group.fs:g}" for group in x.signals)
            raise UsageError(
                context,
                f"the recording has channels with {len(x.groups)} different sampling "
                f"rates: {rates} Hz",
                "all channels must have the same sampling rate",
                "pass one group of the recording: recording.groups[0]",
            )
        x = x.signals[0]
    units = {channel.unit for channel in x.channels}
    unit = units.pop() if len(units) == 1 else ""
    # Times are those of the file, as the onsets of its annotations are.
    labels = Labels(("channel",), (x.names,), unit, begins=x.first / x.fs)
    return ObjectSamples("the recording", x.fs, labels, x.read_stored)


def _inspect_mne(x: Any, context: str) -> ObjectSamples:
    """Inspect an MNE object: its good data channels, or those of any other kind if it
    has none.
    """
    mne = sys.modules["mne"]
    kinds = dict.fromkeys(("meg", "eeg", "seeg", "ecog", "dbs", "fnirs", "csd"), True)
    picks = mne.pick_types(x.info, **kinds, exclude="bads")
    if not len(picks):
        other_kinds = dict.fromkeys(("ecg", "eog", "emg", "bio", "misc", "resp"), True)
        picks = mne.pick_types(x.info, **other_kinds, exclude="bads")
    if not len(picks):
        raise UsageError(
            context,
            f"the {type(x).__name__} has no good data channel",
            f"{len(x.info['bads'])} of {len(x.info['ch_names'])} channels are "
            "marked bad",
            "pick channels and pass x.get_data(picks)",
        )
    info = mne.pick_info(x.info, picks)
    names = tuple(info["ch_names"])
    units = {str(channel.get("unit")) for channel in info["chs"]}
    is_volt = len(units) == 1 and "FIFF_UNIT_V)" in next(iter(units))
    is_epochs = hasattr(x, "events") and not hasattr(x, "first_samp")
    labels = Labels(
        ("epoch", "channel") if is_epochs else ("channel",),
        (None, names) if is_epochs else (names,),
        "V" if is_volt else "",
        info,
        # Of a Raw they count from its first sample.
        0.0 if hasattr(x, "first_samp") else float(x.times[0]),
        not hasattr(x, "first_samp"),
    )

    def read_samples() -> Any:
        if hasattr(x, "first_samp"):
            _warn_bad_annotations(x)
        if hasattr(x, "get_data"):
            return x.get_data(picks=picks)
        return x.data[picks]

    fs = float(x.info["sfreq"])
    return ObjectSamples(f"the {type(x).__name__}", fs, labels, read_samples)


def _warn_bad_annotations(raw: Any) -> None:
    """Warn of annotated bad stretches, which MNE's own methods leave out."""
    annotations = zip(
        raw.annotations.description, raw.annotations.duration, strict=True
    )
    bad_durations = [
        float(duration)
        for description, duration in annotations
        if is_bad_text(str(description))
    ]
    if bad_durations:
        problem = (
            f"{len(bad_durations)} of its annotations, {sum(bad_durations):g} "
            "s in all, mark bad data"
        )
        explanation = (
            "the bad data is included (MNE excludes it); crop the Raw, or create epochs"
        )
        warnings.warn(
            RecordingWarning("the Raw", f"{problem}; {explanation}"),
            stacklevel=caller_stacklevel(),
        )


class _ClockCandidate(NamedTuple):
    """A column or an index that may be the clock.

    location  of the table: "column 'time'"
    values   numbers, dates, durations or text
    name     what its own name says
    """

    location: str
    values: NDArray[Any]
    name: ClockName


def _inspect_pandas(x: Any, context: str) -> ObjectSamples:
    """Inspect a pandas DataFrame or Series."""
    source = f"the {type(x).__name__}"
    if type(x).__name__ == "Series" or not hasattr(x, "columns"):
        x = x.to_frame("0" if x.name is None else x.name)
    columns = {
        str(name): _pandas_values(x.iloc[:, index_of_column])
        for index_of_column, name in enumerate(x.columns)
    }
    if len(columns) != len(x.columns):
        raise UsageError(
            context,
            f"{source} has several columns with the same name",
            "column names must be unique",
        )
    clock_candidates = []
    index = x.index
    if getattr(index, "nlevels", 1) == 1:
        name = parse_clock_name("" if index.name is None else str(index.name))
        values = _pandas_values(index)
        # Whole numbers without a name are row numbers, unless they are dates.
        is_date = (
            values.dtype.kind in "iu" and values.size and values[0] >= _MIN_UNIX_SECONDS
        )
        is_number = values.dtype.kind == "f" or is_date
        if name is not None or is_number or _has_time_type(values):
            clock_candidates.append(
                _ClockCandidate("the index", values, name or ClockName(None))
            )
    return _inspect_columns(columns, clock_candidates, source, context)


def _pandas_values(series: Any) -> NDArray[Any]:
    """Return the values of a pandas Series or Index as a NumPy array."""
    dtype = series.dtype
    if type(dtype).__name__ == "PeriodDtype":
        series = (series.dt if hasattr(series, "dt") else series).to_timestamp()
        dtype = series.dtype
    if dtype.kind == "M":
        # Dates of a time zone are given in UTC, which has no hour twice.
        return np.asarray(series.to_numpy("datetime64[ns]"))
    if dtype.kind == "m":
        return np.asarray(series.to_numpy("timedelta64[ns]"))
    if dtype.kind in "fiu" and not isinstance(dtype, np.dtype):
        is_integer = dtype.kind in "iu" and not series.isna().any()
        wide_dtype = np.dtype(np.int64 if is_integer else np.float64)
        return np.asarray(
            series.to_numpy(wide_dtype, na_value=0 if is_integer else np.nan)
        )
    return np.asarray(series.to_numpy())


def _inspect_polars(x: Any, context: str) -> ObjectSamples:
    """Inspect a polars DataFrame or Series."""
    source = f"the {type(x).__name__}"
    if hasattr(x, "collect"):
        raise UsageError(
            context, f"{source} has not been computed", hint="pass x.collect()"
        )
    if type(x).__name__ == "Series":
        x = x.to_frame()
    columns = {name: x[name].to_numpy() for name in x.columns}
    return _inspect_columns(columns, [], source, context)


def _inspect_arrow(x: Any, context: str) -> ObjectSamples:
    """Inspect a pyarrow Table or RecordBatch."""
    source = f"the {type(x).__name__}"
    names = list(map(str, x.schema.names))
    if len({*names}) < len(names):
        raise UsageError(
            context,
            f"{source} has several columns with the same name",
            "column names must be unique",
        )
    columns = {
        name: np.asarray(_arrow_values(x.column(index)))
        for index, name in enumerate(names)
    }
    return _inspect_columns(columns, [], source, context)


def _arrow_values(column: Any) -> Any:
    """Return the values of a pyarrow column as a NumPy array."""
    if hasattr(column, "combine_chunks"):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def _inspect_columns(
    columns: dict[str, NDArray[Any]],
    clock_candidates: list[_ClockCandidate],
    source: str,
    context: str,
) -> ObjectSamples:
    """Make a channel of each column that does not hold times.

    clock_candidates  what beside the columns tells the time
    """
    for name, values in list(columns.items()):
        parsed_name = parse_clock_name(name)
        if parsed_name is None and not _has_time_type(values):
            continue
        if parsed_name and parsed_name.is_letter and not _may_be_times(values):
            continue
        clock_candidates.append(
            _ClockCandidate(f"column {name!r}", values, parsed_name or ClockName(None))
        )
        del columns[name]
    for name, values in columns.items():
        if values.dtype.kind not in "fiu":
            raise UsageError(
                context,
                f"column {shown(name)} of {source} has dtype {values.dtype}",
                "all columns must be numeric",
                "select the columns of the channels: x[['…', '…']]",
            )
    if not columns:
        raise UsageError(
            context, f"{source} has no column with samples", "at least one is required"
        )
    clock = _find_clock(clock_candidates, source, context)
    samples = np.stack(list(columns.values()))
    for index, step in find_ramps(
        _InMemoryRows(samples), range(len(samples)), samples.shape[1]
    ).items():
        _warn_recording(source, ramp_warning([*columns][index], step))
    labels = Labels(("channel",), (tuple(columns),))
    return ObjectSamples(
        source, clock.fs, labels, lambda: samples, clock.measured_rates, clock.problem
    )


def _may_be_times(values: NDArray[Any]) -> bool:
    """Tell whether a column may be times; text is judged by `_find_clock`."""
    if values.dtype.kind not in "fiu":
        return True
    return is_mostly_monotonic(_InMemoryRows(values[None]), 0, len(values))


class _InMemoryRows(NamedTuple):
    """Samples in memory, with the interface of the rows of a table that a clock
    reads.
    """

    samples: NDArray[Any]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> NDArray[Any]:
        """Return samples [start, stop) of the channels; see SampleReader."""
        return self.samples[list(channels), start:stop]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return cells of one column as text."""
        return [str(self.samples[column, row]) for row in rows]


def _has_time_type(values: NDArray[Any]) -> bool:
    """Tell whether the values are dates, durations or times of day, which need no name
    to be times.
    """
    if values.dtype.kind in "Mm":
        return True
    if values.dtype.kind not in "OUT" or not values.size:
        return False
    time_classes = datetime.date, datetime.time, datetime.timedelta
    return isinstance(values[0], time_classes) or parse_time(str(values[0])) is not None


def _find_clock(
    clock_candidates: list[_ClockCandidate], source: str, context: str
) -> ClockRate:
    """Return the first clock that can be parsed, if none of the others has gaps.

    Errors   UsageError for uneven times, and where none is understood.
    """
    clock, unparsed = None, None
    for candidate in clock_candidates:
        if len(candidate.values) < 2:
            continue
        times = _as_numeric_times(candidate.values)
        if times is None:
            unparsed = unparsed or candidate
        elif clock is None or float(np.nanmedian(np.diff(times))) > 0:
            candidate_clock = _clock_of_even_times(
                times, candidate, f"{source}, {candidate.location},", context
            )
            clock = clock or candidate_clock
    if clock is None and unparsed is not None:
        raise UsageError(
            context,
            f"cannot parse the times of {source}, {unparsed.location}, which begin "
            f"with {shown(str(unparsed.values[0]))}",
            "expected dates such as 2024-02-28 10:00:00.5, or times of day "
            "such as 10:00:00.5",
            "convert the times with pandas.to_datetime, or pass the samples as an "
            "array without the times, and fs=HZ",
        )
    return clock or ClockRate()


def _as_numeric_times(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return times in seconds from the first, or numbers as they are; None for values
    that are no times.
    """
    if values.dtype.kind in "Mm":
        return _elapsed_seconds(values)
    if values.dtype.kind in "fiu":
        return values
    if values.size and isinstance(values[0], datetime.timedelta):
        return _elapsed_seconds(values.astype("timedelta64[us]"))
    if values.size and type(values[0]) is datetime.date:
        return _elapsed_seconds(values.astype("datetime64[D]"))
    parsed_times = parse_times([str(value) for value in values])
    return None if np.isnan(parsed_times.seconds).any() else parsed_times.seconds


def _warn_recording(source: str, text: str) -> None:
    """Issue a RecordingWarning about an object."""
    warnings.warn(RecordingWarning(source, text), stacklevel=caller_stacklevel())


def _inspect_xarray(x: Any, context: str) -> ObjectSamples:
    """Inspect an xarray DataArray with one time dimension."""
    source = "the DataArray"
    time_dims = [
        dim
        for dim in x.dims
        if parse_clock_name(str(dim)) or str(dim).lower() in ("sample", "samples")
    ]
    if not time_dims and x.ndim == 1:
        time_dims = list(x.dims)
    if len(time_dims) != 1:
        raise UsageError(
            context,
            f"{source} has the dimensions {', '.join(map(str, x.dims))}",
            "one dimension must be named time",
            "rename the time dimension: x.rename({'…': 'time'})",
        )
    (time_dim,) = time_dims
    clock = ClockRate()
    if time_dim in x.coords:
        coordinate = x.coords[time_dim]
        values = coordinate.to_numpy()
        time_unit_scale = seconds_of_unit(
            str(coordinate.attrs.get("units", "")).partition(" ")[0]
        )
        name = (
            ClockName(time_unit_scale)
            if time_unit_scale
            else parse_clock_name(str(time_dim)) or ClockName(None)
        )
        is_index = values.dtype.kind in "iu" and bool(
            (values == np.arange(len(values))).all()
        )
        if not is_index or time_unit_scale:
            clock = _find_clock(
                [_ClockCandidate(str(time_dim), values, name)], source, context
            )
    fs = clock.fs
    if fs is None and isinstance(x.attrs.get("fs"), int | float):
        fs = float(x.attrs["fs"])
    other_dims = [dim for dim in x.dims if dim != time_dim]
    names = tuple(
        tuple(map(str, x.coords[dim].to_numpy()))
        if dim in x.coords and x.coords[dim].ndim == 1
        else None
        for dim in other_dims
    )
    sample_unit = str(x.attrs.get("units", ""))
    labels = Labels(tuple(map(str, other_dims)), names, sample_unit)
    return ObjectSamples(
        source,
        fs,
        labels,
        lambda: x.transpose(..., time_dim).to_numpy(),
        clock.measured_rates,
        clock.problem,
    )


def _elapsed_seconds(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return dates or durations as seconds from the first."""
    if values.dtype.kind == "M":
        values = values - values[:1]
    seconds: NDArray[np.float64] = values / np.timedelta64(1, "s")
    return seconds


def _clock_of_even_times(
    times: NDArray[Any], candidate: _ClockCandidate, clock_label: str, context: str
) -> ClockRate:
    """Return the clock of evenly spaced times.

    A missing sample moves others by half a step at least; rounded stamps lie closer.

    Errors   UsageError for uneven times, and for numbers that can be no times
    """
    n = len(times) - 1
    is_number = candidate.values.dtype.kind in "fiu"
    # Whole numbers are subtracted as such: float64 cuts nanoseconds since 1970.
    elapsed = np.asarray(times - times[0], np.float64)
    step = float(elapsed[-1]) / n
    deviation = np.abs(elapsed - step * np.arange(n + 1))
    name = candidate.name if is_number else ClockName(1.0)
    if not (step > 0 and deviation.max() <= _MAX_JITTER * step):
        raise _uneven_times_error(elapsed, name, float(times[0]), clock_label, context)
    unit_guess = rate_in_likely_unit(name, float(times[0]), step)
    if unit_guess.problem and unit_guess.fs is None:
        raise UsageError(
            context,
            f"no unit fits the times of {clock_label.rstrip(',')}",
            f"{candidate.location} {unit_guess.problem}",
            "put the unit in the name of the times (time_s, time_ms, time_ns)",
        )
    rate, *other_rates = unit_guess.measured_rates
    rounded_rate = round(rate)
    # As good as the ends of the times tell it.
    is_integer_rate = (
        rounded_rate and abs(rate - rounded_rate) <= rate * 2 * _MAX_JITTER / n
    )
    problem = f"{candidate.location} {unit_guess.problem}" if unit_guess.problem else ""
    fs = float(rounded_rate) if is_integer_rate else rate
    return ClockRate(fs, problem=problem, measured_rates=tuple(other_rates))


def _uneven_times_error(
    elapsed: NDArray[np.float64],
    name: ClockName,
    first: float,
    clock_label: str,
    context: str,
) -> UsageError:
    """Return the error for uneven times, with the number of gaps and the rate between
    them.
    """
    steps = np.diff(elapsed)
    median_step = float(np.nanmedian(steps)) if np.isfinite(steps).any() else 0.0
    problem = f"the times of {clock_label} are not evenly spaced"
    hint = "resample to even spacing (numpy.interp), or pass the parts between the gaps"
    if median_step > 0:
        gaps = int((steps > _GAP_FACTOR * median_step).sum())
        n_not_rising = int((~(steps > 0)).sum())
        rate = rate_in_likely_unit(name, first, median_step).measured_rates
        facts = [f"{gaps} gap{'s' * (gaps != 1)}"]
        if n_not_rising:
            hint = "sort the samples by time and remove repeated times first"
            facts += [
                f"{n_not_rising} repeated or decreasing time{'s' * (n_not_rising != 1)}"
            ]
        facts += [f"median rate {rate[0]:.6g} Hz"] if rate else []
        rule = ", ".join(facts)
    else:
        problem = f"the times of {clock_label} do not increase"
        rule = ""
        hint = "sort the samples by time and remove repeated times"
    return UsageError(context, problem, rule, hint)


_Reader = Callable[[Any, str], ObjectSamples]
_READERS: Final[dict[tuple[str, str], _Reader]] = {
    ("mne", "BaseRaw"): _inspect_mne,
    ("mne", "BaseEpochs"): _inspect_mne,
    ("mne", "Evoked"): _inspect_mne,
    ("pandas", "DataFrame"): _inspect_pandas,
    ("pandas", "Series"): _inspect_pandas,
    ("polars", "DataFrame"): _inspect_polars,
    ("polars", "Series"): _inspect_polars,
    ("polars", "LazyFrame"): _inspect_polars,
    ("pyarrow", "Table"): _inspect_arrow,
    ("pyarrow", "RecordBatch"): _inspect_arrow,
    ("xarray", "DataArray"): _inspect_xarray,
}
