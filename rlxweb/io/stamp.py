"""What tells one state of a file from another without reading it: its stamp.

Equal stamps of one name mean that nobody has touched the file between; nothing is
said about files of other names. A folder's is of everything in it.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256

from rlxweb.io.companions import files_of


def stamp_of(path: str) -> str:
    """Return size and time of the last change; "" where the system does not tell.

    Of a header, also those of the files that it leads to; "" where they cannot be told.
    """
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            return _of_folder(path)
        stamps = [os.stat(one) for one in files_of(path)]
    except (OSError, ValueError):
        return ""
    return ", ".join(f"{one.st_size} bytes of {one.st_mtime_ns} ns" for one in stamps)


def _of_folder(path: str) -> str:
    """A digest of the names, sizes and times of all that lies in it."""
    digest = sha256()
    for folder, folders, names in os.walk(path, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            inside = os.path.join(folder, name)
            found = os.stat(inside)
            line = os.path.relpath(inside, path), found.st_size, found.st_mtime_ns
            digest.update(repr(line).encode("utf-8", "surrogatepass"))
    return f"a folder of {digest.hexdigest()}"


def _raise(error: OSError) -> None:
    raise error
