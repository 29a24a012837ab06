"""Checks and writes of data that is decompressed to a temporary file, with errors for a
full disk.

Small things stay in memory, large ones go to the temporary folder.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import IO

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import NotWritten
from rlxweb.io.byte_source import RecordingSource


def check_free_space(source: RecordingSource, nbytes: int, hint: str) -> None:
    """Raise NotWritten if the temporary folder has less free space than this."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if nbytes > free:
        raise NotWritten(
            source.context,
            "the decompressed data does not fit into the temporary folder",
            f"{nbytes} bytes must be written, {free} bytes are free",
            hint,
        )


def write_chunk(source: RecordingSource, out: IO[bytes], chunk: bytes) -> None:
    """Write a chunk; an empty chunk flushes the file, so that others may read it.

    Errors   NotWritten where the system takes no more
    """
    try:
        if chunk:
            out.write(chunk)
        else:
            out.flush()
    except OSError as error:
        raise NotWritten(
            source.context,
            "the file cannot be decompressed to the temporary folder "
            f"({error_reason(error)})",
            hint="make space in the temporary folder, or set TMPDIR to another folder",
        ) from error
