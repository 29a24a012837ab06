"""Regular files, and files that a header names: which may be opened, by which names.

A header is data from somebody else. A name in it must not reach a file that its author
could not read but the user can, and must never lead to a pipe or a device, which would
block or give bytes without end. Symbolic links are followed: data sets of DataLad and
git-annex, and caches of models, consist of them, and a header cannot create one.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import PureWindowsPath
from typing import BinaryIO, Final, Protocol

from rlxweb.errors import RlxError, shown

NOT_REGULAR: Final = "it is not a regular file"
_RULE: Final = (
    "a file that a header names lies in the header's own folder or below it: no "
    "absolute name, drive, backslash or '..'"
)
_HINT: Final = (
    "move it (or link to it) beside the header, and write its bare name there"
)


class Refusal(Protocol):
    """An exception of rlxweb: what was being done, the problem, the rule, a hint."""

    def __call__(
        self, doing: str, problem: str, rule: str = "", hint: str = ""
    ) -> RlxError: ...


class NotRegular(OSError):
    """A folder, pipe, socket or device where a regular file is wanted."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading, without waiting for the writer of a pipe.

    Raises
    ------
    NotRegular
        For anything else.
    OSError, ValueError
        As `open`.
    """
    # A device may act on being opened, so the kind is asked first; what takes the
    # file's place before it is opened is recognised by fstat.
    _check_regular(os.stat(path))
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    if sys.platform != "emscripten":  # a tab has no pipes
        flags |= getattr(os, "O_NONBLOCK", 0)  # which means nothing for regular files
    handle = os.open(path, flags)
    try:
        _check_regular(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return open(path, "rb", opener=lambda *_: handle)


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise NotRegular(stat.S_IFDIR, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(stat.S_IFMT(found.st_mode), NOT_REGULAR)


def file_beside(folder: str, name: str, what: str, doing: str, error: Refusal) -> str:
    """Return the path of a file that a header in `folder` names.

    Parameters
    ----------
    folder, name
        The header's folder, and the name as the header has it.
    what
        The file's role, as messages say it: "samples", "markers".
    doing
        What is being done, as messages say it.
    error
        The class of the refusal.

    Returns
    -------
    str
        The joined path; nothing is said about whether the file exists.

    Raises
    ------
    error
        For a name that leads out of the folder, and for a pipe or a device.
    """
    if leads_out(name):
        problem = f"its {what} are said to lie in {shown(name)}"
        raise error(doing, problem, _RULE, _HINT)
    path = os.path.join(folder, name)
    check_named(path, what, doing, error)
    return path


def check_named(path: str, what: str, doing: str, error: Refusal) -> None:
    """Refuse a folder, pipe or device that a header leads to; a missing file passes."""
    try:
        _check_regular(os.stat(path))
    except NotRegular as wrong:
        raise error(
            doing,
            f"its {what} are said to lie in {shown(path)}: {wrong.strerror}",
            "only regular files, and links to them, are opened",
        ) from None
    except (OSError, ValueError):  # whoever opens it says what is wrong
        pass


def leads_out(name: str) -> bool:
    """Return whether a name in a header may lead out of the header's folder."""
    if not name.strip() or "\0" in name or "\\" in name:
        return True
    windows = PureWindowsPath(name)
    return bool(
        os.path.isabs(name) or windows.drive or windows.root or ".." in windows.parts
    )
