"""Fixtures for a real browser on the built site, watched for every complaint.

The site is served with the headers that its host files say, and the tests' own pages
with those of the demos, under /_tests/. What a content policy refuses is reported to
this server, by Workers too, and fails the test. Whatever a page asks of another host is
refused and fails the test: the site works offline or not at all.
"""

from __future__ import annotations

import http.server
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.foreign_web_servers import ViolationReports
from tests.browser.live_page import live, opened
from tests.browser.page_monitor import FLAGS, START_MS, PageMonitor
from tests.browser.playground_page import bench, opened_bench
from tests.built_site_fixture import BuiltSite, QuietHttpServer, built_site
from tests.conftest import find_browser
from tests.howto_pages import code_blocks

__all__ = [
    "FLAGS",
    "START_MS",
    "PageMonitor",
    "bench",
    "built_site",
    "live",
    "opened",
    "opened_bench",
]

HERE = Path(__file__).parent
TESTS = HERE.parent
# What of the tests runs inside the tab: it needs nothing but NumPy.
TAB_MODULES = (
    "engines_under_test.py",
    "browser/inside/*.py",
    "graphs/random_gradient_graph.py",
    "ops/special_values.py",
)


def tab_modules_zip() -> bytes:
    """Pack the tests' modules that run in the tab, as `tests.…`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for pattern in TAB_MODULES:
            for path in sorted(TESTS.glob(pattern)):
                archive.write(path, Path("tests") / path.relative_to(TESTS))
    return buffer.getvalue()


class SiteHandler(http.server.SimpleHTTPRequestHandler):
    """Handler of static files with their headers; /_tests/ is served from the folder
    `pages`.
    """

    extensions_map = {  # noqa: RUF012  the base class has it so
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }
    virtual_files: ClassVar[dict[str, tuple[str, bytes]]] = {}
    """Content type and bytes by path of responses that are no files and have none of
    our headers.
    """
    violations: ClassVar[ViolationReports] = ViolationReports()
    """Policy violations that the browser reported."""

    def log_message(self, *args: Any) -> None:
        """Log nothing: pytest's output is for failures."""

    def translate_path(self, path: str) -> str:
        url_path = path.split("?")[0].split("#")[0]
        if url_path.startswith("/_tests/"):
            return str(HERE / "pages" / url_path.removeprefix("/_tests/"))
        return super().translate_path(path)

    def end_headers(self) -> None:
        from assembly.http_headers import DEMO, POLICY_HEADER, file_kind, headers

        url_path = self.path.split("?")[0].lstrip("/")
        if f"/{url_path}" not in self.virtual_files:
            kind = DEMO if url_path.startswith("_tests/") else file_kind(url_path)
            for name, value in headers(kind).items():
                suffix = "; report-uri /_csp" if name == POLICY_HEADER else ""
                self.send_header(name, value + suffix)
        super().end_headers()

    def do_POST(self) -> None:
        """Store the report of a policy violation."""
        report = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.violations.add(report)
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        virtual_file = self.virtual_files.get(self.path.split("?")[0])
        if virtual_file is None:
            return super().do_GET()
        kind, body = virtual_file
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None


@pytest.fixture(scope="session")
def site_url(built_site: BuiltSite) -> Iterator[str]:
    """Serve the built site and yield its address, with a slash at the end."""
    page = code_blocks("your-page", "html")[0]

    class Served(SiteHandler):
        virtual_files: ClassVar[dict[str, tuple[str, bytes]]] = {
            "/_tests/tests.zip": ("application/zip", tab_modules_zip()),
            "/snippet.html": ("text/html; charset=utf-8", page.encode()),
        }

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(built_site.folder))

    with QuietHttpServer(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        Served.violations.check()  # what was reported after its test


@pytest.fixture(autouse=True)
def violations() -> Iterator[ViolationReports]:
    """Fail a test whose pages were refused something that the test did not expect.

    A report that comes too late fails the next test or the session; it has the page's
    address in it.
    """
    yield SiteHandler.violations
    SiteHandler.violations.check()


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable[..., Browser]]:
    """Start the system's Chromium, with more flags where a test needs them."""
    path = find_browser()
    assert path, "no chromium on PATH"
    with sync_playwright() as playwright:

        def start(*flags: str, only: tuple[str, ...] = FLAGS) -> Browser:
            return playwright.chromium.launch(
                executable_path=path, args=[*only, *flags], timeout=START_MS
            )

        yield start


@pytest.fixture(scope="session")
def browser(launch: Callable[..., Browser]) -> Iterator[Browser]:
    """One Chromium for all tests of this process."""
    chromium = launch()
    yield chromium
    chromium.close()


@pytest.fixture
def watch(site_url: str) -> Iterator[PageMonitor]:
    """Yield a watch that fails the test if one of its pages complained about
    anything.
    """
    page_watch = PageMonitor(site_url)
    yield page_watch
    page_watch.check()


@pytest.fixture
def open_page(browser: Browser, watch: PageMonitor) -> Iterator[Callable[..., Page]]:
    """Yield `open_page(path, **context)`, which opens a page of the site until the test
    ends.
    """
    pages: list[Page] = []

    def open_(path: str, **context: Any) -> Page:
        pages.append(watch.open_page(browser, path, **context))
        return pages[-1]

    yield open_
    for page in pages:
        page.context.close()


PRELUDE = """\
import asyncio, json
import numpy as np, rlxweb as rlx
from rlxweb.engines.pool import pool
from tests.browser.inside import tab_functions
def caught(work):
    try:
        return work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


@dataclass
class Tab:
    """Browser tab with Python in which PRELUDE was run.

    `run` and `blocking` give what the code's last line is.
    """

    page: Page
    watch: PageMonitor

    def run(self, code: str) -> Any:
        """Run Python that may wait, by `await` or by stack switching; JSON comes
        back.
        """
        return self._evaluate("py", code)

    def blocking(self, code: str) -> Any:
        """Run Python as in a browser without JSPI, where no call may wait."""
        return self._evaluate("blocking", code)

    def _evaluate(self, function_name: str, code: str) -> Any:
        answer = self.page.evaluate(f"code => {function_name}(code)", code)
        self.watch.check()
        return json.loads(answer) if answer not in ("undefined", "None") else None


def open_python_tab(
    browser: Browser, watch: PageMonitor, where: str, init_script: str = ""
) -> Tab:
    """Open a tab with Python ready in it, which lives as long as the browser."""
    page = watch.open_page(browser, f"_tests/python.html?where={where}", init_script)
    page.wait_for_function("globalThis.isReady", timeout=START_MS)
    tab = Tab(page, watch)
    tab.run(PRELUDE + "None")
    return tab


@pytest.fixture(scope="session")
def worker_tab(browser: Browser, site_url: str) -> Tab:
    """Python in a Worker, shared by all tests of this process."""
    return open_python_tab(browser, PageMonitor(site_url), "worker")


@pytest.fixture(scope="session")
def page_tab(browser: Browser, site_url: str) -> Tab:
    """Python on a page's own thread, shared likewise."""
    return open_python_tab(browser, PageMonitor(site_url), "page")


@pytest.fixture(params=["worker", "page"])
def tab(request: pytest.FixtureRequest) -> Tab:
    """Tab with Python in a Worker, then on a page's own thread."""
    selected_tab: Tab = request.getfixturevalue(f"{request.param}_tab")
    return selected_tab
