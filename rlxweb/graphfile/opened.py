"""The bytes of a file as one array that nobody writes into, mapped where that can be.

A path is mapped into memory, so that only what is used is read; a file that is cut
short while it is mapped ends the process, as everywhere that files are mapped. Bytes
and open files are taken whole: a page hands over the bytes of a Blob.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rlxweb.errors import GraphFileError, shown
from rlxweb.given import named
from rlxweb.named_files import NotRegular, open_regular
from rlxweb.whole_file import reason

Bytes = npt.NDArray[np.uint8]
Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO

_MAPS = sys.platform != "emscripten"  # there a map is a copy that costs twice


def opened(source: Source, doing: str) -> tuple[str, Bytes]:
    """(what to call it, its bytes). Errors  GraphFileError."""
    if isinstance(source, bytes | bytearray | memoryview):
        return "", np.frombuffer(bytes(source), np.uint8)
    if hasattr(source, "read"):
        return _name(getattr(source, "name", "")), _read(source, doing)
    try:
        path = Path(os.fsdecode(source))
    except TypeError:
        raise GraphFileError(
            doing,
            f"{named(source)} was given",
            "a path, bytes or an open file is wanted",
        ) from None
    return path.name, _mapped(path, f"{doing} {shown(str(path))}")


def _name(given: object) -> str:
    return Path(given).name if isinstance(given, str) else ""


def _read(file: Any, doing: str) -> Bytes:
    try:
        data = file.read()
    except (OSError, ValueError) as error:  # the latter where it was closed
        problem = f"the system cannot read it ({reason(error)})"
        raise GraphFileError(doing, problem) from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise GraphFileError(
            doing,
            f"the open file gives {named(data)}",
            "bytes are wanted",
            "open it with mode 'rb'",
        )
    return np.frombuffer(bytes(data), np.uint8)


def _mapped(path: Path, doing: str) -> Bytes:
    try:
        with open_regular(path) as file:
            if not _MAPS or not os.fstat(file.fileno()).st_size:
                return np.frombuffer(file.read(), np.uint8)
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except NotRegular as error:
        hint = "name a file inside it" if path.is_dir() else ""
        raise GraphFileError(doing, reason(error), hint=hint) from None
    except FileNotFoundError as error:
        raise GraphFileError(
            doing, "there is no such file", hint="check the name and the folder"
        ) from error
    except (OSError, ValueError) as error:
        problem = f"the system cannot open it ({reason(error)})"
        raise GraphFileError(doing, problem) from error
    return np.frombuffer(held, np.uint8)
