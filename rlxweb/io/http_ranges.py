"""A file on a web server, by ranges: each answer is judged before its bytes count.

Owns what an answer must say (its range, the file's length, that it is the same file
still), what is asked again and how often, and what becomes of a server that knows no
ranges. The session is fsspec's, with all its settings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from rlxweb.errors import RecordingError
from rlxweb.io.remote_faults import Named

STALL_S = 60.0
"""An answer without a byte for so long is given up."""
PAUSES_S = (0.25, 0.75, 2.25)
"""Before what gave nothing is asked again."""
GONE_S = 60.0
"""A server silent for so long is asked once for a file, until it answers again."""
WHOLE_NBYTES = 64 << 20
"""Largest file of a server without ranges: it is fetched whole, once."""
_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_PIECE_NBYTES = 1 << 18
_HOPELESS = frozenset(
    (
        "ClientConnectorDNSError",
        "ClientConnectorCertificateError",
        "ClientSSLError",
        "InvalidURL",
        "NonHttpUrlClientError",
        "TooManyRedirects",
    )
)

# When each server that does not answer was first found so, by its name and port.
_silent_since: dict[str, float] = {}

Sync = Callable[..., Any]
"""Runs a coroutine function on a loop to its end: fsspec.asyn.sync."""


@dataclass(frozen=True, slots=True)
class State:
    """By what a file on a server is known to be the same: None where it is not said."""

    nbytes: int
    etag: str | None
    modified: str | None

    def changed_to(self, now: State) -> str:
        """What is another, in words; "" where nothing is."""
        for what, before, after in (
            ("length", self.nbytes, now.nbytes),
            ("ETag", self.etag, now.etag),
            ("Last-Modified", self.modified, now.modified),
        ):
            if before is not None and after is not None and before != after:
                return f"{what} was {before}, is {after}"
        return ""

    @property
    def as_text(self) -> str:
        """Nothing where only the length is known, which is too little to go by."""
        if self.etag is None and self.modified is None:
            return ""
        return f"{self.nbytes} bytes, ETag {self.etag}, modified {self.modified}"


@dataclass(slots=True)
class _Answer:
    """One answer, as far as it came.

    start   of its bytes in the file
    error   what ended it early
    """

    status: int = 0
    words: str = ""
    start: int = 0
    state: State | None = None
    pieces: list[bytes] = field(default_factory=list)
    claimed: int | None = None
    encoding: str = ""
    is_chunked: bool = False
    error: Exception | None = None

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


class HttpRanges:
    """Bytes of one file on a web server.

    whole  all of the file, where the server gives no less
    """

    def __init__(self, file: Named, fs: Any, sync: Sync) -> None:
        self._file, self._fs, self._sync = file, fs, sync
        self.state: State | None = None
        self.whole: bytes | None = None

    def first(self, nbytes: int) -> bytes:
        """The first bytes of the file; `state` is known from then on.

        Errors   RecordingError for a file that is not there, is empty, may not be read,
                 is too large for a server without ranges.
        """
        return self._get(0, nbytes)

    def fetch(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the same file.

        Errors   RecordingError where it is not given, and where the file has changed.
        """
        if self.whole is not None:
            return self.whole[start:stop]
        return self._get(start, stop)

    def _get(self, start: int, stop: int) -> bytes:
        """Asks on where an answer ended early, and again where none came."""
        pieces: list[bytes] = []
        at, pauses = start, iter(PAUSES_S)
        while True:
            answer = self._ask(at, stop)
            if self._is_gone(answer):
                pauses = iter(())
            if answer.state is not None and answer.status != 200:
                self._check_same(answer.state)
                stop = min(stop, answer.state.nbytes)
            data = self._judged(answer, at, stop)
            if self.whole is not None:
                return self.whole[start:stop]
            pieces.append(data)
            at += len(data)
            if at >= stop and answer.state is not None:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if not data:
                self._wait(answer, pauses, start, stop, at)

    def _wait(
        self, answer: _Answer, pauses: Any, start: int, stop: int, at: int
    ) -> None:
        error = answer.error
        pause = next(pauses, None)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if pause is not None and not kinds & _HOPELESS:
            if not isinstance(error, TimeoutError):
                time.sleep(pause)
                return
        if answer.status in _AGAIN:
            raise self._file.status(answer.status, answer.words)
        if isinstance(error, TimeoutError):
            raise self._file.error(
                "the server gives nothing",
                f"{STALL_S:g} s without a byte, {at - start} of {stop - start} bytes "
                f"from {start} on are there",
                "try again later",
            )
        if error is not None and answer.status == 0:
            raise self._file.told(error)
        said = f" ({self._file.said(error)})" if error is not None else ""
        raise self._file.error(
            f"the server stops before the end{said}",
            f"{stop - start} bytes wanted at offset {start}, {at - start} came",
            "the file on the server may be cut; copy it there again",
        )

    def _is_gone(self, answer: _Answer) -> bool:
        """Has its server been silent for long? Nobody waits for it any more then."""
        # without the password that may stand before it
        server = urlsplit(self._file.url).netloc.rpartition("@")[2]
        now = time.monotonic()
        if answer.status:
            _silent_since.pop(server, None)
            return False
        return now - _silent_since.setdefault(server, now) > GONE_S

    def _check_same(self, state: State) -> None:
        if self.state is None:
            self.state = state
        elif changed := self.state.changed_to(state):
            raise self._file.error(
                "the file changed while it was read",
                changed,
                "do it again once nobody writes to it",
            )

    def _judged(self, answer: _Answer, at: int, stop: int) -> bytes:
        """The bytes from `at` on that an answer gave; none where it may be asked again.

        Errors   RecordingError for what will not get better.
        """
        if answer.status == 0 or answer.status in _AGAIN:
            return b""
        if answer.encoding not in ("", "identity"):
            raise self._file.error(
                f"the server packs the file ({answer.encoding}), though it was asked "
                "not to",
                "ranges are read of files as they are",
            )
        if answer.status == 416:
            raise self._past_the_end(answer, at)
        if answer.status == 200:
            return self._taken_whole(answer, stop)
        if answer.status != 206:
            raise self._file.status(answer.status, answer.words)
        if answer.state is None or answer.start != at:
            raise self._file.error(
                "the server gives another range than it was asked for",
                f"bytes from {at} on were asked for, it says "
                f"{'nothing' if answer.state is None else answer.start}",
                "download the file first",
            )
        return answer.data[: stop - at]

    def _past_the_end(self, answer: _Answer, at: int) -> RecordingError:
        """A 416 is what an empty file gives to its first range."""
        if at == 0 and self.state is not None and self.state.nbytes == 0:
            return self._file.error(
                "the file is empty", "0 bytes", "record or copy it again"
            )
        there = self.state.nbytes if self.state else "an unknown number of"
        return self._file.error(
            "the server has no such bytes (HTTP 416)",
            f"bytes from {at} on were asked for, {there} bytes were there",
            "the file may have been cut; open it again",
        )

    def _taken_whole(self, answer: _Answer, stop: int) -> bytes:
        """A server without ranges gives all of a file: kept, where it is little."""
        claimed = answer.claimed
        data = answer.data
        if (claimed or 0) > WHOLE_NBYTES or len(data) > WHOLE_NBYTES:
            many = f"{claimed}" if claimed else f"more than {WHOLE_NBYTES}"
            raise self._file.error(
                "the server knows no ranges, so the file would be fetched whole",
                f"{many} bytes, at most {WHOLE_NBYTES} are fetched so",
                "download the file first",
            )
        if answer.error is not None or (claimed is not None and len(data) < claimed):
            return b""
        if claimed is None and not answer.is_chunked:
            raise self._file.error(
                "the server neither knows ranges nor says how long the file is, so "
                "nobody can tell whether it came whole",
                hint="download the file first",
            )
        if not data:
            raise self._file.error(
                "the file is empty", "0 bytes", "record or copy it again"
            )
        if answer.state is not None:
            self._check_same(replace(answer.state, nbytes=len(data)))
        self.whole = data
        return data[:stop]

    def _ask(self, start: int, stop: int) -> _Answer:
        answer = _Answer()
        try:
            self._sync(
                self._fs.loop, self._stream, start, stop, answer, timeout=STALL_S
            )
        except ImportError:
            raise
        except Exception as error:
            answer.error = error
        return answer

    async def _stream(self, start: int, stop: int, answer: _Answer) -> None:
        """Fill `answer` as it comes, so that what came before a fault is not lost."""
        options = dict(self._fs.kwargs)
        headers = {
            **(options.pop("headers", None) or {}),
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
        }
        session = await self._fs.set_session()
        url = self._fs.encode_url(self._file.url)
        async with session.get(url, headers=headers, **options) as reply:
            _read_head(answer, reply)
            if reply.status not in (200, 206):
                return
            most = WHOLE_NBYTES if reply.status == 200 else stop - start
            if (answer.claimed or 0) > most == WHOLE_NBYTES:
                return
            there = 0
            while there <= most and (
                piece := await reply.content.read(min(_PIECE_NBYTES, most + 1 - there))
            ):
                answer.pieces.append(piece)
                there += len(piece)


def _read_head(answer: _Answer, reply: Any) -> None:
    headers = reply.headers
    length = headers.get("Content-Length", "")
    answer.claimed = int(length) if length.isdecimal() else None
    answer.encoding = headers.get("Content-Encoding", "").lower()
    answer.is_chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    etag, modified = headers.get("ETag"), headers.get("Last-Modified")
    place = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if reply.status in (206, 416) and place is not None and place[3] != "*":
        answer.start = int(place[1] or 0)
        answer.state = State(int(place[3]), etag, modified)
    elif reply.status == 200:
        answer.state = State(answer.claimed or 0, etag, modified)
    # Last, for who reads it takes the rest for granted.
    answer.words, answer.status = reply.reason or "", reply.status
