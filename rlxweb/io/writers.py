"""Output files that appear whole or not at all: CSV, NPZ and JSON.

Knows nothing of what the rows and arrays mean.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import zipfile
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from rlxweb.errors import UsageError
from rlxweb.whole_file import atomic_path

Cell = str | int | float | bool | np.generic | None


def write_csv(
    path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> None:
    """A table with a header line; floats are written so that they read back exactly.

    Errors   UsageError for a row that does not fit the columns; RecordingError when the
             file cannot be written.
    """
    with atomic_path(path) as temporary:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            for at, row in enumerate(rows):
                if len(row) != len(columns):
                    raise UsageError(
                        f"writing {os.fspath(path)!r}",
                        f"row {at} has {len(row)} cells",
                        f"{len(columns)} columns",
                    )
                # Shortest form that reads back to the same float32 or float64.
                writer.writerow(
                    c.item() if isinstance(c, np.float64) else c for c in row
                )


def write_npz(path: str | os.PathLike[str], /, **arrays: npt.ArrayLike) -> None:
    """Named arrays in one NPZ file, readable without unpickling.

    Errors   UsageError for an array of Python objects; RecordingError when the file
             cannot be written.
    """
    ready = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in ready.items():
        if value.dtype.hasobject:
            raise UsageError(
                f"writing {os.fspath(path)!r}",
                f"array {name!r} holds Python objects",
                "arrays of numbers or text can be saved",
            )
    # numpy.savez would take some names for its own arguments.
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, value in ready.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def write_json(path: str | os.PathLike[str], obj: object) -> None:
    """`obj` as indented JSON; the path "-" is standard output.

    NumPy numbers and arrays are written as numbers and lists.

    Errors   UsageError for NaN, infinity or an object JSON has no form for;
             RecordingError when the file cannot be written.
    """
    try:
        text = json.dumps(
            obj, indent=2, allow_nan=False, ensure_ascii=False, default=_for_json
        )
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"writing {os.fspath(path)!r}",
            f"the result cannot be written as JSON ({error})",
            "JSON holds finite numbers, text, lists and mappings",
        ) from error
    if os.fspath(path) == "-":
        sys.stdout.write(text + "\n")
        return
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _for_json(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
