"""How a CSV table is written: what parts its cells, and what its numbers look like.

Owns the delimiter, the decimal comma, the header line and the parsing of one cell, all
told from the first lines. Knows nothing of where rows lie in the file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

BLANKS = " "
"""As a delimiter: any run of blanks, as numpy.savetxt writes."""

_LOOKED_AT = 10_000
_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([.,][0-9]{3})+[.,][0-9]*")
_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?")
# Where a row has one of these beside numbers, it is a row and no header.
_MISSING = ("", "na", "n/a", "null", "none", "-", "--", "?")
# 1.234 beside 1,5 is more than a thousand: it must not be read as a little over one.
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "'"})
MIXED = "write all numbers with decimal points, or all with decimal commas"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What parts the cells of a line, and whether a comma is the decimal mark."""

    delimiter: str
    has_commas: bool = False

    def split(self, line: str) -> list[str]:
        """The cells of a line.

        Errors   ValueError for quotes that the csv module refuses.
        """
        if self.delimiter == BLANKS:
            return line.split()
        if '"' not in line:
            return line.split(self.delimiter)
        try:
            return next(csv.reader([line], delimiter=self.delimiter), [""])
        except csv.Error as error:
            raise ValueError(str(error)) from error

    def count(self, line: str) -> int:
        """Cells of a line that holds no quotes."""
        if self.delimiter == BLANKS:
            return len(line.split())
        return line.count(self.delimiter) + 1

    def plain(self, cell: str) -> str:
        """A cell with a decimal point; a point beside decimal commas stays wrong."""
        return cell.translate(_COMMA_TO_POINT) if self.has_commas else cell

    def plain_lines(self, lines: list[str]) -> list[str]:
        """The same of whole lines, for a reader of numbers with points."""
        return [*map(self.plain, lines)] if self.has_commas else lines

    def number(self, cell: str) -> float | None:
        """The number a cell holds, or None."""
        text = self.plain(cell).strip()
        # float() allows what no table means: 1_000.
        if "_" in text:
            return None
        try:
            return float(text)
        except ValueError:
            return None

    def is_foreign(self, cell: str) -> bool:
        """True for a number with the decimal mark that the others have not."""
        text = cell.strip()
        return self.number(text) is None and bool(
            _COMMA.fullmatch(text) or _POINT.fullmatch(text) or _GROUPED.fullmatch(text)
        )

    def hint(self, cell: str) -> str:
        """What to write instead of a cell that is no number."""
        return MIXED if self.is_foreign(cell) else "write nan for a missing value"

    def is_row(self, cells: Sequence[str]) -> bool:
        return any(self.number(cell) is not None for cell in cells)


@dataclass(frozen=True, slots=True)
class Head:
    """What the first lines tell.

    skip   lines before the first row
    names  of the columns, or empty
    first  the cells of the first row
    """

    dialect: Dialect
    skip: int
    names: list[str]
    first: list[str]


def read_head(source: ByteSource, lines: list[str]) -> Head:
    """The dialect, the header line and the first row.

    Leading lines that begin with # are comments. The last of them gives the names if
    it has as many cells as a row; a plain line does if it is no row itself.

    Errors   RecordingError when there is no row of numbers.
    """
    skip = 0
    while skip < len(lines) and lines[skip].startswith("#"):
        skip += 1
    remark = lines[skip - 1].lstrip("# ") if skip else ""
    try:
        dialect = _dialect(lines[skip:])
        first, second = [
            dialect.split(x) for x in [*lines[skip : skip + 2], "", ""][:2]
        ]
        remarked = dialect.split(remark)
    except ValueError as error:
        raise source.error(f"its first lines cannot be read ({error})") from error
    source.at_most("columns", max(len(first), len(second)), bounds.CHANNELS)
    names: list[str] = []
    if _is_header(dialect, first, second):
        names, first = first, second
        skip += 1
    elif len(remarked) == len(first) and not dialect.is_row(remarked):
        names = remarked
    if not dialect.is_row(first):
        raise source.error(
            "no row of numbers in it",
            "a header line at most, then a row of numbers per sample",
            "is it a recording?",
        )
    return Head(dialect, skip, [name.strip() for name in names], first)


def _dialect(lines: list[str]) -> Dialect:
    """The delimiter of the first lines, and whether their numbers have commas."""
    full = [line for line in lines[:2] if line.strip()]
    delimiter = ","
    for known in ("\t", ";", "|"):
        if full and all(known in line for line in full):
            delimiter = known
            break
    else:
        tokens = [line.split() for line in full]
        # Blanks part the cells where commas do not, or are decimal commas to the last.
        if (
            full
            and all(len(row) > 1 for row in tokens)
            and (
                not any("," in line for line in full)
                or all(_COMMA.fullmatch(cell) for cell in tokens[-1])
            )
        ):
            delimiter = BLANKS
    if delimiter == ",":
        return Dialect(delimiter)
    parted = (cell.strip(' "') for x in lines for cell in Dialect(delimiter).split(x))
    cells = [*islice(parted, _LOOKED_AT)]
    commas = any(_COMMA.fullmatch(cell) for cell in cells)
    return Dialect(delimiter, commas and not any(map(_POINT.fullmatch, cells)))


def _is_header(dialect: Dialect, first: list[str], second: list[str]) -> bool:
    """True when `first` has words where `second` has numbers."""
    if not dialect.is_row(first):
        return dialect.is_row(second)
    return any(
        dialect.number(above) is None
        and above.strip().casefold() not in _MISSING
        and dialect.number(below) is not None
        for above, below in zip(first, second, strict=False)
    )
