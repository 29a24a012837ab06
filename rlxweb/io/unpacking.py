"""What is packed as a whole is unpacked before it is read: never without a bound.

Small things stay in memory, large ones go to the temporary folder.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import IO

from rlxweb.errors import NotWritten
from rlxweb.io.source import Source
from rlxweb.whole_file import reason


def check_room(source: Source, nbytes: int, hint: str) -> None:
    """Errors  NotWritten where the temporary folder has no room for so many bytes."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if nbytes > free:
        raise NotWritten(
            source.doing,
            "what it holds does not fit into the temporary folder",
            f"{nbytes} bytes unpacked, {free} are free",
            hint,
        )


def store(source: Source, out: IO[bytes], piece: bytes) -> None:
    """Write a piece; none is the end, from where on others may read the file.

    Errors   NotWritten where the system takes no more
    """
    try:
        if piece:
            out.write(piece)
        else:
            out.flush()
    except OSError as error:
        raise NotWritten(
            source.doing,
            f"it cannot be unpacked to the temporary folder ({reason(error)})",
            hint="make room there, or name another (TMPDIR)",
        ) from error
