"""Samples in the objects of other libraries: their rate, their names, their array.

An object is told by the module its class comes from, so nothing is imported for it: who
made one has loaded its library. MNE's Raw, Epochs and Evoked, tables of pandas and
polars, xarray's DataArray, and our own recordings.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.callers import outside
from rlxweb.errors import RecordingWarning, UsageError, shown
from rlxweb.io.annotations import is_bad
from rlxweb.io.epochs import Epochs
from rlxweb.io.recording import Group, Recording
from rlxweb.results.labels import Labels

_EVEN: Final = 0.3
"""Share of a step by which a time may be off, as rounded stamps are."""
_TIMES: Final = ("time", "times", "t", "timestamp", "timestamps", "seconds", "sec")
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class Given(NamedTuple):
    """What an object holds.

    what     it is, for messages
    fs       Hz; None where it does not say
    labels   of its axes but time
    samples  (…, T), or a recording's own form; read when it is called
    """

    what: str
    fs: float | None
    labels: Labels
    samples: Callable[[], Any]


def object_given(x: Any, doing: str) -> Given | None:
    """What is known of an object; None for an array and whatever else is no object.

    doing    for messages; "": only whether it is one is asked
    Errors   UsageError for one that holds no samples of one even rate.
    """
    if isinstance(x, Group | Recording):
        return _of_recording(x, doing)
    if isinstance(x, Epochs):
        begins = float(x.times[0])
        labels = Labels(("epoch", "channel"), (None, x.names), x.unit, begins=begins)
        return Given("the epochs", x.fs, labels, lambda: x.data)
    for kind in type(x).__mro__:
        reader = _READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if reader is not None:
            return reader(x, doing) if doing else Given("", None, Labels(), list)
    return None


def _of_recording(x: Group | Recording, doing: str) -> Given:
    if isinstance(x, Recording):
        if len(x.groups) != 1 and doing:
            rates = ", ".join(f"{one.fs:g}" for one in x.groups)
            raise UsageError(
                doing,
                f"the recording has channels of {len(x.groups)} rates: {rates} Hz",
                "one is wanted",
                "give one of its groups: recording.groups[0]",
            )
        x = x.groups[0]
    units = {channel.unit for channel in x.channels}
    unit = units.pop() if len(units) == 1 else ""
    labels = Labels(("channel",), (x.names,), unit)
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


def _of_pandas(x: Any, doing: str) -> Given:
    what = f"the {type(x).__name__}"
    if type(x).__name__ == "Series" or not hasattr(x, "columns"):
        x = x.to_frame(x.name or "0")
    fs = None
    index = x.index
    if index.dtype.kind in "Mm":
        fs = _rate(_seconds(index.to_numpy()), what, doing)
    elif index.dtype.kind == "f" or str(index.name).lower() in _TIMES:
        fs = _rate(index.to_numpy(np.float64), what, doing)
    columns = {str(name): x[name].to_numpy() for name in x.columns}
    if len(columns) != len(x.columns):
        raise UsageError(doing, f"{what} has columns of one name", "names that differ")
    return _of_columns(columns, fs, what, doing)


def _of_polars(x: Any, doing: str) -> Given:
    what = f"the {type(x).__name__}"
    if type(x).__name__ == "Series":
        x = x.to_frame()
    columns = {name: x[name].to_numpy() for name in x.columns}
    return _of_columns(columns, None, what, doing)


def _of_columns(
    columns: dict[str, NDArray[Any]], fs: float | None, what: str, doing: str
) -> Given:
    """A channel for each column, but for one of times."""
    for name, own in list(columns.items()):
        if own.dtype.kind in "Mm":
            own = _seconds(own)
        elif name.lower() not in _TIMES:
            continue
        fs = _rate(own, f"{what}, column {name!r},", doing)
        del columns[name]
        break
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

    def samples() -> NDArray[Any]:
        return np.stack(list(columns.values()))

    return Given(what, fs, Labels(("channel",), (tuple(columns),)), samples)


def _of_xarray(x: Any, doing: str) -> Given:
    what = "the DataArray"
    named = [
        dim for dim in x.dims if str(dim).lower() in (*_TIMES, "sample", "samples")
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
    fs = None
    if time in x.coords and x.coords[time].dtype.kind in "Mmfiu":
        own = x.coords[time]
        values = own.to_numpy()
        kind = values.dtype.kind
        unit = _SECONDS.get(str(own.attrs.get("units", "s")), 1.0)
        is_index = kind in "iu" and "units" not in own.attrs
        if not is_index:
            wide = _seconds(values) if kind in "Mm" else values * unit
            fs = _rate(wide, what, doing)
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
    return Given(what, fs, labels, lambda: x.transpose(..., time).to_numpy())


def _seconds(values: NDArray[Any]) -> NDArray[np.float64]:
    """Dates or differences as seconds from the first."""
    if values.dtype.kind == "M":
        values = values - values[:1]
    seconds: NDArray[np.float64] = values / np.timedelta64(1, "s")
    return seconds


def _rate(times: NDArray[Any], what: str, doing: str) -> float | None:
    """Hz of even times; None for fewer than two. Errors  UsageError for uneven ones.

    A missing sample moves others by half a step at least; rounded stamps lie closer.
    """
    n = len(times) - 1
    if n < 1:
        return None
    wide = np.asarray(times, np.float64)
    step = float(wide[-1] - wide[0]) / n
    off = np.abs(wide - (wide[0] + step * np.arange(n + 1)))
    if not (step > 0 and off.max() <= _EVEN * step):
        at = int(np.abs(np.diff(wide) - step).argmax())
        raise UsageError(
            doing,
            f"the times of {what} are not even: {wide[at]:g} and {wide[at + 1]:g} s",
            f"{step:g} s apart on average",
            "resample it to even steps, or pass the values and fs",
        )
    rate, whole = 1.0 / step, round(1.0 / step)
    # As good as the ends of the times tell it.
    return float(whole) if abs(rate - whole) <= rate * 2 * _EVEN / n else rate


_Reader = Callable[[Any, str], Given]
_READERS: Final[dict[tuple[str, str], _Reader]] = {
    ("mne", "BaseRaw"): _of_mne,
    ("mne", "BaseEpochs"): _of_mne,
    ("mne", "Evoked"): _of_mne,
    ("pandas", "DataFrame"): _of_pandas,
    ("pandas", "Series"): _of_pandas,
    ("polars", "DataFrame"): _of_polars,
    ("polars", "Series"): _of_polars,
    ("xarray", "DataArray"): _of_xarray,
}
