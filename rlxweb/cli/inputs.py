"""Which recordings are meant: files, folders, and patterns the shell left as they were.

A folder stands for the recordings that lie in it, not for those in folders below; a
pattern with `**` reaches down. What stands for several files is taken in the order of
their names, and every file once.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rlxweb.cli.screen import counted
from rlxweb.errors import RecordingError, RlxError, UsageError
from rlxweb.io import SUFFIXES

Tell = Callable[[str], object]
"""Is told what was passed over."""
Refuse = Callable[[str, RlxError], object]
"""Is handed a name that stands for nothing, and why."""


def recordings_of(
    named: Iterable[str], outputs: Sequence[str], tell: Tell, refuse: Refuse
) -> list[str]:
    """The files that are meant, each once, as they were named.

    outputs  paths of results: in a folder, those of the last run are no recordings
    refuse   handed a RecordingError for a folder without recordings, a UsageError for a
             pattern that no file matches
    """
    results = {os.path.realpath(path) for path in outputs}
    found: dict[str, str] = {}
    for name in named:
        try:
            for path in _meant_by(name, results, tell):
                found.setdefault(os.path.realpath(path), path)
        except (RecordingError, UsageError) as error:
            refuse(name, error)
    return list(found.values())


def _meant_by(name: str, results: set[str], tell: Tell) -> Iterator[str]:
    if os.path.isdir(name):
        yield from _in_folder(name, results, tell)
    elif os.path.lexists(name) or not glob.has_magic(name):
        yield name
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise UsageError(
                f"reading {name!r}",
                "no file matches the pattern",
                hint="check the name and the folder you are in",
            )
        for path in matches:
            if not os.path.isdir(path):
                yield path


def _in_folder(folder: str, results: set[str], tell: Tell) -> list[str]:
    """Recordings by their suffix; how many other files there are is told."""
    taken, other, folders = [], [], 0
    try:
        entries = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise RecordingError(
            f"reading the folder {folder!r}", f"the system refused ({error.strerror})"
        ) from error
    for name in entries:
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        if os.path.isdir(path):
            folders += 1
        elif Path(name).suffix.lower() not in SUFFIXES:
            other.append(name)
        elif os.path.realpath(path) not in results:
            taken.append(path)
    if not taken:
        raise RecordingError(
            f"reading the folder {folder!r}",
            "there is no recording in it",
            f"{counted(len(other), 'other file')}, {counted(folders, 'folder')}; "
            f"recordings end in {', '.join(sorted(SUFFIXES))}",
            _reaching_down(folder) if folders else "name the files",
        )
    _tell_passed_over(folder, other, folders, tell)
    return taken


def _tell_passed_over(
    folder: str, other: Sequence[str], folders: int, tell: Tell
) -> None:
    said = []
    if other:
        kinds = sorted({Path(name).suffix or "no suffix" for name in other})
        more = ", …" if len(kinds) > 6 else ""
        listed = ", ".join(kinds[:6]) + more
        said.append(f"{counted(len(other), 'file')} of other kinds ({listed})")
    if folders:
        said.append(f"{counted(folders, 'folder')} ({_reaching_down(folder)})")
    if said:
        tell(f"{folder}: passed over {' and '.join(said)}")


def _reaching_down(folder: str) -> str:
    return f"{os.path.join(folder, '**', '*.edf')!r} reaches down"
