"""Tables as Parquet, by hand: kinds, gaps, and names that UTF-8 has no form for."""

from __future__ import annotations

import errno
from io import BytesIO

import pyarrow.parquet as pq
import pytest

from rlxweb.errors import UsageError
from rlxweb.io.parquet import Column, Rows, write_parquet

COLUMNS = (
    Column("name", "text", "", "whose"),
    Column("n", "int32", "", ""),
    Column("hz", "float64", "Hz", "how fast"),
)


def table(*groups: Rows, **about: str) -> bytes:
    file = BytesIO()
    write_parquet(file, COLUMNS, groups, about)
    return file.getvalue()


def test_rows_come_back_by_groups_with_what_is_said_of_them() -> None:
    first: Rows = {"name": ["a", "a", None], "n": [1, None, 3], "hz": [0.1, None, -0.0]}
    second: Rows = {"name": ["b"], "n": [-(2**31)], "hz": [1e308]}
    data = table(first, second, rlxweb="x")
    found = pq.ParquetFile(BytesIO(data))
    assert found.metadata.num_row_groups == 2
    for at, rows in enumerate((first, second)):
        assert found.read_row_group(at).to_pydict() == rows
    assert found.schema_arrow.metadata == {b"rlxweb": b"x"}
    field = found.schema_arrow.field("hz")
    assert field.metadata == {b"unit": b"Hz", b"about": b"how fast"}
    assert found.schema_arrow.field("n").metadata is None
    assert table(first, second, rlxweb="x") == data


def test_a_table_may_be_empty() -> None:
    assert pq.read_table(BytesIO(table())).num_rows == 0


def test_what_is_no_text_to_utf_8_is_written_out() -> None:
    """A half of a surrogate pair is written out; all other text stays."""
    names = ["\ud800x", "脳\x00\n", "\U0001f9e0"]
    rows: Rows = {"name": names, "n": [1, 2, 3], "hz": [1.0, 2.0, 3.0]}
    found = pq.read_table(BytesIO(table(rows))).to_pydict()["name"]
    assert found == [r"\ud800x", *names[1:]]


@pytest.mark.parametrize(
    ("name", "value"), [("n", 2**31), ("n", "one"), ("hz", "fast"), ("hz", [1.0])]
)
def test_a_value_of_another_kind_is_refused(name: str, value: object) -> None:
    rows = {"name": ["a"], "n": [1], "hz": [1.0]} | {name: [value]}
    with pytest.raises(UsageError, match=f"column '{name}'.*type"):
        table(rows)


def test_what_the_file_raises_comes_through() -> None:
    """A full disk is known by its number."""

    class Full(BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        write_parquet(Full(), COLUMNS, [], {})
    assert caught.value.errno == errno.ENOSPC
