"""All arrays of an NPZ file at once: results, weights and states, never recordings.

Whatever NumPy and zip make of a damaged file is a ValueError, and a file unpacks to no
more than `bounds` allows for its size.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.io import bounds
from rlxweb.io.npy import PARSER_ERRORS
from rlxweb.named_files import open_regular
from rlxweb.whole_file import reason

# An encrypted member is a RuntimeError, an unknown method a NotImplementedError.
_BROKEN = (
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
    """Return every array of an NPZ file by its name.

    Raises
    ------
    OSError
        Where the file cannot be opened or read.
    ValueError
        For anything that is no NPZ file, is damaged, holds Python objects, or unpacks
        to more than a file of its size may.
    """
    if isinstance(source, str | os.PathLike):
        with open_regular(source) as file:
            return read_npz_arrays(file)
    try:
        nbytes = source.seek(0, os.SEEK_END)
        source.seek(0)
        with zipfile.ZipFile(source) as archive:
            total = sum(info.file_size for info in archive.infolist())
        most = bounds.unpacked_at_once(nbytes)
        if total > most:
            raise ValueError(f"it unpacks to {total} bytes, at most {most} are read")
        source.seek(0)
        with np.load(source, allow_pickle=False) as found:
            if not hasattr(found, "files"):
                raise ValueError("it is a single array")
            return {name: np.asarray(found[name]) for name in found.files}
    except (OSError, ValueError):
        raise
    except _BROKEN as error:
        raise ValueError(reason(error)) from error
