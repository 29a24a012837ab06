"""A small static server for looking at the site, on this machine only.

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
from assembly.policy import headers, kind_of
from assembly.progress import say, shown

HOST = "127.0.0.1"
PORT = 8000
NAMES = (HOST, "localhost")
IDLE_S = 60


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
    timeout = IDLE_S  # of a connection on which nobody says anything
    server_version = "rlxweb-site"
    sys_version = ""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """The headers; the opened file, or None where there is nothing to send."""
        if self.headers.get("Host") not in self.own_names():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This is another host")
            return None
        if self.found() is None:
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    def own_names(self) -> set[str]:
        """What the Host header may say: this machine's names, with the port."""
        assert isinstance(self.server, Server)
        port = self.server.server_port
        return {f"{name}:{port}" for name in NAMES} | (
            set(NAMES) if port == 80 else set()
        )

    def found(self) -> Path | None:
        """The file or folder asked for, where the site has it and nobody else."""
        parts = parts_of(self.path)
        if parts is None:
            return None
        path = Path(self.directory, *parts)
        page = path / "index.html" if asked(self.path).endswith("/") else path
        try:
            real = page.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links is the latter until 3.13
            return None
        ours = real.is_relative_to(Path(self.directory).resolve())
        # not a pipe, which would be waited at
        return path if ours and (real.is_file() or real.is_dir()) else None

    def translate_path(self, path: str) -> str:
        """The path of what was asked for, which `found` has approved."""
        end = "/" if asked(path).endswith("/") else ""
        return str(Path(self.directory, *(parts_of(path) or ()))) + end

    def list_directory(self, path: object) -> None:
        """No list of files, of no folder."""
        self.send_error(HTTPStatus.NOT_FOUND, "File not found")

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        # a request that could not be read has no path
        parts = parts_of(getattr(self, "path", "/")) or ()
        for name, value in headers(kind_of("/".join((*parts, "")))).items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if int(code) >= 400:
            super().log_request(code, size)


def asked(target: str) -> str:
    """A request's path without query and fragment, which a browser sends none of."""
    return target.partition("#")[0].partition("?")[0]


def parts_of(target: str) -> list[str] | None:
    """The names in a request's path; None where one is none of a site's.

    A whole URL, such as a proxy is asked for, is no path either.
    """
    path = asked(target)
    if not path.startswith("/"):
        return None
    parts = [part for part in unquote(path).split("/") if part]
    odd = any(part.startswith(".") or set(part) & set("\\:\0") for part in parts)
    return None if odd else parts


class Quiet(ThreadingHTTPServer):
    """A browser that hangs up, as it does whenever somebody goes on, is no news."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Server(Quiet):
    """Serves one folder."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((HOST, port), partial(Handler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


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
