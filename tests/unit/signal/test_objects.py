"""Objects of other libraries go in as they are, and their names come out."""

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
from rlxweb.errors import UsageError
from tests.threads import in_a_loop

FS = 250.0
T = np.arange(4000) / FS
X = np.random.default_rng(7).standard_normal((3, 4000)) + np.sin(2 * np.pi * 10 * T)
NAMES = ("Fz", "Cz", "Pz")


def raw() -> Any:
    kinds = ["eeg"] * 3 + ["stim"]
    info = mne.create_info([*NAMES, "STI"], FS, kinds, verbose="error")
    return mne.io.RawArray(np.vstack([X, X[:1]]), info, verbose="error")


def epochs() -> Any:
    return mne.make_fixed_length_epochs(raw(), 4.0, preload=True, verbose="error")


def frame() -> Any:
    at = pd.date_range("2026-01-01", periods=len(T), freq="4ms")
    return pd.DataFrame(X.T, columns=list(NAMES), index=at)


OBJECTS = {
    "mne.Raw": raw,
    "pandas, dates": frame,
    "pandas, seconds": lambda: frame().set_index(T),
    "pandas, column": lambda: frame().reset_index(names="time"),
    "pandas, ms stamps": lambda: frame().set_index(T.round(3)),
    "polars": lambda: pl.DataFrame({"t": T, **dict(zip(NAMES, X, strict=True))}),
    "xarray": lambda: xr.DataArray(
        X.T, dims=("time", "channel"), coords={"time": T, "channel": list(NAMES)}
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_rate_and_names_are_the_objects_own(name: str) -> None:
    given = OBJECTS[name]()
    found = rlx.welch(given, nperseg=500)
    wanted = rlx.welch(X, FS, nperseg=500)
    np.testing.assert_array_equal(found.power, wanted.power)
    np.testing.assert_array_equal(found.f, wanted.f)
    assert (found.fs, found.labels.names) == (FS, (NAMES,))
    assert set(found.to_pandas()["channel"]) == set(NAMES)


def test_every_function_takes_them() -> None:
    given = frame()
    for function, options in (
        (rlx.welch_peaks, {}),
        (rlx.multitaper, {}),
        (rlx.spectrogram, {}),
        (rlx.stft, {}),
        (rlx.tfr_morlet, {"freqs": [8.0, 10.0]}),
        (rlx.band_power, {}),
    ):
        assert function(given, **options).labels.names == (NAMES,), function
    assert rlx.csd(given, given, nperseg=250).labels.names == (NAMES,)
    other = given.rename(columns=lambda name: name.lower())
    pairs = rlx.coherence(given, y=other, nperseg=250).labels.names
    assert pairs == (("Fz–fz", "Cz–cz", "Pz–pz"),)


def test_beside_a_loop_too() -> None:
    for function in (rlx.welch_async, rlx.welch_peaks_async, rlx.multitaper_async):
        assert in_a_loop(function(frame())).labels.names == (NAMES,)


def test_epochs_are_an_axis_and_go_back_to_mne() -> None:
    given = epochs()
    found = rlx.welch(given, nperseg=250)
    assert found.labels.dims == ("epoch", "channel")
    assert found.labels.unit == "V"
    own = given.compute_psd(
        "welch",
        n_fft=250,
        n_overlap=125,
        picks="eeg",
        window="hann",
        remove_dc=False,
        verbose="error",
    )
    back = rlx.welch(given, nperseg=250, detrend=False).to_mne()
    assert type(back).__name__ == "EpochsSpectrumArray"
    np.testing.assert_allclose(back.get_data(), own.get_data(), rtol=1e-10)
    flat = rlx.welch(raw(), nperseg=250).to_mne()
    assert flat.ch_names == list(NAMES)


def test_bad_channels_stay_out() -> None:
    given = raw()
    given.info["bads"] = ["Cz"]
    assert rlx.welch(given).labels.names == (("Fz", "Pz"),)


def test_stretches_that_mne_leaves_out_are_told() -> None:
    """Stretches marked bad in a Raw are used, unlike in MNE, with a warning."""
    given = raw()
    notes = mne.Annotations([1.0, 4.0, 6.0], [0.5, 0.25, 1.0], ["BAD", "bad_x", "ok"])
    given.set_annotations(notes)
    with pytest.warns(rlx.errors.RecordingWarning, match=r"2 .* 0\.75 s, say bad"):
        found = rlx.welch(given)
    np.testing.assert_array_equal(found.power, rlx.welch(raw()).power)
    cut = mne.make_fixed_length_epochs(given, 4.0, preload=True, verbose="error")
    assert len(rlx.welch(cut).power) == 2  # without a warning: MNE left out two


def test_a_recording_is_an_object(tmp_path: Path) -> None:
    rlx.io.write_demo_recording(tmp_path / "demo.edf")
    with rlx.read(tmp_path / "demo.edf") as recording:
        found = rlx.welch_peaks(recording, nperseg=512, k=2)
        first = recording.groups[0].names[0]
        assert f"\n  {first}: " in repr(found)
        group = recording.groups[0]
        assert found.fs == group.fs
        assert found.labels.names == (group.names,)
        np.testing.assert_allclose(
            rlx.welch(group).power, rlx.welch(group.read(), group.fs).power, rtol=1e-9
        )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rlx.welch(frame(), 100.0), "has 250 Hz; 100 Hz was given"),
        (lambda: rlx.welch(frame(), axis=0), "says itself where time is"),
        (lambda: rlx.welch(frame().drop(frame().index[9:19])), "not even"),
        (lambda: rlx.welch(frame().reset_index(drop=True)), "tells no rate"),
        (lambda: rlx.welch(pd.DataFrame({"a": ["x"]})), "in column 'a'"),
        (lambda: rlx.welch(pl.DataFrame({"t": T})), "no column of samples"),
        (lambda: rlx.welch(xr.DataArray(X, dims=("a", "b"))), "is called time"),
        (lambda: rlx.band_power(X), "rate is not known; .*; give fs=HZ"),
        (lambda: rlx.tfr_morlet(X, FS), "freqs is missing"),
    ],
)
def test_what_an_object_cannot_tell_is_asked_for(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_a_rate_that_is_given_goes_before_stamps() -> None:
    off = frame().set_index(T * 1.0001)
    assert rlx.welch(off, 250.0).fs == 250.0
    assert rlx.welch(frame().reset_index(drop=True), 100.0).fs == 100.0


STAMPS = pd.date_range("2026-01-01", periods=len(T), freq="4ms")


def columns(**more: Any) -> Any:
    return pd.DataFrame(X.T, columns=list(NAMES)).assign(**more)


CLOCKS: dict[str, Any] = {
    "zone, index": lambda: columns().set_index(STAMPS.tz_localize("UTC")),
    "zone, column": lambda: columns(time=STAMPS.tz_localize("Asia/Tokyo")),
    "zone, other name": lambda: columns(when=STAMPS.tz_localize("UTC")),
    "over a change of the hour": lambda: columns(
        time=pd.date_range("2026-10-25 00:59:59.8", periods=len(T), freq="4ms")
        .tz_localize("UTC")
        .tz_convert("Europe/Berlin")
    ),
    "text": lambda: columns(time=STAMPS.astype(str)),
    "text, zone": lambda: columns(time=STAMPS.tz_localize("UTC").astype(str)),
    "text, index": lambda: columns().set_index(STAMPS.astype(str)),
    "time of day": lambda: columns(time=(STAMPS - pd.Timedelta("2s")).time),
    "datetime": lambda: columns(
        time=pd.Series(list(STAMPS.tz_localize("UTC").to_pydatetime()), dtype=object)
    ),
    "durations, index": lambda: columns().set_index(pd.to_timedelta(T, "s")),
    "durations": lambda: columns(time=pd.to_timedelta(T, "s")),
    "periods": lambda: columns().set_index(STAMPS.to_period("ms")),
    "Arrow dates": lambda: columns(
        time=pd.Series(STAMPS.tz_localize("UTC")).astype(
            "timestamp[ns, tz=UTC][pyarrow]"
        )
    ),
    "nullable": lambda: columns(time=T).astype("Float64"),
    "ms since 1970": lambda: columns(
        timestamp=1_700_000_000_000 + 4 * np.arange(len(T))
    ),
    "us since 1970": lambda: columns(
        timestamp=1_700_000_000_000_000 + 4000 * np.arange(len(T))
    ),
    "ns since 1970, index": lambda: columns().set_index(
        pd.Index(1_700_000_000_000_000_000 + 4_000_000 * np.arange(len(T)))
    ),
    "Time (s)": lambda: columns(**{"Time (s)": T}),
    "time_ms": lambda: columns(time_ms=1000 * T),
    "Elapsed Time (s)": lambda: columns(**{"Elapsed Time (s)": T}),
    "two clocks": lambda: columns(time=STAMPS, seconds_elapsed=T),
    "polars, zone": lambda: pl.from_pandas(columns(at=STAMPS.tz_localize("UTC"))),
    "polars, text": lambda: pl.from_pandas(columns(at=STAMPS.astype(str))),
    "polars, time of day": lambda: pl.from_pandas(columns(at=STAMPS.time)),
    "Arrow": lambda: pa.table({"time": T, **dict(zip(NAMES, X, strict=True))}),
    "Arrow, zone": lambda: pa.Table.from_pandas(columns(at=STAMPS.tz_localize("UTC"))),
    "Arrow, time of day": lambda: pa.Table.from_pandas(columns(at=STAMPS.time)),
    "Arrow batch": lambda: pa.RecordBatch.from_pandas(columns(time=T)),
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
def test_clocks_of_every_make(name: str) -> None:
    """The clock gives the rate and is no channel."""
    found = rlx.welch(CLOCKS[name](), nperseg=500)
    assert (found.fs, found.labels.names) == (FS, (NAMES,))
    np.testing.assert_array_equal(found.power, rlx.welch(X, FS, nperseg=500).power)
    with pytest.raises(UsageError, match="has 250 Hz; 100 Hz was given"):
        rlx.welch(CLOCKS[name](), 100.0)


KEPT = np.arange(len(T)) != 300


@pytest.mark.parametrize("fs", [None, FS, 1000.0])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: columns(time=T)[KEPT], "'time', are not even; 1 gap, 250 Hz between"),
        (lambda: columns(time=STAMPS)[KEPT], "1 gap, 250 Hz between them"),
        (lambda: columns(time=STAMPS.astype(str))[KEPT], "1 gap, 250 Hz between them"),
        (lambda: columns(t=T[::-1]), "do not rise"),
        (
            lambda: columns(seconds=T, time=STAMPS)[KEPT].assign(seconds=T[:-1]),
            "'time', are not even; 1 gap",
        ),
        (lambda: columns(time=[f"{k}th" for k in range(len(T))]), "understood: '0th'"),
        (
            lambda: columns(time_s=1_700_000_000_000 + 4 * np.arange(len(T))),
            "no date: 0.25 Hz if it is in s, 250 Hz if it is in ms",
        ),
        (lambda: pl.from_pandas(columns(time=T)).lazy(), r"pass x\.collect\(\)"),
        (lambda: pa.Table.from_pandas(columns(time=T)[KEPT]), "1 gap, 250 Hz"),
        (
            lambda: xr.DataArray(X[0][KEPT], dims="time", coords={"time": T[KEPT]}),
            "1 gap, 250 Hz between them",
        ),
    ],
)
def test_clocks_that_give_no_rate(given: Any, said: str, fs: float | None) -> None:
    """A rate that the caller gives does not close up gaps."""
    with pytest.raises(UsageError, match=said):
        rlx.welch(given(), fs)


def test_times_without_a_unit_are_told() -> None:
    given = columns(timestamp=4 * np.arange(len(T)))
    both = "0.25 Hz if it is in s, 250 Hz if it is in ms; 0.25 Hz is taken"
    with pytest.warns(rlx.errors.RecordingWarning, match=both):
        assert rlx.welch(given).fs == 0.25
    assert rlx.welch(given, 250.0).fs == 250.0
    with pytest.raises(UsageError, match=r"has 0.25 Hz; 100 Hz was given"):
        rlx.welch(given, 100.0)


def test_a_channel_that_rises_as_a_clock_does_is_told() -> None:
    given = columns(abc=10 * np.arange(len(T)))
    with pytest.warns(
        rlx.errors.RecordingWarning, match="'abc' rises evenly by 10 a row"
    ):
        assert rlx.welch(given, FS).labels.names == ((*NAMES, "abc"),)


def test_a_table_of_arrow_is_channels() -> None:
    given = pa.table(dict(zip(NAMES, X, strict=True)))
    np.testing.assert_array_equal(rlx.welch(given, FS).power, rlx.welch(X, FS).power)
    with pytest.raises(UsageError, match="tells no rate"):
        rlx.welch(given)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kind", [np.float64, np.uint16])
def test_temperatures_are_channels(make: Any, kind: Any) -> None:
    """A column "T" that goes up and down is no clock, beside one or not."""
    warm = (1000 + 9 * X[1] + 0.01 * np.arange(len(T))).astype(kind)
    alone = rlx.welch(make({"T": warm, "Fz": X[0]}), FS)
    beside = rlx.welch(make({"time": T, "T": warm, "Fz": X[0]}))
    assert alone.labels.names == beside.labels.names == (("T", "Fz"),)
    assert beside.fs == FS
    np.testing.assert_array_equal(alone.power, beside.power)
