"""Write and read tables as Parquet files: typed columns with units, one row group at a
time.

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

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, RlxError, UsageError, not_installed

ColumnType = Literal[
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
ColumnValues = Mapping[str, Sequence[Any]]
"""Values of every column by name, equally many of each; None where there is none."""

PARQUET_SUFFIX = ".parquet"
_LIBRARY = "pyarrow"
_BUFFER_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Column of a table: its name, type, unit and description.

    column_type  text is stored once per group of rows and name, however often it occurs
    unit   of every value, or the name of the column that tells it; "" for none
    description  what it is, for who reads the schema
    """

    name: str
    column_type: ColumnType
    unit: str
    description: str


def require_pyarrow(context: str) -> None:
    """Check that pyarrow is installed, so that a table can be written.

    Errors   Unsupported where pyarrow is missing
    """
    _import_pyarrow(context)


def write_parquet(
    file: IO[bytes],
    columns: Sequence[TableColumn],
    groups: Iterable[ColumnValues],
    metadata: Mapping[str, str],
) -> None:
    """Write a table whose rows come in groups, each of which is held alone.

    metadata  what the schema says besides, by name

    Errors   Unsupported where pyarrow is missing; UsageError for values that are not of
             their column's kind; OSError from the file
    """
    pa, pq = _import_pyarrow("writing a table")
    schema = _arrow_schema(pa, columns, metadata)
    # Of the codecs that every reader knows, the one that packs numbers best.
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for values in groups:
            table = _arrow_table(pa, schema, columns, values)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def build_arrow_table(
    columns: Sequence[TableColumn],
    values: ColumnValues,
    metadata: Mapping[str, str],
    context: str,
) -> Any:
    """Return a pyarrow.Table of the columns.

    Errors   Unsupported where pyarrow is missing
    """
    pa, _ = _import_pyarrow(context)
    return _arrow_table(pa, _arrow_schema(pa, columns, metadata), columns, values)


def read_schema_metadata(
    path: str | os.PathLike[str], name: str, context: str
) -> bytes | None:
    """Return an entry of the metadata of a file's schema; None if it is absent.

    Errors   Unsupported where pyarrow is missing; RecordingError for a file that cannot
             be read
    """
    pa, pq = _import_pyarrow(context)
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise RecordingError(context, f"the file cannot be read ({error})") from error
    note: bytes | None = metadata.get(name.encode())
    return note


@dataclass(frozen=True, slots=True)
class ParquetBatchReader:
    """Open Parquet file that is read by batches of rows.

    parquet_file  pyarrow's ParquetFile
    schema   pyarrow's of the columns
    arrow_types  pyarrow.types, which tells them apart
    """

    parquet_file: Any
    schema: Any
    arrow_types: Any
    _context: str

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn whatever pyarrow raises over the file into a RecordingError."""
        with _translate_arrow_errors(self._context):
            yield

    def read_batches(
        self, group: int, names: Sequence[str], n_rows: int
    ) -> Iterator[Any]:
        """Yield columns of one row group as record batches of at most `n_rows` rows.

        Errors   RecordingError for what cannot be unpacked
        """
        with _translate_arrow_errors(self._context):
            yield from self.parquet_file.iter_batches(
                n_rows, row_groups=[group], columns=list(names), use_threads=False
            )


def open_parquet(file: IO[bytes], context: str) -> ParquetBatchReader:
    """Open a Parquet file, of which no more than a batch of rows is ever unpacked.

    Errors   Unsupported where pyarrow is missing; RecordingError for a broken file
    """
    pa, pq = _import_pyarrow(context)
    with _translate_arrow_errors(context):
        parquet_file = pq.ParquetFile(
            file, buffer_size=_BUFFER_NBYTES, pre_buffer=False
        )
        return ParquetBatchReader(
            parquet_file, parquet_file.schema_arrow, pa.types, context
        )


@contextmanager
def _translate_arrow_errors(context: str) -> Iterator[None]:
    """Turn whatever pyarrow raises over a file into a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    # What pyarrow raises of its own is a ValueError, an OSError or one of these.
    except (ValueError, OSError, LookupError, TypeError, NotImplementedError) as error:
        raise RecordingError(
            context,
            f"pyarrow cannot read the file ({error_reason(error)})",
            hint="copy the file again from its source, or write it again",
        ) from error
    except MemoryError as error:
        raise RecordingError(
            context, "the file needs more memory than is available"
        ) from error


def _arrow_schema(
    pa: Any, columns: Sequence[TableColumn], metadata: Mapping[str, str]
) -> Any:
    """Return the pyarrow schema of columns, with their units and descriptions."""
    fields = [
        pa.field(
            column.name,
            _arrow_type(pa, column.column_type),
            metadata={
                key: value
                for key, value in (("unit", column.unit), ("about", column.description))
                if value
            },
        )
        for column in columns
    ]
    return pa.schema(fields, metadata=dict(metadata))


def _arrow_table(
    pa: Any, schema: Any, columns: Sequence[TableColumn], values: ColumnValues
) -> Any:
    """Return the pyarrow table of rows."""
    arrays = []
    for column in columns:
        arrow_type = schema.field(column.name).type
        try:
            arrays.append(
                pa.array(_column_values(column, values[column.name]), arrow_type)
            )
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise UsageError(
                f"writing the column {column.name!r}",
                f"a value is not of the type {column.column_type} ({error})",
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _column_values(column: TableColumn, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column in a form that pyarrow accepts."""
    if column.column_type != "text":
        return values
    return [None if value is None else _escape_unencodable(value) for value in values]


def _escape_unencodable(text: str) -> str:
    """Escape the characters of a text that UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _arrow_type(pa: Any, column_type: ColumnType) -> Any:
    """Return the pyarrow type of a column type."""
    if column_type == "text":
        return pa.dictionary(pa.int32(), pa.string())
    return getattr(pa, column_type)()


def _import_pyarrow(context: str) -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet, or raise the error that they are missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise not_installed(
            context, _LIBRARY, "pip install 'rlxweb[parquet]'"
        ) from error
    return pa, pq
