"""A small static server for looking at the site, on this machine only."""

from __future__ import annotations

import errno
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from assembly.errors import SiteError
from assembly.progress import say, shown

HOST = "127.0.0.1"
PORT = 8000


class Handler(SimpleHTTPRequestHandler):
    """Static files of the types browsers insist on, never stale; only errors logged."""

    extensions_map = {  # noqa: RUF012  # the base class's own spelling
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".json": "application/json",
        ".mjs": "text/javascript",
        ".py": "text/plain; charset=utf-8",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if int(code) >= 400:
            super().log_request(code, size)


class Server(ThreadingHTTPServer):
    """Serves one folder; a browser that hangs up is no news."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((HOST, port), partial(Handler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def open_server(folder: Path, port: int | None) -> Server:
    """A server on `port`; without one, on the usual port or on a free one."""
    try:
        return Server(folder, PORT if port is None else port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        if port is not None:
            raise SiteError(
                f"serving on port {port}",
                error.strerror,
                hint="name another port, or none for a free one",
            ) from None
    say(f"port {PORT} is taken; taking a free one")
    return Server(folder, 0)


def serve(folder: Path, port: int | None) -> None:
    """Serve until Ctrl-C."""
    with open_server(folder, port) as server:
        try:
            say(f"serving {shown(folder)}; Ctrl-C ends it")
            print(server.url, flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
