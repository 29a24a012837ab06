"""Random access to the bytes of one open file, and the first questions asked of it.

Owns opening, sizes and short reads; the formats above it only say which bytes they
want. Samples are read with seek and read, never through a memory map: a file that is
cut while it is mapped kills the process, a short read is an error with a reason.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from rlxweb.errors import RecordingError
from rlxweb.whole_file import reason


class ByteSource:
    """One open file; `read` gives exactly the bytes asked for or raises."""

    __slots__ = ("doing", "file", "name", "nbytes")

    def __init__(self, file: BinaryIO, name: str, nbytes: int) -> None:
        # For readers that need more than `read` (zip).
        self.file = file
        self.name = name
        self.doing = f"reading {name!r}"
        self.nbytes = nbytes

    def error(self, problem: str, rule: str = "", hint: str = "") -> RecordingError:
        """What is wrong with this file."""
        return RecordingError(self.doing, problem, rule, hint)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Bytes [offset, offset + nbytes); RecordingError when the file ends early."""
        if self.file.closed:
            raise self.error("the recording is closed", hint="open it again")
        try:
            self.file.seek(offset)
            data = self.file.read(nbytes)
        except OSError as error:
            raise self.error(f"the system cannot read it ({reason(error)})") from error
        if len(data) != nbytes:
            raise self.error(
                "the file ends early",
                f"{nbytes} bytes wanted at offset {offset}, {len(data)} there",
                "copy the file again from where it came",
            )
        return data

    def head(self, nbytes: int) -> bytes:
        """The first `nbytes` bytes, or the whole file when it is shorter."""
        return self.read(0, min(nbytes, self.nbytes))

    def become(self, file: BinaryIO, nbytes: int) -> None:
        """Read `file` from now on, under the same name; the one before is closed."""
        self.file.close()
        self.file, self.nbytes = file, nbytes

    def close(self) -> None:
        self.file.close()


def open_source(path: str | os.PathLike[str]) -> ByteSource:
    """Open a regular file for reading.

    Errors   RecordingError for a missing, empty, unreadable or special file.
    """
    name = os.fspath(path)
    doing = f"reading {name!r}"
    try:
        # A FIFO would block in open, so its kind is asked first.
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise RecordingError(doing, "it is a folder", hint="name a file inside it")
        if not stat.S_ISREG(mode):
            raise RecordingError(
                doing, "it is not a regular file", hint="write the data to a file first"
            )
        file = Path(name).open("rb")
    except FileNotFoundError as error:
        raise RecordingError(
            doing, "there is no such file", hint=_where(name)
        ) from error
    except PermissionError as error:
        raise RecordingError(
            doing, "this user may not read it", hint="change the file's permissions"
        ) from error
    except RecordingError:
        raise
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


def _where(name: str) -> str:
    folder = os.path.dirname(name) or os.curdir
    if os.path.isdir(folder):
        return "check the name and the folder you are in"
    return f"the folder {folder!r} is not there either"
