"""Hosts beside the site's own: a stranger's, and one that sends no headers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.site_build import BuiltSite, Quiet

REPORTED_S = 30
POLL_S = 0.02
"""How long a server that is to end may take to hear of it."""


@contextmanager
def elsewhere(page: str = "") -> Iterator[tuple[str, list[str]]]:
    """Another host that answers everybody, its URL, and what was asked of it."""
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            asked.append(self.path)
            script = self.path.endswith(".js")
            body = b"export default 1" if script else page.encode()
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/javascript" if script else "text/html"
            )
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with Quiet(("127.0.0.1", 0), Answers) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_S,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()


@contextmanager
def plain_host(site: BuiltSite, for_worker: str = "") -> Iterator[str]:
    """The site on a host that sends no headers of its own, such as GitHub Pages.

    for_worker   the policy that it has for the demos' Worker all the same
    """

    class Plain(http.server.SimpleHTTPRequestHandler):
        extensions_map = {  # noqa: RUF012  the base class has it so
            **http.server.SimpleHTTPRequestHandler.extensions_map,
            ".mjs": "text/javascript",
        }

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site.folder))

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

        def end_headers(self) -> None:
            if for_worker and self.path.endswith("/worker.js"):
                self.send_header("Content-Security-Policy", for_worker)
            super().end_headers()

    with Quiet(("127.0.0.1", 0), Plain) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_S,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Reports(list[str]):
    """What policies refused, as a browser posts it to the site when it has time.

    A report may be lost with the page that caused it, or come after its test: tests ask
    the page itself where they can, and name here what they mean to be refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hosts: list[str] = []
        self._told = threading.Condition()

    def take(self, said: str) -> None:
        """One more report, from the thread that serves."""
        with self._told:
            if not any(host in said for host in self._hosts):
                self.append(said)
            self._told.notify_all()

    def may_tell_of(self, *hosts: str) -> None:
        """Drop reports of hosts that a test means to be refused, at any time."""
        with self._told:
            self._hosts += hosts

    @contextmanager
    def expected(self, word: str) -> Iterator[None]:
        """Return a block that causes reports with this word, no fault of the site.

        The end of the block waits for the first of them.
        """
        yield
        with self._told:
            came = self._told.wait_for(
                lambda: any(word in one for one in self), REPORTED_S
            )
            assert came, f"no report with {word!r}: {list(self)}"
            self[:] = [one for one in self if word not in one]

    def check(self) -> None:
        """Fail with all that was refused since the last call, and was not to be."""
        with self._told:
            found, self[:] = list(self), []
        assert not found, "\n".join(found)
