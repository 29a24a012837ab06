"""Parquet files of kilobytes that claim gigabytes, by their pages or by their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlxweb.io import open_recording
from tests.memory_growth_limit import limit_memory_growth

ROWS = 4 << 20
"""Number of rows; they take 32 MB."""
MAX_NBYTES = 16 << 20


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_an_oversized_page_is_refused(tmp_path: Path, codec: str, version: str) -> None:
    """A page that claims too many bytes is refused before it is unpacked."""
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.zeros(ROWS)})
    pq.write_table(
        table,
        path,
        compression=codec,
        use_dictionary=False,
        data_page_size=1 << 30,
        row_group_size=1 << 30,
        data_page_version=version,
        write_batch_size=1 << 30,
        max_rows_per_page=1 << 30,
    )
    assert path.stat().st_size < 2 << 20
    del table
    with limit_memory_growth(MAX_NBYTES), open_recording(path, fs=100.0) as recording:
        with pytest.raises(OSError, match="bytes in a page of column 'x'"):
            recording.groups[0].read(0, 100)


def test_repeated_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """A page of a few bytes stands for millions of rows; only requested rows are
    expanded.
    """
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.full(5 * ROWS, 1.5)})
    pq.write_table(table, path, use_dictionary=True, row_group_size=1 << 30)
    assert path.stat().st_size < 1 << 18
    del table
    with limit_memory_growth(100 << 20), open_recording(path, fs=100.0) as recording:
        group = recording.groups[0]
        assert group.n_samples == 5 * ROWS
        np.testing.assert_array_equal(group.read(ROWS, ROWS + 5), 1.5)
