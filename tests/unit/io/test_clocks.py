"""Clocks beside samples, in every format that has one: their gaps and their units.

How a rate follows from printed times is tested with CSV tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlxweb.errors import RecordingError, RecordingWarning
from rlxweb.io import open_recording
from rlxweb.io.clock_names import ClockName, clock_name
from rlxweb.io.clock_text import times_of

T = np.arange(600) / 100.0
X = np.sin(20 * np.pi * T)
KEPT = np.arange(600) != 300
SINCE = 1_700_000_000


def _npz(path: Path, **columns: Any) -> None:
    np.savez(path, **columns)


def _hdf5(path: Path, **columns: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, own in columns.items():
            file[name] = own


def _parquet(path: Path, **columns: Any) -> None:
    rate = {name: str(columns.pop(name)) for name in ("fs",) if name in columns}
    pq.write_table(pa.table(columns).replace_schema_metadata(rate), path)


def _csv(path: Path, **columns: Any) -> None:
    pd.DataFrame(columns).to_csv(path, index=False)


WRITERS: dict[str, Callable[..., None]] = {
    "a.npz": _npz,
    "a.h5": _hdf5,
    "a.parquet": _parquet,
    "a.csv": _csv,
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Write arrays in one of the formats, and give the path."""

    def written(**columns: Any) -> Path:
        WRITERS[request.param](tmp_path / request.param, **columns)
        return tmp_path / str(request.param)

    return written


@pytest.mark.parametrize(
    "clock",
    [
        {"time": T},
        {"timestamps": SINCE * 1000 + 10 * np.arange(600)},
        {"timestamp": SINCE * 10**6 + 10_000 * np.arange(600)},
        {"timestamp": SINCE * 10**9 + 10_000_000 * np.arange(600)},
        {"time_ms": 10 * np.arange(600)},
        {"time_ns": 10_000_000 * np.arange(600)},
        {"Elapsed Time (s)": T},
        {"Zeit": T},
    ],
    ids=lambda clock: f"{next(iter(clock))} {str(next(iter(clock.values()))[0])[:3]}",
)
def test_a_clock_gives_its_rate(
    write: Callable[..., Path], clock: dict[str, Any]
) -> None:
    path = write(**clock, x=X)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, recording.warnings) == (100.0, ())
        np.testing.assert_array_equal(group.read()[0], X)
    with pytest.raises(RecordingError, match="fs=1000 was given, the file says 100 Hz"):
        open_recording(path, fs=1000)


def test_a_rate_does_not_beat_times_with_a_gap(write: Callable[..., Path]) -> None:
    path = write(time=T[KEPT], x=X[KEPT])
    gap = (
        r"'time' is not evenly spaced \(about row 301\): 1 gap of up to 0\.02 s; 100 Hz"
    )
    with pytest.raises(RecordingError, match=f"rate is unknown; .*{gap}") as caught:
        open_recording(path)
    assert "fs" not in str(caught.value)
    for fs in (1000, 50, 98.9):
        with pytest.raises(RecordingError, match=f"was given, .* say 100 Hz; .*{gap}"):
            open_recording(path, fs=fs)
    for fs in (100, 99.5):
        with (
            pytest.warns(RecordingWarning, match=f"{gap} between them: at {fs:g} Hz"),
            open_recording(path, fs=fs) as recording,
        ):
            assert recording.groups[0].fs == fs


@pytest.mark.parametrize("name", ["a.npz", "a.h5", "a.parquet"])
def test_a_rate_in_the_file_is_compared_with_its_times(
    tmp_path: Path, name: str
) -> None:
    path, write = tmp_path / name, WRITERS[name]
    write(path, time=T, x=X, fs=100.0)
    with open_recording(path) as recording:
        assert (recording.groups[0].fs, recording.warnings) == (100.0, ())
    write(path, time=T, x=X, fs=250.0)
    with pytest.raises(RecordingError, match=r"contradict.*250 Hz.*'time': 100 Hz"):
        open_recording(path)
    write(path, time=T[KEPT], x=X[KEPT], fs=100.0)
    with pytest.warns(
        RecordingWarning, match="1 gap of up to 0.02 s; .* at 100 Hz, as"
    ):
        open_recording(path).close()
    write(path, time=T[KEPT], x=X[KEPT], fs=50.0)
    with pytest.raises(RecordingError, match=r"contradict.*50 Hz.*100 Hz.*1 gap"):
        open_recording(path)


@pytest.mark.parametrize("fs", [100.0, 1000.0])
def test_times_that_are_not_understood_are_told(tmp_path: Path, fs: float) -> None:
    for name in ("a.csv", "a.parquet"):
        WRITERS[name](tmp_path / name, time=[f"{k}th" for k in range(600)], x=X)
        with (
            pytest.warns(
                RecordingWarning, match=rf"'0th'\): {fs:g} Hz .* a comparison"
            ),
            open_recording(tmp_path / name, fs=fs) as recording,
        ):
            assert recording.groups[0].names == ("x",)


@pytest.mark.parametrize("column", ["datetime", "when"])
def test_dates_as_text_are_times(tmp_path: Path, column: str) -> None:
    at = pd.Timestamp("2024-02-28 23:59:57", tz="Europe/Berlin") + pd.to_timedelta(
        T, "s"
    )
    for texts in (at.astype(str), at.tz_localize(None).astype(str)):
        for name in ("a.csv", "a.parquet"):
            WRITERS[name](tmp_path / name, **{column: list(texts)}, x=X)
            with open_recording(tmp_path / name) as recording:
                assert (recording.groups[0].fs, recording.warnings) == (100.0, ())
            with pytest.raises(
                RecordingError, match="fs=1000 was given, the file says"
            ):
                open_recording(tmp_path / name, fs=1000)


def test_times_of_day_in_parquet(tmp_path: Path) -> None:
    ticks = pa.array(np.arange(600, dtype="i4") * 10).cast(pa.time32("ms"))
    _parquet(tmp_path / "a.parquet", at=ticks, x=X)
    with open_recording(tmp_path / "a.parquet") as recording:
        assert recording.groups[0].fs == 100.0


def test_datetimes_in_npz(tmp_path: Path) -> None:
    at = np.datetime64("2024-01-01", "ns") + (np.arange(600) * 10**7).astype("m8[ns]")
    np.savez(tmp_path / "a.npz", x=X, t=at)
    with open_recording(tmp_path / "a.npz") as recording:
        assert recording.groups[0].fs == 100.0


def test_text_keeps_its_digits() -> None:
    """Text is read as NumPy's datetime64; a float of a whole date would lose digits."""
    texts = [f"2024-12-31T23:59:59.{k:09d}" for k in range(0, 10**9, 99_999_999)]
    texts += [f"2025-01-01T00:00:00.{k:09d}" for k in range(5)]
    want = np.array(texts, "datetime64[ns]") - np.datetime64("2024-12-31", "ns")
    found = times_of(texts)
    np.testing.assert_allclose(found.seconds, want / np.timedelta64(1, "s"), atol=2e-11)
    assert found.digit == pytest.approx(1e-9)


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("time", None),
        ("Time (s)", 1.0),
        ("TimeStamp", None),
        ("Timestamp_Unix_CAL", None),
        ("elapsed_ms", 1e-3),
        ("Zeit [µs]", 1e-6),
        ("nanoseconds", 1e-9),
        ("DateTime", None),
        ("t [h]", "no clock"),
        ("Time [h]", 3600.0),
        ("Date Time (UTC)", None),
        ("times", None),
        ("ms", "no clock"),
        ("min", "no clock"),
        ("T_max", "no clock"),
        ("elapsed", None),
        ("timer", "no clock"),
        ("unixtime", None),
        ("response time", "no clock"),
        ("Fp1", "no clock"),
        ("", "no clock"),
    ],
)
def test_names(name: str, scale: Any) -> None:
    found = clock_name(name)
    if scale == "no clock":
        assert found is None
    else:
        assert isinstance(found, ClockName)
        assert found.scale == scale


WARM = 20 + 1e-4 * np.arange(600) + np.random.default_rng(3).normal(0, 0.01, 600)


@pytest.mark.parametrize("name", ["T", "t"])
@pytest.mark.parametrize("suffix", ["a.parquet", "a.csv"])
def test_temperatures_are_channels(tmp_path: Path, suffix: str, name: str) -> None:
    """A column "T" that goes up and down is a channel, beside a clock or not."""
    path = tmp_path / suffix
    for columns in ({"time": T, name: WARM, "x": X}, {name: WARM, "x": X}):
        WRITERS[suffix](path, **columns)
        with open_recording(path, fs=100) as recording:
            (group,) = recording.groups
            assert (group.fs, group.names) == (100.0, (name, "x"))
            np.testing.assert_array_equal(group.read(0, 600), [WARM, X])


@pytest.mark.parametrize("name", ["T", "t"])
def test_temperatures_beside_samples_are_no_clocks(
    write: Callable[..., Path], name: str
) -> None:
    with open_recording(write(**{name: WARM, "time": T, "x": X}), fs=100) as recording:
        assert recording.groups[0].fs == 100.0


@pytest.mark.parametrize("began", [2**32 - 3_000_000, 2**32 - 300])
def test_counters_that_begin_anew(write: Callable[..., Path], began: int) -> None:
    """Microseconds in 32 bits begin anew after 71 minutes; the rate is measured."""
    times = (began + 10_000 * np.arange(600, dtype=np.int64)) % 2**32
    path = write(time_us=times, x=X)
    with pytest.raises(RecordingError, match=r"1 step back.*100 Hz between them"):
        open_recording(path)
    with pytest.raises(RecordingError, match="fs=1000 was given, its times say 100 Hz"):
        open_recording(path, fs=1000)
    with pytest.warns(RecordingWarning, match="100 Hz between them"):
        open_recording(path, fs=100).close()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_long_clocks_of_npz(tmp_path: Path, save: Any) -> None:
    """An array of times is longer than the list of members may be (1 MiB)."""
    many = 300_000
    times = (np.arange(many) + np.random.default_rng(0).uniform(0, 1e-3, many)) / 500
    save(tmp_path / "a.npz", x=np.arange(many), time=times)
    with open_recording(tmp_path / "a.npz") as recording:
        assert recording.groups[0].n_samples == many
        assert recording.groups[0].fs == pytest.approx(500, rel=1e-6)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_many_annotations_of_npz(tmp_path: Path, save: Any) -> None:
    """Annotations of npz may be longer than the list of its members."""
    many = 10_000
    kinds = [("onset", "f8"), ("duration", "f8"), ("text", "U32")]
    notes = np.array(
        [(at / 10, 0.0, f"spike {at * 7919}") for at in range(many)], kinds
    )
    save(tmp_path / "a.npz", x=np.arange(20_000), fs=100.0, annotations=notes)
    with open_recording(tmp_path / "a.npz") as recording:
        assert [one.text for one in recording.annotations] == notes["text"].tolist()
