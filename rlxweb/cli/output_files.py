"""Output files: checked before the work begins and written all or none.

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

from rlxweb.cli.termination_signals import process_signals
from rlxweb.core.atomic_file import AtomicFiles, remove_temporary_files
from rlxweb.core.errors import UsageError
from rlxweb.core.output_streams import STDOUT, stream_descriptor
from rlxweb.io.url_parsing_and_redaction import is_url

ResultWriter = Callable[[IO[bytes]], object]
"""Function that writes one result into an open file."""
# Results that are no text, which a terminal would try to obey.
_BINARY_OPTIONS = ("--npz", "--plot")


class _DryRunFinished(Exception):
    """Exception that leaves `WholeFiles` before anything is renamed."""


def check_output_paths(
    inputs: Sequence[str],
    outputs: Iterable[tuple[str, str | None]],
    input_kind: str = "recording",
) -> None:
    """Refuse outputs that cannot be written or that would overwrite an input or another
    output.

    outputs   (option, path), None where not asked for; "-" is standard output
    input_kind  what the inputs are
    Errors    UsageError for two outputs in one file or an output over an input, by
              whatever names; RecordingError where nothing can be written.
    """
    known_files = {
        _file_identity(path): f"the {input_kind} {path!r}"
        for path in inputs
        if not is_url(path)
    }
    requested_outputs = [(option, path) for option, path in outputs if path is not None]
    if not uses_stdout(path for _, path in requested_outputs):
        known_files.setdefault(
            _stdout_identity(), "the file to which standard output is redirected"
        )
    with suppress(_DryRunFinished), AtomicFiles(allow_streams=True) as files:
        for option, path in requested_outputs:
            file_identity = _file_identity(path)
            if file_identity is not None and file_identity in known_files:
                raise UsageError(
                    f"{option} {path!r}",
                    f"the file is also {known_files[file_identity]}",
                    "every output needs a separate file",
                    "choose another name",
                )
            files.open(path)
            _check_binary(option, path)
            if file_identity is not None:
                known_files[file_identity] = f"the output file of {option}"
        raise _DryRunFinished


def write_results(writers: Iterable[tuple[str, ResultWriter]]) -> None:
    """Write every result into its file, with no file visible before all are complete.

    Errors   RecordingError for a file that cannot be written; then none is.
    """
    with open_output_files() as files:
        for path, write_result in writers:
            write_result(files.open(path))


@contextmanager
def open_output_files() -> Iterator[AtomicFiles]:
    """Open files that appear together when the block succeeds, or not at all; streams
    are allowed.
    """
    process_signals.cleanup = remove_temporary_files
    with AtomicFiles(allow_streams=True) as files:
        yield files


def uses_stdout(paths: Iterable[str | None]) -> bool:
    """Return True if one of the outputs is standard output, which then holds nothing
    else.
    """
    return any(path is not None and stream_descriptor(path) == STDOUT for path in paths)


def _check_binary(option: str, path: str) -> None:
    descriptor = stream_descriptor(path)
    if option in _BINARY_OPTIONS and descriptor is not None and os.isatty(descriptor):
        raise UsageError(
            f"{option} {path}",
            "binary data cannot be written to a terminal",
            hint="redirect the output to a file or a pipe",
        )


FileIdentity = tuple[object, ...] | None
"""Key that is equal for two names of one file; None for what can be written twice
(/dev/null).
"""


def _file_identity(path: str) -> FileIdentity:
    descriptor = stream_descriptor(path)
    try:
        status = os.stat(path) if descriptor is None else os.fstat(descriptor)
    except (OSError, ValueError):
        return _new_file_identity(Path(os.path.realpath(path)))
    if descriptor is not None and not stat.S_ISREG(status.st_mode):
        return "descriptor", descriptor
    if stat.S_ISCHR(status.st_mode):
        return None
    return status.st_dev, status.st_ino


def _new_file_identity(path: Path) -> FileIdentity:
    name = path.name
    try:
        status = os.stat(path.parent)
        if _is_case_insensitive(path.parent):
            name = unicodedata.normalize("NFC", name).casefold()
    except OSError:
        return (str(path),)
    return status.st_dev, status.st_ino, name


def _is_case_insensitive(folder: Path) -> bool:
    """Return True if the folder treats `OUT.csv` and `out.csv` as one file."""
    with tempfile.NamedTemporaryFile(prefix=".rlxweb-a", dir=folder) as probe:
        return Path(probe.name).with_name(Path(probe.name).name.upper()).exists()


def _stdout_identity() -> FileIdentity:
    """Return the identity of the file that standard output goes to; None unless it is a
    file.
    """
    with suppress(OSError):
        status = os.fstat(STDOUT)
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
    return None
