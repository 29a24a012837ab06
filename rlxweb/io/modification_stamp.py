"""Modification stamps, which identify the state of a file without reading it.

Equal stamps of one name mean that nobody has touched the file between; nothing is
said about files of other names. A folder's is of everything in it.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256

from rlxweb.io.companion_files import recording_files


def modification_stamp(path: str) -> str:
    """Return size and time of the last change; "" if the system does not tell.

    Of a header, also those of the files that it leads to; "" where they cannot be told.
    """
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return _folder_stamp(path)
        statuses = [os.stat(file) for file in recording_files(path)]
    except (OSError, ValueError):
        return ""
    return ", ".join(
        f"{file.st_size} bytes of {file.st_mtime_ns} ns" for file in statuses
    )


def _folder_stamp(path: str) -> str:
    """Return a digest of the names, sizes and times of all files in a folder."""
    digest = sha256()
    for folder, folders, names in os.walk(path, onerror=_raise_error):
        folders.sort()
        for name in sorted(names):
            file_path = os.path.join(folder, name)
            status = os.stat(file_path)
            entry = os.path.relpath(file_path, path), status.st_size, status.st_mtime_ns
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
    return f"a folder of {digest.hexdigest()}"


def _raise_error(error: OSError) -> None:
    """Raise an error that os.walk would ignore."""
    raise error
