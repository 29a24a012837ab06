"""A real browser on the built site, watched for everything it complains about.

The site is served with the headers that its host files say, and the tests' own pages
with those of the demos, under /_tests/. What a content policy refuses is reported to
this server, by Workers too, and fails the test. Whatever a page asks of another host is
refused and fails the test: the site works offline or not at all.
"""

from __future__ import annotations

import http.server
import io
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.live_page import live, opened
from tests.browser.other_hosts import Reports
from tests.browser.playground_page import bench, opened_bench
from tests.browser.watch import FLAGS, START_MS, Watch
from tests.conftest import find_browser
from tests.site_build import BuiltSite, Quiet, built_site

__all__ = [
    "FLAGS",
    "START_MS",
    "Watch",
    "bench",
    "built_site",
    "live",
    "opened",
    "opened_bench",
]

HERE = Path(__file__).parent
TESTS = HERE.parent
SITE_PAGES = TESTS.parent / "site" / "pages"
# What of the tests runs inside the tab: it needs nothing but NumPy.
INSIDE = (
    "agreement.py",
    "browser/inside/*.py",
    "graphs/differentiated.py",
    "ops/special.py",
)


def tests_zip() -> bytes:
    """The tests' modules that run in the tab, as `tests.…`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for pattern in INSIDE:
            for path in sorted(TESTS.glob(pattern)):
                archive.write(path, Path("tests") / path.relative_to(TESTS))
    return packed.getvalue()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Static files with their headers; /_tests/ comes from beside here."""

    extensions_map = {  # noqa: RUF012  the base class has it so
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }
    made: ClassVar[dict[str, tuple[str, bytes]]] = {}
    """Path → type and bytes of what is no file, and comes without our headers."""
    violations: ClassVar[Reports] = Reports()
    """What a policy refused, as the browser reported it."""

    def log_message(self, *args: Any) -> None:
        """Log nothing: pytest's output is for failures."""

    def translate_path(self, path: str) -> str:
        where = path.split("?")[0].split("#")[0]
        if where.startswith("/_tests/"):
            return str(HERE / "pages" / where.removeprefix("/_tests/"))
        return super().translate_path(path)

    def end_headers(self) -> None:
        from assembly.policy import DEMO, POLICY, headers, kind_of

        where = self.path.split("?")[0].lstrip("/")
        if f"/{where}" not in self.made:
            kind = DEMO if where.startswith("_tests/") else kind_of(where)
            for name, value in headers(kind).items():
                more = "; report-uri /_csp" if name == POLICY else ""
                self.send_header(name, value + more)
        super().end_headers()

    def do_POST(self) -> None:
        """A report of something refused."""
        said = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.violations.take(said)
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        found = self.made.get(self.path.split("?")[0])
        if found is None:
            return super().do_GET()
        kind, body = found
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None


def snippet(page: str = "your-page.md", kind: str = "html") -> bytes:
    """What a page of the manual tells people to copy, as it stands there."""
    text = (SITE_PAGES / "howto" / page).read_text("utf-8")
    block = rf"^```{kind}[^\n]*\n(.*?)^```"
    found = re.search(block, text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no {kind} block"
    return found[1].encode()


@pytest.fixture(scope="session")
def site_url(built_site: BuiltSite) -> Iterator[str]:
    """The address where the built site is served, with a slash at the end."""

    class Served(Handler):
        made: ClassVar[dict[str, tuple[str, bytes]]] = {
            "/_tests/tests.zip": ("application/zip", tests_zip()),
            "/snippet.html": ("text/html; charset=utf-8", snippet()),
        }

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(built_site.folder))

    with Quiet(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        Served.violations.check()  # what was reported after its test


@pytest.fixture(autouse=True)
def violations() -> Iterator[Reports]:
    """Fail a test whose pages were refused something that the test did not expect.

    A report that comes too late fails the next test or the session; it has the page's
    address in it.
    """
    yield Handler.violations
    Handler.violations.check()


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
    started = launch()
    yield started
    started.close()


@pytest.fixture
def watch(site_url: str) -> Iterator[Watch]:
    """Everything the pages of this test complained about fails it at the end."""
    made = Watch(site_url)
    yield made
    made.check()


@pytest.fixture
def open_page(browser: Browser, watch: Watch) -> Iterator[Callable[..., Page]]:
    """`open_page(path, **context)`: a page of the site, open as long as the test."""
    pages: list[Page] = []

    def open_(path: str, **context: Any) -> Page:
        pages.append(watch.page(browser, path, **context))
        return pages[-1]

    yield open_
    for page in pages:
        page.context.close()


PRELUDE = """\
import asyncio, json
import numpy as np, rlxweb as rlx
from rlxweb.backends.pool import pool
from tests.browser.inside import suite
def caught(work):
    try:
        return work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


@dataclass
class Tab:
    """Python in a tab, in which PRELUDE was run.

    `run` and `blocking` give what the code's last line is.
    """

    page: Page
    watch: Watch

    def run(self, code: str) -> Any:
        """Python that may wait, by `await` or by switching stacks; JSON comes back."""
        return self._ask("py", code)

    def blocking(self, code: str) -> Any:
        """Python entered as in a browser without JSPI: no call may wait."""
        return self._ask("blocking", code)

    def _ask(self, how: str, code: str) -> Any:
        said = self.page.evaluate(f"code => {how}(code)", code)
        self.watch.check()
        return json.loads(said) if said not in ("undefined", "None") else None


def python_tab(browser: Browser, watch: Watch, where: str, first: str = "") -> Tab:
    """A tab with Python ready in it, open as long as the browser."""
    page = watch.page(browser, f"_tests/python.html?where={where}", first)
    page.wait_for_function("globalThis.isReady", timeout=START_MS)
    tab = Tab(page, watch)
    tab.run(PRELUDE + "None")
    return tab


@pytest.fixture(scope="session")
def worker_tab(browser: Browser, site_url: str) -> Tab:
    """Python in a Worker, shared by all tests of this process."""
    return python_tab(browser, Watch(site_url), "worker")


@pytest.fixture(scope="session")
def page_tab(browser: Browser, site_url: str) -> Tab:
    """Python on a page's own thread, shared likewise."""
    return python_tab(browser, Watch(site_url), "page")


@pytest.fixture(params=["worker", "page"])
def tab(request: pytest.FixtureRequest) -> Tab:
    """Python in a Worker, then on a page's own thread."""
    found: Tab = request.getfixturevalue(f"{request.param}_tab")
    return found
