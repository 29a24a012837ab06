"""Hashes of files, and files that are written only when their hash is right."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from assembly.errors import HashRefused
from rlxweb.io import atomic_path


def sha256(path: Path) -> str:
    """The file's hash in hex, as lock files write it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def demand(path: Path, wanted: str, hint: str) -> None:
    """Refuse the file unless its sha256 is `wanted`."""
    found = sha256(path)
    if found != wanted:
        raise HashRefused(f"checking {path}", found, wanted, hint)


def place(source: Path, target: Path) -> None:
    """Copy; `target` is never there in part, even for a build beside this one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
