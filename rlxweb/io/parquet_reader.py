"""Reader for recordings stored as Parquet tables: one column per channel, one row per
sample.

Owns what the columns and the schema say about a recording; which column is a clock is
`clock`'s business, as it is for CSV. Rows are unpacked a batch at a time, whatever the
length of their groups.
"""

from __future__ import annotations

import datetime
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import shown
from rlxweb.io import file_limits, time_parsing
from rlxweb.io.annotations import MAX_ANNOTATIONS, Annotation
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.byte_source_file_object import SourceFile
from rlxweb.io.calendar_dates import parse_iso_date
from rlxweb.io.channel_selection import TRIGGER_REASON, is_trigger
from rlxweb.io.clock_column_names import parse_clock_name, seconds_of_unit
from rlxweb.io.clock_column_rate import (
    ClockRate,
    clear_false_clock_names,
    find_clock,
    find_ramps,
    ramp_warning,
    reconcile_rates,
)
from rlxweb.io.format_reader_interface import (
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
)
from rlxweb.io.parquet_page_validation import (
    ParquetColumnChunk,
    check_pages,
    list_column_chunks,
)
from rlxweb.io.parquet_tables import ParquetBatchReader, open_parquet
from rlxweb.io.sequential_decoder_seeking import SequentialReader
from rlxweb.io.zarr_hdf5_attributes import RATE_ATTRIBUTES, read_rate

METADATA_KEY: Final = "rlxweb"
"""Key of the schema metadata that holds JSON with `recording` (1), `fs`, `units`,
`begun`, `date` and `annotations`.
"""
METADATA_VERSION: Final = 1
_RESULT_KEY: Final = "rlxweb_result"  # what saved results have there
_BATCH_NBYTES: Final = 4 << 20
_MAX_BATCH_ROWS: Final = 1 << 16
_TICK_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PANDAS_INDEX_PREFIX: Final = (
    "__index_level_"  # what pandas calls an index without a name
)
_FLOAT32_TYPES: Final = ("float", "halffloat", "int8", "uint8", "int16", "uint16")
_NUMPY_TYPES: Final = (
    *_FLOAT32_TYPES,
    "double",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)


@dataclass(frozen=True, slots=True)
class _SchemaMetadata:
    """Recording metadata found in the schema."""

    fs: float | None
    units: Mapping[str, str]
    begun: float | None
    annotations: tuple[Annotation, ...]
    date: datetime.date | None


def read_parquet(source: ByteSource) -> FileContents:
    """Read the channels of a Parquet table, and its rate from the schema or from a
    clock column.

    Errors   RecordingError for a broken file, columns of one name, and rates that
             contradict each other; Unsupported where pyarrow is missing
    """
    table = open_parquet(cast(IO[bytes], SourceFile(source)), source.context)
    with table.translate_errors():
        names = [str(name) for name in table.schema.names]
        n_rows = int(table.parquet_file.metadata.num_rows)
        metadata = {
            key.decode("utf-8", "replace"): value
            for key, value in (table.schema.metadata or {}).items()
        }
    source.check_limit("columns", len(names), file_limits.CHANNELS)
    schema_metadata = _parse_schema_metadata(source, metadata)
    if len({*names}) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise source.error(f"two columns are named {shown(duplicate)}")
    columns = _ParquetColumns(source, table, names)
    clock_index, clock = (
        find_clock(columns, columns.clock_search_names, n_rows, columns.unit_seconds)
        if n_rows
        else (-1, ClockRate())
    )
    clock_label = f"column {names[clock_index]!r}"
    fs, tolerance, timing = reconcile_rates(
        source, schema_metadata.fs, "the schema", clock, clock_label
    )
    sample_columns = [
        i
        for i in range(len(names))
        if i != clock_index
        and columns.is_numeric(i)
        and parse_clock_name(columns.clock_search_names[i]) is None
    ]
    ramp_slopes = find_ramps(columns, sample_columns, n_rows)
    channels = tuple(
        _describe_channel(
            columns, i, schema_metadata, i == clock_index, ramp_slopes.get(i)
        )
        for i in range(len(names))
    )
    stream = ChannelStream(
        tuple(i for i, channel in enumerate(channels) if channel.is_selectable),
        fs,
        n_rows,
        columns.dtype,
        SequentialReader(source, columns, columns.dtype),
        tolerance,
        uncertain_timing=timing,
    )
    rate_note = (
        "no clock column was found, and the schema metadata has no entry "
        f"{' or '.join(RATE_ATTRIBUTES)}"
    )
    begun = schema_metadata.begun
    if begun is None and clock_index >= 0:
        begun = (
            columns.first_time_of_day(clock_index)
            if clock.begun is None
            else clock.begun
        )
    return FileContents(
        "Parquet",
        channels,
        (stream,),
        rate_note,
        begun,
        lambda: schema_metadata.annotations,
        schema_metadata.date,
    )


def _describe_channel(
    columns: _ParquetColumns,
    index: int,
    schema_metadata: _SchemaMetadata,
    is_clock: bool,
    ramp_slope: float | None,
) -> FileChannel:
    """Return the channel of one column, and why it is not taken by default."""
    name = columns.names[index]
    unit = schema_metadata.units.get(name) or columns.unit(index)
    if is_clock:
        return FileChannel(
            name, "", "is the clock column of the table", is_selectable=False
        )
    if not columns.is_numeric(index):
        return FileChannel(
            name,
            "",
            f"contains {columns.describe_type(index)}, not numbers",
            is_selectable=False,
        )
    if name.startswith(_PANDAS_INDEX_PREFIX):
        return FileChannel(name, "", "is the index of a pandas table")
    if parse_clock_name(columns.clock_search_names[index]) is not None:
        return FileChannel(name, unit, "is another clock column of the table")
    doubt = "" if ramp_slope is None else ramp_warning(name, ramp_slope)
    return FileChannel(
        name, unit, TRIGGER_REASON if is_trigger(name) else "", warning=doubt
    )


class _ParquetColumns:
    """Columns of a table, as a sequential decoder of its rows and as the rows of a
    clock search.

    clock_search_names  their names, where a column of times goes by "time" whatever it
                        is called, and what can be no clock by none
    unit_seconds  seconds per unit of each column, where the file tells
    dtype  of the samples: the narrower float that holds all columns
    """

    def __init__(
        self, source: ByteSource, table: ParquetBatchReader, names: list[str]
    ) -> None:
        self.names, self._table, self._source = names, table, source
        self._unchecked_pages: list[dict[str, ParquetColumnChunk]] | None = None
        with table.translate_errors():
            meta = table.parquet_file.metadata
            rows = [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        self._group_starts: list[int] = [0, *accumulate(map(int, rows))]
        self._clock_reader = SequentialReader(source, self, np.dtype(np.float64))
        self._types = [table.schema.field(index).type for index in range(len(names))]
        self._tick_seconds = [
            self._seconds_per_tick(arrow_type) for arrow_type in self._types
        ]
        self._first_ticks: dict[int, int] = {}
        search_names = [self._clock_search_name(index) for index in range(len(names))]
        self.clock_search_names = clear_false_clock_names(
            self, search_names, self._group_starts[-1]
        )
        self.unit_seconds = [
            1.0 if self._tick_seconds[index] else seconds_of_unit(self.unit(index))
            for index in range(len(names))
        ]
        self._text_columns: dict[int, list[str]] = {}
        fits_float32 = all(
            str(arrow_type) in _FLOAT32_TYPES
            for index, arrow_type in enumerate(self._types)
            if self.is_numeric(index)
            and parse_clock_name(self.clock_search_names[index]) is None
        )
        self.dtype = np.dtype(np.float32 if fits_float32 else np.float64)

    def _clock_search_name(self, index: int) -> str:
        """Return the name under which the clock search sees a column; empty if it
        cannot be a clock.
        """
        if self._tick_seconds[index]:
            return "time"
        name = self.names[index]
        if self.describe_type(index) == "text" and parse_clock_name(name) is None:
            # Text that is a time needs no name to be one.
            return "time" if time_parsing.parse_time(self._first_text(index)) else ""
        return (
            name
            if self.is_numeric(index) or self.describe_type(index) == "text"
            else ""
        )

    def _first_text(self, index: int) -> str:
        """Return the first cell of a column as text."""
        for group in range(len(self._group_starts) - 1):
            for batch in self._table.read_batches(group, [self.names[index]], 1):
                for value in batch.column(self.names[index]):
                    return str(value.as_py() or "")
        return ""

    def _seconds_per_tick(self, arrow_type: Any) -> float:
        """Return the seconds of one tick of a column of times, 0 for any other type."""
        types = self._table.arrow_types
        is_time = (
            types.is_timestamp(arrow_type)
            or types.is_duration(arrow_type)
            or types.is_time(arrow_type)
        )
        return _TICK_SECONDS[str(arrow_type.unit)] if is_time else 0.0

    def is_numeric(self, index: int) -> bool:
        """Return whether a column holds numbers."""
        types, arrow_type = self._table.arrow_types, self._types[index]
        return bool(
            types.is_integer(arrow_type)
            or types.is_floating(arrow_type)
            or types.is_decimal(arrow_type)
            or types.is_boolean(arrow_type)
        )

    def describe_type(self, index: int) -> str:
        """Return the type of a column in words: "text", "times" or the Arrow type."""
        types, arrow_type = self._table.arrow_types, self._types[index]
        if types.is_dictionary(arrow_type):
            arrow_type = arrow_type.value_type
        is_text = types.is_string(arrow_type) or types.is_large_string(arrow_type)
        return (
            "text"
            if is_text
            else "times"
            if self._tick_seconds[index]
            else f"{arrow_type}"[:60]
        )

    def unit(self, index: int) -> str:
        """Return the unit in the metadata of a column, empty if there is none."""
        metadata = self._table.schema.field(index).metadata or {}
        return bytes(metadata.get(b"unit") or metadata.get(b"units") or b"").decode(
            "utf-8", "replace"
        )

    # --- as a Walk --------------------------------------------------------------------

    def restart_sample(self, sample: int) -> int:
        """Return the first row of the row group (see SequentialDecoder)."""
        return self._group_starts[bisect_right(self._group_starts, sample) - 1]

    def decode_chunks(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """Yield the samples of the channels in batches of rows (see
        SequentialDecoder).
        """
        column_names = sorted({self.names[index] for index in channels})
        max_rows = min(
            _MAX_BATCH_ROWS, max(256, _BATCH_NBYTES // (8 * len(column_names)))
        )
        first_group = bisect_right(self._group_starts, first) - 1
        for index in range(first_group, len(self._group_starts) - 1):
            self._validate_pages(index, column_names)
            for batch in self._table.read_batches(index, column_names, max_rows):
                if batch.num_rows:
                    yield self._batch_samples(batch, channels)

    def _validate_pages(self, group: int, column_names: list[str]) -> None:
        """Validate the pages of some columns of a row group once, before they are
        decompressed.
        """
        if self._unchecked_pages is None:
            self._unchecked_pages = list_column_chunks(self._source)
        if group < len(self._unchecked_pages):
            for name in column_names:
                column = self._unchecked_pages[group].get(name)
                if column is not None:
                    check_pages(self._source, column)
                    self._unchecked_pages[group].pop(name, None)

    def _batch_samples(self, batch: Any, channels: tuple[int, ...]) -> Samples:
        """Return the samples of the channels in one batch, (C, T)."""
        rows = [
            self._column_samples(batch.column(self.names[index]), index)
            for index in channels
        ]
        return np.asarray(rows)

    def _column_samples(self, column: Any, index: int) -> npt.NDArray[Any]:
        """Return one column of a batch as numbers, with NaN for null."""
        with self._table.translate_errors(), np.errstate(all="ignore"):
            if self._tick_seconds[index]:
                return self._relative_seconds(column, index)
            if str(self._types[index]) not in _NUMPY_TYPES:
                column = column.cast("float64")
            is_clock = parse_clock_name(self.names[index]) is not None
            dtype = np.dtype(np.float64) if is_clock else self.dtype
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype)

    def _relative_seconds(self, column: Any, index: int) -> npt.NDArray[Any]:
        """Return times relative to the first time of the column; float64 keeps every
        tick of them.
        """
        is_32_bit = self._table.arrow_types.is_time32(self._types[index])
        ticks = (column.cast("int32") if is_32_bit else column).cast("int64")
        if index not in self._first_ticks:
            self._first_ticks[index] = int(ticks[0].as_py() or 0)
        relative_ticks = ticks.to_numpy(zero_copy_only=False) - self._first_ticks[index]
        return np.asarray(relative_ticks * self._tick_seconds[index], np.float64)

    # --- as the Rows of a clock -------------------------------------------------------

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples in float64 (see SampleReader)."""
        return self._clock_reader.read(channels, start, stop)

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return cells as text: text unchanged, and numbers in the fewest digits that
        identify them.
        """
        if self.describe_type(column) == "text":
            column_texts = self._load_text(column)
            return (
                [column_texts[row] for row in rows]
                if column_texts
                else [""] * len(rows)
            )
        is_float32 = str(self._types[column]) in ("float", "halffloat")
        dtype = np.float32 if is_float32 else np.float64
        return [str(dtype(self.read((column,), row, row + 1)[0, 0])) for row in rows]

    def _load_text(self, index: int) -> list[str]:
        """Return a column of text, cached; empty if it is too long to be kept in
        memory.
        """
        if index not in self._text_columns:
            n_rows = sum(b - a for a, b in pairwise(self._group_starts))
            self._text_columns[index] = [
                str(value.as_py() or "")
                for group in range(
                    len(self._group_starts) - 1
                    if n_rows <= time_parsing.MAX_ROWS
                    else 0
                )
                for batch in self._table.read_batches(
                    group, [self.names[index]], _MAX_BATCH_ROWS
                )
                for value in batch.column(self.names[index])
            ]
        return self._text_columns[index]

    def first_time_of_day(self, index: int) -> float | None:
        """Return the time of day (UTC, in seconds) of the first time in a column of
        timestamps, else None.
        """
        if index not in self._first_ticks or not self._table.arrow_types.is_timestamp(
            self._types[index]
        ):
            return None
        return self._first_ticks[index] * self._tick_seconds[index] % 86_400.0


def _parse_schema_metadata(
    source: ByteSource, metadata: Mapping[str, bytes]
) -> _SchemaMetadata:
    """Parse the metadata of the schema, as written by rlxweb, pandas and others.

    Errors   RecordingError for a table of results
    """
    fields = _parse_json(metadata.get(METADATA_KEY, b""))
    is_result = isinstance(fields, dict) and "recording" not in fields
    if is_result or _RESULT_KEY in metadata:
        raise source.error(
            "the file contains rlxweb results, not a recording",
            "each row is a peak or a band, not a sample",
            "read the file with pandas, polars or rlxweb.Results.load",
        )
    if not isinstance(fields, dict):
        fields = {}
    elif fields["recording"] != METADATA_VERSION:
        raise source.error(
            "the file was written by a newer version of rlxweb",
            f"expected metadata version {METADATA_VERSION}, got "
            f"{shown(fields['recording'])}",
        )
    attrs = _parse_json(metadata.get("PANDAS_ATTRS", b""))
    schema_rates = {
        name: _parse_json(metadata[name])
        for name in RATE_ATTRIBUTES
        if name in metadata
    }
    fs = read_rate(
        source,
        {
            "rlxweb": {
                name: fields[name] for name in ("fs",) if fields.get(name) is not None
            },
            "table": attrs if isinstance(attrs, dict) else {},
            "schema": schema_rates,
        },
    )
    units = fields.get("units")
    units = units if isinstance(units, dict) else {}
    begun = fields.get("begun")
    is_valid_time = isinstance(begun, int | float) and 0 <= begun < 172_800
    return _SchemaMetadata(
        fs,
        {str(name): str(unit) for name, unit in units.items()},
        float(begun) if is_valid_time and begun is not None else None,
        _parse_annotations(source, fields.get("annotations") or []),
        None if fields.get("date") is None else parse_iso_date(fields["date"]),
    )


def _parse_json(raw: bytes) -> Any:
    """Parse JSON; return None if it is empty or invalid."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def _parse_annotations(source: ByteSource, entries: Any) -> tuple[Annotation, ...]:
    """Parse annotations from JSON; invalid ones are skipped with a warning."""
    entries = entries if isinstance(entries, list) else [entries]
    source.check_limit("annotations", len(entries), MAX_ANNOTATIONS)
    annotations = [
        annotation
        for annotation in map(_parse_annotation, entries)
        if annotation is not None
    ]
    if len(annotations) < len(entries):
        source.warn(
            f"{len(entries) - len(annotations)} invalid annotations are ignored"
        )
    return tuple(sorted(annotations))


def _parse_annotation(entry: Any) -> Annotation | None:
    """Parse one annotation, [onset, duration, text]; return None if it is invalid."""
    if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[2], str)):
        return None
    onset, duration, text = entry
    for value in (onset, duration):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
    if not (math.isfinite(onset) and math.isfinite(duration)):
        return None
    return Annotation(float(onset), float(duration), text)
