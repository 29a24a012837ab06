"""Resolve names to recordings: files, folders, URLs, and patterns that the shell did
not expand.

A folder stands for the recordings that lie in it, not for those in folders below; a
pattern with `**` reaches down. What stands for several files is taken in the order of
their names, and every file once. All of it holds for URLs too, where a server lists.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rlxweb.cli.console import format_count
from rlxweb.core.errors import RecordingError, RlxError, UsageError
from rlxweb.io import SUFFIXES
from rlxweb.io.companion_files import is_companion
from rlxweb.io.formats import has_recording_suffix
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_listing import (
    has_glob_pattern,
    is_remote_folder,
    remote_entries,
    remote_matches,
)
from rlxweb.io.url_parsing_and_redaction import is_url, local_path, redact_url
from rlxweb.io.zarr_detection import is_zarr

Notify = Callable[[str], object]
"""Function that receives a message about skipped files."""
HandleFailure = Callable[[str, RlxError], object]
"""Function that receives a name that stands for no recording, and the error."""
FolderEntry = tuple[str, str, bool]
"""Item of a folder: its path or URL, its name, and whether it is a folder."""


def resolve_recordings(
    names: Iterable[str],
    outputs: Sequence[str],
    notify: Notify,
    handle_failure: HandleFailure,
    access: StorageAccess,
) -> list[str]:
    """Return the files that the names stand for, each once and in order; URLs in the
    form they are shown.

    outputs  paths of results: in a folder, those of the last run are no recordings
    handle_failure  handed a RecordingError for a folder without recordings, a
                    UsageError for a
             pattern that no file matches
    access   how URLs are reached; keeps what of them is not shown
    """
    results = {os.path.realpath(path) for path in outputs}
    recordings: dict[str, str] = {}
    for name in names:
        try:
            for path in _resolve_name(name, results, notify, access):
                if is_url(path):
                    admitted_url = access.register_url(path)
                    recordings.setdefault(admitted_url, admitted_url)
                else:
                    recordings.setdefault(os.path.realpath(path), path)
        except (RecordingError, UsageError) as error:
            handle_failure(redact_url(name) if is_url(name) else name, error)
    return list(recordings.values())


def _resolve_name(
    name: str, results: set[str], notify: Notify, access: StorageAccess
) -> Iterator[str]:
    """Yield the files that a name stands for."""
    if is_url(name):
        local = local_path(name)
        if local is None:
            yield from _resolve_url(name, notify, access)
            return
        name = local
    if os.path.isdir(name) and not is_zarr(name):
        yield from _recordings_in_folder(
            name, _list_local_folder(name, results), notify
        )
    elif os.path.lexists(name) or not glob.has_magic(name):
        yield name
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise _no_match_error(name)
        for path in matches:
            if not os.path.isdir(path) or is_zarr(path):
                yield path


def _resolve_url(url: str, notify: Notify, access: StorageAccess) -> Iterator[str]:
    """Yield the files that a URL stands for."""
    if has_glob_pattern(url):
        matches = remote_matches(url, access)
        if not matches:
            raise _no_match_error(redact_url(url))
        yield from matches
    elif is_remote_folder(url, access):
        yield from _recordings_in_folder(url, remote_entries(url, access), notify)
    else:
        yield url


def _no_match_error(pattern: str) -> UsageError:
    """Return the error for a pattern that no file matches."""
    return UsageError(
        f"reading {pattern!r}",
        "no file matches the pattern",
        hint="check the pattern and the current folder"
        if not is_url(pattern)
        else "check the pattern",
    )


def _list_local_folder(folder: str, results: set[str]) -> list[FolderEntry]:
    """Return the items of a local folder, without results of this run."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise RecordingError(
            f"reading the folder {folder!r}",
            f"the folder cannot be read ({error.strerror})",
        ) from error
    paths = ((os.path.join(folder, name), name) for name in names)
    return [
        (path, name, os.path.isdir(path) and not is_zarr(path))
        for path, name in paths
        if os.path.realpath(path) not in results
    ]


def _recordings_in_folder(
    folder: str, entries: Iterable[FolderEntry], notify: Notify
) -> list[str]:
    """Return a folder's recordings, recognised by suffix, and report how many other
    items it has.
    """
    recordings, other_names, n_folders = [], [], 0
    entries = [entry for entry in entries if not entry[1].startswith(".")]
    names = {name for _, name, _ in entries}
    for path, name, is_folder in entries:
        if is_folder:
            n_folders += 1
        elif is_companion(name, names):
            continue  # it comes with the file that leads to it
        elif has_recording_suffix(name) or is_zarr(path):
            recordings.append(path)
        else:
            other_names.append(name)
    shown_folder = redact_url(folder) if is_url(folder) else folder
    if not recordings:
        raise RecordingError(
            f"reading the folder {shown_folder!r}",
            "it contains no recordings",
            f"found {format_count(len(other_names), 'file')} of other kinds and "
            f"{format_count(n_folders, 'folder')}; "
            f"names of recordings end in {', '.join(sorted(SUFFIXES))}",
            _recursive_hint(shown_folder)
            if n_folders
            else "pass the names of the files",
        )
    _report_skipped(shown_folder, other_names, n_folders, notify)
    return recordings


def _report_skipped(
    folder: str, other_names: Sequence[str], n_folders: int, notify: Notify
) -> None:
    """Report the files and folders that are skipped in a folder."""
    parts = []
    if other_names:
        suffixes = sorted({Path(name).suffix or "no suffix" for name in other_names})
        ellipsis = ", …" if len(suffixes) > 6 else ""
        suffixes_text = ", ".join(suffixes[:6]) + ellipsis
        parts.append(
            f"{format_count(len(other_names), 'file')} of other kinds ({suffixes_text})"
        )
    if n_folders:
        parts.append(f"{format_count(n_folders, 'folder')} ({_recursive_hint(folder)})")
    if parts:
        notify(f"{folder}: skipped {' and '.join(parts)}")


def _recursive_hint(folder: str) -> str:
    """Return the hint that names a pattern which searches subfolders."""
    if is_url(folder):
        return f"use {folder.rstrip('/') + '/**/*.edf'!r} to include subfolders"
    return f"use {os.path.join(folder, '**', '*.edf')!r} to include subfolders"
