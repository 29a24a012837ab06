"""Notes that outlive the process: one file, a line a note, held by one process.

A note is written behind the others and counts once it is whole: a line that was cut,
by a kill, a full disk or a power cut, fails its checksum and is as good as none. The
system frees the lock with the process, however that ends.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import zlib
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from rlxweb.advice import Advice
from rlxweb.errors import NotWritten, RecordingError, UsageError
from rlxweb.io.writers import for_json
from rlxweb.jobs.held_file import held
from rlxweb.whole_file import reason

_MAGIC = b"rlxweb.notes/1 "
_HEAD_NBYTES = 128
_HOST_NBYTES = 80
# A power cut costs at most the notes of so long; a kill costs none.
_FLUSH_S = 1.0

Note = dict[str, Any]
Place = tuple[int, int]
"""Where a line begins, and its length."""


class Journal:
    """The notes of one file, which is made where there is none.

    name       what the notes are for, as errors name it
    is_locked  False where the file system knows no locks
    n_damaged  lines found that are no whole notes

    Errors     UsageError where another process holds it, or where the file is not one
               of this user's journals; RecordingError where it cannot be opened.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.n_damaged = 0
        self._file, self.is_locked = held(path, f"writing {name!r}", _holder)
        self._flushed = monotonic()
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        there = self._read(0, _HEAD_NBYTES)
        is_new = len(there) < _HEAD_NBYTES and _head().startswith(there[:15])
        if not there.startswith(_MAGIC) and not is_new:
            raise UsageError(
                f"writing {self.name!r}",
                f"{str(self.path)!r} is there and holds no notes of this rlxweb",
                hint="move it away",
            )
        self._end = self._file.seek(0, os.SEEK_END)
        self._write(0, _head())
        self._end = max(self._end, _HEAD_NBYTES)

    @property
    def is_empty(self) -> bool:
        return self._end <= _HEAD_NBYTES

    def notes(self) -> list[tuple[Note, Place]]:
        """Every note without its body, in the order they were written."""
        found = []
        at = _HEAD_NBYTES
        self._file.seek(at)
        with open(os.dup(self._file.fileno()), "rb") as lines:
            for line in lines:
                note = _note(line)
                if note is None:
                    self.n_damaged += 1
                else:
                    found.append((note, (at, len(line))))
                at += len(line)
        return found

    def body(self, place: Place) -> Any:
        """What was noted with it.

        Errors   RecordingError where the line is not what it was.
        """
        line = self._read(*place)
        if _note(line) is None:
            raise RecordingError(
                f"reading {str(self.path)!r}",
                "a note in it is not what was written",
                hint="run it again: what is damaged is done again",
            )
        packed = line.rstrip(b"\n").rpartition(b"\t")[2]
        try:
            return json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
        except (ValueError, zlib.error, RecursionError) as error:
            raise self.foreign(
                f"its data cannot be unpacked ({reason(error)})"
            ) from None

    def foreign(self, why: str) -> RecordingError:
        """Return the error for a note that is whole and that no rlxweb wrote."""
        return RecordingError(
            f"reading {str(self.path)!r}",
            f"a note in it is not one that this rlxweb writes: {why}",
            "the file was changed, or another version wrote it",
            Advice("delete the file, or begin anew: {}", no_resume=True),
        )

    def add(self, note: Note, body: object = None) -> Place:
        """Write a note behind the others.

        Errors   NotWritten; then the journal is what it was.
        """
        packed = base64.b64encode(zlib.compress(_json(body), 1))
        text = _json(note) + b"\t" + packed
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        place = self._end, len(line)
        # What was cut before may not have ended its line.
        if self._read(self._end - 1, 1) != b"\n":
            self._write(self._end, b"\n")
            self._end += 1
            place = self._end, len(line)
        self._write(self._end, line)
        self._end += len(line)
        if monotonic() - self._flushed >= _FLUSH_S:
            os.fsync(self._file.fileno())
            self._flushed = monotonic()
        return place

    def clear(self) -> None:
        """Forget every note."""
        self._file.truncate(_HEAD_NBYTES)
        self._end, self.n_damaged = _HEAD_NBYTES, 0

    def close(self, remove: bool) -> None:
        """Let go of the file, and of its notes if they are of no more use."""
        if remove and os.name == "posix":
            self.path.unlink(missing_ok=True)  # while nobody else can hold it
        self._file.close()
        if remove:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _read(self, at: int, nbytes: int) -> bytes:
        self._file.seek(at)
        parts = []
        while nbytes and (part := self._file.read(nbytes)):
            parts.append(part)
            nbytes -= len(part)
        return b"".join(parts)

    def _write(self, at: int, data: bytes) -> None:
        try:
            self._file.seek(at)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(at)
            raise NotWritten(
                f"writing {str(self.path)!r}, what is done of {self.name!r}",
                f"the system refused ({reason(error)})",
                hint="free some space and run it again",
            ) from error


def _head() -> bytes:
    """A line of one length, so that whoever comes next can write its own over it."""
    host = platform.node().encode("ascii", "replace")[:_HOST_NBYTES]
    line = _MAGIC + b"process %d on %s" % (os.getpid(), host)
    return line.ljust(_HEAD_NBYTES - 1) + b"\n"


def _holder(head: bytes) -> str:
    """Who wrote the first line."""
    return head[:_HEAD_NBYTES].removeprefix(_MAGIC).decode("ascii", "replace").strip()


def _json(value: object) -> bytes:
    return json.dumps(value, default=for_json, separators=(",", ":")).encode("ascii")


def _note(line: bytes) -> Note | None:
    """The note of a line without its body; None where the line is not whole."""
    check, _, text = line.rstrip(b"\n").partition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        return None
    try:
        found = json.loads(text.partition(b"\t")[0])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
