"""Atomic file writes: files that appear complete or not at all, one or several
together.

Owns the temporary names, the flush to disk and the renames. Whatever goes wrong while
files are written, the old ones stay as they were and nothing half-written is left
behind. What is no regular file (a pipe, a terminal, /dev/null) cannot be replaced;
where that is allowed it is handed its bytes once everything has been written.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOBase
from pathlib import Path
from typing import IO

from rlxweb.core.errors import NotWritten, RecordingError, RlxError, UsageError, shown
from rlxweb.core.output_streams import copy_spool_to_stream, is_stream, open_spool

_temporary_paths: set[Path] = set()
"""Temporary files of this process that are not yet renamed to their targets."""
_temporary_file_listeners: list[Callable[[Path], object]] = []
_NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_MAX_REASON_LENGTH = 200  # characters of somebody else's message


@contextmanager
def atomic_path(
    path: str | os.PathLike[str], follow_link: bool = True
) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` if the block succeeds.

    The temporary file exists and is empty, carries the suffix of `path` and, where
    `path` exists, its permissions and owner; a symbolic link is followed, not replaced,
    unless `follow_link` is False: where others might put one, as in a cache.

    Errors   RecordingError when the folder is missing, nothing may be written there, or
             `path` is no regular file; NotWritten, which is one, when the disk is full.
    """
    with AtomicFiles() as files:
        yield files.temporary_path(path, follow_link)


@contextmanager
def open_output(
    file: str | os.PathLike[str] | IO[bytes], context: str
) -> Iterator[IO[bytes]]:
    """Yield a binary file to write into: an atomic file for a path, or an open file as
    it is.

    Errors   UsageError for what is neither, or cannot be written into; those of
             `atomic_path`.
    """
    if isinstance(file, str | os.PathLike):
        with AtomicFiles() as files:
            yield files.open(file)
        return
    stream: object = file
    if isinstance(stream, TextIOBase):
        rule, hint = "the output is binary", "open it with mode 'wb'"
        raise UsageError(context, "the open file is in text mode", rule, hint)
    if not hasattr(stream, "write"):
        path_rule = "expected a path or an open file"
        raise UsageError(context, f"got {shown(file)}", path_rule)
    if getattr(file, "closed", False):
        problem = "the file is already closed"
        rule = "the file must be open for writing"
        raise UsageError(context, problem, rule, "open it with mode 'wb'")
    is_writable = getattr(file, "writable", None)
    if is_writable is not None and not is_writable():
        problem = "the file is open for reading only"
        rule = "the file must be open for writing"
        raise UsageError(context, problem, rule, "open it with mode 'wb'")
    yield file


@dataclass(slots=True)
class _PendingOutput:
    """Output that is not complete: `file` becomes `target`, or is copied into that
    stream.

    temporary  the name of `file`; None for a stream
    backup     another name of the file that is there, until nothing can go wrong
    """

    name: str
    target: Path
    file: IO[bytes]
    temporary: Path | None
    backup: Path | None = None
    is_renamed: bool = False


class AtomicFiles:
    """Context manager for several files that appear together if the block succeeds, or
    not at all.

    allow_streams  pipes, terminals and devices are written as well; "-" is standard
                   output

    Errors   those of `atomic_path`; UsageError for two files of one name.
    """

    def __init__(self, allow_streams: bool = False) -> None:
        self._allow_streams = allow_streams
        self._pending: list[_PendingOutput] = []

    def open(self, path: str | os.PathLike[str]) -> IO[bytes]:
        """Return an empty file for the bytes of `path`, closed when the block ends.

        Its `name` is `path`.
        """
        return self._add_output(os.fspath(path)).file

    def temporary_path(
        self, path: str | os.PathLike[str], follow_link: bool = True
    ) -> Path:
        """Return the path of a new temporary file, for code that opens it itself."""
        temporary = self._add_output(os.fspath(path), follow_link).temporary
        assert temporary is not None, "a stream has no temporary file"
        return temporary

    def _add_output(self, name: str, follow_link: bool = True) -> _PendingOutput:
        """Create the temporary file or spool of an output."""
        context = f"writing {name!r}"
        try:
            if self._allow_streams and is_stream(name):
                output = _PendingOutput(name, Path(name), open_spool(name), None)
            else:
                target = Path(os.path.realpath(name) if follow_link else name)
                self._check_not_duplicate(name, target)
                output = _PendingOutput(
                    name, target, *_create_temporary(target, context)
                )
                output.file.raw.name = name  # type: ignore[attr-defined]
        except (RecordingError, UsageError):
            raise
        except (OSError, ValueError) as error:
            raise _recording_error(context, error) from error
        self._pending.append(output)
        return output

    def _check_not_duplicate(self, name: str, target: Path) -> None:
        """Raise UsageError if another output has the same target."""
        for output in self._pending:
            if output.temporary is not None and output.target == target:
                raise UsageError(
                    f"writing {name!r}",
                    f"{output.name!r}, another output, refers to the same file",
                    "every output must be a separate file",
                    "choose another name",
                )

    def __enter__(self) -> AtomicFiles:
        return self

    def __exit__(
        self, error_type: object, error: BaseException | None, traceback: object
    ) -> None:
        try:
            if error is None:
                self._commit()
            elif isinstance(error, OSError) and not isinstance(error, RlxError):
                # Whoever is inside the block writes one file after the other.
                raise _not_written_error(self._pending[-1:], error) from error
        finally:
            for output in self._pending:
                with suppress(OSError):  # a full disk is told when the file is flushed
                    output.file.close()
                for leftover in filter(None, (output.temporary, output.backup)):
                    _remove_temporary(leftover)

    def _commit(self) -> None:
        """Flush all files to disk, copy spools into their streams, then rename the
        files.
        """
        regular = [output for output in self._pending if output.temporary is not None]
        for output in regular:
            with _convert_os_errors(output):
                output.file.flush()
                os.fsync(output.file.fileno())
                output.file.close()
        for output in self._pending:
            if output.temporary is None:
                with _convert_os_errors(output):
                    copy_spool_to_stream(output.file, output.name)
        _rename_all(regular)
        # Without it a power cut may forget the names; not every system has it.
        for folder in {output.target.parent for output in regular}:
            with suppress(OSError):
                _sync_folder(folder)


def remove_temporary_files() -> None:
    """Remove temporary files in a process that ends without running its `finally`
    blocks.
    """
    for path in list(_temporary_paths):
        _remove_temporary(path)


if hasattr(os, "register_at_fork"):  # a forked child must not remove its parent's
    os.register_at_fork(after_in_child=_temporary_paths.clear)


def add_temporary_file_listener(listener: Callable[[Path], object]) -> None:
    """Call `listener` with the path of each temporary file before it is created.

    Whoever may end this process at any moment can then remove what it leaves behind.
    """
    _temporary_file_listeners.append(listener)


def _remove_temporary(path: Path) -> None:
    """Delete a temporary file if it exists."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    _temporary_paths.discard(path)


def _rename_all(outputs: list[_PendingOutput]) -> None:
    """Rename every file to its target; if one fails, restore the previous state."""
    try:
        for output in outputs:
            assert output.temporary is not None
            with _convert_os_errors(output):
                if len(outputs) > 1:
                    output.backup = _back_up(output.target)
                    output.is_renamed = True
                output.temporary.replace(output.target)
    except BaseException:
        for output in filter(lambda output: output.is_renamed, outputs):
            with suppress(OSError):
                if output.backup is None:
                    output.target.unlink()
                else:
                    output.backup.replace(output.target)
        raise


def _back_up(target: Path) -> Path | None:
    """Return a second link to, or a copy of, an existing target; None if there is no
    target.
    """
    if not target.exists():
        return None
    backup = _temporary_name(target)
    try:
        os.link(target, backup)
    except (OSError, AttributeError):  # a tab's Python has no os.link at all
        shutil.copy2(target, backup)
    return backup


def _temporary_name(target: Path) -> Path:
    """Return a short random name in the target's folder."""
    return target.with_name(f".rlxweb-{os.urandom(6).hex()}{target.suffix}")


def _create_temporary(target: Path, context: str) -> tuple[IO[bytes], Path]:
    """Create and open a temporary file for a target; return the file and its path."""
    existing = None
    with suppress(FileNotFoundError):
        existing = target.lstat()
        if stat.S_ISLNK(existing.st_mode):  # it is to be replaced
            existing = None
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        is_folder = stat.S_ISDIR(existing.st_mode)
        problem = "expected a file, got a folder" if is_folder else "not a regular file"
        raise RecordingError(context, problem, hint="pass the name of a file")
    if existing is not None and not os.access(target, os.W_OK):
        raise RecordingError(
            context, "the existing file is write-protected", hint="choose another name"
        )
    temporary = _temporary_name(target)
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    # A new file gets what the umask allows; one that takes another's place is its
    # owner's alone until it has the permissions of that other.
    _temporary_paths.add(temporary)
    for listener in _temporary_file_listeners:
        listener(temporary)
    handle = os.open(temporary, flags, 0o666 if existing is None else 0o600)
    try:
        if existing is not None and hasattr(os, "fchown"):
            _copy_ownership(handle, existing)
    except BaseException:
        os.close(handle)
        _remove_temporary(temporary)
        raise
    return open(handle, "w+b"), temporary


def _copy_ownership(handle: int, existing: os.stat_result) -> None:
    """Copy owner, group and permissions of the existing file, as far as permitted."""
    mode = stat.S_IMODE(existing.st_mode)
    for owner, group in ((existing.st_uid, -1), (-1, existing.st_gid)):
        with suppress(OSError):
            os.fchown(handle, owner, group)
    if os.fstat(handle).st_gid != existing.st_gid:
        # What was granted to one group is not granted to another.
        mode &= ~stat.S_IRWXG
    os.fchmod(handle, mode)


def _sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _convert_os_errors(output: _PendingOutput) -> Iterator[None]:
    """Convert an OSError to NotWritten, with the name of the file."""
    try:
        yield
    except OSError as error:
        raise _not_written_error([output], error) from error


def _not_written_error(outputs: list[_PendingOutput], error: OSError) -> NotWritten:
    """Return the NotWritten error of some outputs."""
    names = ", ".join(repr(output.name) for output in outputs)
    hint = (
        "free some space, or write to another disk"
        if error.errno in _NO_SPACE_ERRORS
        else ""
    )
    return NotWritten(
        f"writing {names}",
        f"the operating system reports an error ({error_reason(error)})",
        hint=hint,
    )


def _recording_error(context: str, error: OSError | ValueError) -> RecordingError:
    """Return the RecordingError for a target that cannot be created."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RecordingError(
            context, "the folder does not exist", hint="create the folder first"
        )
    if isinstance(error, PermissionError):
        return RecordingError(
            context,
            "you do not have permission to write to this folder",
            hint="choose another folder",
        )
    return RecordingError(
        context, f"the operating system reports an error ({error_reason(error)})"
    )


def error_reason(error: BaseException) -> str:
    """Return the operating system's reason for `error` in one line, without number and
    path.

    Libraries quote what they stumbled over, be it a whole file: no more than a line.
    """
    text = error.strerror if isinstance(error, OSError) else None
    first, *_ = (text or str(error) or type(error).__name__).splitlines()
    return (
        first if len(first) <= _MAX_REASON_LENGTH else f"{first[:_MAX_REASON_LENGTH]}…"
    )
