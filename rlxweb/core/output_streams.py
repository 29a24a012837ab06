"""Output streams that are written into, not replaced: pipes, terminals, /dev/null, "-".

A name such as /dev/stdout stands for a descriptor that is open already and is written
at its own place: opening the name anew would begin at the start of the file behind it.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from typing import IO

STDOUT = 1
_DESCRIPTOR_BY_NAME = {"-": STDOUT, "/dev/stdout": STDOUT, "/dev/stderr": 2}
_DESCRIPTOR_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
# What waits for a stream is kept in memory up to this size.
_MAX_SPOOL_MEMORY = 8 << 20


def stream_descriptor(path: str) -> int | None:
    """Return the open descriptor that a path refers to; None for an ordinary path."""
    if path in _DESCRIPTOR_BY_NAME:
        return _DESCRIPTOR_BY_NAME[path]
    for folder in _DESCRIPTOR_FOLDERS:
        number = path.removeprefix(folder)
        if number != path and number.isascii() and number.isdigit():
            return int(number)
    return None


def is_stream(path: str) -> bool:
    """Return whether a path refers to an open descriptor, a named pipe, a terminal or
    the like.

    Errors   OSError for a descriptor that is not open.
    """
    descriptor = stream_descriptor(path)
    if descriptor is not None:
        os.fstat(descriptor)
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def discard_output(descriptor: int) -> None:
    """Redirect a descriptor to the null device.

    Its reader has left; Python flushes once more at exit and would complain then.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    os.close(sink)


class _StreamSpool(tempfile.SpooledTemporaryFile[bytes]):
    """Spooled temporary file with a name."""

    name = ""


def open_spool(name: str) -> IO[bytes]:
    """Return a temporary file for the bytes of a stream, used until all outputs are
    complete.
    """
    file = _StreamSpool(_MAX_SPOOL_MEMORY)
    file.name = name
    return file


def copy_spool_to_stream(spooled: IO[bytes], path: str) -> None:
    """Copy spooled bytes into a stream; a reader that has closed it is no error.

    A named pipe is waited for until somebody reads it.
    """
    spooled.seek(0)
    descriptor = stream_descriptor(path)
    with suppress(BrokenPipeError):
        if descriptor == STDOUT and sys.stdout is not None:
            # Behind what was printed already, wherever that went.
            sys.stdout.flush()
            shutil.copyfileobj(spooled, sys.stdout.buffer)
            sys.stdout.flush()
            return
        opened = (
            os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
        )
        with open(opened, "wb") as stream:
            shutil.copyfileobj(spooled, stream)
