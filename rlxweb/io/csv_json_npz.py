"""Writers for CSV, NPZ and JSON files, each written atomically.

Knows nothing of what the rows and arrays mean. Each takes a path, or an open file for
bytes whose owner sees to the rest.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.atomic_file import open_output
from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import is_hidden, printable

CsvCell = str | int | float | bool | np.generic | None
OutputTarget = str | os.PathLike[str] | IO[bytes]

# A spreadsheet takes a cell that begins so for a formula and computes it, also in the
# wide letters of East Asia; some begin a new cell at each semicolon.
_FORMULA = re.compile("(^|;)(?=[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20])")


def write_csv(
    target: OutputTarget, columns: Sequence[str], rows: Iterable[Sequence[CsvCell]]
) -> None:
    """Write a table with a header line; floats are written so that they read back
    exactly.

    Text is made printable, and text that a spreadsheet would compute (it begins with
    =, +, -, @ or a tab, or goes on so behind a semicolon) gets an apostrophe in front.
    Numbers are never touched.

    Errors   UsageError for a row that does not fit the columns; RecordingError when the
             file cannot be written.
    """
    with open_output(target, f"writing {_target_name(target)}") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(map(_format_csv_cell, columns))
            for index, row in enumerate(rows):
                if len(row) != len(columns):
                    raise UsageError(
                        f"writing {_target_name(target)}",
                        f"row {index} has {len(row)} cells",
                        f"expected {len(columns)}, one per column",
                    )
                writer.writerow(map(_format_csv_cell, row))
        finally:
            text.detach()  # or it would close the file with itself


def _format_csv_cell(cell: CsvCell) -> CsvCell:
    """Return a cell in the form that the CSV writer writes."""
    if isinstance(cell, str):
        return _escape_csv_text(cell)
    # Shortest form that reads back to the same float32 or float64.
    return cell.item() if isinstance(cell, np.float64) else cell


@lru_cache(1 << 10)
def _escape_csv_text(text: str) -> str:
    """Return text made printable, with an apostrophe in front of spreadsheet
    formulas.
    """
    # A table says the same names row after row.
    return printable(_FORMULA.sub(r"\1'", text))


def write_npz(target: OutputTarget, /, **arrays: npt.ArrayLike) -> None:
    """Write named arrays to one NPZ file, readable without unpickling.

    Errors   UsageError for an array of Python objects; RecordingError when the file
             cannot be written.
    """
    numpy_arrays = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in numpy_arrays.items():
        if value.dtype.hasobject:
            raise UsageError(
                f"writing {_target_name(target)}",
                f"array {name!r} contains Python objects",
                "only arrays of numbers or text can be saved",
            )
    # numpy.savez would take some names for its own arguments.
    with (
        open_output(target, f"writing {_target_name(target)}") as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for name, value in numpy_arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def write_json(target: OutputTarget, obj: object) -> None:
    """Write `obj` as indented JSON; the path "-" is standard output.

    NumPy numbers and arrays are written as numbers and lists, and what would steer a
    terminal as an escape of JSON, which reads back as it was.

    Errors   UsageError for NaN, infinity or an object JSON has no form for;
             RecordingError when the file cannot be written.
    """
    try:
        text = json.dumps(
            obj, indent=2, allow_nan=False, ensure_ascii=False, default=json_default
        )
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"writing {_target_name(target)}",
            f"the result cannot be written as JSON ({error})",
            "JSON supports finite numbers, text, lists and mappings",
        ) from error
    data = (_escape_hidden_characters(text) + "\n").encode("utf-8")
    if target == "-":
        # UTF-8 whatever the terminal's encoding is: so JSON is defined.
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    with open_output(target, f"writing {_target_name(target)}") as file:
        file.write(data)


def _escape_hidden_characters(text: str) -> str:
    r"""Return JSON in which invisible characters are written as Unicode escapes."""
    hidden = {c for c in set(text) if is_hidden(c)} - {"\n"}
    return text.translate({ord(c): json.dumps(c)[1:-1] for c in hidden})


def finite_or_none(value: Any) -> float | None:
    """Return a number as float; None (JSON null) for NaN and infinity, which JSON
    lacks.
    """
    return float(value) if math.isfinite(value) else None


def json_default(value: object) -> object:
    """Convert NumPy values and paths for `json.dumps`, as its `default` function.

    Errors   TypeError where there is none either.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not supported by JSON")


def _target_name(target: OutputTarget) -> str:
    """Return the name of a target, for messages."""
    return repr(os.fspath(target)) if isinstance(target, str | os.PathLike) else "it"
