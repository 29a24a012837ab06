"""Compiled code on disk, so that the next process need not compile it again.

A file is known by all that its code depends on, holds its own checksum, and is written
atomically. It is code that will run: the folder and the file have to be ours, and
writable by nobody else. Both are checked on what was opened, and names are looked up in
the folder that was opened, because somebody else may own the folder above it and
exchange what a path leads to at any moment. Where nothing can be kept, code lives as
long as the process.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

MOST_FILES: Final = 512
"""Of 10 to 30 KB each; the oldest go first."""
_LARGEST: Final = 8 << 20
_DIGEST: Final = hashlib.sha256
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
# Windows has neither owners of this kind nor files relative to a folder that is open;
# it keeps others out of a user's folders.
_HAS_OWNERS: Final = hasattr(os, "getuid") and os.open in os.supports_dir_fd


class _Folder(NamedTuple):
    """An open folder: `handle` is None, and names are paths, where there is no such."""

    handle: int | None
    path: Path

    def named(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        how = flags | _BINARY | _NO_LINK
        return os.open(self.named(name), how, 0o600, dir_fd=self.handle)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self.named(name), dir_fd=self.handle)


def file_name(*about: str) -> str:
    """The name for code that depends on these."""
    return _DIGEST("\0".join(about).encode()).hexdigest()[:40] + ".o"


def kept(folder: Path | None, name: str) -> bytes | None:
    """The code in that file; None where there is none that can be trusted."""
    if folder is None:
        return None
    try:
        with _opened(folder) as place:
            # Not to be waited for, should it be a pipe.
            handle = place.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with open(handle, "rb") as file:
                _check_ours(handle, stat.S_ISREG)
                held = file.read(_LARGEST + 1)
    except OSError:
        return None
    size = _DIGEST().digest_size
    digest, code = held[:size], held[size:]
    return code if code and _DIGEST(code).digest() == digest else None


def keep(folder: Path | None, name: str, code: bytes) -> bool:
    """Put the code there for the next time. False where that cannot be."""
    if folder is None:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _opened(folder) as place:
            _write(place, name, _DIGEST(code).digest() + code)
            _forget_oldest(place)
    except OSError:
        return False
    return True


@contextmanager
def _opened(folder: Path) -> Iterator[_Folder]:
    """Open a folder of ours. Errors  OSError where it is another's, or not there."""
    if not _HAS_OWNERS:
        yield _Folder(None, folder)
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    try:
        _check_ours(handle, stat.S_ISDIR)
        yield _Folder(handle, folder)
    finally:
        os.close(handle)


def _check_ours(handle: int, is_kind: Callable[[int], bool]) -> None:
    """Refuse what is of another kind, another user's or writable by others."""
    about = os.fstat(handle)
    is_ours = not _HAS_OWNERS or (
        about.st_uid == os.getuid() and not about.st_mode & 0o022
    )
    if not is_kind(about.st_mode) or not is_ours:
        raise PermissionError("it is not ours alone")


def _write(place: _Folder, name: str, held: bytes) -> None:
    temporary = f".rlxweb-{os.urandom(6).hex()}.o"
    handle = place.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        with open(handle, "wb") as file:
            file.write(held)
        os.replace(
            place.named(temporary),
            place.named(name),
            src_dir_fd=place.handle,
            dst_dir_fd=place.handle,
        )
    except BaseException:
        place.remove(temporary)
        raise


def _forget_oldest(place: _Folder) -> None:
    where = place.path if place.handle is None else place.handle
    with suppress(OSError), os.scandir(where) as entries:
        files = [one for one in entries if one.name.endswith(".o")]
        if len(files) > MOST_FILES:
            files.sort(key=lambda one: one.stat(follow_symlinks=False).st_mtime)
            for one in files[: len(files) - MOST_FILES]:
                place.remove(one.name)
