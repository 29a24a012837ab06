"""Reader of CSV tables: a row per sample, a column per channel, read in blocks of rows.

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

from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.channel_selection import TRIGGER_REASON, is_trigger
from rlxweb.io.clock_column_names import parse_clock_name
from rlxweb.io.clock_column_rate import (
    clear_false_clock_names,
    find_clock,
    find_ramps,
    ramp_warning,
)
from rlxweb.io.csv_dialect import (
    MIXED_MARKS_HINT,
    WHITESPACE_DELIMITER,
    CsvDialect,
    read_head,
)
from rlxweb.io.format_reader_interface import ChannelStream, FileChannel, FileContents
from rlxweb.io.time_parsing import parse_time

# Rows that begin in one stretch of so many bytes are read together.
_BLOCK_NBYTES = 1 << 16
_SCAN_NBYTES = 1 << 20
_HEAD_NBYTES = 2 * file_limits.LINE_NBYTES
_HEAD_LINES = 256


@dataclass(frozen=True, slots=True)
class _CsvRowIndex:
    """Index of row offsets: the first row and the offset of each block, and the end of
    the rows.
    """

    first_rows: array[int]
    block_offsets: array[int]
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class _CsvTable:
    """Open CSV table as a SampleReader and a ClockTable."""

    source: ByteSource
    dialect: CsvDialect
    first_line: int
    n_columns: int
    rows: _CsvRowIndex

    def read(
        self, channels: tuple[int, ...], start: int, stop: int
    ) -> npt.NDArray[np.float64]:
        """Return rows [start, stop) of some columns, (columns, rows)."""
        out = np.empty((len(channels), stop - start), np.float64)
        row = start
        while row < stop:
            lines = self.read_lines(row, stop)
            next_row = row + len(lines)
            out[:, row - start : next_row - start] = self._parse_cells(
                lines, channels, row
            ).T
            row = next_row
        return out

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return cells of one column as they are printed, with a decimal point."""
        texts: list[str] = []
        lines, first_row = [""], -1
        for row in rows:
            if not first_row <= row < first_row + len(lines):
                lines, first_row = self.read_lines(row, self.rows.count), row
            cells = self._split_row(lines[row - first_row], row)
            texts.append(self.dialect.with_decimal_point(cells[column]))
        return texts

    def read_lines(self, start: int, stop: int) -> list[str]:
        """Return the rows from `start` to `stop` or to the end of their block, at least
        one.
        """
        first_rows, block_offsets = self.rows.first_rows, self.rows.block_offsets
        block = bisect_right(first_rows, start) - 1
        is_last = block + 1 == len(first_rows)
        block_end = self.rows.end if is_last else block_offsets[block + 1]
        raw = self.source.read(block_offsets[block], block_end - block_offsets[block])
        # Numbers are ASCII; latin-1 lets a stray byte reach the message about its cell.
        lines = raw.decode("latin-1").replace("\r\n", "\n").split("\n")
        n_lines = (self.rows.count if is_last else first_rows[block + 1]) - first_rows[
            block
        ]
        if len(lines) != n_lines + (not is_last):
            raise self.source.error(
                "the file changed while it was being read",
                f"expected {n_lines} rows, got {len(lines) - (not is_last)}",
                "open the recording again",
            )
        return lines[start - first_rows[block] : min(n_lines, stop - first_rows[block])]

    def _parse_cells(
        self, lines: list[str], columns: tuple[int, ...], first_row: int
    ) -> npt.NDArray[np.float64]:
        """Parse some columns of lines as float64, (rows, columns)."""
        dialect, n_columns = self.dialect, self.n_columns
        has_blank_lines = n_columns == 1 and not all(map(str.strip, lines))
        if not has_blank_lines and all(
            dialect.count_cells(line) == n_columns for line in lines
        ):
            try:
                values = np.loadtxt(
                    dialect.lines_with_decimal_points(lines),
                    np.float64,
                    comments=None,
                    delimiter=None
                    if dialect.delimiter == WHITESPACE_DELIMITER
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
        return self._parse_cells_one_by_one(lines, columns, first_row)

    def _parse_cells_one_by_one(
        self, lines: list[str], columns: tuple[int, ...], first_row: int
    ) -> npt.NDArray[np.float64]:
        """Parse cells one at a time, slowly, to name the cell that is wrong."""
        out = np.empty((len(lines), len(columns)), np.float64)
        for index, line in enumerate(lines):
            cells = self._split_row(line, first_row + index)
            for position, column in enumerate(columns):
                value = self.dialect.parse_number(cells[column])
                if value is None:
                    text = cells[column].strip()
                    raise self.source.error(
                        f"{self._line_name(first_row + index)}, column "
                        f"{column + 1}: {text[:40]!r} is not a number",
                        "every cell of a channel must be a number",
                        self.dialect.cell_hint(text),
                    )
                out[index, position] = value
        return out

    def _split_row(self, line: str, row: int) -> list[str]:
        """Return the cells of a row; raise RecordingError unless there is one for each
        column.
        """
        try:
            cells = self.dialect.split(line) if line.strip() else []
        except ValueError as error:
            raise self.source.error(
                f"{self._line_name(row)} cannot be read ({error})"
            ) from error
        if len(cells) != self.n_columns:
            raise self.source.error(
                f"{self._line_name(row)} has {len(cells)} cells",
                f"expected {self.n_columns}, as in the other rows",
                "repair this line: the table may be truncated or mixed with other data",
            )
        return cells

    def _line_name(self, row: int) -> str:
        """Return the name of a row's line, for messages."""
        return f"line {self.first_line + row}"


def read_csv(source: ByteSource) -> FileContents:
    """Read the layout of a CSV table: its columns, and the rate if a clock column gives
    it.

    Errors   RecordingError for a table without rows or with uneven rows.
    """
    lines, offsets = _read_head_lines(source)
    head = read_head(source, lines)
    names, cells = head.column_names, head.first_cells
    if names and len(names) != len(cells):
        raise source.error(
            f"the header names {len(names)} columns, the first row has {len(cells)}",
            "the header must have one name per column",
        )
    other_mark_cell = next(filter(head.dialect.has_other_decimal_mark, cells), None)
    if other_mark_cell is not None:
        raise source.error(
            f"the first row contains {other_mark_cell.strip()[:40]!r}", MIXED_MARKS_HINT
        )
    rows = _index_rows(source, offsets[head.n_header_lines], head.n_header_lines + 1)
    table = _CsvTable(source, head.dialect, head.n_header_lines + 1, len(cells), rows)
    table = _drop_truncated_row(table)
    n_rows = table.rows.count
    names = names or [""] * len(cells)
    # Text that is a time needs no name to be one.
    clock_names = [
        "time"
        if parse_clock_name(name) is None
        and parse_time(head.dialect.with_decimal_point(cell))
        else name
        for name, cell in zip(names, cells, strict=True)
    ]
    clock_names = clear_false_clock_names(table, clock_names, n_rows)
    clock_column, clock = find_clock(table, clock_names, n_rows)
    values = [head.dialect.parse_number(cell) for cell in cells]
    other_columns = [
        column
        for column, value in enumerate(values)
        if column != clock_column
        and value is not None
        and parse_clock_name(clock_names[column]) is None
    ]
    ramp_steps = find_ramps(table, other_columns, n_rows)
    channels = tuple(
        _describe(
            name, values[column], column, names, clock_column, ramp_steps.get(column)
        )
        for column, name in enumerate(clock_names)
    )
    members = tuple(
        index for index, channel in enumerate(channels) if channel.is_selectable
    )
    stream = ChannelStream(
        members,
        clock.fs,
        n_rows,
        np.dtype(np.float64),
        table,
        clock.tolerance,
        uncertain_timing=clock.uncertain_timing(f"column {names[clock_column]!r}"),
    )
    return FileContents("CSV", channels, (stream,), begun=clock.begun)


def _describe(
    clock_name_text: str,
    value: float | None,
    column: int,
    names: list[str],
    clock_column: int,
    ramp_step: float | None,
) -> FileChannel:
    """Describe a column; `clock_name_text` is its name, or "time" if it holds times."""
    name = names[column]
    if column == clock_column:
        return FileChannel(
            name, "", "is the clock column of the table", is_selectable=False
        )
    if value is None:
        return FileChannel(name, "", "contains text", is_selectable=False)
    if parse_clock_name(clock_name_text) is not None:
        return FileChannel(name, "", "is another clock column of the table")
    if column == 0 and not name and any(names):
        return FileChannel(name, "", "has no name and looks like row numbers")
    warning = (
        "" if ramp_step is None else ramp_warning(name or f"ch{column + 1}", ramp_step)
    )
    return FileChannel(
        name, "", TRIGGER_REASON if is_trigger(name) else "", warning=warning
    )


def _read_head_lines(source: ByteSource) -> tuple[list[str], list[int]]:
    """Return the first whole lines as text, and the offset of each."""
    raw = source.read_head(_HEAD_NBYTES)
    offset = 3 if raw.startswith(b"\xef\xbb\xbf") else 0
    pieces = raw[offset:].split(b"\n", _HEAD_LINES)
    if len(raw) < source.nbytes or len(pieces) > _HEAD_LINES:
        pieces.pop()
    lines, offsets = [], []
    for line in pieces:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        lines.append(text.removesuffix("\r"))
        offsets.append(offset)
        offset += len(line) + 1
    if not lines or "\r" in lines[0]:
        raise source.error(
            "the first line has no valid line ending",
            "lines must end with a line feed and be at most "
            f"{file_limits.LINE_NBYTES} bytes long",
            "save the table with LF or CRLF line endings",
        )
    return lines, offsets


def _index_rows(source: ByteSource, begin: int, line: int) -> _CsvRowIndex:
    """Count the rows and record where each block begins; `line` is the first row's line
    number.
    """
    end = _end_of_last_row(source, begin)
    first_rows, block_offsets = array("q", [0]), array("q", [begin])
    n_rows, row_start = 1, begin
    for offset in range(begin, end, _SCAN_NBYTES):
        chunk = source.read(offset, min(_SCAN_NBYTES, end - offset))
        # after[i] is where row `rows + i` begins.
        row_starts = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + (offset + 1)
        edges = np.concatenate([[row_start], row_starts, [offset + len(chunk)]])
        longest = int(np.argmax(np.diff(edges)))
        source.check_limit(
            f"bytes in line {line + n_rows - 1 + longest}",
            int(edges[longest + 1] - edges[longest]),
            file_limits.LINE_NBYTES,
            "check that the file is a table of samples",
        )
        blocks = edges[:-1] // _BLOCK_NBYTES
        block_starts = np.flatnonzero(np.diff(blocks))
        first_rows.extend((block_starts + n_rows).tolist())
        block_offsets.extend(row_starts[block_starts].tolist())
        n_rows += len(row_starts)
        row_start = int(edges[-2])
    return _CsvRowIndex(first_rows, block_offsets, end, n_rows)


def _end_of_last_row(source: ByteSource, begin: int) -> int:
    """Return the offset at which the last row ends, before blank lines at the end of
    the file.
    """
    end = source.nbytes
    while end > begin:
        chunk = source.read(
            max(begin, end - _BLOCK_NBYTES), min(_BLOCK_NBYTES, end - begin)
        )
        kept_nbytes = len(chunk.rstrip(b"\r\n "))
        if kept_nbytes:
            return end - len(chunk) + kept_nbytes
        end -= len(chunk)
    return end


def _drop_truncated_row(table: _CsvTable) -> _CsvTable:
    """Return the table without a truncated last row, which lacks cells and a line
    end.
    """
    rows, source = table.rows, table.source
    if rows.count == 1 or rows.end < source.nbytes:
        return table
    (last_line,) = table.read_lines(rows.count - 1, rows.count)
    n_cells = table.dialect.count_cells(last_line)
    if '"' in last_line or n_cells >= table.n_columns:
        return table
    line = table.first_line + rows.count - 1
    source.warn(
        f"the file is truncated: the last row, line {line}, has {n_cells} of "
        f"{table.n_columns} cells and is skipped"
    )
    first_rows, block_offsets = rows.first_rows, rows.block_offsets
    if first_rows[-1] == rows.count - 1:
        first_rows, block_offsets = first_rows[:-1], block_offsets[:-1]
    end = source.nbytes - len(last_line) - 1
    end -= source.read(end - 1, 1) == b"\r"
    return replace(
        table, rows=_CsvRowIndex(first_rows, block_offsets, end, rows.count - 1)
    )
