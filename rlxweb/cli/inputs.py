"""Which recordings are meant: files, folders, and patterns the shell left as they were.

A folder stands for the recordings that lie in it, not for those in folders below; a
pattern with `**` reaches down. What stands for several files is taken in the order of
their names, and every file once. All of it holds for URLs too, where a server lists.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rlxweb.cli.screen import counted
from rlxweb.errors import RecordingError, RlxError, UsageError
from rlxweb.io import SUFFIXES
from rlxweb.io.access import Access
from rlxweb.io.companions import is_part
from rlxweb.io.formats import is_named_so
from rlxweb.io.listing import (
    has_magic,
    is_remote_folder,
    remote_entries,
    remote_matches,
)
from rlxweb.io.urls import is_url, local_path, shown_url
from rlxweb.io.zarr_name import is_zarr

Tell = Callable[[str], object]
"""Is told what was passed over."""
Refuse = Callable[[str, RlxError], object]
"""Is handed a name that stands for nothing, and why."""
Entry = tuple[str, str, bool]
"""What lies in a folder: its path or URL, its name, and whether it is a folder."""


def recordings_of(
    named: Iterable[str],
    outputs: Sequence[str],
    tell: Tell,
    refuse: Refuse,
    access: Access,
) -> list[str]:
    """The files that are meant, each once, as they were named; URLs as they are shown.

    outputs  paths of results: in a folder, those of the last run are no recordings
    refuse   handed a RecordingError for a folder without recordings, a UsageError for a
             pattern that no file matches
    access   how URLs are reached; keeps what of them is not shown
    """
    results = {os.path.realpath(path) for path in outputs}
    found: dict[str, str] = {}
    for name in named:
        try:
            for path in _meant_by(name, results, tell, access):
                if is_url(path):
                    known = access.admit(path)
                    found.setdefault(known, known)
                else:
                    found.setdefault(os.path.realpath(path), path)
        except (RecordingError, UsageError) as error:
            refuse(shown_url(name) if is_url(name) else name, error)
    return list(found.values())


def _meant_by(
    name: str, results: set[str], tell: Tell, access: Access
) -> Iterator[str]:
    if is_url(name):
        local = local_path(name)
        if local is None:
            yield from _meant_by_url(name, tell, access)
            return
        name = local
    if os.path.isdir(name) and not is_zarr(name):
        yield from _in_folder(name, _local_entries(name, results), tell)
    elif os.path.lexists(name) or not glob.has_magic(name):
        yield name
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise _no_match(name)
        for path in matches:
            if not os.path.isdir(path) or is_zarr(path):
                yield path


def _meant_by_url(url: str, tell: Tell, access: Access) -> Iterator[str]:
    if has_magic(url):
        matches = remote_matches(url, access)
        if not matches:
            raise _no_match(shown_url(url))
        yield from matches
    elif is_remote_folder(url, access):
        yield from _in_folder(url, remote_entries(url, access), tell)
    else:
        yield url


def _no_match(pattern: str) -> UsageError:
    return UsageError(
        f"reading {pattern!r}",
        "no file matches the pattern",
        hint="check the name and the folder you are in"
        if not is_url(pattern)
        else "check the name",
    )


def _local_entries(folder: str, results: set[str]) -> list[Entry]:
    """What lies in a folder of this machine, but for results of ours."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise RecordingError(
            f"reading the folder {folder!r}", f"the system refused ({error.strerror})"
        ) from error
    paths = ((os.path.join(folder, name), name) for name in names)
    return [
        (path, name, os.path.isdir(path) and not is_zarr(path))
        for path, name in paths
        if os.path.realpath(path) not in results
    ]


def _in_folder(folder: str, entries: Iterable[Entry], tell: Tell) -> list[str]:
    """Recordings by their suffix; how many other files there are is told."""
    taken, other, folders = [], [], 0
    entries = [entry for entry in entries if not entry[1].startswith(".")]
    names = {name for _, name, _ in entries}
    for path, name, is_folder in entries:
        if is_folder:
            folders += 1
        elif is_part(name, names):
            continue  # it comes with the file that leads to it
        elif is_named_so(name) or is_zarr(path):
            taken.append(path)
        else:
            other.append(name)
    said = shown_url(folder) if is_url(folder) else folder
    if not taken:
        raise RecordingError(
            f"reading the folder {said!r}",
            "there is no recording in it",
            f"{counted(len(other), 'other file')}, {counted(folders, 'folder')}; "
            f"recordings end in {', '.join(sorted(SUFFIXES))}",
            _reaching_down(said) if folders else "name the files",
        )
    _tell_passed_over(said, other, folders, tell)
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
    if is_url(folder):
        return f"{folder.rstrip('/') + '/**/*.edf'!r} reaches down"
    return f"{os.path.join(folder, '**', '*.edf')!r} reaches down"
