"""Bytes of a file as one array that nobody writes into, memory-mapped where possible.

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

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import GraphFileError, shown
from rlxweb.core.safe_file_opening import NotRegularFile, open_regular_file

ByteArray = npt.NDArray[np.uint8]
Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO

_CAN_MMAP = sys.platform != "emscripten"  # there a map is a copy that costs twice


def load_bytes(source: Source, context: str) -> tuple[str, ByteArray]:
    """Return the source's name for messages, and its bytes; raises GraphFileError."""
    if isinstance(source, bytes | bytearray | memoryview):
        return "", np.frombuffer(bytes(source), np.uint8)
    if hasattr(source, "read"):
        return _file_name(getattr(source, "name", "")), _read_open_file(source, context)
    try:
        path = Path(os.fsdecode(source))
    except TypeError:
        raise GraphFileError(
            context,
            f"got {describe_type(source)}",
            "expected a path, bytes or an open file",
        ) from None
    return path.name, _map_file(path, f"{context} {shown(str(path))}")


def _file_name(name: object) -> str:
    """Return the last part of an open file's name, if it is text."""
    return Path(name).name if isinstance(name, str) else ""


def _read_open_file(file: Any, context: str) -> ByteArray:
    """Read all bytes of an open file."""
    try:
        data = file.read()
    except (OSError, ValueError) as error:  # the latter where it was closed
        problem = f"the file cannot be read ({error_reason(error)})"
        raise GraphFileError(context, problem) from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise GraphFileError(
            context,
            f"reading the open file returned {describe_type(data)}",
            "expected bytes",
            "open the file with mode 'rb'",
        )
    return np.frombuffer(bytes(data), np.uint8)


def _map_file(path: Path, context: str) -> ByteArray:
    """Map a file into memory; read it where that cannot be."""
    try:
        with open_regular_file(path) as file:
            if not _CAN_MMAP or not os.fstat(file.fileno()).st_size:
                return np.frombuffer(file.read(), np.uint8)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except NotRegularFile as error:
        hint = "pass the path of a file in this folder" if path.is_dir() else ""
        raise GraphFileError(context, error_reason(error), hint=hint) from None
    except FileNotFoundError as error:
        raise GraphFileError(
            context,
            "the file does not exist",
            hint="check the file name and the folder",
        ) from error
    except (OSError, ValueError) as error:
        problem = f"the file cannot be opened ({error_reason(error)})"
        raise GraphFileError(context, problem) from error
    return np.frombuffer(mapping, np.uint8)
