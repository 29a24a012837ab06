"""Random access to the bytes of one open file, and the first questions asked of it.

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

from rlxweb.errors import RecordingError, UsageError
from rlxweb.forked import ForkLock
from rlxweb.given import named
from rlxweb.io import bounds
from rlxweb.io.read_ahead import BlockFile
from rlxweb.named_files import NotRegular, open_regular
from rlxweb.whole_file import reason

_HAS_PREAD = hasattr(os, "pread") and sys.platform != "emscripten"


class Source:
    """What is open under a name, and what is wrong with it.

    warnings  what does not keep it from being read, each a sentence; readers add to it
              while they open it, and where a part shows only when it is read
    """

    __slots__ = ("__weakref__", "doing", "name", "warnings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.doing = f"reading {name!r}"
        self.warnings: list[str] = []

    def error(self, problem: str, rule: str = "", hint: str = "") -> RecordingError:
        """What is wrong with this file."""
        return RecordingError(self.doing, problem, rule, hint)

    def warn(self, text: str) -> None:
        """Note a fault that is passed over; the user is told when the file is open."""
        self.warnings.append(text)

    def warn_once(self, text: str) -> None:
        """Note a fault that may be met several times."""
        if text not in self.warnings:
            self.warn(text)

    def at_most(self, what: str, number: int, most: int, hint: str = "") -> None:
        """Refuse a file that claims more of something than one of `bounds` allows."""
        if number > most:
            raise self.error(f"it has {number} {what}", f"at most {most}", hint)

    @property
    def state(self) -> str:
        """By what a remote file is known to be the same; "" for others."""
        return ""

    def close(self) -> None:
        """Nothing is read from now on."""


class ByteSource(Source):
    """One open file; `read` gives exactly the bytes asked for or raises."""

    __slots__ = ("_lock", "_start", "at_end", "file", "nbytes")

    def __init__(self, file: BinaryIO | BlockFile, name: str, nbytes: int) -> None:
        super().__init__(name)
        # For readers that need more than `read` (zip).
        self.file = file
        self.nbytes = nbytes
        self._start = 0
        self._lock = ForkLock()
        # What is to be done where it is closed.
        self.at_end: list[Callable[[], object]] = []

    @property
    def path(self) -> str:
        """Of a file of this machine, for readers that open it themselves; else ""."""
        file = self.file
        return str(file.name) if isinstance(file, io.BufferedReader) else ""

    def read(self, offset: int, nbytes: int) -> bytes:
        """Bytes [offset, offset + nbytes); RecordingError when the file ends early."""
        if self.file.closed:
            raise self.error("the recording is closed", hint="open it again")
        there = min(nbytes, self.nbytes - offset)
        if there == nbytes:  # else nothing is allocated for what cannot be there
            try:
                data = self._at(self._start + offset, nbytes)
            except RecordingError:
                raise
            except OSError as error:
                raise self.error(
                    f"the system cannot read it ({reason(error)})"
                ) from error
            there = len(data)
        if there != nbytes:
            raise self.error(
                "the file ends early",
                f"{nbytes} bytes wanted at offset {offset}, {max(there, 0)} there",
                "copy the file again from where it came",
            )
        return data

    def _at(self, place: int, nbytes: int) -> bytes:
        """Bytes at a place; threads and forked processes share the file's position."""
        if _HAS_PREAD and isinstance(self.file, io.BufferedReader | io.BufferedRandom):
            handle, pieces = self.file.fileno(), []
            # One call gives no more than 2 GiB.
            while nbytes and (piece := os.pread(handle, nbytes, place)):
                pieces.append(piece)
                place, nbytes = place + len(piece), nbytes - len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if isinstance(self.file, BlockFile):
            return self.file.read_at(place, nbytes)
        with self._lock:
            self.file.seek(place)
            return self.file.read(nbytes)

    def unpacks(self, what: str, nbytes: int) -> None:
        """Refuse a piece that would unpack to too much for a file of this size."""
        most = bounds.unpacked_at_once(self.nbytes)
        self.at_most(f"bytes in {what}", nbytes, most, "write it in smaller pieces")

    def peek(self, offset: int, nbytes: int) -> bytes:
        """Up to `nbytes` bytes from `offset`, fewer where the file ends."""
        there = max(0, min(nbytes, self.nbytes - offset))
        return self.read(offset, there) if there else b""

    def head(self, nbytes: int) -> bytes:
        """The first `nbytes` bytes, or the whole file when it is shorter."""
        return self.read(0, min(nbytes, self.nbytes))

    def expect(self, places: int, begin: int = 0, row_nbytes: int = 0) -> None:
        """Reads go along at so many places of the file at once, each in its row."""
        if isinstance(self.file, BlockFile):
            self.file.expect(places, self._start + begin, row_nbytes)

    @property
    def state(self) -> str:
        """By what a remote file is known to be the same; "" for others."""
        return self.file.state if isinstance(self.file, BlockFile) else ""

    def narrow(self, start: int, nbytes: int) -> None:
        """Read only these bytes of the file from now on, as a file of their own."""
        self._start += start
        self.nbytes = nbytes

    def become(self, file: BinaryIO, nbytes: int) -> None:
        """Read `file` from now on, under the same name; the one before is closed."""
        self.file.close()
        self.file, self.nbytes, self._start = file, nbytes, 0

    def close(self) -> None:
        self.file.close()
        while self.at_end:
            self.at_end.pop()()


def open_source(path: str | os.PathLike[str]) -> ByteSource:
    """Open a regular file for reading.

    A name given as bytes is what the system makes of them.

    Errors   RecordingError for a missing, empty, unreadable or special file; UsageError
             for what is no path.
    """
    name = _name_of(path)
    doing = f"reading {name!r}"
    try:
        file = open_regular(name)
    except NotRegular as error:
        is_folder = os.path.isdir(name)
        raise RecordingError(
            doing,
            reason(error),
            hint="name a file inside it"
            if is_folder
            else "write the data to a file first",
        ) from None
    except FileNotFoundError as error:
        raise RecordingError(
            doing, "there is no such file", hint=_where(name)
        ) from error
    except PermissionError as error:
        raise RecordingError(
            doing, "this user may not read it", hint="change the file's permissions"
        ) from error
    except (OSError, ValueError) as error:
        raise RecordingError(
            doing, f"the system cannot open it ({reason(error)})", hint=_where(name)
        ) from error
    nbytes = os.fstat(file.fileno()).st_size
    if nbytes == 0:
        file.close()
        raise RecordingError(
            doing, "the file is empty", "0 bytes", "record or copy it again"
        )
    return ByteSource(file, name, nbytes)


def _name_of(path: object) -> str:
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(
            "opening a recording",
            f"{named(path)} is no path",
            "a file's name, as str or pathlib.Path",
            "arrays go to rlxweb.welch_peaks as they are",
        ) from error


def _where(name: str) -> str:
    if name == "-":
        return "standard input is not read; write the data to a file first"
    folder = os.path.dirname(name) or os.curdir
    if os.path.isdir(folder):
        return "check the name and the folder you are in"
    return f"the folder {folder!r} is not there either"
