"""Read a file on a web server by byte ranges; every response is validated before its
bytes are used.

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

from rlxweb.core.errors import RecordingError
from rlxweb.io.remote_error_translation import RemoteLocation

STALL_TIMEOUT_S = 60.0
"""Seconds without a byte after which a response is given up."""
RETRY_DELAYS_S = (0.25, 0.75, 2.25)
"""Seconds to wait before each retry of a request that gave nothing."""
SERVER_DOWN_AFTER_S = 60.0
"""Seconds of silence after which a server gets one request per file, until it responds
again.
"""
MAX_WHOLE_FILE_NBYTES = 64 << 20
"""Largest file that is fetched whole, once, from a server without range support."""
_RETRY_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_CHUNK_NBYTES = 1 << 18
_FATAL_ERRORS = frozenset(
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

RunCoroutine = Callable[..., Any]
"""Function that runs a coroutine function on a loop to its end: fsspec.asyn.sync."""


@dataclass(frozen=True, slots=True)
class RemoteFileState:
    """Length, ETag and modification time that identify a version of a remote file; None
    where not sent.
    """

    nbytes: int
    etag: str | None
    modified: str | None

    def describe_change(self, other: RemoteFileState) -> str:
        """Return a description of the difference to another state; "" for none."""
        for label, before, after in (
            ("length", self.nbytes, other.nbytes),
            ("ETag", self.etag, other.etag),
            ("Last-Modified", self.modified, other.modified),
        ):
            if before is not None and after is not None and before != after:
                return f"{label} changed from {before} to {after}"
        return ""

    @property
    def as_text(self) -> str:
        """Text that identifies the state; "" where only the length is known, which is
        too little.
        """
        if self.etag is None and self.modified is None:
            return ""
        return f"{self.nbytes} bytes, ETag {self.etag}, modified {self.modified}"


@dataclass(slots=True)
class _RangeResponse:
    """Response to one range request, as far as it arrived.

    start   of its bytes in the file
    error   what ended it early
    """

    status: int = 0
    reason: str = ""
    start: int = 0
    state: RemoteFileState | None = None
    chunks: list[bytes] = field(default_factory=list)
    content_length: int | None = None
    encoding: str = ""
    is_chunked: bool = False
    error: Exception | None = None

    @property
    def data(self) -> bytes:
        """Bytes received so far."""
        return b"".join(self.chunks)


class HttpRangeReader:
    """Range reader of one file on a web server.

    whole_file  all of the file, where the server gives no less
    """

    def __init__(self, file: RemoteLocation, fs: Any, sync: RunCoroutine) -> None:
        self._file, self._fs, self._sync = file, fs, sync
        self.state: RemoteFileState | None = None
        self.whole_file: bytes | None = None

    def read_head(self, nbytes: int) -> bytes:
        """Fetch the first bytes of the file and learn its `state`.

        Errors   RecordingError for a file that is not there, is empty, may not be read,
                 is too large for a server without ranges.
        """
        return self._fetch_with_retries(0, nbytes)

    def fetch(self, start: int, stop: int) -> bytes:
        """Fetch bytes [start, stop) of the same file.

        Errors   RecordingError where it is not given, and where the file has changed.
        """
        if self.whole_file is not None:
            return self.whole_file[start:stop]
        return self._fetch_with_retries(start, stop)

    def _fetch_with_retries(self, start: int, stop: int) -> bytes:
        """Fetch a range: continue where a response ended early, and retry where none
        came.
        """
        chunks: list[bytes] = []
        position, delays = start, iter(RETRY_DELAYS_S)
        while True:
            response = self._request_range(position, stop)
            if self._is_server_down(response):
                delays = iter(())
            if response.state is not None and response.status != 200:
                self._check_unchanged(response.state)
                stop = min(stop, response.state.nbytes)
            data = self._validate_response(response, position, stop)
            if self.whole_file is not None:
                return self.whole_file[start:stop]
            chunks.append(data)
            position += len(data)
            if position >= stop and response.state is not None:
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if not data:
                self._wait_or_raise(response, delays, start, stop, position)

    def _wait_or_raise(
        self,
        response: _RangeResponse,
        delays: Any,
        start: int,
        stop: int,
        position: int,
    ) -> None:
        """Wait before the next attempt, or raise the error of the last one."""
        error = response.error
        delay = next(delays, None)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if delay is not None and not kinds & _FATAL_ERRORS:
            if not isinstance(error, TimeoutError):
                time.sleep(delay)
                return
        if response.status in _RETRY_STATUSES:
            raise self._file.http_error(response.status, response.reason)
        if isinstance(error, TimeoutError):
            raise self._file.error(
                "the server stops sending data",
                f"got {position - start} of {stop - start} bytes from offset {start}, "
                f"then no byte for {STALL_TIMEOUT_S:g} s",
                "try again later",
            )
        if error is not None and response.status == 0:
            raise self._file.translate_error(error)
        detail = f" ({self._file.redact_error(error)})" if error is not None else ""
        raise self._file.error(
            f"the server response ends early{detail}",
            f"expected {stop - start} bytes at offset {start}, got {position - start}",
            "the file on the server may be truncated; upload it again",
        )

    def _is_server_down(self, response: _RangeResponse) -> bool:
        """Return whether the server has been silent for so long that retries are
        skipped.
        """
        # without the password that may stand before it
        server = urlsplit(self._file.url).netloc.rpartition("@")[2]
        now = time.monotonic()
        if response.status:
            _silent_since.pop(server, None)
            return False
        return now - _silent_since.setdefault(server, now) > SERVER_DOWN_AFTER_S

    def _check_unchanged(self, state: RemoteFileState) -> None:
        """Raise an error if the file changed since the first response."""
        if self.state is None:
            self.state = state
        elif changed := self.state.describe_change(state):
            raise self._file.error(
                "the file changed while it was being read",
                changed,
                "try again when no process is writing to the file",
            )

    def _validate_response(
        self, response: _RangeResponse, position: int, stop: int
    ) -> bytes:
        """Return the bytes that a response gave from `position` on; none where a retry
        may help.

        Errors   RecordingError for what will not get better.
        """
        if response.status == 0 or response.status in _RETRY_STATUSES:
            return b""
        if response.encoding not in ("", "identity"):
            raise self._file.error(
                f"the server sends the file compressed ({response.encoding})",
                "range requests require an uncompressed response",
            )
        if response.status == 416:
            raise self._past_end_error(response, position)
        if response.status == 200:
            return self._accept_whole_file(response, stop)
        if response.status != 206:
            raise self._file.http_error(response.status, response.reason)
        if response.state is None or response.start != position:
            raise self._file.error(
                "the server sends a different range than requested",
                f"requested bytes from offset {position}, got "
                + (
                    "a response without an offset"
                    if response.state is None
                    else f"bytes from offset {response.start}"
                ),
                "download the file with another program, and open the local copy",
            )
        return response.data[: stop - position]

    def _past_end_error(
        self, response: _RangeResponse, position: int
    ) -> RecordingError:
        """Return the error for status 416, which an empty file gives to its first
        range.
        """
        if position == 0 and self.state is not None and self.state.nbytes == 0:
            return self._file.error(
                "the file is empty", "0 bytes", "record or copy the file again"
            )
        size_text = (
            f"the file had {self.state.nbytes} bytes"
            if self.state
            else "the file size is unknown"
        )
        return self._file.error(
            "the server rejects the requested range (HTTP 416)",
            f"requested bytes from offset {position}, {size_text}",
            "open the file again: it may have been truncated",
        )

    def _accept_whole_file(self, response: _RangeResponse, stop: int) -> bytes:
        """Keep a whole file from a server without range support, if it is small
        enough.
        """
        content_length = response.content_length
        data = response.data
        if (content_length or 0) > MAX_WHOLE_FILE_NBYTES or len(
            data
        ) > MAX_WHOLE_FILE_NBYTES:
            size_text = (
                f"{content_length}"
                if content_length
                else f"more than {MAX_WHOLE_FILE_NBYTES}"
            )
            raise self._file.error(
                "the server does not support range requests, so the whole file "
                "must be downloaded",
                f"the file has {size_text} bytes, the limit is {MAX_WHOLE_FILE_NBYTES}",
                "download the file with another program, and open the local copy",
            )
        if response.error is not None or (
            content_length is not None and len(data) < content_length
        ):
            return b""
        if content_length is None and not response.is_chunked:
            raise self._file.error(
                "the server does not support range requests and does not send the file "
                "size, so a truncated download cannot be detected",
                hint="download the file with another program, and open the local copy",
            )
        if not data:
            raise self._file.error(
                "the file is empty", "0 bytes", "record or copy the file again"
            )
        if response.state is not None:
            self._check_unchanged(replace(response.state, nbytes=len(data)))
        self.whole_file = data
        return data[:stop]

    def _request_range(self, start: int, stop: int) -> _RangeResponse:
        """Request a range and return the response, errors included."""
        response = _RangeResponse()
        try:
            self._sync(
                self._fs.loop,
                self._stream_response,
                start,
                stop,
                response,
                timeout=STALL_TIMEOUT_S,
            )
        except ImportError:
            raise
        except Exception as error:
            response.error = error
        return response

    async def _stream_response(
        self, start: int, stop: int, response: _RangeResponse
    ) -> None:
        """Fill `response` as bytes arrive, so that bytes received before an error are
        kept.
        """
        options = dict(self._fs.kwargs)
        headers = {
            **(options.pop("headers", None) or {}),
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
        }
        session = await self._fs.set_session()
        url = self._fs.encode_url(self._file.url)
        async with session.get(url, headers=headers, **options) as reply:
            _read_response_headers(response, reply)
            if reply.status not in (200, 206):
                return
            max_nbytes = MAX_WHOLE_FILE_NBYTES if reply.status == 200 else stop - start
            if (response.content_length or 0) > max_nbytes == MAX_WHOLE_FILE_NBYTES:
                return
            received = 0
            while received <= max_nbytes and (
                chunk := await reply.content.read(
                    min(_CHUNK_NBYTES, max_nbytes + 1 - received)
                )
            ):
                response.chunks.append(chunk)
                received += len(chunk)


def _read_response_headers(response: _RangeResponse, reply: Any) -> None:
    """Copy status and headers of a reply into a response."""
    headers = reply.headers
    length = headers.get("Content-Length", "")
    response.content_length = int(length) if length.isdecimal() else None
    response.encoding = headers.get("Content-Encoding", "").lower()
    response.is_chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    etag, modified = headers.get("ETag"), headers.get("Last-Modified")
    range_match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if reply.status in (206, 416) and range_match is not None and range_match[3] != "*":
        response.start = int(range_match[1] or 0)
        response.state = RemoteFileState(int(range_match[3]), etag, modified)
    elif reply.status == 200:
        response.state = RemoteFileState(response.content_length or 0, etag, modified)
    # Last, for who reads it takes the rest for granted.
    response.reason, response.status = reply.reason or "", reply.status
