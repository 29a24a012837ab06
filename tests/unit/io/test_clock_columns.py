"""Clock columns of every format that has them: their gaps and their units.

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

from rlxweb.core.errors import RecordingError, RecordingWarning
from rlxweb.io import open_recording
from rlxweb.io.clock_column_names import ClockName, parse_clock_name
from rlxweb.io.time_parsing import parse_times

T = np.arange(600) / 100.0
X = np.sin(20 * np.pi * T)
IS_RECORDED = np.arange(600) != 300
UNIX_START_S = 1_700_000_000


def _write_npz(path: Path, **columns: Any) -> None:
    np.savez(path, **columns)


def _write_hdf5(path: Path, **columns: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file[name] = column


def _write_parquet(path: Path, **columns: Any) -> None:
    rate = {name: str(columns.pop(name)) for name in ("fs",) if name in columns}
    pq.write_table(pa.table(columns).replace_schema_metadata(rate), path)


def _write_csv(path: Path, **columns: Any) -> None:
    pd.DataFrame(columns).to_csv(path, index=False)


WRITERS: dict[str, Callable[..., None]] = {
    "a.npz": _write_npz,
    "a.h5": _write_hdf5,
    "a.parquet": _write_parquet,
    "a.csv": _write_csv,
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes arrays in one of the formats and returns the
    path.
    """

    def write_columns(**columns: Any) -> Path:
        WRITERS[request.param](tmp_path / request.param, **columns)
        return tmp_path / str(request.param)

    return write_columns


@pytest.mark.parametrize(
    "clock",
    [
        {"time": T},
        {"timestamps": UNIX_START_S * 1000 + 10 * np.arange(600)},
        {"timestamp": UNIX_START_S * 10**6 + 10_000 * np.arange(600)},
        {"timestamp": UNIX_START_S * 10**9 + 10_000_000 * np.arange(600)},
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
    with pytest.raises(
        RecordingError, match="got fs=1000, but the file declares 100 Hz"
    ):
        open_recording(path, fs=1000)


def test_a_given_rate_does_not_override_times_with_a_gap(
    write: Callable[..., Path],
) -> None:
    path = write(time=T[IS_RECORDED], x=X[IS_RECORDED])
    gap_pattern = (
        r"'time' is not evenly spaced \(near row 301\): 1 gap of up to 0\.02 s; 100 Hz"
    )
    with pytest.raises(
        RecordingError, match=f"rate is unknown; .*{gap_pattern}"
    ) as caught:
        open_recording(path)
    assert "fs" not in str(caught.value)
    for fs in (1000, 50, 98.9):
        with pytest.raises(
            RecordingError, match=f"got .* give 100 Hz; .*{gap_pattern}"
        ):
            open_recording(path, fs=fs)
    for fs in (100, 99.5):
        with (
            pytest.warns(
                RecordingWarning, match=f"{gap_pattern} elsewhere; .* at {fs:g} Hz"
            ),
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
    with pytest.raises(RecordingError, match=r"conflicting.*250 Hz.*'time': 100 Hz"):
        open_recording(path)
    write(path, time=T[IS_RECORDED], x=X[IS_RECORDED], fs=100.0)
    with pytest.warns(
        RecordingWarning,
        match="1 gap of up to 0.02 s; .* at 100 Hz, the rate declared by",
    ):
        open_recording(path).close()
    write(path, time=T[IS_RECORDED], x=X[IS_RECORDED], fs=50.0)
    with pytest.raises(RecordingError, match=r"conflicting.*50 Hz.*100 Hz.*1 gap"):
        open_recording(path)


@pytest.mark.parametrize("fs", [100.0, 1000.0])
def test_unparsable_times_are_warned_of(tmp_path: Path, fs: float) -> None:
    for name in ("a.csv", "a.parquet"):
        WRITERS[name](tmp_path / name, time=[f"{k}th" for k in range(600)], x=X)
        with (
            pytest.warns(
                RecordingWarning, match=rf"'0th'\); {fs:g} Hz is used without a check"
            ),
            open_recording(tmp_path / name, fs=fs) as recording,
        ):
            assert recording.groups[0].names == ("x",)


@pytest.mark.parametrize("column", ["datetime", "when"])
def test_dates_as_text_are_times(tmp_path: Path, column: str) -> None:
    dates = pd.Timestamp("2024-02-28 23:59:57", tz="Europe/Berlin") + pd.to_timedelta(
        T, "s"
    )
    for texts in (dates.astype(str), dates.tz_localize(None).astype(str)):
        for name in ("a.csv", "a.parquet"):
            WRITERS[name](tmp_path / name, **{column: list(texts)}, x=X)
            with open_recording(tmp_path / name) as recording:
                assert (recording.groups[0].fs, recording.warnings) == (100.0, ())
            with pytest.raises(
                RecordingError, match="got fs=1000, but the file declares"
            ):
                open_recording(tmp_path / name, fs=1000)


def test_times_of_day_in_parquet(tmp_path: Path) -> None:
    ticks = pa.array(np.arange(600, dtype="i4") * 10).cast(pa.time32("ms"))
    _write_parquet(tmp_path / "a.parquet", at=ticks, x=X)
    with open_recording(tmp_path / "a.parquet") as recording:
        assert recording.groups[0].fs == 100.0


def test_datetimes_in_npz(tmp_path: Path) -> None:
    dates = np.datetime64("2024-01-01", "ns") + (np.arange(600) * 10**7).astype(
        "m8[ns]"
    )
    np.savez(tmp_path / "a.npz", x=X, t=dates)
    with open_recording(tmp_path / "a.npz") as recording:
        assert recording.groups[0].fs == 100.0


def test_times_as_text_keep_their_digits() -> None:
    """Text is parsed like NumPy's datetime64; a float of a whole date would lose
    digits.
    """
    texts = [f"2024-12-31T23:59:59.{k:09d}" for k in range(0, 10**9, 99_999_999)]
    texts += [f"2025-01-01T00:00:00.{k:09d}" for k in range(5)]
    want = np.array(texts, "datetime64[ns]") - np.datetime64("2024-12-31", "ns")
    parsed = parse_times(texts)
    np.testing.assert_allclose(
        parsed.seconds, want / np.timedelta64(1, "s"), atol=2e-11
    )
    assert parsed.resolution == pytest.approx(1e-9)


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
def test_clock_names(name: str, scale: Any) -> None:
    parsed = parse_clock_name(name)
    if scale == "no clock":
        assert parsed is None
    else:
        assert isinstance(parsed, ClockName)
        assert parsed.seconds_per_unit == scale


TEMPERATURES = (
    20 + 1e-4 * np.arange(600) + np.random.default_rng(3).normal(0, 0.01, 600)
)


@pytest.mark.parametrize("name", ["T", "t"])
@pytest.mark.parametrize("suffix", ["a.parquet", "a.csv"])
def test_temperatures_are_channels(tmp_path: Path, suffix: str, name: str) -> None:
    """A column "T" that goes up and down is a channel, with or without a clock."""
    path = tmp_path / suffix
    for columns in (
        {"time": T, name: TEMPERATURES, "x": X},
        {name: TEMPERATURES, "x": X},
    ):
        WRITERS[suffix](path, **columns)
        with open_recording(path, fs=100) as recording:
            (group,) = recording.groups
            assert (group.fs, group.names) == (100.0, (name, "x"))
            np.testing.assert_array_equal(group.read(0, 600), [TEMPERATURES, X])


@pytest.mark.parametrize("name", ["T", "t"])
def test_temperatures_beside_samples_are_no_clocks(
    write: Callable[..., Path], name: str
) -> None:
    with open_recording(
        write(**{name: TEMPERATURES, "time": T, "x": X}), fs=100
    ) as recording:
        assert recording.groups[0].fs == 100.0


@pytest.mark.parametrize("first_count", [2**32 - 3_000_000, 2**32 - 300])
def test_counters_that_wrap_around(
    write: Callable[..., Path], first_count: int
) -> None:
    """Microseconds in 32 bits wrap around after 71 minutes; the rate is measured."""
    times = (first_count + 10_000 * np.arange(600, dtype=np.int64)) % 2**32
    path = write(time_us=times, x=X)
    with pytest.raises(
        RecordingError, match=r"1 negative or missing time step.*100 Hz elsewhere"
    ):
        open_recording(path)
    with pytest.raises(
        RecordingError, match="got fs=1000, but the times in the file give 100 Hz"
    ):
        open_recording(path, fs=1000)
    with pytest.warns(RecordingWarning, match="100 Hz elsewhere"):
        open_recording(path, fs=100).close()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_long_clocks_of_npz(tmp_path: Path, save: Any) -> None:
    """An array of times is longer than the list of members may be (1 MiB)."""
    count = 300_000
    times = (np.arange(count) + np.random.default_rng(0).uniform(0, 1e-3, count)) / 500
    save(tmp_path / "a.npz", x=np.arange(count), time=times)
    with open_recording(tmp_path / "a.npz") as recording:
        assert recording.groups[0].n_samples == count
        assert recording.groups[0].fs == pytest.approx(500, rel=1e-6)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_many_annotations_of_npz(tmp_path: Path, save: Any) -> None:
    """Annotations of npz may be longer than the list of its members."""
    count = 10_000
    fields = [("onset", "f8"), ("duration", "f8"), ("text", "U32")]
    notes = np.array([(i / 10, 0.0, f"spike {i * 7919}") for i in range(count)], fields)
    save(tmp_path / "a.npz", x=np.arange(20_000), fs=100.0, annotations=notes)
    with open_recording(tmp_path / "a.npz") as recording:
        assert [annotation.text for annotation in recording.annotations] == notes[
            "text"
        ].tolist()
