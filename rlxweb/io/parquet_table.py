"""Recordings as Parquet tables: a column per channel, a row per sample.

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

from rlxweb.errors import shown
from rlxweb.io import bounds, clock_text
from rlxweb.io.annotations import MOST, Annotation
from rlxweb.io.as_file import SourceFile
from rlxweb.io.attributes import RATES, rate_of
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.clock import (
    Clock,
    agreed,
    clock_of,
    ramp_doubt,
    ramps,
    without_letters,
)
from rlxweb.io.clock_names import clock_name, unit_scale
from rlxweb.io.contents import Contents, Found, Samples, Stream
from rlxweb.io.days import day_of_iso
from rlxweb.io.parquet import OpenTable, open_table
from rlxweb.io.parquet_pages import Column, check_pages, columns_of
from rlxweb.io.pieces import PieceReader
from rlxweb.io.source import ByteSource

NOTE: Final = "rlxweb"
"""Of the schema: JSON of `recording` (1), `fs`, `units`, `begun`, `date` and
`annotations`.
"""
VERSION: Final = 1
_RESULT: Final = "rlxweb_result"  # what saved results have there
_PIECE_NBYTES: Final = 4 << 20
_MOST_ROWS: Final = 1 << 16
_TICKS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_INDEX: Final = "__index_level_"  # what pandas calls an index without a name
_NARROW: Final = ("float", "halffloat", "int8", "uint8", "int16", "uint16")
_PLAIN: Final = (*_NARROW, "double", "int32", "uint32", "int64", "uint64", "bool")


@dataclass(frozen=True, slots=True)
class _Notes:
    """What the schema says about the recording."""

    fs: float | None
    units: Mapping[str, str]
    begun: float | None
    annotations: tuple[Annotation, ...]
    date: datetime.date | None


def read_parquet(source: ByteSource) -> Contents:
    """What a Parquet table holds: its columns, and the rate by its schema or a clock.

    Errors   RecordingError for a broken file, columns of one name, and rates that
             contradict each other; Unsupported where pyarrow is missing
    """
    table = open_table(cast(IO[bytes], SourceFile(source)), source.doing)
    with table.faults():
        names = [str(name) for name in table.schema.names]
        n_rows = int(table.file.metadata.num_rows)
        said = {
            key.decode("utf-8", "replace"): value
            for key, value in (table.schema.metadata or {}).items()
        }
    source.at_most("columns", len(names), bounds.CHANNELS)
    notes = _notes_in(source, said)
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise source.error(f"two of its columns are called {shown(twice)}")
    columns = _Columns(source, table, names)
    at, clock = (
        clock_of(columns, columns.told, n_rows, columns.units)
        if n_rows
        else (-1, Clock())
    )
    whose = f"its column {names[at]!r}"
    fs, tolerance, timing = agreed(source, notes.fs, "schema", clock, whose)
    numbers = [
        i
        for i in range(len(names))
        if i != at and columns.is_number(i) and clock_name(columns.told[i]) is None
    ]
    rising = ramps(columns, numbers, n_rows)
    found = tuple(
        _found(columns, i, notes, i == at, rising.get(i)) for i in range(len(names))
    )
    stream = Stream(
        tuple(i for i, channel in enumerate(found) if channel.nameable),
        fs,
        n_rows,
        columns.dtype,
        PieceReader(source, columns, columns.dtype),
        tolerance,
        timing=timing,
    )
    why = f"no column is a clock, and its schema has no {' or '.join(RATES)}"
    begun = notes.begun
    if begun is None and at >= 0:
        begun = columns.time_of_day(at) if clock.begun is None else clock.begun
    return Contents(
        "Parquet",
        found,
        (stream,),
        why,
        begun,
        lambda: notes.annotations,
        notes.date,
    )


def _found(
    columns: _Columns, at: int, notes: _Notes, is_clock: bool, rises_by: float | None
) -> Found:
    name = columns.names[at]
    unit = notes.units.get(name) or columns.unit(at)
    if is_clock:
        return Found(name, "", "is the clock of the table", nameable=False)
    if not columns.is_number(at):
        return Found(name, "", f"holds {columns.kind(at)}, no numbers", nameable=False)
    if name.startswith(_INDEX):
        return Found(name, "", "is the index of a table of pandas")
    if clock_name(columns.told[at]) is not None:
        return Found(name, unit, "is a further clock of the table")
    doubt = "" if rises_by is None else ramp_doubt(name, rises_by)
    return Found(name, unit, TRIGGER_REASON if is_trigger(name) else "", doubt=doubt)


class _Columns:
    """The columns of a table, a Walk through its rows and the Rows of a clock.

    told   their names, where a column of times goes by "time" whatever it is called,
           and what can be no clock by none
    units  seconds per unit of each column, where the file tells
    dtype  of the samples: the narrower float that holds all columns
    """

    def __init__(self, source: ByteSource, table: OpenTable, names: list[str]) -> None:
        self.names, self._table, self._source = names, table, source
        self._unseen: list[dict[str, Column]] | None = None
        with table.faults():
            meta = table.file.metadata
            rows = [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        self._starts: list[int] = [0, *accumulate(map(int, rows))]
        self._clock = PieceReader(source, self, np.dtype(np.float64))
        self._types = [table.schema.field(at).type for at in range(len(names))]
        self._ticks = [self._tick(kind) for kind in self._types]
        self._begins: dict[int, int] = {}
        told = [self._told(at) for at in range(len(names))]
        self.told = without_letters(self, told, self._starts[-1])
        self.units = [
            1.0 if self._ticks[at] else unit_scale(self.unit(at))
            for at in range(len(names))
        ]
        self._held: dict[int, list[str]] = {}
        narrow = all(
            str(kind) in _NARROW
            for at, kind in enumerate(self._types)
            if self.is_number(at) and clock_name(self.told[at]) is None
        )
        self.dtype = np.dtype(np.float32 if narrow else np.float64)

    def _told(self, at: int) -> str:
        if self._ticks[at]:
            return "time"
        name = self.names[at]
        if self.kind(at) == "text" and clock_name(name) is None:
            # Text that is a time needs no name to be one.
            return "time" if clock_text.parsed(self._first_text(at)) else ""
        return name if self.is_number(at) or self.kind(at) == "text" else ""

    def _first_text(self, at: int) -> str:
        for group in range(len(self._starts) - 1):
            for batch in self._table.batches(group, [self.names[at]], 1):
                for one in batch.column(self.names[at]):
                    return str(one.as_py() or "")
        return ""

    def _tick(self, kind: Any) -> float:
        """Seconds of one tick of a column of times; 0 of any other."""
        types = self._table.types
        is_time = (
            types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind)
        )
        return _TICKS[str(kind.unit)] if is_time else 0.0

    def is_number(self, at: int) -> bool:
        types, kind = self._table.types, self._types[at]
        return bool(
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_decimal(kind)
            or types.is_boolean(kind)
        )

    def kind(self, at: int) -> str:
        """What a column holds, in words."""
        types, kind = self._table.types, self._types[at]
        if types.is_dictionary(kind):
            kind = kind.value_type
        is_text = types.is_string(kind) or types.is_large_string(kind)
        return "text" if is_text else "times" if self._ticks[at] else f"{kind}"[:60]

    def unit(self, at: int) -> str:
        """What the column itself says."""
        said = self._table.schema.field(at).metadata or {}
        return bytes(said.get(b"unit") or said.get(b"units") or b"").decode(
            "utf-8", "replace"
        )

    # --- as a Walk --------------------------------------------------------------------

    def origin(self, at: int) -> int:
        """See Walk: the first row of a group."""
        return self._starts[bisect_right(self._starts, at) - 1]

    def pieces(self, channels: tuple[int, ...], first: int) -> Iterator[Samples]:
        """See Walk."""
        wanted = sorted({self.names[at] for at in channels})
        most = min(_MOST_ROWS, max(256, _PIECE_NBYTES // (8 * len(wanted))))
        group = bisect_right(self._starts, first) - 1
        for at in range(group, len(self._starts) - 1):
            self._check(at, wanted)
            for batch in self._table.batches(at, wanted, most):
                if batch.num_rows:
                    yield self._values(batch, channels)

    def _check(self, group: int, wanted: list[str]) -> None:
        """Look at the pages of some columns before they are unpacked, once."""
        if self._unseen is None:
            self._unseen = columns_of(self._source)
        if group < len(self._unseen):
            for name in wanted:
                column = self._unseen[group].get(name)
                if column is not None:
                    check_pages(self._source, column)
                    self._unseen[group].pop(name, None)

    def _values(self, batch: Any, channels: tuple[int, ...]) -> Samples:
        rows = [self._column(batch.column(self.names[at]), at) for at in channels]
        return np.asarray(rows)

    def _column(self, column: Any, at: int) -> npt.NDArray[Any]:
        """One column of a batch as numbers; what is null is NaN."""
        with self._table.faults(), np.errstate(all="ignore"):
            if self._ticks[at]:
                return self._seconds(column, at)
            if str(self._types[at]) not in _PLAIN:
                column = column.cast("float64")
            is_clock = clock_name(self.names[at]) is not None
            dtype = np.dtype(np.float64) if is_clock else self.dtype
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype)

    def _seconds(self, column: Any, at: int) -> npt.NDArray[Any]:
        """Times since the first of them, of which float64 keeps every tick."""
        is_short = self._table.types.is_time32(self._types[at])
        ticks = (column.cast("int32") if is_short else column).cast("int64")
        if at not in self._begins:
            self._begins[at] = int(ticks[0].as_py() or 0)
        since = ticks.to_numpy(zero_copy_only=False) - self._begins[at]
        return np.asarray(since * self._ticks[at], np.float64)

    # --- as the Rows of a clock -------------------------------------------------------

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader; in float64."""
        return self._clock.read(channels, start, stop)

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """See Rows: text as it stands, or the shortest digits that say the number."""
        if self.kind(column) == "text":
            held = self._text(column)
            return [held[at] for at in rows] if held else [""] * len(rows)
        narrow = str(self._types[column]) in ("float", "halffloat")
        kind = np.float32 if narrow else np.float64
        return [str(kind(self.read((column,), at, at + 1)[0, 0])) for at in rows]

    def _text(self, at: int) -> list[str]:
        """Return a column of text; empty where it is too long to be held."""
        if at not in self._held:
            many = sum(b - a for a, b in pairwise(self._starts))
            self._held[at] = [
                str(one.as_py() or "")
                for group in range(
                    len(self._starts) - 1 if many <= clock_text.MOST else 0
                )
                for batch in self._table.batches(group, [self.names[at]], _MOST_ROWS)
                for one in batch.column(self.names[at])
            ]
        return self._held[at]

    def time_of_day(self, at: int) -> float | None:
        """Of the first time in a column, where it tells the day as well; in UTC."""
        if at not in self._begins or not self._table.types.is_timestamp(
            self._types[at]
        ):
            return None
        return self._begins[at] * self._ticks[at] % 86_400.0


def _notes_in(source: ByteSource, said: Mapping[str, bytes]) -> _Notes:
    """What the schema says, ours and what pandas and others write.

    Errors   RecordingError for a table of results
    """
    own = _json(said.get(NOTE, b""))
    is_result = isinstance(own, dict) and "recording" not in own
    if is_result or _RESULT in said:
        raise source.error(
            "it holds results of rlxweb, no recording",
            "one row is a peak or a band, not a sample",
            "read it with pandas, polars or rlxweb.Results.load",
        )
    if not isinstance(own, dict):
        own = {}
    elif own["recording"] != VERSION:
        raise source.error(
            "it was written by a newer rlxweb",
            f"version {shown(own['recording'])}, {VERSION} is known",
        )
    attrs = _json(said.get("PANDAS_ATTRS", b""))
    others = {name: _json(said[name]) for name in RATES if name in said}
    fs = rate_of(
        source,
        {
            "rlxweb": {
                name: own[name] for name in ("fs",) if own.get(name) is not None
            },
            "table": attrs if isinstance(attrs, dict) else {},
            "schema": others,
        },
    )
    units = own.get("units")
    units = units if isinstance(units, dict) else {}
    begun = own.get("begun")
    is_time = isinstance(begun, int | float) and 0 <= begun < 172_800
    return _Notes(
        fs,
        {str(name): str(unit) for name, unit in units.items()},
        float(begun) if is_time and begun is not None else None,
        _annotations(source, own.get("annotations") or []),
        None if own.get("date") is None else day_of_iso(own["date"]),
    )


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def _annotations(source: ByteSource, listed: Any) -> tuple[Annotation, ...]:
    """Annotations of JSON; what is none is told and passed over."""
    listed = listed if isinstance(listed, list) else [listed]
    source.at_most("annotations", len(listed), MOST)
    found = [one for one in map(_annotation, listed) if one is not None]
    if len(found) < len(listed):
        source.warn(f"{len(listed) - len(found)} of its annotations are passed over")
    return tuple(sorted(found))


def _annotation(one: Any) -> Annotation | None:
    if not (isinstance(one, list) and len(one) == 3 and isinstance(one[2], str)):
        return None
    onset, duration, text = one
    for value in (onset, duration):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
    if not (math.isfinite(onset) and math.isfinite(duration)):
        return None
    return Annotation(float(onset), float(duration), text)
