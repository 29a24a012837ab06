"""Tables as Parquet files: typed columns with their units, a group of rows at a time.

The one place where pyarrow is loaded, and not before a table is asked for. Knows
nothing of what the rows mean. The same rows give the same bytes: nothing of the time,
the machine or the process goes in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal

from rlxweb.errors import RecordingError, RlxError, UsageError, not_installed
from rlxweb.whole_file import reason

Kind = Literal[
    "text",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float32",
    "float64",
]
Rows = Mapping[str, Sequence[Any]]
"""Equally many values of every column, None where there is none."""

SUFFIX = ".parquet"
_LIBRARY = "pyarrow"
_BUFFER_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    kind   text is stored once per group of rows and name, however often it occurs
    unit   of every value, or the name of the column that tells it; "" for none
    about  what it is, for who reads the schema
    """

    name: str
    kind: Kind
    unit: str
    about: str


def check_parquet(doing: str) -> None:
    """Can a table be written here?

    Errors   Unsupported where pyarrow is missing
    """
    _arrow(doing)


def write_parquet(
    file: IO[bytes],
    columns: Sequence[Column],
    groups: Iterable[Rows],
    about: Mapping[str, str],
) -> None:
    """A table whose rows come in groups, each of which is held alone.

    about    what the schema says besides, by name

    Errors   Unsupported where pyarrow is missing; UsageError for values that are not of
             their column's kind; OSError from the file
    """
    pa, pq = _arrow("writing a table")
    schema = _schema(pa, columns, about)
    # Of the codecs that every reader knows, the one that packs numbers best.
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in groups:
            table = _table(pa, schema, columns, rows)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def arrow_table(
    columns: Sequence[Column], values: Rows, about: Mapping[str, str], doing: str
) -> Any:
    """A pyarrow.Table of the columns.

    Errors   Unsupported where pyarrow is missing
    """
    pa, _ = _arrow(doing)
    return _table(pa, _schema(pa, columns, about), columns, values)


def read_note(path: str | os.PathLike[str], name: str, doing: str) -> bytes | None:
    """What the schema of a file says under that name; None: nothing.

    Errors   Unsupported where pyarrow is missing; RecordingError for a file that cannot
             be read
    """
    pa, pq = _arrow(doing)
    try:
        found = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise RecordingError(doing, f"it cannot be read ({error})") from error
    note: bytes | None = found.get(name.encode())
    return note


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A Parquet file that is read by batches of rows.

    file     pyarrow's ParquetFile
    schema   pyarrow's of the columns
    types    pyarrow.types, which tells them apart
    """

    file: Any
    schema: Any
    types: Any
    _doing: str

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Whatever pyarrow says of the file is a RecordingError."""
        with _faults(self._doing):
            yield

    def batches(self, group: int, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Some columns of one group of rows, as record batches of at most so many.

        Errors   RecordingError for what cannot be unpacked
        """
        with _faults(self._doing):
            yield from self.file.iter_batches(
                n_rows, row_groups=[group], columns=list(names), use_threads=False
            )


def open_table(file: IO[bytes], doing: str) -> OpenTable:
    """A Parquet file; of it no more than a batch of rows is ever unpacked.

    Errors   Unsupported where pyarrow is missing; RecordingError for a broken file
    """
    pa, pq = _arrow(doing)
    with _faults(doing):
        found = pq.ParquetFile(file, buffer_size=_BUFFER_NBYTES, pre_buffer=False)
        return OpenTable(found, found.schema_arrow, pa.types, doing)


@contextmanager
def _faults(doing: str) -> Iterator[None]:
    try:
        yield
    except RlxError:
        raise
    # What pyarrow raises of its own is a ValueError, an OSError or one of these.
    except (ValueError, OSError, LookupError, TypeError, NotImplementedError) as error:
        raise RecordingError(
            doing,
            f"pyarrow cannot read it ({reason(error)})",
            hint="copy it again from where it came, or write it again",
        ) from error
    except MemoryError as error:
        raise RecordingError(doing, "it claims more than the memory holds") from error


def _schema(pa: Any, columns: Sequence[Column], about: Mapping[str, str]) -> Any:
    fields = [
        pa.field(
            column.name,
            _type(pa, column.kind),
            metadata={
                key: value
                for key, value in (("unit", column.unit), ("about", column.about))
                if value
            },
        )
        for column in columns
    ]
    return pa.schema(fields, metadata=dict(about))


def _table(pa: Any, schema: Any, columns: Sequence[Column], rows: Rows) -> Any:
    arrays = []
    for column in columns:
        kind = schema.field(column.name).type
        try:
            arrays.append(pa.array(_values(column, rows[column.name]), kind))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise UsageError(
                f"writing the column {column.name!r}",
                f"a value is not of the type {column.kind} ({error})",
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    if column.kind != "text":
        return values
    return [None if v is None else _utf8(v) for v in values]


def _utf8(text: str) -> str:
    """What a name of a channel may hold and UTF-8 has no form for, written out."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _type(pa: Any, kind: Kind) -> Any:
    if kind == "text":
        return pa.dictionary(pa.int32(), pa.string())
    return getattr(pa, kind)()


def _arrow(doing: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise not_installed(doing, _LIBRARY, "pip install 'rlxweb[parquet]'") from error
    return pa, pq
