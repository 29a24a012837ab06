"""What serves a page to this machine alone.

It listens on 127.0.0.1, under an address that nobody can guess, and answers to that
name only: another host's page cannot read or post anything here, not even under a name
that it pointed at this machine. Knows nothing of what is served: a subclass of
`LocalHandler` does.
"""

from __future__ import annotations

import hmac
import http.server
import os
import secrets
import socket
import socketserver
import sys
import threading
from typing import Any, Final, Self

from rlxweb.errors import UsageError

_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.05
"""For who ends it, in which it ends at the latest."""
_MOST_LINES: Final = 64
"""Connections at once; one more is closed unheard."""
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


def new_secret() -> str:
    """The part of an address that nobody can guess."""
    return secrets.token_urlsafe(18)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now."""
    with socket.create_server((_HOST, 0)) as one:
        port: int = one.getsockname()[1]
        return port


class LocalServer:
    """Serves this machine, each connection on a thread; open as long as the `with`.

    port     0 is any that is free
    secret   the first part of every path
    Errors   UsageError for a port that cannot be had.
    """

    def __init__(
        self, port: int, secret: str, handler: type[LocalHandler], doing: str
    ) -> None:
        try:
            self._server = _Server((_HOST, port), handler)
        except OSError as error:
            raise UsageError(
                doing,
                f"port {port} cannot be listened on ({error.strerror or error})",
                f"it is of {_HOST}",
                "name another, or none: any that is free",
            ) from error
        self._server.owner = self
        self.host = f"{_HOST}:{self._server.server_port}"
        self.prefix = f"/{secret}/"
        self.once: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.prefix}"

    def url_once(self) -> str:
        """Another address of it, good for one visit.

        For a program's arguments, which everybody on this machine can read: whoever
        finds it there comes too late.
        """
        path = f"/{new_secret()}"
        self.once.add(path)
        return f"http://{self.host}{path}"

    def __enter__(self) -> Self:
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(_LOOK_S,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class LocalHandler(http.server.BaseHTTPRequestHandler):
    """One connection. A subclass says what is got, and what may be posted."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rlxweb", ""
    disable_nagle_algorithm = True
    timeout = 60.0
    """Seconds, for a request to come and for an answer to be taken."""

    def log_message(self, *args: Any) -> None:
        """Nothing: requests are nobody's news."""

    @property
    def owner(self) -> Any:
        server = self.server
        assert isinstance(server, _Server)
        return server.owner

    def do_GET(self) -> None:
        if not self._leads_on():
            self.get(self._asked())

    def do_POST(self) -> None:
        self.post(self._asked())

    def get(self, name: str | None) -> None:
        """Answer who asks for `name`, its path below the secret; None: none of ours."""
        self.answer(404)

    def post(self, name: str | None) -> None:
        """The same of who posts there."""
        self.answer(404)

    def _asked(self) -> str | None:
        """The path below the secret; None for whatever is not its business."""
        if not self._is_by_our_name():
            return None
        where = self.path.partition("?")[0].encode()
        prefix = self.owner.prefix.encode()
        if not hmac.compare_digest(where[: len(prefix)], prefix):
            return None
        return where[len(prefix) :].decode()

    def _is_by_our_name(self) -> bool:
        """Did it ask for 127.0.0.1, and from no page of another host?"""
        host = self.owner.host
        origin = self.headers.get("Origin", f"http://{host}")
        return self.headers.get("Host") == host and origin == f"http://{host}"

    def _leads_on(self) -> bool:
        """Was it an address of `url_once`? Then it was answered, and is one no more."""
        if not self._is_by_our_name() or self.path not in self.owner.once:
            return False
        self.owner.once.discard(self.path)
        self.answer(303, Location=self.owner.url)
        return True

    def keep_little(self, nbytes: int) -> None:
        """Of what its reader has not taken: more would only be older."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, nbytes)

    def answer(
        self, code: int, body: bytes = b"", suffix: str = "", **headers: str
    ) -> None:
        """A whole answer. `headers` with _ for -."""
        self.begin(code, suffix, Content_Length=str(len(body)), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, code: int, suffix: str, **headers: str) -> None:
        """The head of an answer. Who asks for what is not there is not heard again."""
        if code >= 400:
            headers["Connection"] = "close"
        self.send_response(code)
        self.send_header("Cache-Control", "no-store")
        kind = _TYPES.get(suffix, "application/octet-stream")
        self.send_header("Content-Type", headers.pop("Content_Type", kind))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # On Windows it would let another program listen on the same port.
    allow_reuse_address = os.name == "posix"
    owner: LocalServer

    def __init__(self, *args: Any) -> None:
        self._room = threading.BoundedSemaphore(_MOST_LINES)
        super().__init__(*args)

    def server_bind(self) -> None:
        """As of any TCP server: http.server's asks the network for a name, too."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no fault of ours."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
