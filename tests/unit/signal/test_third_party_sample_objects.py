"""Objects of other libraries are accepted as they are, and results carry their
names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mne
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import rlxweb as rlx
from rlxweb.core.errors import UsageError
from tests.run_in_threads import run_in_event_loop

FS = 250.0
T = np.arange(4000) / FS
X = np.random.default_rng(7).standard_normal((3, 4000)) + np.sin(2 * np.pi * 10 * T)
NAMES = ("Fz", "Cz", "Pz")


def make_raw() -> Any:
    kinds = ["eeg"] * 3 + ["stim"]
    info = mne.create_info([*NAMES, "STI"], FS, kinds, verbose="error")
    return mne.io.RawArray(np.vstack([X, X[:1]]), info, verbose="error")


def make_epochs() -> Any:
    return mne.make_fixed_length_epochs(make_raw(), 4.0, preload=True, verbose="error")


def make_frame() -> Any:
    timestamps = pd.date_range("2026-01-01", periods=len(T), freq="4ms")
    return pd.DataFrame(X.T, columns=list(NAMES), index=timestamps)


OBJECTS = {
    "mne.Raw": make_raw,
    "pandas, dates": make_frame,
    "pandas, seconds": lambda: make_frame().set_index(T),
    "pandas, column": lambda: make_frame().reset_index(names="time"),
    "pandas, ms stamps": lambda: make_frame().set_index(T.round(3)),
    "polars": lambda: pl.DataFrame({"t": T, **dict(zip(NAMES, X, strict=True))}),
    "xarray": lambda: xr.DataArray(
        X.T, dims=("time", "channel"), coords={"time": T, "channel": list(NAMES)}
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_rate_and_names_come_from_the_object(name: str) -> None:
    source = OBJECTS[name]()
    result = rlx.welch(source, nperseg=500)
    expected = rlx.welch(X, FS, nperseg=500)
    np.testing.assert_array_equal(result.power, expected.power)
    np.testing.assert_array_equal(result.f, expected.f)
    assert (result.fs, result.labels.names) == (FS, (NAMES,))
    assert set(result.to_pandas()["channel"]) == set(NAMES)


def test_every_function_accepts_objects() -> None:
    source = make_frame()
    for function, options in (
        (rlx.welch_peaks, {}),
        (rlx.multitaper, {}),
        (rlx.spectrogram, {}),
        (rlx.stft, {}),
        (rlx.tfr_morlet, {"freqs": [8.0, 10.0]}),
        (rlx.band_power, {}),
    ):
        assert function(source, **options).labels.names == (NAMES,), function
    assert rlx.csd(source, source, nperseg=250).labels.names == (NAMES,)
    renamed = source.rename(columns=lambda name: name.lower())
    pairs = rlx.coherence(source, y=renamed, nperseg=250).labels.names
    assert pairs == (("Fz–fz", "Cz–cz", "Pz–pz"),)


def test_async_functions_accept_objects() -> None:
    for function in (rlx.welch_async, rlx.welch_peaks_async, rlx.multitaper_async):
        assert run_in_event_loop(function(make_frame())).labels.names == (NAMES,)


def test_epochs_are_an_axis_and_convert_to_mne() -> None:
    source = make_epochs()
    result = rlx.welch(source, nperseg=250)
    assert result.labels.dims == ("epoch", "channel")
    assert result.labels.unit == "V"
    mne_spectrum = source.compute_psd(
        "welch",
        n_fft=250,
        n_overlap=125,
        picks="eeg",
        window="hann",
        remove_dc=False,
        verbose="error",
    )
    converted = rlx.welch(source, nperseg=250, detrend=False).to_mne()
    assert type(converted).__name__ == "EpochsSpectrumArray"
    np.testing.assert_allclose(
        converted.get_data(), mne_spectrum.get_data(), rtol=1e-10
    )
    flat = rlx.welch(make_raw(), nperseg=250).to_mne()
    assert flat.ch_names == list(NAMES)


def test_bad_channels_stay_out() -> None:
    source = make_raw()
    source.info["bads"] = ["Cz"]
    assert rlx.welch(source).labels.names == (("Fz", "Pz"),)


def test_stretches_marked_bad_warn() -> None:
    """Stretches marked bad in a Raw are used, unlike in MNE, with a warning."""
    source = make_raw()
    annotations = mne.Annotations(
        [1.0, 4.0, 6.0], [0.5, 0.25, 1.0], ["BAD", "bad_x", "ok"]
    )
    source.set_annotations(annotations)
    with pytest.warns(
        rlx.errors.RecordingWarning, match=r"2 .* 0\.75 s in all, mark bad data"
    ):
        result = rlx.welch(source)
    np.testing.assert_array_equal(result.power, rlx.welch(make_raw()).power)
    fixed_epochs = mne.make_fixed_length_epochs(
        source, 4.0, preload=True, verbose="error"
    )
    assert (
        len(rlx.welch(fixed_epochs).power) == 2
    )  # without a warning: MNE left out two


def test_a_recording_is_an_object(tmp_path: Path) -> None:
    rlx.io.write_demo_recording(tmp_path / "demo.edf")
    with rlx.read(tmp_path / "demo.edf") as recording:
        result = rlx.welch_peaks(recording, nperseg=512, k=2)
        first = recording.groups[0].names[0]
        assert f"\n  {first}: " in repr(result)
        group = recording.groups[0]
        assert result.fs == group.fs
        assert result.labels.names == (group.names,)
        np.testing.assert_allclose(
            rlx.welch(group).power, rlx.welch(group.read(), group.fs).power, rtol=1e-9
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlx.welch(make_frame(), 100.0),
            "has a sampling rate of 250 Hz; fs is 100 Hz",
        ),
        (lambda: rlx.welch(make_frame(), axis=0), "itself defines the time axis"),
        (lambda: rlx.welch(make_frame().drop(make_frame().index[9:19])), "not even"),
        (
            lambda: rlx.welch(make_frame().reset_index(drop=True)),
            "has no sampling rate",
        ),
        (
            lambda: rlx.welch(pd.DataFrame({"a": ["x"]})),
            "column 'a' of the DataFrame has dtype",
        ),
        (lambda: rlx.welch(pl.DataFrame({"t": T})), "no column with samples"),
        (lambda: rlx.welch(xr.DataArray(X, dims=("a", "b"))), "must be named time"),
        (lambda: rlx.band_power(X), "rate is unknown; .*; pass fs=HZ"),
        (lambda: rlx.tfr_morlet(X, FS), "freqs is missing"),
    ],
)
def test_missing_or_conflicting_metadata_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_given_rate_overrides_timestamps() -> None:
    drifting = make_frame().set_index(T * 1.0001)
    assert rlx.welch(drifting, 250.0).fs == 250.0
    assert rlx.welch(make_frame().reset_index(drop=True), 100.0).fs == 100.0


STAMPS = pd.date_range("2026-01-01", periods=len(T), freq="4ms")


def frame_with_columns(**extra_columns: Any) -> Any:
    return pd.DataFrame(X.T, columns=list(NAMES)).assign(**extra_columns)


CLOCKS: dict[str, Any] = {
    "zone, index": lambda: frame_with_columns().set_index(STAMPS.tz_localize("UTC")),
    "zone, column": lambda: frame_with_columns(time=STAMPS.tz_localize("Asia/Tokyo")),
    "zone, other name": lambda: frame_with_columns(when=STAMPS.tz_localize("UTC")),
    "over a change of the hour": lambda: frame_with_columns(
        time=pd.date_range("2026-10-25 00:59:59.8", periods=len(T), freq="4ms")
        .tz_localize("UTC")
        .tz_convert("Europe/Berlin")
    ),
    "text": lambda: frame_with_columns(time=STAMPS.astype(str)),
    "text, zone": lambda: frame_with_columns(
        time=STAMPS.tz_localize("UTC").astype(str)
    ),
    "text, index": lambda: frame_with_columns().set_index(STAMPS.astype(str)),
    "time of day": lambda: frame_with_columns(time=(STAMPS - pd.Timedelta("2s")).time),
    "datetime": lambda: frame_with_columns(
        time=pd.Series(list(STAMPS.tz_localize("UTC").to_pydatetime()), dtype=object)
    ),
    "durations, index": lambda: frame_with_columns().set_index(pd.to_timedelta(T, "s")),
    "durations": lambda: frame_with_columns(time=pd.to_timedelta(T, "s")),
    "periods": lambda: frame_with_columns().set_index(STAMPS.to_period("ms")),
    "Arrow dates": lambda: frame_with_columns(
        time=pd.Series(STAMPS.tz_localize("UTC")).astype(
            "timestamp[ns, tz=UTC][pyarrow]"
        )
    ),
    "nullable": lambda: frame_with_columns(time=T).astype("Float64"),
    "ms since 1970": lambda: frame_with_columns(
        timestamp=1_700_000_000_000 + 4 * np.arange(len(T))
    ),
    "us since 1970": lambda: frame_with_columns(
        timestamp=1_700_000_000_000_000 + 4000 * np.arange(len(T))
    ),
    "ns since 1970, index": lambda: frame_with_columns().set_index(
        pd.Index(1_700_000_000_000_000_000 + 4_000_000 * np.arange(len(T)))
    ),
    "Time (s)": lambda: frame_with_columns(**{"Time (s)": T}),
    "time_ms": lambda: frame_with_columns(time_ms=1000 * T),
    "Elapsed Time (s)": lambda: frame_with_columns(**{"Elapsed Time (s)": T}),
    "two clocks": lambda: frame_with_columns(time=STAMPS, seconds_elapsed=T),
    "polars, zone": lambda: pl.from_pandas(
        frame_with_columns(at=STAMPS.tz_localize("UTC"))
    ),
    "polars, text": lambda: pl.from_pandas(frame_with_columns(at=STAMPS.astype(str))),
    "polars, time of day": lambda: pl.from_pandas(frame_with_columns(at=STAMPS.time)),
    "Arrow": lambda: pa.table({"time": T, **dict(zip(NAMES, X, strict=True))}),
    "Arrow, zone": lambda: pa.Table.from_pandas(
        frame_with_columns(at=STAMPS.tz_localize("UTC"))
    ),
    "Arrow, time of day": lambda: pa.Table.from_pandas(
        frame_with_columns(at=STAMPS.time)
    ),
    "Arrow batch": lambda: pa.RecordBatch.from_pandas(frame_with_columns(time=T)),
    "xarray, ms since 1970": lambda: xr.DataArray(
        X,
        dims=("channel", "time"),
        coords={
            "time": 1_700_000_000_000 + 4 * np.arange(len(T)),
            "channel": list(NAMES),
        },
    ),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_clock_columns_of_every_kind(name: str) -> None:
    """The clock gives the rate and is no channel."""
    result = rlx.welch(CLOCKS[name](), nperseg=500)
    assert (result.fs, result.labels.names) == (FS, (NAMES,))
    np.testing.assert_array_equal(result.power, rlx.welch(X, FS, nperseg=500).power)
    with pytest.raises(UsageError, match="has a sampling rate of 250 Hz; fs is 100 Hz"):
        rlx.welch(CLOCKS[name](), 100.0)


WITH_GAP = np.arange(len(T)) != 300


@pytest.mark.parametrize("fs", [None, FS, 1000.0])
@pytest.mark.parametrize(
    ("make_source", "message"),
    [
        (
            lambda: frame_with_columns(time=T)[WITH_GAP],
            "'time', are not evenly spaced; 1 gap, median rate 250 Hz",
        ),
        (
            lambda: frame_with_columns(time=STAMPS)[WITH_GAP],
            "1 gap, median rate 250 Hz",
        ),
        (
            lambda: frame_with_columns(time=STAMPS.astype(str))[WITH_GAP],
            "1 gap, median rate 250 Hz",
        ),
        (lambda: frame_with_columns(t=T[::-1]), "do not increase"),
        (
            lambda: frame_with_columns(seconds=T, time=STAMPS)[WITH_GAP].assign(
                seconds=T[:-1]
            ),
            "'time', are not evenly spaced; 1 gap",
        ),
        (
            lambda: frame_with_columns(time=[f"{k}th" for k in range(len(T))]),
            "column 'time', which begin with '0th'",
        ),
        (
            lambda: frame_with_columns(
                time_s=1_700_000_000_000 + 4 * np.arange(len(T))
            ),
            r"'time_s'; column 'time_s' is in s .* 1\.7e\+12 s since 1970, is not a "
            r"valid date: "
            r"0\.25 Hz if the unit is s, 250 Hz if the unit is ms",
        ),
        (
            lambda: pl.from_pandas(frame_with_columns(time=T)).lazy(),
            r"pass x\.collect\(\)",
        ),
        (
            lambda: pa.Table.from_pandas(frame_with_columns(time=T)[WITH_GAP]),
            "1 gap, median rate 250 Hz",
        ),
        (
            lambda: xr.DataArray(
                X[0][WITH_GAP], dims="time", coords={"time": T[WITH_GAP]}
            ),
            "1 gap, median rate 250 Hz",
        ),
    ],
)
def test_unusable_clocks_are_refused(
    make_source: Any, message: str, fs: float | None
) -> None:
    """A rate that the caller gives does not close up gaps."""
    with pytest.raises(UsageError, match=message):
        rlx.welch(make_source(), fs)


def test_times_without_a_unit_warn() -> None:
    source = frame_with_columns(timestamp=4 * np.arange(len(T)))
    message = "0.25 Hz if the unit is s, 250 Hz if the unit is ms; 0.25 Hz is assumed"
    with pytest.warns(rlx.errors.RecordingWarning, match=message):
        assert rlx.welch(source).fs == 0.25
    assert rlx.welch(source, 250.0).fs == 250.0
    with pytest.raises(
        UsageError, match=r"has a sampling rate of 0.25 Hz; fs is 100 Hz"
    ):
        rlx.welch(source, 100.0)


def test_clock_like_channel_warns() -> None:
    source = frame_with_columns(abc=10 * np.arange(len(T)))
    with pytest.warns(
        rlx.errors.RecordingWarning, match="'abc' increases by 10 in every row"
    ):
        assert rlx.welch(source, FS).labels.names == ((*NAMES, "abc"),)


def test_a_table_of_arrow_is_channels() -> None:
    source = pa.table(dict(zip(NAMES, X, strict=True)))
    np.testing.assert_array_equal(rlx.welch(source, FS).power, rlx.welch(X, FS).power)
    with pytest.raises(UsageError, match="has no sampling rate"):
        rlx.welch(source)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kind", [np.float64, np.uint16])
def test_temperatures_are_channels(make: Any, kind: Any) -> None:
    """A column "T" that goes up and down is no clock, with or without one."""
    warm = (1000 + 9 * X[1] + 0.01 * np.arange(len(T))).astype(kind)
    without_clock = rlx.welch(make({"T": warm, "Fz": X[0]}), FS)
    with_clock = rlx.welch(make({"time": T, "T": warm, "Fz": X[0]}))
    assert without_clock.labels.names == with_clock.labels.names == (("T", "Fz"),)
    assert with_clock.fs == FS
    np.testing.assert_array_equal(without_clock.power, with_clock.power)
