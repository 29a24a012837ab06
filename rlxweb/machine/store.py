"""Compiled code on disk, so that the next process need not compile it again.

A file is known by all that its code depends on, holds its own checksum, and is written
whole or not at all. It is code that will run: a folder that others may write to is not
used. Where nothing can be kept, code lives as long as the process.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_FILES: Final = 512
"""Of 10 to 30 KB each; the oldest go first."""
_LARGEST: Final = 8 << 20
_DIGEST: Final = hashlib.sha256


def file_name(*about: str) -> str:
    """The name for code that depends on these."""
    return _DIGEST("\0".join(about).encode()).hexdigest()[:40] + ".o"


def kept(folder: Path | None, name: str) -> bytes | None:
    """The code in that file; None where there is none that can be trusted."""
    if folder is None or not _is_ours(folder):
        return None
    try:
        with open(folder / name, "rb") as file:
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
    from rlxweb.whole_file import atomic_path

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_ours(folder):
            return False
        with atomic_path(folder / name) as path:
            path.write_bytes(_DIGEST(code).digest() + code)
        _forget_oldest(folder)
    except OSError:  # a RecordingError is one
        return False
    return True


def _is_ours(folder: Path) -> bool:
    """May nobody else put code there? Windows keeps others out of a user's folders."""
    if not hasattr(os, "getuid"):
        return True
    try:
        about = folder.stat()
    except OSError:
        return False
    return about.st_uid == os.getuid() and not about.st_mode & 0o022


def _forget_oldest(folder: Path) -> None:
    files = list(folder.glob("*.o"))
    if len(files) <= MOST_FILES:
        return
    with suppress(OSError):
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[: len(files) - MOST_FILES]:
            path.unlink(missing_ok=True)
