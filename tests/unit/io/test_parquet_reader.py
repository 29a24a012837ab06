"""Recordings read from Parquet tables that pandas, polars and pyarrow wrote."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RecordingError, Unsupported
from rlxweb.io import check_finite, open_recording
from tests.edf_bdf_recordings import check_unreadable, read_with_warning, try_reading

N, FS = 20_000, 250.0
X = np.random.default_rng(3).normal(size=(4, N))
NAMES = ["Fp1", "Fp2", "O1", "O2"]


def make_frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({**columns, **dict(zip(NAMES, X, strict=True))})


def write_recording_table(
    path: Path, row_group_size: int = 4096, **fields: Any
) -> Path:
    """Write a Parquet table as `rlxweb convert` writes it."""
    metadata = {"recording": 1, "fs": FS, "units": dict.fromkeys(NAMES, "uV"), **fields}
    arrow_table = pa.table(dict(zip(NAMES, X, strict=True)))
    arrow_table = arrow_table.replace_schema_metadata({"rlxweb": json.dumps(metadata)})
    pq.write_table(arrow_table, path, row_group_size=row_group_size)
    return path


def test_a_converted_recording_is_read(tmp_path: Path) -> None:
    """Rate, units, start time and annotations are read from the schema."""
    annotations = [[3.0, 0, "Lights off"], [1.0, 0.5, "眠"]]
    path = write_recording_table(
        tmp_path / "a.parquet", begun=80_000.5, annotations=annotations
    )
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs, recording.begun) == (
            "Parquet",
            FS,
            80_000.5,
        )
        assert [c.unit for c in group.channels] == ["uV"] * 4
        assert [annotation.text for annotation in recording.annotations] == [
            "眠",
            "Lights off",
        ]
        np.testing.assert_array_equal(group.read(), X)
    with open_recording(path, start="Lights off", stop="@22:13:25") as recording:
        (group,) = recording.groups
        np.testing.assert_array_equal(group.read(), X[:, 750:1125])


@pytest.mark.parametrize("rows", [777, 4096, 1 << 20])
def test_blocks_do_not_depend_on_row_groups(tmp_path: Path, rows: int) -> None:
    """Blocks are read forwards and backwards, with some channels in any order."""
    path = write_recording_table(tmp_path / "a.parquet", rows)
    with open_recording(path, channels=["O2", "Fp1"]) as recording:
        (group,) = recording.groups
        expected = X[[3, 0]]
        for block in group.blocks(3000, 700):
            np.testing.assert_array_equal(
                block.data, expected[:, block.start : block.stop]
            )
        for start in (19_000, 5, 9_000, 8_900):
            samples = group.read(start, start + 999)
            np.testing.assert_array_equal(samples, expected[:, start : start + 999])


def test_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    """One group of 8 MB is read a batch at a time, in Arrow and in NumPy."""
    n = 1 << 20
    column = pa.array(np.random.default_rng(1).normal(size=n))
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"a": column}), path, row_group_size=n)
    del column
    with open_recording(path, fs=FS) as recording:
        (group,) = recording.groups
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        max_allocated = 0
        for _ in group.blocks(4096):
            max_allocated = max(max_allocated, pa.total_allocated_bytes() - before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert max_allocated < 4 << 20
    assert peak < 48 << 20


@pytest.mark.parametrize(
    ("clock", "fs"),
    [
        ({"time": np.arange(N) / FS}, FS),
        ({"time_ms": np.arange(N) * 4}, FS),
        ({"t": np.round(np.arange(N) / 128, 3)}, 128.0),
        ({"when": pd.date_range("2024-01-01 22:15:30", periods=N, freq="4ms")}, FS),
        ({"timestamp": pd.to_timedelta(np.arange(N) * 4, "ms")}, FS),
    ],
)
def test_a_clock_gives_the_rate_as_in_a_csv_table(
    tmp_path: Path, clock: dict[str, Any], fs: float
) -> None:
    """Clock columns are recognized by name if they hold numbers and by type if they
    hold times.
    """
    path = tmp_path / "a.parquet"
    make_frame(**clock).to_parquet(path)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, list(group.names)) == (fs, NAMES)
        ((name, reason),) = recording.left_out
        assert (name, reason) == (next(iter(clock)), "is the clock column of the table")
        np.testing.assert_array_equal(group.read(), X)
        assert recording.begun == (80_130.0 if name == "when" else None)


def test_pandas_indexes_and_polars_frames_are_read(tmp_path: Path) -> None:
    """Tables of pandas, with an index or attributes, and tables of polars are read."""
    times = pd.date_range("2024-01-01", periods=N, freq="4ms", tz="UTC")
    frame = make_frame().set_index(times)
    frame.to_parquet(tmp_path / "a.parquet")
    with open_recording(tmp_path / "a.parquet") as recording:
        assert (recording.groups[0].fs, recording.begun) == (FS, 0.0)
    frame = make_frame()
    frame.attrs["fs"] = FS
    frame.to_parquet(tmp_path / "b.parquet")
    with open_recording(tmp_path / "b.parquet") as recording:
        assert recording.groups[0].fs == FS
    pl.DataFrame({"a": X[0].astype(np.float32)}).write_parquet(tmp_path / "c.parquet")
    with open_recording(tmp_path / "c.parquet", fs=FS) as recording:
        (group,) = recording.groups
        assert group.dtype == np.float32
        np.testing.assert_array_equal(group.read()[0], X[0].astype(np.float32))


def test_left_out_columns_have_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = make_frame(stage="N2", Status=1)
    frame["list"] = [[1, 2]] * N
    frame.to_parquet(path)
    with open_recording(path, fs=FS) as recording:
        assert dict(recording.left_out) == {
            "stage": "contains text, not numbers",
            "Status": "contains triggers or status bits, not a signal",
            "list": "contains list<element: int64>, not numbers",
        }


@pytest.mark.parametrize("kind", ["float64", "Int32", "Float32"])
def test_a_null_is_read_as_nan(tmp_path: Path, kind: str) -> None:
    """A null is read as NaN, in integer columns too, and refused like it."""
    frame = pd.DataFrame({"a": np.arange(100)}).astype(kind)
    frame.loc[7, "a"] = None
    frame.to_parquet(tmp_path / "a.parquet")
    with open_recording(tmp_path / "a.parquet", fs=10) as recording:
        (group,) = recording.groups
        x = group.read()
        np.testing.assert_array_equal(np.isnan(x[0]).nonzero()[0], [7])
        assert x[0, 99] == 99
        with pytest.raises(NotFinite, match="'a' is nan at sample 7"):
            check_finite(x, group)


def test_contradicting_rates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    metadata = json.dumps({"recording": 1, "fs": 100})
    arrow_table = pa.table({"time": np.arange(N) / FS, "a": X[0]})
    pq.write_table(arrow_table.replace_schema_metadata({"rlxweb": metadata}), path)
    check_unreadable(path, "conflicting.*schema: 100 Hz, column 'time': 250 Hz")
    pq.write_table(pa.table({"a": X[0]}), path)
    check_unreadable(path, "rate is unknown.*no clock column was found.*fs=HZ")
    pq.write_table(pa.table({"time": X[0], "a": X[0]}), path)
    check_unreadable(path, "rate is unknown; column 'time' (does not increase|is not)")


def test_tables_that_are_no_recordings_are_refused(tmp_path: Path) -> None:
    """Tables of rlxweb results, newer versions, equal column names and empty tables are
    refused.
    """
    path = tmp_path / "a.parquet"
    peaks = rlx.welch_peaks(X, FS, k=2)
    peaks.save(path)
    check_unreadable(path, "contains rlxweb results")
    write_recording_table(path, recording=2)
    check_unreadable(
        path, "newer version of rlxweb; expected metadata version 1, got 2"
    )
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 2, ["a", "a"]), path)
    check_unreadable(path, "two columns are named 'a'", fs=1)
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    check_unreadable(path, "contains no samples", fs=1)


def test_invalid_annotations_are_ignored(tmp_path: Path) -> None:
    path = write_recording_table(
        tmp_path / "a.parquet", annotations=[[1, 2], [1, 2, "x"]], begun="noon"
    )
    (x,) = read_with_warning(path, "1 invalid annotations are ignored")
    np.testing.assert_array_equal(x, X)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    """A table that is truncated or has bytes of its footer changed is refused."""
    path = write_recording_table(tmp_path / "a.parquet")
    original, rng = path.read_bytes(), np.random.default_rng(2)
    outcomes = set()
    for trial in range(40):
        raw = bytearray(original)
        if trial < 10:
            raw = raw[: int(rng.integers(4, len(raw)))]
        for offset in rng.integers(1, 4000, 3):
            raw[-int(offset)] = rng.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(try_reading(path, fs=FS))
    assert "refused" in outcomes


def test_a_url_and_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    path = write_recording_table(tmp_path / "a.parquet")
    with fsspec.open("memory://a.parquet", "wb") as file:
        file.write(path.read_bytes())
    with open_recording("memory://a.parquet") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    with open_recording(path) as recording:
        (group,) = recording.groups
    with pytest.raises(RecordingError, match="closed"):
        group.read()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"pyarrow.*rlxweb\[parquet\]"):
        open_recording(path)


def test_a_recording_has_equal_peaks_in_edf_and_parquet(
    tmp_path: Path, eeg_recordings: Path
) -> None:
    """A recording has equal peaks whether read from EDF or from Parquet."""
    with open_recording(eeg_recordings / "test.edf") as recording:
        (group,) = recording.groups
        x, fs, names = group.read(), group.fs, group.names
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame(dict(zip(names, x, strict=True)))
    frame.attrs["fs"] = fs
    frame.to_parquet(path)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert group.names == names
        peaks = rlx.welch_peaks(group.read(), group.fs, k=3)
    expected = rlx.welch_peaks(x, fs, k=3)
    np.testing.assert_array_equal(peaks.bins, expected.bins)
    np.testing.assert_array_equal(peaks.power, expected.power)
