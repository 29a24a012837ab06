"""A file that one process at a time has open, told apart from what is not its own.

The system frees the lock with the process that had it, however that ends.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rlxweb.errors import RecordingError, UsageError
from rlxweb.whole_file import reason

_TRIES = 50
_MOST_NBYTES = 256
_BEHIND = 1 << 60  # where Windows locks a byte, for it lets nobody read that


def held(
    path: Path, doing: str, holder: Callable[[bytes], str]
) -> tuple[IO[bytes], bool]:
    """The file at `path`, made where there is none, and whether it is locked.

    It is not where the file system knows no locks.

    holder   what the beginning of the file says of the process that holds it
    Errors   UsageError where another process holds it, and where it is another user's
             or no file; RecordingError where it cannot be opened.
    """
    for _ in range(_TRIES):
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            raise RecordingError(
                doing,
                f"{str(path)!r} cannot be opened ({reason(error)})",
                hint="move it away, or choose another folder",
            ) from error
        file = open(handle, "r+b", buffering=0)
        try:
            _check_ours(file, path, doing)
            is_locked = _lock(file, doing, holder)
            # Whoever held it before may have removed it since it was opened here.
            if is_locked is None or _is_at(file, path):
                return file, bool(is_locked)
        except BaseException:
            file.close()
            raise
        file.close()
    raise UsageError(doing, "other runs come and go", hint="choose another name")


def _check_ours(file: IO[bytes], path: Path, doing: str) -> None:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(doing, f"{str(path)!r} is no file", hint="move it away")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise UsageError(
            doing,
            f"{str(path)!r} is the unfinished run of another user",
            f"user {found.st_uid}, and this is {os.getuid()}",
            "choose another name",
        )


def _lock(file: IO[bytes], doing: str, holder: Callable[[bytes], str]) -> bool | None:
    """True once the file is ours alone; None where there are no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_BEHIND)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.seek(0)
        raise UsageError(
            doing,
            "another run is at work on it",
            holder(file.read(_MOST_NBYTES)),
            "wait until it has ended, or choose another name",
        ) from error
    except (ImportError, OSError):
        return None
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except OSError:
        return False
