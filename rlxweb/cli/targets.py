"""Where results go, looked at before the work begins, and written all or none.

Hours of averaging must not end at a folder that is not there, at two results in one
file, or at a result over the recording it was made of, whatever names they go by.
"""

from __future__ import annotations

import os
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rlxweb.cli.signals import signals
from rlxweb.errors import UsageError
from rlxweb.io.urls import is_url
from rlxweb.streams import STDOUT, descriptor_of
from rlxweb.whole_file import WholeFiles, abandon

Put = Callable[[IO[bytes]], object]
"""Writes one result into an open file."""
# Results that are no text, which a terminal would try to obey.
_BINARY = ("--npz", "--plot")


class _OnlyLooking(Exception):
    """Leaves `WholeFiles` before anything is renamed."""


def check_targets(
    inputs: Sequence[str],
    outputs: Iterable[tuple[str, str | None]],
    kind: str = "recording",
) -> None:
    """Refuse outputs that cannot be written, or that would overwrite something asked.

    outputs   (option, path), None where not asked for; "-" is standard output
    kind      what the inputs are
    Errors    UsageError for two outputs in one file or an output over an input, by
              whatever names; RecordingError where nothing can be written.
    """
    seen = {
        _identity(path): f"the {kind} {path!r}" for path in inputs if not is_url(path)
    }
    asked = [(option, path) for option, path in outputs if path is not None]
    if not goes_to_stdout(path for _, path in asked):
        seen.setdefault(_standard_output(), "where standard output goes")
    with suppress(_OnlyLooking), WholeFiles(streams=True) as files:
        for option, path in asked:
            place = _identity(path)
            if place is not None and place in seen:
                raise UsageError(
                    f"{option} {path!r}",
                    f"it names {seen[place]}",
                    "every output is a file of its own",
                    "choose another name",
                )
            files.open(path)
            _check_binary(option, path)
            if place is not None:
                seen[place] = f"the file of {option}"
        raise _OnlyLooking


def write_all(puts: Iterable[tuple[str, Put]]) -> None:
    """Every result into its file, and no file before all are complete.

    Errors   RecordingError for a file that cannot be written; then none is.
    """
    with whole_files() as files:
        for path, put in puts:
            put(files.open(path))


@contextmanager
def whole_files() -> Iterator[WholeFiles]:
    """Files that appear together when the block ends well, or none; streams too."""
    signals.cleanup = abandon
    with WholeFiles(streams=True) as files:
        yield files


def goes_to_stdout(paths: Iterable[str | None]) -> bool:
    """Is one of the outputs standard output, which then holds nothing else?"""
    return any(path is not None and descriptor_of(path) == STDOUT for path in paths)


def _check_binary(option: str, path: str) -> None:
    handle = descriptor_of(path)
    if option in _BINARY and handle is not None and os.isatty(handle):
        raise UsageError(
            f"{option} {path}",
            "the result is no text, and that is a terminal",
            hint="send it into a file or a pipe",
        )


Identity = tuple[object, ...] | None
"""Equal for two names of one file; None for what can be written twice (/dev/null)."""


def _identity(path: str) -> Identity:
    handle = descriptor_of(path)
    try:
        found = os.stat(path) if handle is None else os.fstat(handle)
    except (OSError, ValueError):
        return _identity_of_new(Path(os.path.realpath(path)))
    if handle is not None and not stat.S_ISREG(found.st_mode):
        return "descriptor", handle
    if stat.S_ISCHR(found.st_mode):
        return None
    return found.st_dev, found.st_ino


def _identity_of_new(path: Path) -> Identity:
    name = path.name
    try:
        found = os.stat(path.parent)
        if _is_case_blind(path.parent):
            name = unicodedata.normalize("NFC", name).casefold()
    except OSError:
        return (str(path),)
    return found.st_dev, found.st_ino, name


def _is_case_blind(folder: Path) -> bool:
    """Does the folder take `OUT.csv` and `out.csv` for one file?"""
    with tempfile.NamedTemporaryFile(prefix=".rlxweb-a", dir=folder) as probe:
        return Path(probe.name).with_name(Path(probe.name).name.upper()).exists()


def _standard_output() -> Identity:
    """Where it was sent to; None unless that is a file."""
    with suppress(OSError):
        found = os.fstat(STDOUT)
        if stat.S_ISREG(found.st_mode):
            return found.st_dev, found.st_ino
    return None
