"""Output files that appear whole or not at all: CSV, NPZ, JSON and any other.

Owns the temporary name, the flush to disk and the rename. Whatever goes wrong while a
file is written, the old file stays as it was and nothing half-written is left behind.
Knows nothing of what the rows and arrays mean.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RecordingError, RlxError, UsageError
from rlxweb.io.source import reason

Cell = str | int | float | bool | np.generic | None


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`; it becomes `path` when the block ends well.

    The temporary file exists and is empty, carries the suffix of `path` and, where
    `path` exists, its permissions; a symbolic link is followed, not replaced.

    Errors   RecordingError when the folder is missing, nothing may be written there,
             or the disk is full.
    """
    doing = f"writing {os.fspath(path)!r}"
    try:
        target = Path(os.path.realpath(path))
        temporary = _create(target, doing)
    except (OSError, ValueError) as error:
        raise _refused(doing, error) from error
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    except RlxError:
        raise
    except OSError as error:
        raise RecordingError(
            doing, f"the system refused ({reason(error)})", hint="is the disk full?"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


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


def _create(target: Path, doing: str) -> Path:
    mode = None
    with suppress(FileNotFoundError):
        mode = target.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        raise RecordingError(
            doing,
            "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file",
            hint="name a file",
        )
    if mode is not None and not os.access(target, os.W_OK):
        raise RecordingError(
            doing, "the file there is write-protected", hint="choose another name"
        )
    # A short name of its own: the target's may already have the longest length.
    temporary = target.with_name(f".rlxweb-{secrets.token_hex(6)}{target.suffix}")
    # The mode goes through the umask, as it does for any new file.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    if mode is not None:
        temporary.chmod(stat.S_IMODE(mode))
    return temporary


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # Without it a power cut may forget the rename; not every system has it.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refused(doing: str, error: OSError | ValueError) -> RecordingError:
    if isinstance(error, RecordingError):
        return error
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RecordingError(doing, "there is no such folder", hint="create it first")
    if isinstance(error, PermissionError):
        return RecordingError(
            doing, "this user may not write there", hint="choose another folder"
        )
    return RecordingError(doing, f"the system refused ({reason(error)})")
