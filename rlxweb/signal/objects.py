"""Samples in the objects of other libraries: their rate, their names, their array.

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

from rlxweb.callers import outside
from rlxweb.errors import RecordingWarning, UsageError, shown
from rlxweb.io.annotations import is_bad
from rlxweb.io.clock import (
    Clock,
    ramp_doubt,
    ramps,
    runs_one_way,
    seconds_per_unit,
)
from rlxweb.io.clock_names import ClockName, clock_name, unit_scale
from rlxweb.io.clock_text import parsed, times_of
from rlxweb.io.epochs import Epochs
from rlxweb.io.recording import Group, Recording
from rlxweb.results.labels import Labels

_EVEN: Final = 0.3
"""Share of a step by which a time may be off, as rounded stamps are."""
_DATE: Final = 1e9
"""Seconds since 1970 of the year 2001; so long is no index of rows."""
_GAP: Final = 1.5
"""A step of so many usual ones is a gap."""


class Given(NamedTuple):
    """What an object holds.

    what     it is, for messages
    fs       Hz; None where it does not say
    labels   of its axes but time
    samples  (…, T), or a recording's own form; read when it is called
    others   rates by other units, where its times name none and could be in several
    doubt    a warning where nobody says which it is
    """

    what: str
    fs: float | None
    labels: Labels
    samples: Callable[[], Any]
    others: tuple[float, ...] = ()
    doubt: str = ""


def object_given(x: Any, doing: str) -> Given | None:
    """What is known of an object; None for an array and whatever else is no object.

    doing    for messages; "": only whether it is one is asked
    Errors   UsageError for one that holds no samples of one even rate.
    """
    if isinstance(x, Group | Recording):
        return _of_recording(x, doing)
    if isinstance(x, Epochs):
        begins = float(x.times[0])
        labels = Labels(
            ("epoch", "channel"), (None, x.names), x.unit, begins=begins, event=True
        )
        return Given("the epochs", x.fs, labels, lambda: x.data)
    for kind in type(x).__mro__:
        reader = _READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if reader is not None:
            return reader(x, doing) if doing else Given("", None, Labels(), list)
    return None


def _of_recording(x: Group | Recording, doing: str) -> Given:
    if isinstance(x, Recording):
        if len(x.groups) != 1 and doing:
            rates = ", ".join(f"{one.fs:g}" for one in x.signals)
            raise UsageError(
                doing,
                f"the recording has channels of {len(x.groups)} rates: {rates} Hz",
                "one is wanted",
                "give one of its groups: recording.groups[0]",
            )
        x = x.signals[0]
    units = {channel.unit for channel in x.channels}
    unit = units.pop() if len(units) == 1 else ""
    # Times are those of the file, as the onsets of its annotations are.
    labels = Labels(("channel",), (x.names,), unit, begins=x.first / x.fs)
    return Given("the recording", x.fs, labels, x.read_stored)


def _of_mne(x: Any, doing: str) -> Given:
    """Good data channels, or those of any other kind where there are none."""
    mne = sys.modules["mne"]
    kinds = dict.fromkeys(("meg", "eeg", "seeg", "ecog", "dbs", "fnirs", "csd"), True)
    picks = mne.pick_types(x.info, **kinds, exclude="bads")
    if not len(picks):
        others = dict.fromkeys(("ecg", "eog", "emg", "bio", "misc", "resp"), True)
        picks = mne.pick_types(x.info, **others, exclude="bads")
    if not len(picks):
        raise UsageError(
            doing,
            f"the {type(x).__name__} has no good data channel",
            f"{len(x.info['ch_names'])} channels, {len(x.info['bads'])} of them bad",
            "pick channels and pass x.get_data(picks)",
        )
    info = mne.pick_info(x.info, picks)
    names = tuple(info["ch_names"])
    units = {str(one.get("unit")) for one in info["chs"]}
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

    def samples() -> Any:
        if hasattr(x, "first_samp"):
            _warn_of_bad(x)
        if hasattr(x, "get_data"):
            return x.get_data(picks=picks)
        return x.data[picks]

    fs = float(x.info["sfreq"])
    return Given(f"the {type(x).__name__}", fs, labels, samples)


def _warn_of_bad(raw: Any) -> None:
    """Of stretches that MNE's own methods leave out."""
    notes = zip(raw.annotations.description, raw.annotations.duration, strict=True)
    bad = [float(lasts) for words, lasts in notes if is_bad(str(words))]
    if bad:
        said = f"{len(bad)} of its annotations, {sum(bad):g} s, say bad"
        why = "they are taken like the rest; MNE leaves them out: crop, or make epochs"
        warnings.warn(
            RecordingWarning("the Raw", f"{said}; {why}"), stacklevel=outside()
        )


class _Times(NamedTuple):
    """A column or an index that could be the clock.

    part     of the table: "column 'time'"
    values   numbers, dates, durations or text
    name     what its own name says
    """

    part: str
    values: NDArray[Any]
    name: ClockName


def _of_pandas(x: Any, doing: str) -> Given:
    what = f"the {type(x).__name__}"
    if type(x).__name__ == "Series" or not hasattr(x, "columns"):
        x = x.to_frame("0" if x.name is None else x.name)
    columns = {
        str(name): _of_series(x.iloc[:, at]) for at, name in enumerate(x.columns)
    }
    if len(columns) != len(x.columns):
        raise UsageError(doing, f"{what} has columns of one name", "names that differ")
    clocks = []
    index = x.index
    if getattr(index, "nlevels", 1) == 1:
        name = clock_name("" if index.name is None else str(index.name))
        values = _of_series(index)
        # Whole numbers without a name are row numbers, unless they are dates.
        is_date = values.dtype.kind in "iu" and values.size and values[0] >= _DATE
        is_number = values.dtype.kind == "f" or is_date
        if name is not None or is_number or _is_times(values):
            clocks.append(_Times("the index", values, name or ClockName(None)))
    return _of_columns(columns, clocks, what, doing)


def _of_series(own: Any) -> NDArray[Any]:
    """Values of a series or an index of pandas, as NumPy has them."""
    kind = own.dtype
    if type(kind).__name__ == "PeriodDtype":
        own = (own.dt if hasattr(own, "dt") else own).to_timestamp()
        kind = own.dtype
    if kind.kind == "M":
        # Dates of a time zone are given in UTC, which has no hour twice.
        return np.asarray(own.to_numpy("datetime64[ns]"))
    if kind.kind == "m":
        return np.asarray(own.to_numpy("timedelta64[ns]"))
    if kind.kind in "fiu" and not isinstance(kind, np.dtype):
        is_whole = kind.kind in "iu" and not own.isna().any()
        wide = np.dtype(np.int64 if is_whole else np.float64)
        return np.asarray(own.to_numpy(wide, na_value=0 if is_whole else np.nan))
    return np.asarray(own.to_numpy())


def _of_polars(x: Any, doing: str) -> Given:
    what = f"the {type(x).__name__}"
    if hasattr(x, "collect"):
        raise UsageError(
            doing, f"{what} has not been computed", hint="pass x.collect()"
        )
    if type(x).__name__ == "Series":
        x = x.to_frame()
    columns = {name: x[name].to_numpy() for name in x.columns}
    return _of_columns(columns, [], what, doing)


def _of_arrow(x: Any, doing: str) -> Given:
    what = f"the {type(x).__name__}"
    names = list(map(str, x.schema.names))
    if len({*names}) < len(names):
        raise UsageError(doing, f"{what} has columns of one name", "names that differ")
    columns = {
        name: np.asarray(_of_arrow_column(x.column(at)))
        for at, name in enumerate(names)
    }
    return _of_columns(columns, [], what, doing)


def _of_arrow_column(own: Any) -> Any:
    if hasattr(own, "combine_chunks"):
        return own.to_numpy()
    return own.to_numpy(zero_copy_only=False)


def _of_columns(
    columns: dict[str, NDArray[Any]], clocks: list[_Times], what: str, doing: str
) -> Given:
    """A channel for each column, but for those of times.

    clocks   what beside the columns tells the time
    """
    for name, own in list(columns.items()):
        said = clock_name(name)
        if said is None and not _is_times(own):
            continue
        if said and said.is_letter and not _run_one_way(own):
            continue
        clocks.append(_Times(f"column {name!r}", own, said or ClockName(None)))
        del columns[name]
    for name, own in columns.items():
        if own.dtype.kind not in "fiu":
            raise UsageError(
                doing,
                f"{what} has {own.dtype} in column {shown(name)}",
                "columns of numbers are wanted",
                "take the channels: x[[names]]",
            )
    if not columns:
        raise UsageError(doing, f"{what} has no column of samples", "one or more")
    clock = _clock_of(clocks, what, doing)
    samples = np.stack(list(columns.values()))
    for at, step in ramps(
        _Held(samples), range(len(samples)), samples.shape[1]
    ).items():
        _warn(what, ramp_doubt([*columns][at], step))
    labels = Labels(("channel",), (tuple(columns),))
    return Given(what, clock.fs, labels, lambda: samples, clock.measured, clock.problem)


def _run_one_way(values: NDArray[Any]) -> bool:
    """Tell whether a column could be times; text is judged by `_clock_of`."""
    if values.dtype.kind not in "fiu":
        return True
    return runs_one_way(_Held(values[None]), 0, len(values))


class _Held(NamedTuple):
    """Samples in memory, as the Rows of a clock."""

    samples: NDArray[Any]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> NDArray[Any]:
        """See SampleReader."""
        return self.samples[list(channels), start:stop]

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """See Rows."""
        return [str(self.samples[column, at]) for at in rows]


def _is_times(values: NDArray[Any]) -> bool:
    """Tell dates, durations and times of day, which need no name to be times."""
    if values.dtype.kind in "Mm":
        return True
    if values.dtype.kind not in "OUT" or not values.size:
        return False
    kinds = datetime.date, datetime.time, datetime.timedelta
    return isinstance(values[0], kinds) or parsed(str(values[0])) is not None


def _clock_of(clocks: list[_Times], what: str, doing: str) -> Clock:
    """Return the first clock that is understood, if none of the others has gaps.

    Errors   UsageError for uneven times, and where none is understood.
    """
    clock, strange = None, None
    for one in clocks:
        if len(one.values) < 2:
            continue
        wide = _in_seconds(one.values)
        if wide is None:
            strange = strange or one
        elif clock is None or float(np.nanmedian(np.diff(wide))) > 0:
            rate = _rate(wide, one, f"{what}, {one.part},", doing)
            clock = clock or rate
    if clock is None and strange is not None:
        raise UsageError(
            doing,
            f"the times of {what}, {strange.part}, are not understood: "
            f"{shown(str(strange.values[0]))}",
            "dates are written as 2024-02-28 10:00:00.5, times of day as 10:00:00.5",
            "convert them (pandas.to_datetime), or pass the values of the channels",
        )
    return clock or Clock()


def _in_seconds(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return times from the first, in seconds or as numbers; None for what is none."""
    if values.dtype.kind in "Mm":
        return _seconds(values)
    if values.dtype.kind in "fiu":
        return values
    if values.size and isinstance(values[0], datetime.timedelta):
        return _seconds(values.astype("timedelta64[us]"))
    if values.size and type(values[0]) is datetime.date:
        return _seconds(values.astype("datetime64[D]"))
    dated = times_of([str(one) for one in values])
    return None if np.isnan(dated.seconds).any() else dated.seconds


def _warn(what: str, text: str) -> None:
    warnings.warn(RecordingWarning(what, text), stacklevel=outside())


def _of_xarray(x: Any, doing: str) -> Given:
    what = "the DataArray"
    named = [
        dim
        for dim in x.dims
        if clock_name(str(dim)) or str(dim).lower() in ("sample", "samples")
    ]
    if not named and x.ndim == 1:
        named = list(x.dims)
    if len(named) != 1:
        raise UsageError(
            doing,
            f"{what} has the dimensions {', '.join(map(str, x.dims))}",
            "one of them is called time",
            "rename it: x.rename({'…': 'time'})",
        )
    (time,) = named
    clock = Clock()
    if time in x.coords:
        own = x.coords[time]
        values = own.to_numpy()
        unit = unit_scale(str(own.attrs.get("units", "")).partition(" ")[0])
        name = ClockName(unit) if unit else clock_name(str(time)) or ClockName(None)
        is_index = values.dtype.kind in "iu" and bool(
            (values == np.arange(len(values))).all()
        )
        if not is_index or unit:
            clock = _clock_of([_Times(str(time), values, name)], what, doing)
    fs = clock.fs
    if fs is None and isinstance(x.attrs.get("fs"), int | float):
        fs = float(x.attrs["fs"])
    others = [dim for dim in x.dims if dim != time]
    names = tuple(
        tuple(map(str, x.coords[dim].to_numpy()))
        if dim in x.coords and x.coords[dim].ndim == 1
        else None
        for dim in others
    )
    unit_of = str(x.attrs.get("units", ""))
    labels = Labels(tuple(map(str, others)), names, unit_of)
    return Given(
        what,
        fs,
        labels,
        lambda: x.transpose(..., time).to_numpy(),
        clock.measured,
        clock.problem,
    )


def _seconds(values: NDArray[Any]) -> NDArray[np.float64]:
    """Dates or differences as seconds from the first."""
    if values.dtype.kind == "M":
        values = values - values[:1]
    seconds: NDArray[np.float64] = values / np.timedelta64(1, "s")
    return seconds


def _rate(times: NDArray[Any], clock: _Times, whose: str, doing: str) -> Clock:
    """Return the rate of even times.

    A missing sample moves others by half a step at least; rounded stamps lie closer.

    Errors   UsageError for uneven times, and for numbers that can be no times
    """
    n = len(times) - 1
    is_number = clock.values.dtype.kind in "fiu"
    # Whole numbers are subtracted as such: float64 cuts nanoseconds since 1970.
    wide = np.asarray(times - times[0], np.float64)
    step = float(wide[-1]) / n
    off = np.abs(wide - step * np.arange(n + 1))
    name = clock.name if is_number else ClockName(1.0)
    if not (step > 0 and off.max() <= _EVEN * step):
        raise _uneven(wide, name, float(times[0]), whose, doing)
    found = seconds_per_unit(name, float(times[0]), step)
    if found.problem and found.fs is None:
        raise UsageError(
            doing,
            f"the times of {whose} have no unit that fits",
            f"it {found.problem}",
            "name the unit in the name of the clock: time_s, time_ms, time_ns",
        )
    rate, *others = found.measured
    whole = round(rate)
    # As good as the ends of the times tell it.
    is_whole = whole and abs(rate - whole) <= rate * 2 * _EVEN / n
    doubt = f"{clock.part} {found.problem}" if found.problem else ""
    fs = float(whole) if is_whole else rate
    return Clock(fs, problem=doubt, measured=tuple(others))


def _uneven(
    wide: NDArray[np.float64], name: ClockName, first: float, whose: str, doing: str
) -> UsageError:
    """Say how many gaps the times have, and which rate lies between them."""
    steps = np.diff(wide)
    usual = float(np.nanmedian(steps)) if np.isfinite(steps).any() else 0.0
    said = f"the times of {whose} are not even"
    if usual > 0:
        gaps = int((steps > _GAP * usual).sum())
        others = int((~(steps > 0)).sum())
        rate = seconds_per_unit(name, first, usual).measured
        told = [f"{gaps} gap{'s' * (gaps != 1)}"]
        told += [f"{others} not rising"] if others else []
        told += [f"{rate[0]:.6g} Hz between them"] if rate else []
        rule = ", ".join(told)
    else:
        rule = "they do not rise"
    hint = "resample it to even steps (numpy.interp), or pass its parts between gaps"
    return UsageError(doing, said, rule, hint)


_Reader = Callable[[Any, str], Given]
_READERS: Final[dict[tuple[str, str], _Reader]] = {
    ("mne", "BaseRaw"): _of_mne,
    ("mne", "BaseEpochs"): _of_mne,
    ("mne", "Evoked"): _of_mne,
    ("pandas", "DataFrame"): _of_pandas,
    ("pandas", "Series"): _of_pandas,
    ("polars", "DataFrame"): _of_polars,
    ("polars", "Series"): _of_polars,
    ("polars", "LazyFrame"): _of_polars,
    ("pyarrow", "Table"): _of_arrow,
    ("pyarrow", "RecordBatch"): _of_arrow,
    ("xarray", "DataArray"): _of_xarray,
}
