"""Web server on the loopback address that answers range requests and can fail in every
way.

Every request is noted, with the bytes that were sent for it, so that a test can count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class HttpRequest:
    """One request: its path, its range and how many bytes of the body were sent."""

    path: str
    start: int | None
    stop: int | None
    sent_nbytes: int = 0


@dataclass
class HttpReply:
    """Reply that is about to be sent; a fault changes it.

    cut     the connection closes after so many bytes of the body
    wait_s  before the body
    """

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    wait_s: float = 0.0


Fault = Callable[[HttpRequest, HttpReply], object]


class Site:
    """Served files by path, and the faults of the server."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[HttpRequest] = []
        self.fault: Fault | None = None
        self.supports_ranges = True
        self.etags: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.url = ""
        self.stopped = threading.Event()

    def add_file(self, path: str, data: bytes) -> str:
        """Serve a file and return its URL."""
        self.files[path] = data
        self.etags[path] = f'"{hash(data) & 0xFFFFFF:x}"'
        return f"{self.url}{path}"

    @property
    def sent_nbytes(self) -> int:
        return sum(request.sent_nbytes for request in self.requests)

    def make_reply(self, request: HttpRequest) -> HttpReply:
        """Return the correct reply, changed by `fault`."""
        path = request.path.partition("?")[0]
        data = self.files.get(path)
        if path in self.redirects:
            reply = HttpReply(302, b"", {"Location": self.redirects[path]})
        elif data is None:
            reply = HttpReply(404, b"not here")
        elif request.start is None or not self.supports_ranges:
            reply = HttpReply(200, data, {"ETag": self.etags[path]})
        elif request.start >= len(data):
            reply = HttpReply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            body = data[request.start : request.stop]
            last = request.start + len(body) - 1
            content_range = f"bytes {request.start}-{last}/{len(data)}"
            headers = {"Content-Range": content_range, "ETag": self.etags[path]}
            reply = HttpReply(206, body, headers)
        if self.fault is not None:
            self.fault(request, reply)
        return reply


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for the first to be heard of.
    disable_nagle_algorithm = True
    site: Site

    def do_GET(self) -> None:
        start = stop = None
        if (text := self.headers.get("Range", "")).startswith("bytes="):
            first, _, last = text[6:].partition("-")
            start, stop = int(first), int(last) + 1 if last else None
        request = HttpRequest(self.path, start, stop)
        self.site.requests.append(request)
        reply = self.site.make_reply(request)
        body = reply.body
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
            self.send_header(name, value)
        if reply.cut is not None:
            body = body[: reply.cut]
            self.close_connection = True
        self.end_headers()
        self.site.stopped.wait(reply.wait_s)
        if self.command == "GET":
            request.sent_nbytes = len(body)
            try:
                self.wfile.write(body)
            except OSError:  # whoever asked has left
                self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Print no log."""


@contextmanager
def run_site() -> Iterator[Site]:
    """Run a site until the block ends."""
    site = Site()
    handler = type("Handler", (_Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
