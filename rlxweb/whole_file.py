"""Files that appear whole or not at all, one or several together.

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

from rlxweb.errors import NotWritten, RecordingError, RlxError, UsageError, shown
from rlxweb.streams import is_stream, send, spool

_unfinished: set[Path] = set()
"""Temporary files of this process that are not yet what they shall become."""
_heirs: list[Callable[[Path], object]] = []
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_LONGEST = 200  # characters of somebody else's message


@contextmanager
def atomic_path(
    path: str | os.PathLike[str], follow_link: bool = True
) -> Iterator[Path]:
    """A temporary path beside `path`; it becomes `path` when the block ends well.

    The temporary file exists and is empty, carries the suffix of `path` and, where
    `path` exists, its permissions and owner; a symbolic link is followed, not replaced,
    unless `follow_link` is False: where others might put one, as in a cache.

    Errors   RecordingError when the folder is missing, nothing may be written there, or
             `path` is no regular file; NotWritten, which is one, when the disk is full.
    """
    with WholeFiles() as files:
        yield files.temporary(path, follow_link)


@contextmanager
def written_to(
    file: str | os.PathLike[str] | IO[bytes], doing: str
) -> Iterator[IO[bytes]]:
    """Where bytes go: into a path that appears when the block ends well, or a file that
    is open already.

    Errors   UsageError for what is neither, or cannot be written into; those of
             `atomic_path`.
    """
    if isinstance(file, str | os.PathLike):
        with WholeFiles() as files:
            yield files.open(file)
        return
    given: object = file
    if isinstance(given, TextIOBase):
        rule, hint = "bytes are written", "open it with mode 'wb'"
        raise UsageError(doing, "the open file takes text", rule, hint)
    if not hasattr(given, "write"):
        wanted = "a path or an open file is wanted"
        raise UsageError(doing, f"{shown(file)} was given", wanted)
    if getattr(file, "closed", False):
        said, rule = "the open file is closed already", "it is written into while open"
        raise UsageError(doing, said, rule, "open it with mode 'wb'")
    is_writable = getattr(file, "writable", None)
    if is_writable is not None and not is_writable():
        said, rule = "the open file can only be read", "bytes are written into it"
        raise UsageError(doing, said, rule, "open it with mode 'wb'")
    yield file


@dataclass(slots=True)
class _Pending:
    """An output on its way: what `file` holds shall become `target`, or go into it.

    temporary  the name of `file`; None for a stream
    old        another name of the file that is there, until nothing can go wrong
    """

    named: str
    target: Path
    file: IO[bytes]
    temporary: Path | None
    old: Path | None = None
    is_placed: bool = False


class WholeFiles:
    """Several files that appear together when the block ends well, or none of them.

    streams  pipes, terminals and devices are written as well; "-" is standard output

    Errors   those of `atomic_path`; UsageError for two files of one name.
    """

    def __init__(self, streams: bool = False) -> None:
        self._streams = streams
        self._pending: list[_Pending] = []

    def open(self, path: str | os.PathLike[str]) -> IO[bytes]:
        """Return an empty file for the bytes of `path`, closed when the block ends.

        Its `name` is `path`.
        """
        return self._begin(os.fspath(path)).file

    def temporary(self, path: str | os.PathLike[str], follow_link: bool = True) -> Path:
        """The name of such a file, for what wants to open it itself."""
        begun = self._begin(os.fspath(path), follow_link).temporary
        assert begun is not None, "a stream has no name beside it"
        return begun

    def _begin(self, named: str, follow_link: bool = True) -> _Pending:
        doing = f"writing {named!r}"
        try:
            if self._streams and is_stream(named):
                one = _Pending(named, Path(named), spool(named), None)
            else:
                target = Path(os.path.realpath(named) if follow_link else named)
                self._refuse_twice(named, target)
                one = _Pending(named, target, *_create(target, doing))
                one.file.raw.name = named  # type: ignore[attr-defined]
        except (RecordingError, UsageError):
            raise
        except (OSError, ValueError) as error:
            raise _refused(doing, error) from error
        self._pending.append(one)
        return one

    def _refuse_twice(self, named: str, target: Path) -> None:
        """Two files under one name would be the second alone."""
        for one in self._pending:
            if one.temporary is not None and one.target == target:
                raise UsageError(
                    f"writing {named!r}",
                    f"{one.named!r} is the same file, and is written too",
                    "every output is a file of its own",
                    "choose another name",
                )

    def __enter__(self) -> WholeFiles:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        try:
            if error is None:
                self._place()
            elif isinstance(error, OSError) and not isinstance(error, RlxError):
                # Whoever is inside the block writes one file after the other.
                raise _unwritten(self._pending[-1:], error) from error
        finally:
            for one in self._pending:
                with suppress(OSError):  # a full disk is told when the file is flushed
                    one.file.close()
                for left in filter(None, (one.temporary, one.old)):
                    _remove(left)

    def _place(self) -> None:
        """Everything to disk, then what goes into streams, then the names."""
        regular = [one for one in self._pending if one.temporary is not None]
        for one in regular:
            with _telling(one):
                one.file.flush()
                os.fsync(one.file.fileno())
                one.file.close()
        for one in self._pending:
            if one.temporary is None:
                with _telling(one):
                    send(one.file, one.named)
        _rename(regular)
        # Without it a power cut may forget the names; not every system has it.
        for folder in {one.target.parent for one in regular}:
            with suppress(OSError):
                _flush_folder(folder)


def abandon() -> None:
    """Remove what is unfinished, for a process that ends without its `finally`s."""
    for path in list(_unfinished):
        _remove(path)


if hasattr(os, "register_at_fork"):  # a forked child must not remove its parent's
    os.register_at_fork(after_in_child=_unfinished.clear)


def leave_to(heir: Callable[[Path], object]) -> None:
    """Tell it of each temporary file before that is made.

    Whoever may end this process at any moment can then remove what it leaves behind.
    """
    _heirs.append(heir)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
    _unfinished.discard(path)


def _rename(pending: list[_Pending]) -> None:
    """Each to its name; where one of several fails, all is as it was."""
    try:
        for one in pending:
            assert one.temporary is not None
            with _telling(one):
                if len(pending) > 1:
                    one.old = _kept(one.target)
                    one.is_placed = True
                one.temporary.replace(one.target)
    except BaseException:
        for one in filter(lambda one: one.is_placed, pending):
            with suppress(OSError):
                if one.old is None:
                    one.target.unlink()
                else:
                    one.old.replace(one.target)
        raise


def _kept(target: Path) -> Path | None:
    """A second name of the file that is there, or a copy where there are no links."""
    if not target.exists():
        return None
    old = _beside(target)
    try:
        os.link(target, old)
    except (OSError, AttributeError):  # a tab's Python has no os.link at all
        shutil.copy2(target, old)
    return old


def _beside(target: Path) -> Path:
    """A short name of its own: the target's may already have the longest length."""
    return target.with_name(f".rlxweb-{os.urandom(6).hex()}{target.suffix}")


def _create(target: Path, doing: str) -> tuple[IO[bytes], Path]:
    there = None
    with suppress(FileNotFoundError):
        there = target.lstat()
        if stat.S_ISLNK(there.st_mode):  # it is to be replaced
            there = None
    if there is not None and not stat.S_ISREG(there.st_mode):
        is_folder = stat.S_ISDIR(there.st_mode)
        what = "it is a folder" if is_folder else "it is not a regular file"
        raise RecordingError(doing, what, hint="name a file")
    if there is not None and not os.access(target, os.W_OK):
        raise RecordingError(
            doing, "the file there is write-protected", hint="choose another name"
        )
    temporary = _beside(target)
    how = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    # A new file gets what the umask allows; one that takes another's place is its
    # owner's alone until it has the permissions of that other.
    _unfinished.add(temporary)
    for heir in _heirs:
        heir(temporary)
    handle = os.open(temporary, how, 0o666 if there is None else 0o600)
    try:
        if there is not None and hasattr(os, "fchown"):
            _make_like(handle, there)
    except BaseException:
        os.close(handle)
        _remove(temporary)
        raise
    return open(handle, "w+b"), temporary


def _make_like(handle: int, there: os.stat_result) -> None:
    """Owner, group and permissions of the file that is there, as far as one may."""
    mode = stat.S_IMODE(there.st_mode)
    for owner, group in ((there.st_uid, -1), (-1, there.st_gid)):
        with suppress(OSError):
            os.fchown(handle, owner, group)
    if os.fstat(handle).st_gid != there.st_gid:
        # What was granted to one group is not granted to another.
        mode &= ~stat.S_IRWXG
    os.fchmod(handle, mode)


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _telling(one: _Pending) -> Iterator[None]:
    """The system's error becomes ours, with the name of the file."""
    try:
        yield
    except OSError as error:
        raise _unwritten([one], error) from error


def _unwritten(pending: list[_Pending], error: OSError) -> NotWritten:
    names = ", ".join(repr(one.named) for one in pending)
    hint = "free some space, or write elsewhere" if error.errno in _NO_SPACE else ""
    return NotWritten(
        f"writing {names}", f"the system refused ({reason(error)})", hint=hint
    )


def _refused(doing: str, error: OSError | ValueError) -> RecordingError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RecordingError(doing, "there is no such folder", hint="create it first")
    if isinstance(error, PermissionError):
        return RecordingError(
            doing, "this user may not write there", hint="choose another folder"
        )
    return RecordingError(doing, f"the system refused ({reason(error)})")


def reason(error: BaseException) -> str:
    """The system's own words for `error`, without its number and path, in one line.

    Libraries quote what they stumbled over, be it a whole file: no more than a line.
    """
    text = error.strerror if isinstance(error, OSError) else None
    first, *_ = (text or str(error) or type(error).__name__).splitlines()
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
