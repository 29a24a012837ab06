"""Web server that only this machine can reach.

It listens on 127.0.0.1, under an address that nobody can guess, and answers to that
name only: another host's page cannot read or post anything here, not even under a name
that it pointed at this machine. Knows nothing of what is served: a subclass of
`LocalRequestHandler` does.
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

from rlxweb.core.errors import UsageError

_HOST: Final = "127.0.0.1"
_SHUTDOWN_POLL_S: Final = 0.05
"""Interval at which the server checks for shutdown, which delays it by at most that."""
_MAX_CONNECTIONS: Final = 64
"""Maximum number of simultaneous connections; a further one is closed unanswered."""
_CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


def make_secret() -> str:
    """Return a random part of an address that nobody can guess."""
    return secrets.token_urlsafe(18)


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.create_server((_HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


class LocalServer:
    """Server for this machine, with a thread for each connection; open as long as the
    `with` block.

    port     0 is any that is free
    secret   the first part of every path
    Errors   UsageError for a port that cannot be had.
    """

    def __init__(
        self, port: int, secret: str, handler: type[LocalRequestHandler], context: str
    ) -> None:
        try:
            self._http_server = _LocalHttpServer((_HOST, port), handler)
        except OSError as error:
            raise UsageError(
                context,
                f"cannot listen on port {port} ({error.strerror or error})",
                f"the address is {_HOST}",
                "choose another port, or omit it to use any free port",
            ) from error
        self._http_server.local_server = self
        self.host = f"{_HOST}:{self._http_server.server_port}"
        self.prefix = f"/{secret}/"
        self.one_time_paths: set[str] = set()

    @property
    def url(self) -> str:
        """Address of the page, including the secret."""
        return f"http://{self.host}{self.prefix}"

    def one_time_url(self) -> str:
        """Return another address of the page that is valid for one visit.

        For a program's arguments, which everybody on this machine can read: whoever
        finds it there comes too late.
        """
        path = f"/{make_secret()}"
        self.one_time_paths.add(path)
        return f"http://{self.host}{path}"

    def __enter__(self) -> Self:
        serve = self._http_server.serve_forever
        threading.Thread(target=serve, args=(_SHUTDOWN_POLL_S,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._http_server.shutdown()
        self._http_server.server_close()


class LocalRequestHandler(http.server.BaseHTTPRequestHandler):
    """Handler of one connection; a subclass answers GET and POST requests."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rlxweb", ""
    disable_nagle_algorithm = True
    timeout = 60.0
    """Maximum time in seconds for a request to arrive and for an answer to be read."""

    def log_message(self, *args: Any) -> None:
        """Do not log requests."""

    @property
    def local_server(self) -> Any:
        """Local server that this connection belongs to."""
        server = self.server
        assert isinstance(server, _LocalHttpServer)
        return server.local_server

    def do_GET(self) -> None:
        """Answer a GET request, called by http.server."""
        if not self._redirect_one_time_path():
            self.handle_get(self._requested_name())

    def do_POST(self) -> None:
        """Answer a POST request, called by http.server."""
        self.handle_post(self._requested_name())

    def handle_get(self, name: str | None) -> None:
        """Answer a GET request for `name`, the path below the secret; None if the
        request is not valid.
        """
        self.send_answer(404)

    def handle_post(self, name: str | None) -> None:
        """Answer a POST request to `name`, the path below the secret; None if the
        request is not valid.
        """
        self.send_answer(404)

    def _requested_name(self) -> str | None:
        """Return the path below the secret; None for a request that is not for this
        server.
        """
        if not self._has_own_host():
            return None
        path = self.path.partition("?")[0].encode()
        prefix = self.local_server.prefix.encode()
        if not hmac.compare_digest(path[: len(prefix)], prefix):
            return None
        return path[len(prefix) :].decode()

    def _has_own_host(self) -> bool:
        """Return whether the request is addressed to 127.0.0.1 and comes from no other
        host's page.
        """
        host = self.local_server.host
        origin = self.headers.get("Origin", f"http://{host}")
        return self.headers.get("Host") == host and origin == f"http://{host}"

    def _redirect_one_time_path(self) -> bool:
        """Redirect a request for an address of `one_time_url` and invalidate that
        address; return whether it was one.
        """
        if (
            not self._has_own_host()
            or self.path not in self.local_server.one_time_paths
        ):
            return False
        self.local_server.one_time_paths.discard(self.path)
        self.send_answer(303, Location=self.local_server.url)
        return True

    def limit_send_buffer(self, nbytes: int) -> None:
        """Limit the socket's send buffer, since more unread data would only be
        older.
        """
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, nbytes)

    def send_answer(
        self, code: int, body: bytes = b"", suffix: str = "", **headers: str
    ) -> None:
        """Send a complete answer; header names are given with _ for -."""
        self.send_answer_head(code, suffix, Content_Length=str(len(body)), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_answer_head(self, code: int, suffix: str, **headers: str) -> None:
        """Send the status line and headers of an answer; an error closes the
        connection.
        """
        if code >= 400:
            headers["Connection"] = "close"
        self.send_response(code)
        self.send_header("Cache-Control", "no-store")
        content_type = _CONTENT_TYPES.get(suffix, "application/octet-stream")
        self.send_header("Content-Type", headers.pop("Content_Type", content_type))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


class _LocalHttpServer(http.server.ThreadingHTTPServer):
    """Threading HTTP server with a limited number of connections."""

    daemon_threads = True
    # On Windows it would let another program listen on the same port.
    allow_reuse_address = os.name == "posix"
    local_server: LocalServer

    def __init__(self, *args: Any) -> None:
        self._connection_slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(*args)

    def server_bind(self) -> None:
        """Bind without the host name look-up that http.server makes."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request, or close it if there are too many."""
        if self._connection_slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle the request and release its connection slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connection_slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error unless the reader disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
