"""A web server on the loopback address that answers ranges, and every way it may fail.

Every request is noted, with the bytes that were sent for it, so that a test can count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """One request: its path, its range, and how many bytes of a body were sent."""

    path: str
    start: int | None
    stop: int | None
    sent: int = 0


@dataclass
class Reply:
    """What is about to be answered; a fault changes it.

    cut     the connection closes after so many bytes of the body
    wait_s  before the body
    """

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    wait_s: float = 0.0


Fault = Callable[[Asked, Reply], object]


class Site:
    """Files by their paths, and what goes wrong with them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self.fault: Fault | None = None
        self.knows_ranges = True
        self.etags: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.url = ""
        self.is_over = threading.Event()

    def put(self, path: str, data: bytes) -> str:
        """A file; gives its URL."""
        self.files[path] = data
        self.etags[path] = f'"{hash(data) & 0xFFFFFF:x}"'
        return f"{self.url}{path}"

    @property
    def sent(self) -> int:
        return sum(one.sent for one in self.asked)

    def reply(self, asked: Asked) -> Reply:
        """What is right; `fault` may make it wrong."""
        path = asked.path.partition("?")[0]
        data = self.files.get(path)
        if path in self.redirects:
            reply = Reply(302, b"", {"Location": self.redirects[path]})
        elif data is None:
            reply = Reply(404, b"not here")
        elif asked.start is None or not self.knows_ranges:
            reply = Reply(200, data, {"ETag": self.etags[path]})
        elif asked.start >= len(data):
            reply = Reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            body = data[asked.start : asked.stop]
            last = asked.start + len(body) - 1
            place = f"bytes {asked.start}-{last}/{len(data)}"
            headers = {"Content-Range": place, "ETag": self.etags[path]}
            reply = Reply(206, body, headers)
        if self.fault is not None:
            self.fault(asked, reply)
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
        asked = Asked(self.path, start, stop)
        self.site.asked.append(asked)
        reply = self.site.reply(asked)
        body = reply.body
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
            self.send_header(name, value)
        if reply.cut is not None:
            body = body[: reply.cut]
            self.close_connection = True
        self.end_headers()
        self.site.is_over.wait(reply.wait_s)
        if self.command == "GET":
            asked.sent = len(body)
            try:
                self.wfile.write(body)
            except OSError:  # whoever asked has left
                self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *said: object) -> None:
        """Nobody reads it."""


@contextmanager
def served() -> Iterator[Site]:
    """A site that answers until the block ends."""
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
        site.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
