"""Fixtures for exported plans in a page: sample exports, a server that fails on
request, and a strict content security policy.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import rlxweb as rlx
from rlxweb.engines.protocol import Array
from rlxweb.export.web_export import ExportJob, write_export
from tests.browser.foreign_web_servers import POLL_INTERVAL_S
from tests.browser.page_monitor import PageMonitor
from tests.built_site_fixture import QuietHttpServer

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "worker-src 'self'"
)
"""Content policy without unsafe-eval, inline code or other hosts."""
BLANK = "about:blank"
ROWS, SAMPLES, FS, NPERSEG, K = 5, 640, 128.0, 64, 4


HARNESS_FOLDER = Path(__file__).parent / "pages" / "exported"
HARNESS_SCRIPT = (HARNESS_FOLDER / "watched.js").read_text("utf-8")


class FaultyHandler(http.server.SimpleHTTPRequestHandler):
    """Handler that sends files under the policy; `faults` defines which responses fail
    and how.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    faults: ClassVar[dict[str, Any]] = {}
    """Path → "cut", "hang", "html", a status, or the bytes to answer with."""
    resume_event: ClassVar[threading.Event] = threading.Event()
    extensions_map = {  # noqa: RUF012  the base class has it so
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
    }

    def log_message(self, *args: Any) -> None:
        """Log nothing."""

    def translate_path(self, path: str) -> str:
        """Return a path in the harness folder if the file is there, else in the
        exports' folder.
        """
        harness_file = HARNESS_FOLDER / (path.strip("/") or "index.html")
        return (
            str(harness_file)
            if harness_file.is_file()
            else super().translate_path(path)
        )

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def do_GET(self) -> None:
        fault = self.faults.get(self.path)
        if fault is None:
            return super().do_GET()
        body = fault if isinstance(fault, bytes) else b"<!doctype html><title>Home"
        if fault in ("cut", "hang"):
            body = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(fault if isinstance(fault, int) else 200)
        self.send_header("Content-Type", "text/html" if fault == "html" else "x/y")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("cut", "hang"):
            self._send_half(body, is_hanging=fault == "hang")
        else:
            self.wfile.write(body)
        return None

    def _send_half(self, body: bytes, *, is_hanging: bool) -> None:
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if is_hanging:
            self.resume_event.wait(60)
        self.close_connection = True


@dataclass
class ExportServer:
    """Server of the exported folders, with the faults of some of their files."""

    url: str
    folder: Path
    faults: dict[str, Any] = field(default_factory=dict)

    def open_page(
        self, browser: Browser, watch: PageMonitor, init_script: str = ""
    ) -> Page:
        """Open an empty page with the module's `load` in it, and `told`."""
        return wait_until_loaded(
            watch.open_page(browser, "", HARNESS_SCRIPT + init_script)
        )


def wait_until_loaded(page: Page) -> Page:
    """Wait until the page has loaded the module, and return the page."""
    page.wait_for_selector("html[data-ready]", state="attached")
    return page


@contextmanager
def serve_exports(folder: Path) -> Iterator[ExportServer]:
    """Serve the folder on a server of its own."""

    class Served(FaultyHandler):
        faults: ClassVar[dict[str, Any]] = {}
        resume_event: ClassVar[threading.Event] = threading.Event()

    with QuietHttpServer(
        ("127.0.0.1", 0), partial(Served, directory=str(folder))
    ) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_INTERVAL_S,), daemon=True
        ).start()
        yield ExportServer(
            f"http://127.0.0.1:{server.server_port}/", folder, Served.faults
        )
        Served.resume_event.set()
        server.shutdown()


def kinds_graph() -> rlx.Graph:
    """Create a graph with every transferable type, an empty output and a scalar."""
    graph = rlx.Graph("kinds")
    x = graph.input("x", (2, 3), "f32")
    n = graph.input("n", (3,), "i32")
    u = graph.input("u", (3,), "u32")
    b = graph.input("b", (2, 3), "bool")
    graph.set_outputs(
        [
            graph.where(b, x, -x),
            n + n,
            u * u,
            x > 0.0,
            x[:, 3:],
            graph.sum(x),
        ]
    )
    return graph


def table_graph() -> rlx.Graph:
    """Create a graph that gathers rows of a table, with its indices validated."""
    graph = rlx.Graph("table")
    table = graph.param("table", (6, 3), "f32")
    rows = graph.input("rows", (4,), "i32")
    graph.set_outputs([graph.gather(table, rows)])
    return graph


def tokens_graph() -> rlx.Graph:
    """Create a graph that gathers rows by 64-bit indices, scales these, and compares
    large ones.
    """
    graph = rlx.Graph("tokens")
    table = graph.param("table", (6, 3), "f32")
    ids = graph.input("ids", (4,), "i64")
    far = graph.gt(graph.input("sizes", (4,), "u64"), 3_000_000_000)
    graph.set_outputs([graph.gather(table, ids), ids * 1000, graph.cast(far, "u64")])
    return graph


def layer_graph() -> rlx.Graph:
    """Create a graph of a product with weights, tanh and a sum."""
    graph = rlx.Graph("layer")
    x = graph.input("x", (4, 48), "f32")
    w = graph.param("w", (48, 40), "f32")
    graph.set_outputs([graph.tanh(graph.matmul(x, w)), graph.sum(x, 1)])
    return graph


KINDS = ("chosen", "doubled", "squared", "positive", "nothing", "total")
WEIGHTS: dict[str, Array] = {
    "table": np.arange(18, dtype=np.float32).reshape(6, 3),
    "w": np.random.default_rng(1).standard_normal((48, 40)).astype(np.float32),
}


def write_exports(folder: Path) -> None:
    """Write the exports that the tests load: both outputs of Welch, and four graphs."""
    for output in ("peaks", "both"):
        rlx.export_welch(
            folder / output, ROWS, SAMPLES, FS, NPERSEG, K, output=output, name=output
        )
    for graph, output_names in (
        (kinds_graph(), KINDS),
        (table_graph(), ("found",)),
        (tokens_graph(), ("found", "scaled", "far")),
        (layer_graph(), ("y", "total")),
    ):
        params = {n: WEIGHTS[n] for n in graph.named("param")}
        name = graph.name
        write_export(
            ExportJob(graph, params, folder / name, name=name, outputs=output_names)
        )


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all exports and return their folder."""
    folder = tmp_path_factory.mktemp("exported")
    write_exports(folder)
    return folder


@pytest.fixture
def exports(written: Path) -> Iterator[ExportServer]:
    """Serve the folders of `written`."""
    with serve_exports(written) as export_server:
        yield export_server


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[tuple[Page, PageMonitor]]:
    """Open one page for the tests of a file, each of which leads it to its own
    server.
    """
    page_watch = PageMonitor("")
    page = page_watch.open_page(browser, BLANK, HARNESS_SCRIPT)
    yield page, page_watch
    page.context.close()


@pytest.fixture
def watch(
    exports: ExportServer, blank: tuple[Page, PageMonitor]
) -> Iterator[PageMonitor]:
    """Yield a watch that fails the test if one of its pages complained about
    anything.
    """
    page, page_watch = blank
    page_watch.site_url = exports.url
    page.context.unroute_all()  # the server of the test before
    page_watch.block_other_hosts(page.context)
    yield page_watch
    page_watch.check()


@pytest.fixture
def page(
    exports: ExportServer, blank: tuple[Page, PageMonitor], watch: PageMonitor
) -> Iterator[Page]:
    """Yield an empty page under the policy, with the module in it."""
    blank_page, _ = blank
    blank_page.goto(exports.url)
    yield wait_until_loaded(blank_page)
    blank_page.goto(BLANK)


def check_error(page: Page, script: str, *words: str, code: str) -> str:
    """Check that a script fails with an RlxError of this code and these words, and
    return its message.
    """
    error = page.evaluate(f"async () => {script}")
    assert (error.get("name"), error.get("code")) == ("RlxError", code), error
    assert error["ours"]
    message: str = error["message"]
    for word in words:
        assert word in message, message
    return message
