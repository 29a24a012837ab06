"""Random access to the bytes of one open file, with checks and errors about it.

Owns opening, sizes and short reads; the formats above it only say which bytes they
want. Samples are read with seek and read, never through a memory map: a file that is
cut while it is mapped kills the process, a short read is an error with a reason.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import BinaryIO

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.safe_file_opening import NotRegularFile, open_regular_file
from rlxweb.io import file_limits
from rlxweb.io.read_ahead import ReadAheadFile

_HAS_PREAD = hasattr(os, "pread") and sys.platform != "emscripten"


class RecordingSource:
    """Named source of a recording that collects its warnings and builds its errors.

    warnings  what does not keep it from being read, each a sentence; readers add to it
              while they open it, and where a part shows only when it is read
    """

    __slots__ = ("__weakref__", "context", "name", "warnings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = f"reading {name!r}"
        self.warnings: list[str] = []

    def error(self, problem: str, rule: str = "", hint: str = "") -> RecordingError:
        """Return the error for a problem with this file."""
        return RecordingError(self.context, problem, rule, hint)

    def warn(self, text: str) -> None:
        """Record a problem that does not prevent reading; the user is warned once the
        file is open.
        """
        self.warnings.append(text)

    def warn_once(self, text: str) -> None:
        """Record a problem unless it has been recorded before."""
        if text not in self.warnings:
            self.warn(text)

    def check_limit(
        self, quantity: str, count: int, limit: int, hint: str = ""
    ) -> None:
        """Raise RecordingError for a file that claims more of something than a limit of
        `file_limits` allows.
        """
        if count > limit:
            raise self.error(
                f"got {count} {quantity}", f"expected at most {limit}", hint
            )

    @property
    def state(self) -> str:
        """Version of a remote file in words; "" for other sources."""
        return ""

    def close(self) -> None:
        """Close the source; nothing can be read afterwards."""


class ByteSource(RecordingSource):
    """Open file; `read` returns exactly the requested bytes or raises."""

    __slots__ = ("_base_offset", "_lock", "close_callbacks", "file", "nbytes")

    def __init__(self, file: BinaryIO | ReadAheadFile, name: str, nbytes: int) -> None:
        super().__init__(name)
        # For readers that need more than `read` (zip).
        self.file = file
        self.nbytes = nbytes
        self._base_offset = 0
        self._lock = ForkSafeLock()
        # What is to be done where it is closed.
        self.close_callbacks: list[Callable[[], object]] = []

    @property
    def path(self) -> str:
        """Path of a local file, for readers that open it themselves; "" for other
        files.
        """
        file = self.file
        return str(file.name) if isinstance(file, io.BufferedReader) else ""

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return bytes [offset, offset + nbytes). Raises RecordingError if the file
        ends early.
        """
        if self.file.closed:
            raise self.error("the recording is closed", hint="open the recording again")
        available = min(nbytes, self.nbytes - offset)
        if available == nbytes:  # else nothing is allocated for what cannot be there
            try:
                data = self._read_at(self._base_offset + offset, nbytes)
            except RecordingError:
                raise
            except OSError as error:
                raise self.error(
                    f"the operating system cannot read the file ({error_reason(error)})"
                ) from error
            available = len(data)
        if available != nbytes:
            raise self.error(
                "the file ends early",
                f"expected {nbytes} bytes at offset {offset}, got {max(available, 0)}",
                "copy the file again from its source",
            )
        return data

    def _read_at(self, offset: int, nbytes: int) -> bytes:
        """Return bytes at an offset; safe although threads and forked processes share
        the file's position.
        """
        if _HAS_PREAD and isinstance(self.file, io.BufferedReader | io.BufferedRandom):
            descriptor, parts = self.file.fileno(), []
            # One call gives no more than 2 GiB.
            while nbytes and (part := os.pread(descriptor, nbytes, offset)):
                parts.append(part)
                offset, nbytes = offset + len(part), nbytes - len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if isinstance(self.file, ReadAheadFile):
            return self.file.read_at(offset, nbytes)
        with self._lock:
            self.file.seek(offset)
            return self.file.read(nbytes)

    def check_unpacked_size(self, part: str, nbytes: int) -> None:
        """Raise RecordingError if a part would decompress to too much for a file of
        this size.
        """
        limit = file_limits.max_unpacked_nbytes(self.nbytes)
        self.check_limit(
            f"bytes in {part}",
            nbytes,
            limit,
            "write the data in smaller chunks, pages or files",
        )

    def peek(self, offset: int, nbytes: int) -> bytes:
        """Return up to `nbytes` bytes from `offset`, fewer at the end of the file."""
        available = max(0, min(nbytes, self.nbytes - offset))
        return self.read(offset, available) if available else b""

    def read_head(self, nbytes: int) -> bytes:
        """Return the first `nbytes` bytes, or the whole file if it is shorter."""
        return self.read(0, min(nbytes, self.nbytes))

    def set_access_pattern(
        self, n_positions: int, rows_start: int = 0, row_nbytes: int = 0
    ) -> None:
        """Announce reads that advance at `n_positions` positions at once, each in its
        own row.
        """
        if isinstance(self.file, ReadAheadFile):
            self.file.set_access_pattern(
                n_positions, self._base_offset + rows_start, row_nbytes
            )

    @property
    def state(self) -> str:
        """Version of a remote file in words; "" for other files."""
        return self.file.state if isinstance(self.file, ReadAheadFile) else ""

    def restrict(self, start: int, nbytes: int) -> None:
        """Restrict the source to a range of its bytes, as a file of their own."""
        self._base_offset += start
        self.nbytes = nbytes

    def replace_file(self, file: BinaryIO, nbytes: int) -> None:
        """Read `file` from now on, under the same name; close the previous file."""
        self.file.close()
        self.file, self.nbytes, self._base_offset = file, nbytes, 0

    def close(self) -> None:
        """Close the file, then run the close callbacks, the last one first."""
        self.file.close()
        while self.close_callbacks:
            self.close_callbacks.pop()()


def open_source(path: str | os.PathLike[str]) -> ByteSource:
    """Open a regular file for reading.

    A name given as bytes is what the system makes of them.

    Errors   RecordingError for a missing, empty, unreadable or special file; UsageError
             for what is no path.
    """
    name = _path_text(path)
    context = f"reading {name!r}"
    try:
        file = open_regular_file(name)
    except NotRegularFile as error:
        is_folder = os.path.isdir(name)
        raise RecordingError(
            context,
            error_reason(error),
            hint="pass the name of a file in this folder"
            if is_folder
            else "write the data to a file first",
        ) from None
    except FileNotFoundError as error:
        raise RecordingError(
            context, "the file does not exist", hint=_missing_file_hint(name)
        ) from error
    except PermissionError as error:
        raise RecordingError(
            context,
            "you do not have permission to read the file",
            hint="change the file's permissions",
        ) from error
    except (OSError, ValueError) as error:
        raise RecordingError(
            context,
            f"the operating system cannot open the file ({error_reason(error)})",
            hint=_missing_file_hint(name),
        ) from error
    nbytes = os.fstat(file.fileno()).st_size
    if nbytes == 0:
        file.close()
        raise RecordingError(
            context, "the file is empty", "0 bytes", "record or copy the file again"
        )
    return ByteSource(file, name, nbytes)


def _path_text(path: object) -> str:
    """Return a path as text. Raises UsageError for anything else."""
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(
            "opening a recording",
            f"expected a path, got {describe_type(path)}",
            "must be a str or pathlib.Path",
            "pass arrays directly to rlxweb.welch_peaks",
        ) from error


def _missing_file_hint(name: str) -> str:
    """Return a hint about a file that cannot be opened."""
    if name == "-":
        return "standard input is not supported; write the data to a file first"
    folder = os.path.dirname(name) or os.curdir
    if os.path.isdir(folder):
        return "check the file name and the current folder"
    return f"the folder {folder!r} does not exist either"
