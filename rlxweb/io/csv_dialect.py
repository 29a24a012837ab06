"""Dialect of a CSV table: its delimiter, decimal mark and header line.

Owns the delimiter, the decimal comma, the header line and the parsing of one cell, all
told from the first lines. Knows nothing of where rows lie in the file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource

WHITESPACE_DELIMITER = " "
"""Delimiter that stands for any run of blanks, as numpy.savetxt writes."""

_MAX_SAMPLED_CELLS = 10_000
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_GROUPED_DIGITS = re.compile(r"[+-]?[0-9]{1,3}([.,][0-9]{3})+[.,][0-9]*")
_DECIMAL_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?")
# Where a row has one of these beside numbers, it is a row and no header.
_MISSING_VALUES = ("", "na", "n/a", "null", "none", "-", "--", "?")
# 1.234 beside 1,5 is more than a thousand: it must not be read as a little over one.
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "'"})
MIXED_MARKS_HINT = "use either decimal points or decimal commas in the whole file"


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """Delimiter of a table's cells, and whether its decimal mark is a comma."""

    delimiter: str
    has_decimal_commas: bool = False

    def split(self, line: str) -> list[str]:
        """Return the cells of a line.

        Errors   ValueError for quotes that the csv module refuses.
        """
        if self.delimiter == WHITESPACE_DELIMITER:
            return line.split()
        if '"' not in line:
            return line.split(self.delimiter)
        try:
            return next(csv.reader([line], delimiter=self.delimiter), [""])
        except csv.Error as error:
            raise ValueError(str(error)) from error

    def count_cells(self, line: str) -> int:
        """Return the number of cells of a line without quotes."""
        if self.delimiter == WHITESPACE_DELIMITER:
            return len(line.split())
        return line.count(self.delimiter) + 1

    def with_decimal_point(self, cell: str) -> str:
        """Return a cell with a decimal point; a point beside decimal commas stays
        invalid.
        """
        return cell.translate(_COMMA_TO_POINT) if self.has_decimal_commas else cell

    def lines_with_decimal_points(self, lines: list[str]) -> list[str]:
        """Return whole lines with decimal points, for a number parser."""
        return (
            [*map(self.with_decimal_point, lines)] if self.has_decimal_commas else lines
        )

    def parse_number(self, cell: str) -> float | None:
        """Return the number in a cell, or None."""
        text = self.with_decimal_point(cell).strip()
        # float() allows what no table means: 1_000.
        if "_" in text:
            return None
        try:
            return float(text)
        except ValueError:
            return None

    def has_other_decimal_mark(self, cell: str) -> bool:
        """Tell whether a cell is a number with the decimal mark that the other cells do
        not use.
        """
        text = cell.strip()
        return self.parse_number(text) is None and bool(
            _DECIMAL_COMMA.fullmatch(text)
            or _DECIMAL_POINT.fullmatch(text)
            or _GROUPED_DIGITS.fullmatch(text)
        )

    def cell_hint(self, cell: str) -> str:
        """Return a hint how to correct a cell that is no number."""
        return (
            MIXED_MARKS_HINT
            if self.has_other_decimal_mark(cell)
            else "write nan for a missing value"
        )

    def has_numbers(self, cells: Sequence[str]) -> bool:
        """Tell whether any of the cells is a number."""
        return any(self.parse_number(cell) is not None for cell in cells)


@dataclass(frozen=True, slots=True)
class CsvHead:
    """Dialect, header and first row of a table.

    n_header_lines  lines before the first row
    column_names  of the columns, or empty
    first_cells  the cells of the first row
    """

    dialect: CsvDialect
    n_header_lines: int
    column_names: list[str]
    first_cells: list[str]


def read_head(source: ByteSource, lines: list[str]) -> CsvHead:
    """Return the dialect, the header line and the first row.

    Leading lines that begin with # are comments. The last of them gives the names if
    it has as many cells as a row; a plain line does if it is no row itself.

    Errors   RecordingError when there is no row of numbers.
    """
    n_header_lines = 0
    while n_header_lines < len(lines) and lines[n_header_lines].startswith("#"):
        n_header_lines += 1
    last_comment = lines[n_header_lines - 1].lstrip("# ") if n_header_lines else ""
    try:
        dialect = _detect_dialect(lines[n_header_lines:])
        first, second = [
            dialect.split(line)
            for line in [*lines[n_header_lines : n_header_lines + 2], "", ""][:2]
        ]
        comment_cells = dialect.split(last_comment)
    except ValueError as error:
        raise source.error(f"the first lines cannot be read ({error})") from error
    source.check_limit("columns", max(len(first), len(second)), file_limits.CHANNELS)
    names: list[str] = []
    if _is_header(dialect, first, second):
        names, first = first, second
        n_header_lines += 1
    elif len(comment_cells) == len(first) and not dialect.has_numbers(comment_cells):
        names = comment_cells
    if not dialect.has_numbers(first):
        raise source.error(
            "the file contains no row of numbers",
            "expected at most one header line, then one row of numbers per sample",
            "check that the file is a recording",
        )
    return CsvHead(dialect, n_header_lines, [name.strip() for name in names], first)


def _detect_dialect(lines: list[str]) -> CsvDialect:
    """Detect the delimiter of the first lines and whether their numbers have decimal
    commas.
    """
    filled_lines = [line for line in lines[:2] if line.strip()]
    delimiter = ","
    for candidate in ("\t", ";", "|"):
        if filled_lines and all(candidate in line for line in filled_lines):
            delimiter = candidate
            break
    else:
        tokens = [line.split() for line in filled_lines]
        # Blanks part the cells where commas do not, or are decimal commas to the last.
        if (
            filled_lines
            and all(len(row) > 1 for row in tokens)
            and (
                not any("," in line for line in filled_lines)
                or all(_DECIMAL_COMMA.fullmatch(cell) for cell in tokens[-1])
            )
        ):
            delimiter = WHITESPACE_DELIMITER
    if delimiter == ",":
        return CsvDialect(delimiter)
    all_cells = (
        cell.strip(' "')
        for text_line in lines
        for cell in CsvDialect(delimiter).split(text_line)
    )
    cells = [*islice(all_cells, _MAX_SAMPLED_CELLS)]
    has_commas = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return CsvDialect(
        delimiter, has_commas and not any(map(_DECIMAL_POINT.fullmatch, cells))
    )


def _is_header(dialect: CsvDialect, first: list[str], second: list[str]) -> bool:
    """Tell whether `first` has words where `second` has numbers."""
    if not dialect.has_numbers(first):
        return dialect.has_numbers(second)
    return any(
        dialect.parse_number(header_cell) is None
        and header_cell.strip().casefold() not in _MISSING_VALUES
        and dialect.parse_number(value_cell) is not None
        for header_cell, value_cell in zip(first, second, strict=False)
    )
