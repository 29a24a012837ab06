"""Recordings as Parquet tables, by pandas, polars and pyarrow."""

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
from rlxweb.errors import NotFinite, RecordingError, Unsupported
from rlxweb.io import check_finite, open_recording
from tests.recordings import attempt, check_unreadable, read_with_warning

N, FS = 20_000, 250.0
X = np.random.default_rng(3).normal(size=(4, N))
NAMES = ["Fp1", "Fp2", "O1", "O2"]


def table(**more: Any) -> pd.DataFrame:
    return pd.DataFrame({**more, **dict(zip(NAMES, X, strict=True))})


def ours(path: Path, rows: int = 4096, **said: Any) -> Path:
    """Write a table as `rlxweb convert` writes it."""
    about = {"recording": 1, "fs": FS, "units": dict.fromkeys(NAMES, "uV"), **said}
    found = pa.table(dict(zip(NAMES, X, strict=True)))
    found = found.replace_schema_metadata({"rlxweb": json.dumps(about)})
    pq.write_table(found, path, row_group_size=rows)
    return path


def test_what_we_write_is_read(tmp_path: Path) -> None:
    """Rate, units, begin and annotations stand in the schema."""
    notes = [[3.0, 0, "Lights off"], [1.0, 0.5, "眠"]]
    path = ours(tmp_path / "a.parquet", begun=80_000.5, annotations=notes)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs, recording.begun) == (
            "Parquet",
            FS,
            80_000.5,
        )
        assert [c.unit for c in group.channels] == ["uV"] * 4
        assert [one.text for one in recording.annotations] == ["眠", "Lights off"]
        np.testing.assert_array_equal(group.read(), X)
    with open_recording(path, start="Lights off", stop="@22:13:25") as recording:
        (group,) = recording.groups
        np.testing.assert_array_equal(group.read(), X[:, 750:1125])


@pytest.mark.parametrize("rows", [777, 4096, 1 << 20])
def test_blocks_do_not_depend_on_groups_of_rows(tmp_path: Path, rows: int) -> None:
    """Forth and back, some channels in any order."""
    path = ours(tmp_path / "a.parquet", rows)
    with open_recording(path, channels=["O2", "Fp1"]) as recording:
        (group,) = recording.groups
        mine = X[[3, 0]]
        for block in group.blocks(3000, 700):
            np.testing.assert_array_equal(block.data, mine[:, block.start : block.stop])
        for start in (19_000, 5, 9_000, 8_900):
            found = group.read(start, start + 999)
            np.testing.assert_array_equal(found, mine[:, start : start + 999])


def test_memory_does_not_grow_with_a_group_of_rows(tmp_path: Path) -> None:
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
        most = 0
        for _ in group.blocks(4096):
            most = max(most, pa.total_allocated_bytes() - before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 4 << 20
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
    """Numbers by their names, times by their type."""
    path = tmp_path / "a.parquet"
    table(**clock).to_parquet(path)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, list(group.names)) == (fs, NAMES)
        ((name, why),) = recording.left_out
        assert (name, why) == (next(iter(clock)), "is the clock of the table")
        np.testing.assert_array_equal(group.read(), X)
        assert recording.begun == (80_130.0 if name == "when" else None)


def test_an_index_of_pandas_and_a_frame_of_polars(tmp_path: Path) -> None:
    """Tables of pandas, with an index or attributes, and of polars are read."""
    when = pd.date_range("2024-01-01", periods=N, freq="4ms", tz="UTC")
    frame = table().set_index(when)
    frame.to_parquet(tmp_path / "a.parquet")
    with open_recording(tmp_path / "a.parquet") as recording:
        assert (recording.groups[0].fs, recording.begun) == (FS, 0.0)
    frame = table()
    frame.attrs["fs"] = FS
    frame.to_parquet(tmp_path / "b.parquet")
    with open_recording(tmp_path / "b.parquet") as recording:
        assert recording.groups[0].fs == FS
    pl.DataFrame({"a": X[0].astype(np.float32)}).write_parquet(tmp_path / "c.parquet")
    with open_recording(tmp_path / "c.parquet", fs=FS) as recording:
        (group,) = recording.groups
        assert group.dtype == np.float32
        np.testing.assert_array_equal(group.read()[0], X[0].astype(np.float32))


def test_columns_that_are_no_channels_say_why(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = table(stage="N2", Status=1)
    frame["list"] = [[1, 2]] * N
    frame.to_parquet(path)
    with open_recording(path, fs=FS) as recording:
        assert dict(recording.left_out) == {
            "stage": "holds text, no numbers",
            "Status": "holds triggers or status bits, not a signal",
            "list": "holds list<element: int64>, no numbers",
        }


@pytest.mark.parametrize("kind", ["float64", "Int32", "Float32"])
def test_a_null_is_nan_and_refused_like_it(tmp_path: Path, kind: str) -> None:
    """A null is NaN and refused like it, of integers too."""
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


def test_rates_that_contradict_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    about = json.dumps({"recording": 1, "fs": 100})
    whole = pa.table({"time": np.arange(N) / FS, "a": X[0]})
    pq.write_table(whole.replace_schema_metadata({"rlxweb": about}), path)
    check_unreadable(path, "contradict.*schema: 100 Hz, its column 'time': 250 Hz")
    pq.write_table(pa.table({"a": X[0]}), path)
    check_unreadable(path, "rate is unknown.*no column is a clock.*fs=HZ")
    pq.write_table(pa.table({"time": X[0], "a": X[0]}), path)
    check_unreadable(path, "rate is unknown; its column 'time' (does not rise|is not)")


def test_tables_that_are_no_recordings(tmp_path: Path) -> None:
    """Results of ours, newer versions, equal column names and no rows are refused."""
    path = tmp_path / "a.parquet"
    found = rlx.welch_peaks(X, FS, k=2)
    found.save(path)
    check_unreadable(path, "holds results of rlxweb")
    ours(path, recording=2)
    check_unreadable(path, "newer rlxweb; version 2, 1 is known")
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 2, ["a", "a"]), path)
    check_unreadable(path, "two of its columns are called 'a'", fs=1)
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    check_unreadable(path, "holds no samples", fs=1)


def test_notes_that_mean_nothing_are_passed_over(tmp_path: Path) -> None:
    path = ours(tmp_path / "a.parquet", annotations=[[1, 2], [1, 2, "x"]], begun="noon")
    (x,) = read_with_warning(path, "1 of its annotations are passed over")
    np.testing.assert_array_equal(x, X)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    """A table that is cut, or has bytes of its foot changed, is refused."""
    path = ours(tmp_path / "a.parquet")
    whole, chance = path.read_bytes(), np.random.default_rng(2)
    outcomes = set()
    for at in range(40):
        raw = bytearray(whole)
        if at < 10:
            raw = raw[: int(chance.integers(4, len(raw)))]
        for place in chance.integers(1, 4000, 3):
            raw[-int(place)] = chance.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(attempt(path, fs=FS))
    assert "refused" in outcomes


def test_a_url_and_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    path = ours(tmp_path / "a.parquet")
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


def test_a_recording_has_equal_peaks(tmp_path: Path, eeg_recordings: Path) -> None:
    """A recording has equal peaks through EDF and through Parquet."""
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
        found = rlx.welch_peaks(group.read(), group.fs, k=3)
    wanted = rlx.welch_peaks(x, fs, k=3)
    np.testing.assert_array_equal(found.bins, wanted.bins)
    np.testing.assert_array_equal(found.power, wanted.power)
