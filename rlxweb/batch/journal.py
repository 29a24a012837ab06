"""Journal of completed work that outlives the process: one file, a line per entry,
locked by one process.

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

from rlxweb.batch.locked_file import open_locked
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import NotWritten, RecordingError, UsageError
from rlxweb.core.message_text import Advice
from rlxweb.io.csv_json_npz import json_default

_MAGIC = b"rlxweb.notes/1 "
_HEADER_NBYTES = 128
_MAX_HOST_NBYTES = 80
# A power cut costs at most the notes of so long; a kill costs none.
_FLUSH_INTERVAL_S = 1.0

JournalEntry = dict[str, Any]
LineSpan = tuple[int, int]
"""Offset and length of a line in bytes."""


class Journal:
    """Journal file, created if there is none.

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
        self._file, self.is_locked = open_locked(
            path, f"writing {name!r}", _parse_holder
        )
        self._last_flush = monotonic()
        try:
            self._open_header()
        except BaseException:
            self._file.close()
            raise

    def _open_header(self) -> None:
        header = self._read_bytes(0, _HEADER_NBYTES)
        is_new = len(header) < _HEADER_NBYTES and _header_line().startswith(header[:15])
        if not header.startswith(_MAGIC) and not is_new:
            raise UsageError(
                f"writing {self.name!r}",
                f"{str(self.path)!r} exists and is not a journal of this rlxweb "
                "version",
                hint="move or rename it",
            )
        self._end = self._file.seek(0, os.SEEK_END)
        self._write_bytes(0, _header_line())
        self._end = max(self._end, _HEADER_NBYTES)

    @property
    def is_empty(self) -> bool:
        return self._end <= _HEADER_NBYTES

    def read_entries(self) -> list[tuple[JournalEntry, LineSpan]]:
        """Return every entry without its body, in the order they were written."""
        entries = []
        offset = _HEADER_NBYTES
        self._file.seek(offset)
        with open(os.dup(self._file.fileno()), "rb") as lines:
            for line in lines:
                entry = _parse_line(line)
                if entry is None:
                    self.n_damaged += 1
                else:
                    entries.append((entry, (offset, len(line))))
                offset += len(line)
        return entries

    def read_body(self, span: LineSpan) -> Any:
        """Return the data that was stored with an entry.

        Errors   RecordingError where the line is not what it was.
        """
        line = self._read_bytes(*span)
        if _parse_line(line) is None:
            raise RecordingError(
                f"reading {str(self.path)!r}",
                "an entry is damaged",
                hint="run the command again; damaged entries are recomputed",
            )
        encoded = line.rstrip(b"\n").rpartition(b"\t")[2]
        try:
            return json.loads(zlib.decompress(base64.b64decode(encoded, validate=True)))
        except (ValueError, zlib.error, RecursionError) as error:
            raise self.foreign_entry_error(
                f"its data cannot be decoded ({error_reason(error)})"
            ) from None

    def foreign_entry_error(self, why: str) -> RecordingError:
        """Return the error for an intact entry that no rlxweb wrote."""
        return RecordingError(
            f"reading {str(self.path)!r}",
            f"an entry is invalid: {why}",
            "the file was modified, or written by another version of rlxweb",
            Advice("delete the file, or start over: {}", no_resume=True),
        )

    def append(self, entry: JournalEntry, body: object = None) -> LineSpan:
        """Append an entry and return the span of its line.

        Errors   NotWritten; then the journal is what it was.
        """
        encoded = base64.b64encode(zlib.compress(_encode_json(body), 1))
        text = _encode_json(entry) + b"\t" + encoded
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        span = self._end, len(line)
        # What was cut before may not have ended its line.
        if self._read_bytes(self._end - 1, 1) != b"\n":
            self._write_bytes(self._end, b"\n")
            self._end += 1
            span = self._end, len(line)
        self._write_bytes(self._end, line)
        self._end += len(line)
        if monotonic() - self._last_flush >= _FLUSH_INTERVAL_S:
            os.fsync(self._file.fileno())
            self._last_flush = monotonic()
        return span

    def clear(self) -> None:
        """Delete every entry."""
        self._file.truncate(_HEADER_NBYTES)
        self._end, self.n_damaged = _HEADER_NBYTES, 0

    def close(self, remove: bool) -> None:
        """Close the file; remove it too if its entries are of no more use."""
        if remove and os.name == "posix":
            self.path.unlink(missing_ok=True)  # while nobody else can hold it
        self._file.close()
        if remove:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _read_bytes(self, offset: int, nbytes: int) -> bytes:
        self._file.seek(offset)
        parts = []
        while nbytes and (part := self._file.read(nbytes)):
            parts.append(part)
            nbytes -= len(part)
        return b"".join(parts)

    def _write_bytes(self, offset: int, data: bytes) -> None:
        try:
            self._file.seek(offset)
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(offset)
            raise NotWritten(
                f"writing {str(self.path)!r}, the journal of {self.name!r}",
                f"the write failed ({error_reason(error)})",
                hint="free disk space and run the command again",
            ) from error


def _header_line() -> bytes:
    """Return the header, a line of fixed length, so that the next process can overwrite
    it.
    """
    host = platform.node().encode("ascii", "replace")[:_MAX_HOST_NBYTES]
    line = _MAGIC + b"process %d on %s" % (os.getpid(), host)
    return line.ljust(_HEADER_NBYTES - 1) + b"\n"


def _parse_holder(header: bytes) -> str:
    """Return the process that wrote the header."""
    return (
        header[:_HEADER_NBYTES].removeprefix(_MAGIC).decode("ascii", "replace").strip()
    )


def _encode_json(value: object) -> bytes:
    return json.dumps(value, default=json_default, separators=(",", ":")).encode(
        "ascii"
    )


def _parse_line(line: bytes) -> JournalEntry | None:
    """Return the entry of a line without its body; None where the line is damaged."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry = json.loads(text.partition(b"\t")[0])
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
