"""Read all arrays of an NPZ file at once: results, weights and states, never
recordings.

Whatever NumPy and zip make of a damaged file is a ValueError, and a file unpacks to no
more than `file_limits` allows for its size.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.safe_file_opening import open_regular_file
from rlxweb.io import file_limits
from rlxweb.io.npy_reader import PARSER_ERRORS

# An encrypted member is a RuntimeError, an unknown method a NotImplementedError.
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OverflowError,  # a place beyond pointers of 32 bits
    RuntimeError,
    struct.error,
    *PARSER_ERRORS,
)


def read_npz_arrays(
    source: str | os.PathLike[str] | IO[bytes],
) -> dict[str, NDArray[Any]]:
    """Return every array of an NPZ file by name.

    Raises
    ------
    OSError
        Where the file cannot be opened or read.
    ValueError
        For anything that is no NPZ file, is damaged, holds Python objects, or unpacks
        to more than a file of its size may.
    """
    if isinstance(source, str | os.PathLike):
        with open_regular_file(source) as file:
            return read_npz_arrays(file)
    try:
        nbytes = source.seek(0, os.SEEK_END)
        source.seek(0)
        with zipfile.ZipFile(source) as archive:
            total = sum(info.file_size for info in archive.infolist())
        max_nbytes = file_limits.max_unpacked_nbytes(nbytes)
        if total > max_nbytes:
            raise ValueError(
                f"expected at most {max_nbytes} decompressed bytes, got {total}"
            )
        source.seek(0)
        with np.load(source, allow_pickle=False) as loaded:
            if not hasattr(loaded, "files"):
                raise ValueError("expected an archive of arrays, got a single array")
            return {name: np.asarray(loaded[name]) for name in loaded.files}
    except (OSError, ValueError):
        raise
    except _DAMAGE_ERRORS as error:
        raise ValueError(error_reason(error)) from error
