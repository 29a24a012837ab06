"""CSV tables: a row per sample, a column per channel, read in blocks of rows.

Owns the delimiter, the header line, the index of row offsets and the parsing of cells.
Which column is a clock and what rate it gives is `clock`'s business. A table is walked
once when it is opened, to count and index its rows; no more than a block is ever held.
"""

from __future__ import annotations

import csv
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlxweb.io.channels import TRIGGER_REASON, is_trigger
from rlxweb.io.clock import Clock, clock_scale, find_rate
from rlxweb.io.contents import Contents, Found, Stream
from rlxweb.io.source import ByteSource

_ROWS = 1024
_PIECE_NBYTES = 1 << 20
_HEAD_NBYTES = 1 << 20
_HEAD_LINES = 256
_LONGEST_NBYTES = 256 << 20
_POINTS = "write decimal points, not commas"


@dataclass(frozen=True, slots=True)
class _Table:
    """Where the rows are. `starts` holds the offset of every 1,024th row."""

    source: ByteSource
    delimiter: str
    first_line: int
    n_columns: int
    n_rows: int
    starts: array[int]
    end: int

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Rows [start, stop) of some columns, (columns, rows)."""
        out = np.empty((len(channels), stop - start), np.float64)
        for part in range(start // _ROWS, -(-stop // _ROWS)):
            at = part * _ROWS
            first, past = max(start, at), min(stop, at + _ROWS)
            lines = self._lines(part)[first - at : past - at]
            out[:, first - start : past - start] = self._cells(lines, channels, first).T
        return out

    def cell(self, row: int, column: int) -> str:
        """The text of one cell."""
        line = self._lines(row // _ROWS)[row % _ROWS]
        return _split(line, self.delimiter)[column]

    def _lines(self, part: int) -> list[str]:
        past = self.starts[part + 1] if part + 1 < len(self.starts) else self.end
        raw = self.source.read(self.starts[part], past - self.starts[part])
        # Numbers are ASCII; latin-1 lets a stray byte reach the message about its cell.
        lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
        return lines[: min(_ROWS, self.n_rows - part * _ROWS)]

    def _cells(
        self, lines: list[str], columns: tuple[int, ...], first: int
    ) -> npt.NDArray[np.float64]:
        want = self.n_columns - 1
        blank = want == 0 and not all(map(str.strip, lines))
        if not blank and all(line.count(self.delimiter) == want for line in lines):
            try:
                values = np.loadtxt(
                    lines,
                    np.float64,
                    comments=None,
                    delimiter=self.delimiter,
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
        for row, line in enumerate(lines):
            cells = _split(line, self.delimiter)
            where = f"line {self.first_line + first + row}"
            if len(cells) != self.n_columns or not line.strip():
                raise self.source.error(
                    f"{where} has {len(cells) if line.strip() else 0} cells",
                    f"every row has {self.n_columns}",
                    "the table may be cut short or mixed; repair that line",
                )
            for place, column in enumerate(columns):
                value = number(cells[column])
                if value is None:
                    text = cells[column]
                    comma = self.delimiter != "," and _is_row([text.replace(",", ".")])
                    raise self.source.error(
                        f"{where}, column {column + 1}: {text.strip()[:40]!r} is no "
                        "number",
                        "cells of a channel are numbers",
                        _POINTS if comma else "write nan for a missing value",
                    )
                out[row, place] = value
        return out


def read_csv(source: ByteSource) -> Contents:
    """What a CSV table holds: its columns, and the rate if a clock column gives it.

    Errors   RecordingError for a table without rows or with uneven rows.
    """
    lines, offsets = _head(source)
    skip, names, delimiter = _header(source, lines)
    cells = _split(lines[skip], delimiter)
    if names and len(names) != len(cells):
        raise source.error(
            f"its header names {len(names)} columns, its first row has {len(cells)}",
            "one name per column",
        )
    table = _index(source, delimiter, skip, len(cells), offsets[skip])
    names = names or [""] * len(cells)
    at = next((i for i, n in enumerate(names) if clock_scale(n) is not None), -1)
    clock = Clock()
    if at >= 0:
        clock = find_rate(table, at, clock_scale(names[at]) or 1.0, table.n_rows)
    found = tuple(
        _describe(name, cell, column, names, at)
        for column, (name, cell) in enumerate(zip(names, cells, strict=True))
    )
    members = tuple(i for i, channel in enumerate(found) if channel.nameable)
    stream = Stream(
        members, clock.fs, table.n_rows, np.dtype(np.float64), table, clock.tolerance
    )
    note = f"its column {names[at]!r} {clock.problem}" if clock.problem else ""
    return Contents("CSV", found, (stream,), note)


def number(text: str) -> float | None:
    """The number a cell holds, or None."""
    text = text.strip()
    # float() allows what no table means: 1_000.
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _describe(name: str, cell: str, column: int, names: list[str], clock: int) -> Found:
    if column == clock:
        return Found(name, "", "is the clock of the table", nameable=False)
    if number(cell) is None:
        return Found(name, "", "holds text", nameable=False)
    if column == 0 and not name and any(names):
        return Found(name, "", "has no name and looks like row numbers")
    return Found(name, "", TRIGGER_REASON if is_trigger(name) else "")


def _split(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter), [""])


def _head(source: ByteSource) -> tuple[list[str], list[int]]:
    """The first whole lines as text, and the offset of each."""
    raw = source.head(_HEAD_NBYTES)
    at = 3 if raw.startswith(b"\xef\xbb\xbf") else 0
    pieces = raw[at:].split(b"\n")
    if len(raw) < source.nbytes:
        pieces.pop()
    lines, offsets = [], []
    for line in pieces[:_HEAD_LINES]:
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
            f"lines end with a line feed and are shorter than {_HEAD_NBYTES} bytes",
            "save the table with ordinary line ends",
        )
    return lines, offsets


def _header(source: ByteSource, lines: list[str]) -> tuple[int, list[str], str]:
    """Lines before the first row, the column names (maybe none), the delimiter.

    Leading lines that begin with # are comments. The last of them gives the names if
    it has as many cells as a row; a plain line does if it is no row itself.
    """
    skip = 0
    while skip < len(lines) and lines[skip].startswith("#"):
        skip += 1
    remark = lines[skip - 1].lstrip("# ") if skip else ""
    delimiter = _sniff(lines[skip : skip + 2])
    first, second = [
        _split(line, delimiter) for line in [*lines[skip : skip + 2], "", ""][:2]
    ]
    names: list[str] = []
    if _is_header(first, second):
        names, first = first, second
        skip += 1
    else:
        remarked = _split(remark, delimiter)
        if len(remarked) == len(first) and not _is_row(remarked):
            names = remarked
    if not _is_row(first):
        comma = delimiter != "," and _is_row(
            [cell.replace(",", ".") for cell in first + second]
        )
        raise source.error(
            "no row of numbers in it",
            "a header line at most, then a row of numbers per sample",
            _POINTS if comma else "is it a recording?",
        )
    return skip, [name.strip() for name in names], delimiter


def _sniff(lines: list[str]) -> str:
    """The delimiter of the first lines: a tab or a semicolon beats a comma."""
    full = [line for line in lines if line.strip()]
    for delimiter in ("\t", ";"):
        if full and all(delimiter in line for line in full):
            return delimiter
    return ","


def _is_row(cells: list[str]) -> bool:
    return any(number(cell) is not None for cell in cells)


def _is_header(first: list[str], second: list[str]) -> bool:
    """True when `first` has words where `second` has numbers."""
    if not _is_row(first):
        return _is_row(second)
    return any(
        number(above) is None and number(below) is not None
        for above, below in zip(first, second, strict=False)
    )


def _index(
    source: ByteSource, delimiter: str, skip: int, n_columns: int, begin: int
) -> _Table:
    """Count the rows and note where every 1,024th begins."""
    end = _trimmed_end(source, begin)
    starts = array("q", [begin])
    rows = 1
    for at in range(begin, end, _PIECE_NBYTES):
        piece = source.read(at, min(_PIECE_NBYTES, end - at))
        after = np.flatnonzero(np.frombuffer(piece, np.uint8) == 10) + (at + 1)
        # after[i] is where row `rows + i` begins.
        starts.extend(after[-rows % _ROWS :: _ROWS].tolist())
        rows += len(after)
    longest = max(
        (b - a for a, b in zip(starts, [*starts[1:], end], strict=True)), default=0
    )
    if longest > _LONGEST_NBYTES:
        raise source.error(
            "its rows are too long to be a table of samples",
            f"{longest} bytes in {_ROWS} rows, {_LONGEST_NBYTES} allowed",
        )
    return _Table(source, delimiter, skip + 1, n_columns, rows, starts, end)


def _trimmed_end(source: ByteSource, begin: int) -> int:
    """Where the last row ends: blank lines at the end of the file are no rows."""
    end = source.nbytes
    while end > begin:
        piece = source.read(max(begin, end - 4096), end - max(begin, end - 4096))
        kept = len(piece.rstrip(b"\r\n "))
        if kept:
            return end - len(piece) + kept
        end -= len(piece)
    return end
