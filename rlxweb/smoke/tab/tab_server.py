"""Local server of one tab: serves the page, Pyodide and the package, receives messages.

One page, one Worker, Pyodide and the package, under an address that nobody can guess.
The tab posts lines, the same that a child process writes, and they come out of `lines`
in their order. Other hosts' pages cannot read or post anything here: the address is a
secret, and requests that came by another name of this machine are refused.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from time import monotonic
from typing import Any

from rlxweb.export.local_server import LocalRequestHandler, LocalServer
from rlxweb.smoke.tab.package_zip import zip_package

MAX_SILENCE_S = 20.0
"""Longest silence of a tab. A page posts every two seconds whatever its Worker does;
browsers delay that, up to a minute, while another tab is in front.
"""
_POLL_S = 0.2
_MAX_POST_NBYTES = 64 << 20


class TabServer(LocalServer):
    """Server of one tab; it runs as long as the `with` block.

    request  what the tab is to do: the line that a child process would be given
    pyodide_folder  the folder of Pyodide
    port     of 127.0.0.1; 0 is any
    secret   the first part of every path
    """

    def __init__(
        self, request: Mapping[str, Any], pyodide_folder: Path, port: int, secret: str
    ) -> None:
        self.message_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.last_message_at: float | None = None
        self.pyodide_folder = pyodide_folder
        self.files = {
            "": (".html", _read_own_file("page.html")),
            "worker.js": (".js", _read_own_file("worker.js")),
            "asked.json": (".json", json.dumps(request).encode()),
            "package.zip": (".zip", zip_package()),
        }
        super().__init__(port, secret, _TabRequestHandler, "serving a tab")

    def messages(
        self, exit_reason: Callable[[], str], max_silence_s: float = MAX_SILENCE_S
    ) -> Iterator[dict[str, Any]]:
        """Yield the tab's messages until it sends its end message.

        exit_reason  what became of the browser; "" while it runs
        max_silence_s  how long a tab that spoke once may say nothing

        Errors   ConnectionError where nothing is to be expected any more.
        """
        while True:
            try:
                message = self.message_queue.get(timeout=_POLL_S)
            except queue.Empty:
                failure_reason = exit_reason()
                silence_s = monotonic() - (self.last_message_at or monotonic())
                if not failure_reason and silence_s > max_silence_s:
                    failure_reason = f"its tab sent no message for {max_silence_s:g} s"
                if failure_reason and self.message_queue.empty():
                    raise ConnectionError(failure_reason) from None
                continue
            if message.get("end"):
                return
            yield message


def _read_own_file(name: str) -> bytes:
    """Read a file of this package."""
    return (resources.files("rlxweb") / "smoke" / "tab" / name).read_bytes()


class _TabRequestHandler(LocalRequestHandler):
    """HTTP handler of the tab's page, files and messages."""

    @property
    def tab(self) -> TabServer:
        """Server that this handler belongs to."""
        tab: TabServer = self.local_server
        return tab

    def handle_get(self, name: str | None) -> None:
        if name in self.tab.files:
            suffix, body = self.tab.files[name]
            self.send_answer(200, body, suffix)
        elif name and name.startswith("pyodide/"):
            self._send_pyodide_file(name.removeprefix("pyodide/"))
        else:
            self.send_answer(404)

    def _send_pyodide_file(self, name: str) -> None:
        path = self.tab.pyodide_folder / name
        if "/" in name or "\\" in name or not path.is_file():
            self.send_answer(404)
        else:
            self.send_answer(200, path.read_bytes(), path.suffix)

    def handle_post(self, name: str | None) -> None:
        if name != "said":
            return self.send_answer(404)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MAX_POST_NBYTES:
            return self.send_answer(413)
        try:
            texts = json.loads(self.rfile.read(length))
            messages = [json.loads(message) for message in texts]
        except (ValueError, TypeError):
            return self.send_answer(400)
        self.tab.last_message_at = monotonic()
        for message in messages:
            self.tab.message_queue.put(message)
        return self.send_answer(204)
