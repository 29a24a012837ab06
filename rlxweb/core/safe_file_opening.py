"""Safe opening of regular files and of files that a header refers to.

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

from rlxweb.core.errors import RlxError, shown

NOT_REGULAR: Final = "not a regular file"
_REFERENCE_RULE: Final = (
    "a referenced file must be in the header's folder or below it, and its name may "
    "have no absolute path, drive, backslash or '..'"
)
_REFERENCE_HINT: Final = (
    "move or link the file into the header's folder, and write only its file name in "
    "the header"
)


class ErrorFactory(Protocol):
    """Constructor of an rlxweb exception: context, problem, rule, hint."""

    def __call__(
        self, doing: str, problem: str, rule: str = "", hint: str = ""
    ) -> RlxError: ...


class NotRegularFile(OSError):
    """A folder, pipe, socket or device where a regular file is required."""


def open_regular_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading without blocking on a pipe.

    Raises
    ------
    NotRegularFile
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


def _check_regular(status: os.stat_result) -> None:
    """Raise NotRegularFile unless the status is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise NotRegularFile(stat.S_IFDIR, "expected a file, got a folder")
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFile(stat.S_IFMT(status.st_mode), NOT_REGULAR)


def referenced_path(
    folder: str, name: str, role: str, context: str, error_class: ErrorFactory
) -> str:
    """Return the path of a file that a header in `folder` refers to.

    Parameters
    ----------
    folder, name
        The header's folder, and the name as the header has it.
    role
        The file's role, as messages say it: "samples", "markers".
    context
        What is being done, as messages say it.
    error_class
        The class of the refusal.

    Returns
    -------
    str
        The joined path; nothing is said about whether the file exists.

    Raises
    ------
    error_class
        For a name that leads out of the folder, and for a pipe or a device.
    """
    if is_outside_folder(name):
        problem = f"the file refers to {shown(name)} for its {role}"
        raise error_class(context, problem, _REFERENCE_RULE, _REFERENCE_HINT)
    path = os.path.join(folder, name)
    check_referenced_file(path, role, context, error_class)
    return path


def check_referenced_file(
    path: str, role: str, context: str, error_class: ErrorFactory
) -> None:
    """Reject a folder, pipe or device that a header refers to; a missing file
    passes.
    """
    try:
        _check_regular(os.stat(path))
    except NotRegularFile as error:
        raise error_class(
            context,
            f"the file refers to {shown(path)} for its {role} ({error.strerror})",
            "only regular files and links to them can be opened",
        ) from None
    except (OSError, ValueError):  # whoever opens it says what is wrong
        pass


def is_outside_folder(name: str) -> bool:
    """Return whether a name in a header may refer to a file outside the header's
    folder.
    """
    if not name.strip() or "\0" in name or "\\" in name:
        return True
    windows = PureWindowsPath(name)
    return bool(
        os.path.isabs(name) or windows.drive or windows.root or ".." in windows.parts
    )
