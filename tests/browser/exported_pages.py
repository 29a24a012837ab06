"""Exported plans behind a strict content policy, on a server that can go wrong."""

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
from rlxweb.backends.protocol import Array
from rlxweb.export.written import Job, write_export
from tests.browser.other_hosts import POLL_S
from tests.browser.watch import Watch
from tests.site_build import Quiet

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "worker-src 'self'"
)
"""No unsafe-eval, nothing inline, nothing of anybody else."""
BLANK = "about:blank"
ROWS, SAMPLES, FS, NPERSEG, K = 5, 640, 128.0, 64, 4


OWN = Path(__file__).parent / "pages" / "exported"
WATCHED = (OWN / "watched.js").read_text("utf-8")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files under the policy; `faults` says what goes wrong with some."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    faults: ClassVar[dict[str, Any]] = {}
    """Path → "cut", "hang", "html", a status, or the bytes to answer with."""
    goes_on: ClassVar[threading.Event] = threading.Event()
    extensions_map = {  # noqa: RUF012  the base class has it so
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
    }

    def log_message(self, *args: Any) -> None:
        """Log nothing."""

    def translate_path(self, path: str) -> str:
        """The tests' own pages lie beside the exports' folders."""
        own = OWN / (path.strip("/") or "index.html")
        return str(own) if own.is_file() else super().translate_path(path)

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
            self._half(body, is_hanging=fault == "hang")
        else:
            self.wfile.write(body)
        return None

    def _half(self, body: bytes, *, is_hanging: bool) -> None:
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if is_hanging:
            self.goes_on.wait(60)
        self.close_connection = True


@dataclass
class Exports:
    """The folders on a server, and what is wrong with some of their files."""

    url: str
    folder: Path
    faults: dict[str, Any] = field(default_factory=dict)

    def page(self, browser: Browser, watch: Watch, first: str = "") -> Page:
        """An empty page of its own with the module's `load` in it, and `told`."""
        return loaded(watch.page(browser, "", WATCHED + first))


def loaded(page: Page) -> Page:
    """The page, once the module is there."""
    page.wait_for_selector("html[data-ready]", state="attached")
    return page


@contextmanager
def served(folder: Path) -> Iterator[Exports]:
    """The folder on a server of its own."""

    class Served(Handler):
        faults: ClassVar[dict[str, Any]] = {}
        goes_on: ClassVar[threading.Event] = threading.Event()

    with Quiet(("127.0.0.1", 0), partial(Served, directory=str(folder))) as server:
        threading.Thread(
            target=server.serve_forever, args=(POLL_S,), daemon=True
        ).start()
        yield Exports(f"http://127.0.0.1:{server.server_port}/", folder, Served.faults)
        Served.goes_on.set()
        server.shutdown()


def kinds_graph() -> rlx.Graph:
    """Every type that crosses, an output without elements, a single value."""
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
    """Rows of a table by their numbers, which are proved."""
    graph = rlx.Graph("table")
    table = graph.param("table", (6, 3), "f32")
    rows = graph.input("rows", (4,), "i32")
    graph.set_outputs([graph.gather(table, rows)])
    return graph


def tokens_graph() -> rlx.Graph:
    """Rows by numbers of 64 bits, what is made of these, and which are large."""
    graph = rlx.Graph("tokens")
    table = graph.param("table", (6, 3), "f32")
    ids = graph.input("ids", (4,), "i64")
    far = graph.gt(graph.input("sizes", (4,), "u64"), 3_000_000_000)
    graph.set_outputs([graph.gather(table, ids), ids * 1000, graph.cast(far, "u64")])
    return graph


def layer_graph() -> rlx.Graph:
    """A product with weights, and what follows it."""
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
    """What the tests load: peaks and both of Welch's, four graphs."""
    for output in ("peaks", "both"):
        rlx.export_welch(
            folder / output, ROWS, SAMPLES, FS, NPERSEG, K, output=output, name=output
        )
    for graph, names in (
        (kinds_graph(), KINDS),
        (table_graph(), ("found",)),
        (tokens_graph(), ("found", "scaled", "far")),
        (layer_graph(), ("y", "total")),
    ):
        params = {n: WEIGHTS[n] for n in graph.named("param")}
        name = graph.name
        write_export(Job(graph, params, folder / name, name=name, outputs=names))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all exports."""
    folder = tmp_path_factory.mktemp("exported")
    write_exports(folder)
    return folder


@pytest.fixture
def exports(written: Path) -> Iterator[Exports]:
    """The folders of `written` on a server."""
    with served(written) as found:
        yield found


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[tuple[Page, Watch]]:
    """One page for the tests of a file, each of which leads it to its own server."""
    made = Watch("")
    page = made.page(browser, BLANK, WATCHED)
    yield page, made
    page.context.close()


@pytest.fixture
def watch(exports: Exports, blank: tuple[Page, Watch]) -> Iterator[Watch]:
    """Everything the pages of this test complained about fails it at the end."""
    page, made = blank
    made.site = exports.url
    page.context.unroute_all()  # the server of the test before
    made.keep_off_others(page.context)
    yield made
    made.check()


@pytest.fixture
def page(exports: Exports, blank: tuple[Page, Watch], watch: Watch) -> Iterator[Page]:
    """An empty page under the policy, with the module in it."""
    made, _ = blank
    made.goto(exports.url)
    yield loaded(made)
    made.goto(BLANK)


def refused(page: Page, script: str, *words: str, code: str) -> str:
    """The message of an RlxError of that code, which has these words."""
    said = page.evaluate(f"async () => {script}")
    assert (said.get("name"), said.get("code")) == ("RlxError", code), said
    assert said["ours"]
    message: str = said["message"]
    for word in words:
        assert word in message, message
    return message
