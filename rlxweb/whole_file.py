"""A file that appears whole or not at all.

Owns the temporary name, the flush to disk and the rename. Whatever goes wrong while a
file is written, the old file stays as it was and nothing half-written is left behind.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlxweb.errors import RecordingError, RlxError

_LONGEST = 200  # characters of somebody else's message


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`; it becomes `path` when the block ends well.

    The temporary file exists and is empty, carries the suffix of `path` and, where
    `path` exists, its permissions; a symbolic link is followed, not replaced.

    Errors   RecordingError when the folder is missing, nothing may be written there,
             or the disk is full.
    """
    doing = f"writing {os.fspath(path)!r}"
    try:
        target = Path(os.path.realpath(path))
        temporary = _create(target, doing)
    except RecordingError:
        raise
    except (OSError, ValueError) as error:
        raise _refused(doing, error) from error
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    except RlxError:
        raise
    except OSError as error:
        raise RecordingError(
            doing, f"the system refused ({reason(error)})", hint="is the disk full?"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    # Without it a power cut may forget the rename; not every system has it.
    with suppress(OSError):
        _flush(target.parent)


def _create(target: Path, doing: str) -> Path:
    mode = None
    with suppress(FileNotFoundError):
        mode = target.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        raise RecordingError(
            doing,
            "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file",
            hint="name a file",
        )
    if mode is not None and not os.access(target, os.W_OK):
        raise RecordingError(
            doing, "the file there is write-protected", hint="choose another name"
        )
    # A short name of its own: the target's may already have the longest length.
    temporary = target.with_name(f".rlxweb-{secrets.token_hex(6)}{target.suffix}")
    # The mode goes through the umask, as it does for any new file.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    if mode is not None:
        temporary.chmod(stat.S_IMODE(mode))
    return temporary


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refused(doing: str, error: OSError | ValueError) -> RecordingError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RecordingError(doing, "there is no such folder", hint="create it first")
    if isinstance(error, PermissionError):
        return RecordingError(
            doing, "this user may not write there", hint="choose another folder"
        )
    return RecordingError(doing, f"the system refused ({reason(error)})")


def reason(error: BaseException) -> str:
    """The system's own words for `error`, without its number and path, in one line.

    Libraries quote what they stumbled over, be it a whole file: no more than a line.
    """
    text = error.strerror if isinstance(error, OSError) else None
    first, *_ = (text or str(error) or type(error).__name__).splitlines()
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
