"""Web servers besides the site's own: a third-party host, one without security headers,
and a collector of policy violation reports.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.built_site_fixture import BuiltSite, QuietHttpServer

REPORT_TIMEOUT_S = 30
POLL_INTERVAL_S = 0.02
"""Interval at which a server checks whether it is to stop, in seconds."""


@contextmanager
def third_party_host(page: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve another host that answers everybody, and yield its URL and the requested
    paths.
    """
    requested_paths: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            requested_paths.append(self.path)
            is_script = self.path.endswith(".js")
            body = b"export default 1" if is_script else page.encode()
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/javascript" if is_script else "text/html"
            )
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with QuietHttpServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_INTERVAL_S,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}/", requested_paths
        server.shutdown()


@contextmanager
def host_without_headers(site: BuiltSite, worker_policy: str = "") -> Iterator[str]:
    """Serve the site on a host that sends no headers of its own, such as GitHub Pages.

    worker_policy  the policy that it has for the demos' Worker all the same
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
            if worker_policy and self.path.endswith("/worker.js"):
                self.send_header("Content-Security-Policy", worker_policy)
            super().end_headers()

    with QuietHttpServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_INTERVAL_S,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class ViolationReports(list[str]):
    """Reports of policy violations, as a browser posts them to the site when it has
    time.

    A report may be lost with the page that caused it, or come after its test: tests ask
    the page itself where they can, and name here what they mean to be refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hosts: list[str] = []
        self._changed = threading.Condition()

    def add(self, report: str) -> None:
        """Add a report, from the server's thread."""
        with self._changed:
            if not any(host in report for host in self._hosts):
                self.append(report)
            self._changed.notify_all()

    def ignore_hosts(self, *hosts: str) -> None:
        """Ignore reports of hosts that a test expects to be refused, at any time."""
        with self._changed:
            self._hosts += hosts

    @contextmanager
    def expect(self, word: str) -> Iterator[None]:
        """Expect the block to cause reports with this word, and drop them.

        The end of the block waits for the first of them.
        """
        yield
        with self._changed:
            has_report = self._changed.wait_for(
                lambda: any(word in report for report in self), REPORT_TIMEOUT_S
            )
            assert has_report, f"no report with {word!r}: {list(self)}"
            self[:] = [report for report in self if word not in report]

    def check(self) -> None:
        """Fail with all unexpected reports since the last call."""
        with self._changed:
            unexpected, self[:] = list(self), []
        assert not unexpected, "\n".join(unexpected)
