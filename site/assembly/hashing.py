"""SHA-256 hashes of files, and atomic copies of files."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from assembly.errors import HashMismatch
from rlxweb.io import atomic_path


def sha256(path: Path) -> str:
    """Return the file's sha256 in hex, as lock files write it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_sha256(path: Path, expected: str, hint: str) -> None:
    """Refuse the file unless it has the expected sha256."""
    actual = sha256(path)
    if actual != expected:
        raise HashMismatch(f"checking {path}", actual, expected, hint)


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that `target` is never incomplete, even for a build that runs in
    parallel.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
