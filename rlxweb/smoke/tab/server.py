"""What a tab is served, and what it says: a server for this machine alone.

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

from rlxweb.pages.server import LocalHandler, LocalServer
from rlxweb.smoke.tab.package_zip import package_zip

SILENT_S = 20.0
"""A page says something every two seconds, whatever its Worker does; a browser makes it
wait longer, up to a minute, while another tab is in front."""
_LOOK_S = 0.2
_MOST_BYTES = 64 << 20


class TabServer(LocalServer):
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
        super().__init__(port, secret, _Handler, "serving a tab")

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


def _own(name: str) -> bytes:
    return (resources.files("rlxweb") / "smoke" / "tab" / name).read_bytes()


class _Handler(LocalHandler):
    @property
    def tab(self) -> TabServer:
        tab: TabServer = self.owner
        return tab

    def get(self, name: str | None) -> None:
        if name in self.tab.files:
            suffix, body = self.tab.files[name]
            self.answer(200, body, suffix)
        elif name and name.startswith("pyodide/"):
            self._file(name.removeprefix("pyodide/"))
        else:
            self.answer(404)

    def _file(self, name: str) -> None:
        path = self.tab.runtime / name
        if "/" in name or "\\" in name or not path.is_file():
            self.answer(404)
        else:
            self.answer(200, path.read_bytes(), path.suffix)

    def post(self, name: str | None) -> None:
        if name != "said":
            return self.answer(404)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MOST_BYTES:
            return self.answer(413)
        try:
            told = json.loads(self.rfile.read(length))
            lines = [json.loads(line) for line in told]
        except (ValueError, TypeError):
            return self.answer(400)
        self.tab.heard_at = monotonic()
        for line in lines:
            self.tab.said.put(line)
        return self.answer(204)
