"""Small static server for viewing the site on this machine only.

It sends the headers a host should send, and gives out files of its folder and nothing
else: no other folder's by `..` or a link, no list of files, no hidden ones. A page of a
stranger's that has its own name point here (DNS rebinding) gets no answer.
"""

from __future__ import annotations

import errno
import io
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from assembly.errors import SiteError
from assembly.http_headers import file_kind, headers
from assembly.progress import display_path, print_progress

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
HOST_NAMES = (HOST, "localhost")
IDLE_TIMEOUT_S = 60


class SiteHandler(SimpleHTTPRequestHandler):
    """Handler of static files with the types browsers insist on and without caching;
    only errors are logged.
    """

    extensions_map = {  # noqa: RUF012  # the base class's own spelling
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".json": "application/json",
        ".mjs": "text/javascript",
        ".py": "text/plain; charset=utf-8",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
    }
    timeout = IDLE_TIMEOUT_S  # of a connection on which nobody says anything
    server_version = "rlxweb-site"
    sys_version = ""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Send the headers; return the opened file, or None when there is nothing to
        send.
        """
        if self.headers.get("Host") not in self.allowed_hosts():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Unknown host name")
            return None
        if self.resolve_path() is None:
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    def allowed_hosts(self) -> set[str]:
        """Return the allowed Host headers: this machine's names, with the port."""
        assert isinstance(self.server, SiteServer)
        port = self.server.server_port
        return {f"{name}:{port}" for name in HOST_NAMES} | (
            set(HOST_NAMES) if port == 80 else set()
        )

    def resolve_path(self) -> Path | None:
        """Return the requested file or folder if it lies within the site, else None."""
        parts = request_path_parts(self.path)
        if parts is None:
            return None
        path = Path(self.directory, *parts)
        page = path / "index.html" if request_path(self.path).endswith("/") else path
        try:
            resolved = page.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links is the latter until 3.13
            return None
        is_within_site = resolved.is_relative_to(Path(self.directory).resolve())
        # not a pipe, which would be waited at
        return (
            path
            if is_within_site and (resolved.is_file() or resolved.is_dir())
            else None
        )

    def translate_path(self, path: str) -> str:
        """Return the path of the request, which has been approved before."""
        end = "/" if request_path(path).endswith("/") else ""
        return str(Path(self.directory, *(request_path_parts(path) or ()))) + end

    def list_directory(self, path: object) -> None:
        """Refuse to list a folder."""
        self.send_error(HTTPStatus.NOT_FOUND, "File not found")

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        # a request that could not be read has no path
        parts = request_path_parts(getattr(self, "path", "/")) or ()
        for name, value in headers(file_kind("/".join((*parts, "")))).items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if int(code) >= 400:
            super().log_request(code, size)


def request_path(target: str) -> str:
    """Return a request's path without query and fragment."""
    return target.partition("#")[0].partition("?")[0]


def request_path_parts(target: str) -> list[str] | None:
    """Return the names in a request's path, or None where one cannot be a file of a
    site.

    A whole URL, such as a proxy is asked for, is no path either.
    """
    path = request_path(target)
    if not path.startswith("/"):
        return None
    parts = [part for part in unquote(path).split("/") if part]
    is_invalid = any(part.startswith(".") or set(part) & set("\\:\0") for part in parts)
    return None if is_invalid else parts


class QuietHttpServer(ThreadingHTTPServer):
    """HTTP server that does not report closed connections, which are normal when a
    visitor leaves a page.
    """

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class SiteServer(QuietHttpServer):
    """Server of one folder."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((HOST, port), partial(SiteHandler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


def open_server(folder: Path, port: int | None) -> SiteServer:
    """Return a server on `port`; without one, on the default port or on a free one."""
    try:
        return SiteServer(folder, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        if port is not None:
            raise SiteError(
                f"serving on port {port}",
                error.strerror,
                hint="pass another port, or omit the port to use a free one",
            ) from None
    print_progress(f"port {DEFAULT_PORT} is in use; using a free port")
    return SiteServer(folder, 0)


def serve(folder: Path, port: int | None) -> None:
    """Serve the folder until Ctrl-C."""
    with open_server(folder, port) as server:
        try:
            print_progress(f"serving {display_path(folder)}; press Ctrl-C to stop")
            print(server.url, flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print_progress("stopped")
