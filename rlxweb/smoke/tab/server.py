"""What a tab is served, and what it says: a server for this machine alone.

One page, one Worker, Pyodide and the package, under an address that nobody can guess.
The tab posts lines, the same that a child process writes, and they come out of `lines`
in their order. Other hosts' pages cannot read or post anything here: the address is a
secret, and requests that came by another name of this machine are refused.
"""

from __future__ import annotations

import http.server
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from time import monotonic
from typing import Any

from rlxweb.smoke.tab.package_zip import package_zip

SILENT_S = 20.0
"""A page says something every two seconds, whatever its Worker does; a browser makes it
wait longer, up to a minute, while another tab is in front."""
_LOOK_S = 0.2
_MOST_BYTES = 64 << 20
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
}


class TabServer:
    """Serves one tab; open as long as the `with` block.

    asked    what the tab is to do: the line that a child process would be given
    runtime  the folder of Pyodide
    port     of 127.0.0.1; 0 is any
    secret   the first part of every path
    """

    def __init__(
        self, asked: Mapping[str, Any], runtime: Path, port: int, secret: str
    ) -> None:
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        self.heard_at: float | None = None
        self.runtime = runtime
        self.files = {
            "": (".html", _own("page.html")),
            "worker.js": (".js", _own("worker.js")),
            "asked.json": (".json", json.dumps(asked).encode()),
            "package.zip": (".zip", package_zip()),
        }
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.tab = self  # type: ignore[attr-defined]
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.prefix = f"/{secret}/"

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.prefix}"

    def __enter__(self) -> TabServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lines(
        self, why_gone: Callable[[], str], silent_s: float = SILENT_S
    ) -> Iterator[dict[str, Any]]:
        """What the tab says, until it says that it is at its end.

        why_gone   what became of the browser; "" while it runs
        silent_s   how long a tab that spoke once may say nothing

        Errors   ConnectionError where nothing is to be expected any more.
        """
        while True:
            try:
                line = self.said.get(timeout=_LOOK_S)
            except queue.Empty:
                gone = why_gone()
                since = monotonic() - (self.heard_at or monotonic())
                if not gone and since > silent_s:
                    gone = f"its tab said nothing for {silent_s:g} s"
                if gone and self.said.empty():
                    raise ConnectionError(gone) from None
                continue
            if line.get("end"):
                return
            yield line


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def _own(name: str) -> bytes:
    return (resources.files("rlxweb") / "smoke" / "tab" / name).read_bytes()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nothing: what matters is told by the tab."""

    @property
    def tab(self) -> TabServer:
        tab: TabServer = self.server.tab  # type: ignore[attr-defined]
        return tab

    def _path(self) -> str | None:
        """What of the tab's is asked for; None for whatever is not its business."""
        where = self.path.partition("?")[0]
        if self.headers.get("Host") != self.tab.host:
            return None
        prefix = self.tab.prefix
        return where.removeprefix(prefix) if where.startswith(prefix) else None

    def do_GET(self) -> None:
        name = self._path()
        if name in self.tab.files:
            suffix, body = self.tab.files[name]
            self._answer(200, body, suffix)
        elif name and name.startswith("pyodide/"):
            self._file(name.removeprefix("pyodide/"))
        else:
            self._answer(404)

    def _file(self, name: str) -> None:
        path = self.tab.runtime / name
        if "/" in name or "\\" in name or not path.is_file():
            self._answer(404)
        else:
            self._answer(200, path.read_bytes(), path.suffix)

    def do_POST(self) -> None:
        if self._path() != "said":
            return self._answer(404)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MOST_BYTES:
            return self._answer(413)
        try:
            told = json.loads(self.rfile.read(length))
            lines = [json.loads(line) for line in told]
        except (ValueError, TypeError):
            return self._answer(400)
        self.tab.heard_at = monotonic()
        for line in lines:
            self.tab.said.put(line)
        return self._answer(204)

    def _answer(self, code: int, body: bytes = b"", suffix: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        kind = _TYPES.get(suffix, "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)
