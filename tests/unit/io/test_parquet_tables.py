"""Tables written as Parquet: column types, gaps, and names that UTF-8 cannot encode."""

from __future__ import annotations

import errno
from io import BytesIO

import pyarrow.parquet as pq
import pytest

from rlxweb.core.errors import UsageError
from rlxweb.io.parquet_tables import ColumnValues, TableColumn, write_parquet

COLUMNS = (
    TableColumn("name", "text", "", "whose"),
    TableColumn("n", "int32", "", ""),
    TableColumn("hz", "float64", "Hz", "how fast"),
)


def table_bytes(*groups: ColumnValues, **metadata: str) -> bytes:
    file = BytesIO()
    write_parquet(file, COLUMNS, groups, metadata)
    return file.getvalue()


def test_row_groups_and_metadata_are_read_back() -> None:
    first: ColumnValues = {
        "name": ["a", "a", None],
        "n": [1, None, 3],
        "hz": [0.1, None, -0.0],
    }
    second: ColumnValues = {"name": ["b"], "n": [-(2**31)], "hz": [1e308]}
    data = table_bytes(first, second, rlxweb="x")
    parquet_file = pq.ParquetFile(BytesIO(data))
    assert parquet_file.metadata.num_row_groups == 2
    for i, rows in enumerate((first, second)):
        assert parquet_file.read_row_group(i).to_pydict() == rows
    assert parquet_file.schema_arrow.metadata == {b"rlxweb": b"x"}
    field = parquet_file.schema_arrow.field("hz")
    assert field.metadata == {b"unit": b"Hz", b"about": b"how fast"}
    assert parquet_file.schema_arrow.field("n").metadata is None
    assert table_bytes(first, second, rlxweb="x") == data


def test_a_table_may_be_empty() -> None:
    assert pq.read_table(BytesIO(table_bytes())).num_rows == 0


def test_lone_surrogates_are_escaped() -> None:
    """A lone surrogate is written as an escape; all other text stays."""
    names = ["\ud800x", "脳\x00\n", "\U0001f9e0"]
    rows: ColumnValues = {"name": names, "n": [1, 2, 3], "hz": [1.0, 2.0, 3.0]}
    texts = pq.read_table(BytesIO(table_bytes(rows))).to_pydict()["name"]
    assert texts == [r"\ud800x", *names[1:]]


@pytest.mark.parametrize(
    ("name", "value"), [("n", 2**31), ("n", "one"), ("hz", "fast"), ("hz", [1.0])]
)
def test_a_value_of_another_type_is_refused(name: str, value: object) -> None:
    rows = {"name": ["a"], "n": [1], "hz": [1.0]} | {name: [value]}
    with pytest.raises(UsageError, match=f"column '{name}'.*type"):
        table_bytes(rows)


def test_errors_of_the_file_are_passed_on() -> None:
    """An OSError of the file keeps its errno, so a full disk can be recognized."""

    class Full(BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        write_parquet(Full(), COLUMNS, [], {})
    assert caught.value.errno == errno.ENOSPC
