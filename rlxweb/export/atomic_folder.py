"""Atomic creation of an export folder, and the list of files written into it.

Everything goes into a folder of another name beside the wanted one, which gets its name
at the end. An earlier export may be replaced; a folder with anything else in it never.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import NotWritten, UsageError, shown
from rlxweb.core.message_text import Advice

FIXED_FILE_NAMES = (
    "plan.json",
    "software.json",
    "weights.bin",
    "vectors.bin",
    "index.html",
    "early.js",
    "page.js",
    "page.css",
    "package.json",
    "README.md",
    "LICENSE",
)
"""Files of an export whose names do not depend on the exported plan."""
FileContent = bytes | Callable[[Any], None]
"""Bytes of a file, or a function that writes them."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """File of an export; `gzipped` is its size as servers send it."""

    path: str
    nbytes: int
    gzipped: int


def coerce_folder(folder: object, context: str) -> Path:
    """Return the folder as a Path; raise UsageError if it is not a path."""
    if not isinstance(folder, str | bytes | os.PathLike):
        raise UsageError(context, f"the folder is {shown(folder)}", "expected a path")
    path = os.fsdecode(folder)
    if not path or "\0" in path:
        problem = f"the folder is {shown(path)}"
        raise UsageError(
            context, problem, "expected a non-empty path without NUL characters"
        )
    return Path(path)


def check_export_folder(folder: Path, force: bool) -> None:
    """Raise UsageError or NotWritten if no export may be written to the folder."""
    context = f"export to '{folder}'"
    if not os.path.exists(folder):  # as is a name longer than names may be
        if not folder.parent.is_dir():
            raise NotWritten(
                context,
                f"the folder '{folder.parent}' does not exist",
                hint="create it first",
            )
        return
    if not folder.is_dir():
        raise UsageError(context, "the path is a file", hint="pass a folder")
    if not any(folder.iterdir()):
        return
    if not force:
        raise UsageError(
            context,
            "the folder is not empty",
            hint=Advice(
                "choose another folder, or replace the existing export: {}", force=True
            ),
        )
    unknown = sorted(_unknown_files(folder))
    if unknown:
        others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UsageError(
            context,
            f"the folder has files that no export wrote: '{unknown[0]}'{others}",
            "only an earlier export can be replaced",
            "choose another folder, or empty this one",
        )


def _unknown_files(folder: Path) -> set[str]:
    """Return the paths in the folder that no export wrote."""
    present = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    try:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        name, is_ours = plan["name"], plan["schema"].startswith("rlxweb.web/")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return present
    if not is_ours:
        return present
    exported = {*FIXED_FILE_NAMES, f"{name}.js", f"{name}.d.ts"}
    shader = re.compile(r"shaders/[0-9]{2,}-[a-z0-9_]+\.wgsl")
    return {path for path in present - exported if not shader.fullmatch(path)}


def write_folder(
    folder: Path, files: Mapping[str, FileContent], *, force: bool = False
) -> tuple[ExportedFile, ...]:
    """Write all files under their paths in the folder, atomically.

    Errors   UsageError for a folder that may not be replaced; NotWritten.
    """
    folder = Path(os.path.realpath(folder))
    check_export_folder(folder, force)
    temporary = folder.with_name(f".rlxweb-{os.urandom(6).hex()}")
    try:
        with _report_write_errors(folder):
            temporary.mkdir()
            for path, content in files.items():
                _write_file(temporary / path, content)
            written = tuple(_list_written_files(temporary, files))
            _move_into_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return written


def _write_file(path: Path, content: FileContent) -> None:
    """Write a file and flush it to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(temporary: Path, folder: Path) -> None:
    """Rename the new folder to its final name; restore the old one if that fails."""
    old = temporary.with_name(f"{temporary.name}-old")
    if folder.exists():
        folder.rename(old)
    try:
        temporary.rename(folder)
    except OSError:
        with suppress(OSError):
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _list_written_files(folder: Path, paths: Iterable[str]) -> Iterator[ExportedFile]:
    """Yield the written files with their sizes."""
    for path in paths:
        size = (folder / path).stat().st_size
        yield ExportedFile(path, size, _gzipped_size(folder / path, size))


_MAX_GZIP_NBYTES = 4 << 20


def _gzipped_size(path: Path, size: int) -> int:
    """Return the gzipped size of a file; large files hold numbers, which hardly
    compress.
    """
    if size > _MAX_GZIP_NBYTES:
        return size
    return len(gzip.compress(path.read_bytes(), 6, mtime=0))


@contextmanager
def _report_write_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError inside the block into NotWritten."""
    try:
        yield
    except OSError as error:
        raise NotWritten(
            f"export to '{folder}'",
            f"the files cannot be written ({error_reason(error)})",
            "an export is written completely or not at all",
            "free disk space, or choose another folder",
        ) from error
