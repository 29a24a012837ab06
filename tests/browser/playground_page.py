"""The playground as tests use it: opened, filled, run, and as new for each test.

Each run of a program takes a Python of its own, which takes seconds to start: tests put
into one program what one run can show. The fixtures are in the conftest of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.demo_page import DEMO, OpenPage, without_python
from tests.browser.watch import START_MS, Watch, dismiss_problems, reset_look

PATH = "demo/playground/"
EXAMPLES = DEMO / "playground" / "examples"
FIRST = "graph"
RUN_MS = 300_000
SIZE: ViewportSize = {"width": 1280, "height": 800}
# Keeps what the Workers of the page say, as they say it.
HEARD = """\
globalThis.heard = [];
globalThis.Worker = class extends Worker {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => heard.push(data));
  }
};
"""
# A machine of little memory: one Python is kept ready, not two.
LITTLE_MEMORY = """\
Object.defineProperty(navigator, "deviceMemory", { value: 4 });
"""


@pytest.fixture(scope="session")
def opened_bench(browser: Browser, site_url: str) -> Iterator[tuple[Page, Watch]]:
    """One playground for all tests of this process."""
    watch = Watch(site_url)
    page = watch.page(
        browser,
        PATH,
        HEARD,
        viewport=SIZE,
        permissions=["clipboard-read", "clipboard-write"],
    )
    yield ready(page), watch
    page.context.close()


@pytest.fixture
def bench(opened_bench: tuple[Page, Watch]) -> Iterator[Page]:
    """The page with the first example on it and nothing kept; Python is ready."""
    page, watch = opened_bench
    as_new(page)
    yield page
    watch.check()


def as_new(page: Page) -> None:
    """Takes from the page what an earlier test left there."""
    reset_look(page, SIZE)
    if page.is_enabled("#stop"):
        page.click("#stop")
    page.evaluate("history.replaceState(null, '', location.pathname)")
    page.fill("#code", "the visitor's own")  # whatever came with a link
    page.select_option("#example", FIRST)
    page.click("#reset")
    dismiss_problems(page)
    page.evaluate("heard.length = 0")
    assert page.evaluate("localStorage.getItem('rlxweb-playground')") is None
    ready(page)


def ready(page: Page) -> Page:
    """Waits until Python is up and nothing runs."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page


def playground(open_page: OpenPage, fragment: str = "") -> Page:
    """A page of its own, in which Python is still starting."""
    return open_page(PATH + fragment, first=LITTLE_MEMORY)


def editor(open_page: OpenPage, fragment: str = "", **context: object) -> Page:
    """The page with a program on it, in a browser where no Python ever starts."""
    page = without_python(partial(open_page, **context), f"playground/{fragment}")
    expect(page.locator("#code")).not_to_have_value("")
    return page


def started(page: Page, code: str) -> None:
    """Types a program over what is there and presses Ctrl+Enter."""
    page.fill("#code", code)
    page.press("#code", "Control+Enter")


def run(page: Page, code: str) -> str:
    """A program's output, after it ended."""
    started(page, code)
    return ended(page)


def ended(page: Page) -> str:
    """The output, once nothing runs any more."""
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page.inner_text("#output")


def drawn(page: Page) -> int:
    """Colours on the last canvas: a blank one has one."""
    count: int = page.evaluate(
        """() => {
        const canvas = [...document.querySelectorAll("#output canvas")].at(-1);
        const data = canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size; }"""
    )
    return count
