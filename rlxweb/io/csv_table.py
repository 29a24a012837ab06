"""CSV tables: a row per sample, a column per channel, read in blocks of rows.

Owns the index of row offsets and the reading of rows; how a line is written is
`csv_dialect`'s business, which column is a clock and what rate it gives `clock`'s. A
table is walked once when it is opened, to count and index its rows; no more than a
block is ever held.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rlxweb.io import bounds
from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.clock import clock_of, ramp_doubt, ramps, without_letters
from rlxweb.io.clock_names import clock_name
from rlxweb.io.clock_text import parsed
from rlxweb.io.contents import Contents, Found, Stream
from rlxweb.io.csv_dialect import BLANKS, MIXED, Dialect, read_head
from rlxweb.io.source import ByteSource

# Rows that begin in one stretch of so many bytes are read together.
_PART_NBYTES = 1 << 16
_PIECE_NBYTES = 1 << 20
_HEAD_NBYTES = 2 * bounds.LINE_NBYTES
_HEAD_LINES = 256


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the rows are: the first row of each part and its offset, and the end."""

    first: array[int]
    starts: array[int]
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class _Table:
    source: ByteSource
    dialect: Dialect
    first_line: int
    n_columns: int
    rows: _Rows

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Rows [start, stop) of some columns, (columns, rows)."""
        out = np.empty((len(channels), stop - start), np.float64)
        at = start
        while at < stop:
            lines = self.lines(at, stop)
            past = at + len(lines)
            out[:, at - start : past - start] = self._cells(lines, channels, at).T
            at = past
        return out

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Cells of one column as they are printed, with a decimal point."""
        found: list[str] = []
        lines, begin = [""], -1
        for row in rows:
            if not begin <= row < begin + len(lines):
                lines, begin = self.lines(row, self.rows.count), row
            cells = self._split(lines[row - begin], row)
            found.append(self.dialect.plain(cells[column]))
        return found

    def lines(self, start: int, stop: int) -> list[str]:
        """The rows from `start` to `stop` or to the end of their part, at least one."""
        first, starts = self.rows.first, self.rows.starts
        part = bisect_right(first, start) - 1
        last = part + 1 == len(first)
        past = self.rows.end if last else starts[part + 1]
        raw = self.source.read(starts[part], past - starts[part])
        # Numbers are ASCII; latin-1 lets a stray byte reach the message about its cell.
        lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
        there = (self.rows.count if last else first[part + 1]) - first[part]
        if len(lines) != there + (not last):
            raise self.source.error(
                "the file was changed while it was read",
                f"{there} rows were there, now {len(lines)}",
                "open it again",
            )
        return lines[start - first[part] : min(there, stop - first[part])]

    def _cells(
        self, lines: list[str], columns: tuple[int, ...], first: int
    ) -> npt.NDArray[np.float64]:
        dialect, want = self.dialect, self.n_columns
        blank = want == 1 and not all(map(str.strip, lines))
        if not blank and all(dialect.count(line) == want for line in lines):
            try:
                values = np.loadtxt(
                    dialect.plain_lines(lines),
                    np.float64,
                    comments=None,
                    delimiter=None
                    if dialect.delimiter == BLANKS
                    else dialect.delimiter,
                    quotechar='"',
                    usecols=columns,
                    ndmin=2,
                )
                # Blank lines are passed over by loadtxt, never by us.
                if values.shape == (len(lines), len(columns)):
                    return values
            except ValueError:
                pass
        return self._one_by_one(lines, columns, first)

    def _one_by_one(
        self, lines: list[str], columns: tuple[int, ...], first: int
    ) -> npt.NDArray[np.float64]:
        """The same, slowly, to say which cell is wrong."""
        out = np.empty((len(lines), len(columns)), np.float64)
        for at, line in enumerate(lines):
            cells = self._split(line, first + at)
            for place, column in enumerate(columns):
                value = self.dialect.number(cells[column])
                if value is None:
                    text = cells[column].strip()
                    raise self.source.error(
                        f"{self._where(first + at)}, column {column + 1}: "
                        f"{text[:40]!r} is no number",
                        "cells of a channel are numbers",
                        self.dialect.hint(text),
                    )
                out[at, place] = value
        return out

    def _split(self, line: str, row: int) -> list[str]:
        """The cells of a row, as many as there are columns."""
        try:
            cells = self.dialect.split(line) if line.strip() else []
        except ValueError as error:
            raise self.source.error(
                f"{self._where(row)} cannot be read ({error})"
            ) from error
        if len(cells) != self.n_columns:
            raise self.source.error(
                f"{self._where(row)} has {len(cells)} cells",
                f"every row has {self.n_columns}",
                "the table may be cut short or mixed; repair that line",
            )
        return cells

    def _where(self, row: int) -> str:
        return f"line {self.first_line + row}"


def read_csv(source: ByteSource) -> Contents:
    """What a CSV table holds: its columns, and the rate if a clock column gives it.

    Errors   RecordingError for a table without rows or with uneven rows.
    """
    lines, offsets = _head(source)
    head = read_head(source, lines)
    names, cells = head.names, head.first
    if names and len(names) != len(cells):
        raise source.error(
            f"its header names {len(names)} columns, its first row has {len(cells)}",
            "one name per column",
        )
    mixed = next(filter(head.dialect.is_foreign, cells), None)
    if mixed is not None:
        raise source.error(f"its first row has {mixed.strip()[:40]!r}", MIXED)
    rows = _index(source, offsets[head.skip], head.skip + 1)
    table = _Table(source, head.dialect, head.skip + 1, len(cells), rows)
    table = _without_cut_row(table)
    n_rows = table.rows.count
    names = names or [""] * len(cells)
    # Text that is a time needs no name to be one.
    told = [
        "time"
        if clock_name(name) is None and parsed(head.dialect.plain(cell))
        else name
        for name, cell in zip(names, cells, strict=True)
    ]
    told = without_letters(table, told, n_rows)
    at, clock = clock_of(table, told, n_rows)
    values = [head.dialect.number(cell) for cell in cells]
    others = [
        column
        for column, value in enumerate(values)
        if column != at and value is not None and clock_name(told[column]) is None
    ]
    rising = ramps(table, others, n_rows)
    found = tuple(
        _describe(name, values[column], column, names, at, rising.get(column))
        for column, name in enumerate(told)
    )
    members = tuple(i for i, channel in enumerate(found) if channel.nameable)
    stream = Stream(
        members,
        clock.fs,
        n_rows,
        np.dtype(np.float64),
        table,
        clock.tolerance,
        timing=clock.timing(f"its column {names[at]!r}"),
    )
    return Contents("CSV", found, (stream,), begun=clock.begun)


def _describe(
    told: str,
    value: float | None,
    column: int,
    names: list[str],
    clock: int,
    rises_by: float | None,
) -> Found:
    """Describe a column; `told` is its name, or what tells that it holds times."""
    name = names[column]
    if column == clock:
        return Found(name, "", "is the clock of the table", nameable=False)
    if value is None:
        return Found(name, "", "holds text", nameable=False)
    if clock_name(told) is not None:
        return Found(name, "", "is a further clock of the table")
    if column == 0 and not name and any(names):
        return Found(name, "", "has no name and looks like row numbers")
    doubt = "" if rises_by is None else ramp_doubt(name or f"ch{column + 1}", rises_by)
    return Found(name, "", TRIGGER_REASON if is_trigger(name) else "", doubt=doubt)


def _head(source: ByteSource) -> tuple[list[str], list[int]]:
    """The first whole lines as text, and the offset of each."""
    raw = source.head(_HEAD_NBYTES)
    at = 3 if raw.startswith(b"\xef\xbb\xbf") else 0
    pieces = raw[at:].split(b"\n", _HEAD_LINES)
    if len(raw) < source.nbytes or len(pieces) > _HEAD_LINES:
        pieces.pop()
    lines, offsets = [], []
    for line in pieces:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        lines.append(text.removesuffix("\r"))
        offsets.append(at)
        at += len(line) + 1
    if not lines or "\r" in lines[0]:
        raise source.error(
            "its first line does not end",
            f"lines end with a line feed and are at most {bounds.LINE_NBYTES} bytes "
            "long",
            "save the table with ordinary line ends",
        )
    return lines, offsets


def _index(source: ByteSource, begin: int, line: int) -> _Rows:
    """Count the rows and note where each part begins; `line` is the first row's."""
    end = _trimmed_end(source, begin)
    first, starts = array("q", [0]), array("q", [begin])
    rows, before = 1, begin
    for at in range(begin, end, _PIECE_NBYTES):
        piece = source.read(at, min(_PIECE_NBYTES, end - at))
        # after[i] is where row `rows + i` begins.
        after = np.flatnonzero(np.frombuffer(piece, np.uint8) == 10) + (at + 1)
        edges = np.concatenate([[before], after, [at + len(piece)]])
        longest = int(np.argmax(np.diff(edges)))
        source.at_most(
            f"bytes in line {line + rows - 1 + longest}",
            int(edges[longest + 1] - edges[longest]),
            bounds.LINE_NBYTES,
            "is it a table of samples?",
        )
        parts = edges[:-1] // _PART_NBYTES
        fresh = np.flatnonzero(np.diff(parts))
        first.extend((fresh + rows).tolist())
        starts.extend(after[fresh].tolist())
        rows += len(after)
        before = int(edges[-2])
    return _Rows(first, starts, end, rows)


def _trimmed_end(source: ByteSource, begin: int) -> int:
    """Where the last row ends: blank lines at the end of the file are no rows."""
    end = source.nbytes
    while end > begin:
        piece = source.read(
            max(begin, end - _PART_NBYTES), min(_PART_NBYTES, end - begin)
        )
        kept = len(piece.rstrip(b"\r\n "))
        if kept:
            return end - len(piece) + kept
        end -= len(piece)
    return end


def _without_cut_row(table: _Table) -> _Table:
    """The table without a last row that lacks cells and a line end: it was cut."""
    rows, source = table.rows, table.source
    if rows.count == 1 or rows.end < source.nbytes:
        return table
    (last,) = table.lines(rows.count - 1, rows.count)
    there = table.dialect.count(last)
    if '"' in last or there >= table.n_columns:
        return table
    line = table.first_line + rows.count - 1
    source.warn(
        f"the file is cut short: its last row, line {line}, has {there} of "
        f"{table.n_columns} cells and is left out"
    )
    first, starts = rows.first, rows.starts
    if first[-1] == rows.count - 1:
        first, starts = first[:-1], starts[:-1]
    end = source.nbytes - len(last) - 1
    end -= source.read(end - 1, 1) == b"\r"
    return replace(table, rows=_Rows(first, starts, end, rows.count - 1))
