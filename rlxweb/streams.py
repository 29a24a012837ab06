"""Outputs that are written into, not replaced: pipes, terminals, /dev/null, "-".

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
_BY_NAME = {"-": STDOUT, "/dev/stdout": STDOUT, "/dev/stderr": 2}
_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
# What waits for a stream is kept in memory up to this size.
_IN_MEMORY = 8 << 20


def descriptor_of(path: str) -> int | None:
    """The open descriptor a path stands for; None for a path like any other."""
    if path in _BY_NAME:
        return _BY_NAME[path]
    for folder in _FOLDERS:
        number = path.removeprefix(folder)
        if number != path and number.isascii() and number.isdigit():
            return int(number)
    return None


def is_stream(path: str) -> bool:
    """True for an open descriptor, a named pipe, a terminal or the like.

    Errors   OSError for a descriptor that is not open.
    """
    handle = descriptor_of(path)
    if handle is not None:
        os.fstat(handle)
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def discard(handle: int) -> None:
    """From now on what is written into the descriptor goes nowhere.

    Its reader has left; Python flushes once more at exit and would complain then.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, handle)
    os.close(sink)


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    name = ""


def spool(name: str) -> IO[bytes]:
    """Return where the bytes for a stream wait until all outputs are complete."""
    file = _Spool(_IN_MEMORY)
    file.name = name
    return file


def send(waiting: IO[bytes], path: str) -> None:
    """The bytes into the stream; a reader that has left already is no error.

    A named pipe is waited for until somebody reads it.
    """
    waiting.seek(0)
    handle = descriptor_of(path)
    with suppress(BrokenPipeError):
        if handle == STDOUT and sys.stdout is not None:
            # Behind what was printed already, wherever that went.
            sys.stdout.flush()
            shutil.copyfileobj(waiting, sys.stdout.buffer)
            sys.stdout.flush()
            return
        opened = os.open(path, os.O_WRONLY) if handle is None else os.dup(handle)
        with open(opened, "wb") as stream:
            shutil.copyfileobj(waiting, stream)
