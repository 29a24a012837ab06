"""A folder that appears whole or not at all, and what was written into it.

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

from rlxweb.advice import Advice
from rlxweb.errors import NotWritten, UsageError, shown
from rlxweb.whole_file import reason

FIXED = (
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
"""Files of an export whose names do not depend on what is exported."""
Content = bytes | Callable[[Any], None]
"""A file's bytes, or what writes them."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file of an export; `gzipped` is its size as servers send it."""

    path: str
    nbytes: int
    gzipped: int


def as_folder(folder: object, doing: str) -> Path:
    """A path as it may be given. Errors  UsageError."""
    if not isinstance(folder, str | bytes | os.PathLike):
        raise UsageError(doing, f"the folder is {shown(folder)}", "a path is wanted")
    path = os.fsdecode(folder)
    if not path or "\0" in path:
        raise UsageError(doing, f"the folder is {shown(path)}", "no path is that")
    return Path(path)


def check_target(folder: Path, force: bool) -> None:
    """May an export be written there? Errors  UsageError, NotWritten."""
    doing = f"export to '{folder}'"
    if not os.path.exists(folder):  # as is a name longer than names may be
        if not folder.parent.is_dir():
            raise NotWritten(
                doing, f"there is no folder '{folder.parent}'", hint="create it first"
            )
        return
    if not folder.is_dir():
        raise UsageError(doing, "it is a file", hint="name a folder")
    if not any(folder.iterdir()):
        return
    if not force:
        raise UsageError(
            doing,
            "the folder is not empty",
            hint=Advice("choose another, or replace the export there: {}", force=True),
        )
    foreign = sorted(_foreign(folder))
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            doing,
            f"it holds '{foreign[0]}'{more}, which no export wrote",
            "only an earlier export is replaced",
            "choose another folder, or clear this one",
        )


def _foreign(folder: Path) -> set[str]:
    """What lies there and is of no export."""
    every = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    try:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        name, is_ours = plan["name"], plan["schema"].startswith("rlxweb.web/")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return every
    if not is_ours:
        return every
    own = {*FIXED, f"{name}.js", f"{name}.d.ts"}
    shader = re.compile(r"shaders/[0-9]{2,}-[a-z0-9_]+\.wgsl")
    return {path for path in every - own if not shader.fullmatch(path)}


def write_folder(
    folder: Path, files: Mapping[str, Content], *, force: bool = False
) -> tuple[WrittenFile, ...]:
    """All files by their paths in the folder, or none.

    Errors   UsageError for a folder that may not be replaced; NotWritten.
    """
    folder = Path(os.path.realpath(folder))
    check_target(folder, force)
    aside = folder.with_name(f".rlxweb-{os.urandom(6).hex()}")
    try:
        with _telling(folder):
            aside.mkdir()
            for path, content in files.items():
                _write(aside / path, content)
            written = tuple(_measured(aside, files))
            _placed(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return written


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        file.flush()
        os.fsync(file.fileno())


def _placed(aside: Path, folder: Path) -> None:
    """The new folder at its name; where that fails, the old one is there again."""
    old = aside.with_name(f"{aside.name}-old")
    if folder.exists():
        folder.rename(old)
    try:
        aside.rename(folder)
    except OSError:
        with suppress(OSError):
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _measured(folder: Path, paths: Iterable[str]) -> Iterator[WrittenFile]:
    for path in paths:
        size = (folder / path).stat().st_size
        yield WrittenFile(path, size, _gzipped(folder / path, size))


_WORTH = 4 << 20


def _gzipped(path: Path, size: int) -> int:
    """Larger files are numbers, which servers hardly make smaller."""
    if size > _WORTH:
        return size
    return len(gzip.compress(path.read_bytes(), 6, mtime=0))


@contextmanager
def _telling(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotWritten(
            f"export to '{folder}'",
            f"the system refused ({reason(error)})",
            "an export is written whole or not at all",
            "free some space, or write elsewhere",
        ) from error
