"""File that one process at a time may open, with checks that it is the user's own.

The system frees the lock with the process that had it, however that ends.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, UsageError

_TRIES = 50
_MAX_HOLDER_NBYTES = 256
_LOCK_OFFSET = 1 << 60  # where Windows locks a byte, for it lets nobody read that


def open_locked(
    path: Path, context: str, describe_holder: Callable[[bytes], str]
) -> tuple[IO[bytes], bool]:
    """Open the file at `path`, created if there is none; return it and whether it is
    locked.

    It is not where the file system knows no locks.

    describe_holder  what the beginning of the file says of the process that holds it
    Errors   UsageError where another process holds it, and where it is another user's
             or no file; RecordingError where it cannot be opened.
    """
    for _ in range(_TRIES):
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            raise RecordingError(
                context,
                f"{str(path)!r} cannot be opened ({error_reason(error)})",
                hint="move or rename it, or choose another folder",
            ) from error
        file = open(descriptor, "r+b", buffering=0)
        try:
            _check_owner(file, path, context)
            is_locked = _lock(file, context, describe_holder)
            # Whoever held it before may have removed it since it was opened here.
            if is_locked is None or _is_same_file(file, path):
                return file, bool(is_locked)
        except BaseException:
            file.close()
            raise
        file.close()
    raise UsageError(
        context,
        "other runs repeatedly replaced the file",
        f"tried {_TRIES} times",
        "choose another name",
    )


def _check_owner(file: IO[bytes], path: Path, context: str) -> None:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(
            context, f"{str(path)!r} is not a regular file", hint="move or rename it"
        )
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise UsageError(
            context,
            f"{str(path)!r} belongs to another user's unfinished run",
            f"its owner is user {status.st_uid}, you are user {os.getuid()}",
            "choose another name",
        )


def _lock(
    file: IO[bytes], context: str, describe_holder: Callable[[bytes], str]
) -> bool | None:
    """Lock the file for this process and return True; None where there are no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCK_OFFSET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.seek(0)
        raise UsageError(
            context,
            "another run is writing the same output",
            describe_holder(file.read(_MAX_HOLDER_NBYTES)),
            "wait until that run ends, or choose another name",
        ) from error
    except (ImportError, OSError):
        return None
    return True


def _is_same_file(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except OSError:
        return False
