"""Disk cache of compiled code, so that the next process need not compile it again.

A file is known by all that its code depends on, holds its own checksum, and is
written atomically. It is code that will run: the folder and the file have to be
ours, and writable by nobody else. Both are checked on what was opened, and names
are looked up in the folder that was opened, because somebody else may own the
folder above it and exchange what a path leads to at any moment. Where nothing can
be kept, code lives as long as the process.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

MAX_FILES: Final = 512
"""Maximum number of files, of 10 to 30 KB each; the oldest are removed first."""
_MAX_FILE_NBYTES: Final = 8 << 20
_DIGEST: Final = hashlib.sha256
_O_BINARY: Final = getattr(os, "O_BINARY", 0)
_O_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# Windows has neither owners of this kind nor files relative to a folder that is open;
# it keeps others out of a user's folders.
_HAS_OWNERS: Final = hasattr(os, "getuid") and os.open in os.supports_dir_fd


class _Folder(NamedTuple):
    """Open folder: `handle` is None, and names are paths, on systems without folder
    handles.
    """

    handle: int | None
    path: Path

    def entry_path(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        all_flags = flags | _O_BINARY | _O_NOFOLLOW
        return os.open(self.entry_path(name), all_flags, 0o600, dir_fd=self.handle)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self.entry_path(name), dir_fd=self.handle)


def code_file_name(*dependencies: str) -> str:
    """Return the file name for code with these dependencies, a hash of them."""
    return _DIGEST("\0".join(dependencies).encode()).hexdigest()[:40] + ".o"


def load_code(folder: Path | None, name: str) -> bytes | None:
    """Load the code in a file; None if there is no file that can be trusted."""
    if folder is None:
        return None
    try:
        with _open_folder(folder) as open_folder:
            # Not to be waited for, should it be a pipe.
            handle = open_folder.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with open(handle, "rb") as file:
                _check_private(handle, stat.S_ISREG)
                content = file.read(_MAX_FILE_NBYTES + 1)
    except OSError:
        return None
    size = _DIGEST().digest_size
    digest, code = content[:size], content[size:]
    return code if code and _DIGEST(code).digest() == digest else None


def save_code(folder: Path | None, name: str, code: bytes) -> bool:
    """Save code for later processes. Returns False if it cannot be written."""
    if folder is None:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _open_folder(folder) as open_folder:
            _write_atomically(open_folder, name, _DIGEST(code).digest() + code)
            _remove_oldest(open_folder)
    except OSError:
        return False
    return True


@contextmanager
def _open_folder(folder: Path) -> Iterator[_Folder]:
    """Open the private cache folder.

    Errors   OSError if another user owns it or it does not exist.
    """
    if not _HAS_OWNERS:
        yield _Folder(None, folder)
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _O_NOFOLLOW)
    try:
        _check_private(handle, stat.S_ISDIR)
        yield _Folder(handle, folder)
    finally:
        os.close(handle)


def _check_private(handle: int, is_kind: Callable[[int], bool]) -> None:
    """Reject a file or folder of the wrong kind, owned by another user or writable by
    others.
    """
    status = os.fstat(handle)
    is_private = not _HAS_OWNERS or (
        status.st_uid == os.getuid() and not status.st_mode & 0o022
    )
    if not is_kind(status.st_mode) or not is_private:
        raise PermissionError(
            "the cache must belong to this user and not be writable by others"
        )


def _write_atomically(folder: _Folder, name: str, content: bytes) -> None:
    temporary = f".rlxweb-{os.urandom(6).hex()}.o"
    handle = folder.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(
            folder.entry_path(temporary),
            folder.entry_path(name),
            src_dir_fd=folder.handle,
            dst_dir_fd=folder.handle,
        )
    except BaseException:
        folder.remove(temporary)
        raise


def _remove_oldest(folder: _Folder) -> None:
    target = folder.path if folder.handle is None else folder.handle
    with suppress(OSError), os.scandir(target) as entries:
        files = [entry for entry in entries if entry.name.endswith(".o")]
        if len(files) > MAX_FILES:
            files.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
            for entry in files[: len(files) - MAX_FILES]:
                folder.remove(entry.name)
