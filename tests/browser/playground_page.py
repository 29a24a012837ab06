"""Fixtures and helpers that open, fill, run and reset the playground's page.

Each run of a program takes a Python of its own, which takes seconds to start: tests put
into one program what one run can show. The fixtures are in the conftest of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.page_monitor import (
    START_MS,
    PageMonitor,
    dismiss_problems,
    reset_appearance,
)
from tests.browser.patched_demo_page import DEMO, OpenPage, open_without_python

PATH = "demo/playground/"
EXAMPLES = DEMO / "playground" / "examples"
FIRST_EXAMPLE = "graph"
RUN_MS = 300_000
SIZE: ViewportSize = {"width": 1280, "height": 800}
# Keeps what the Workers of the page say, as they say it.
MESSAGE_RECORDER = """\
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
def opened_bench(browser: Browser, site_url: str) -> Iterator[tuple[Page, PageMonitor]]:
    """Open one playground for all tests of this process."""
    watch = PageMonitor(site_url)
    page = watch.open_page(
        browser,
        PATH,
        MESSAGE_RECORDER,
        viewport=SIZE,
        permissions=["clipboard-read", "clipboard-write"],
    )
    yield wait_until_ready(page), watch
    page.context.close()


@pytest.fixture
def bench(opened_bench: tuple[Page, PageMonitor]) -> Iterator[Page]:
    """Yield the page with the first example, empty storage and Python ready."""
    page, watch = opened_bench
    reset_playground(page)
    yield page
    watch.check()


def reset_playground(page: Page) -> None:
    """Reset the page to the state before any test."""
    reset_appearance(page, SIZE)
    if page.is_enabled("#stop"):
        page.click("#stop")
    page.evaluate("history.replaceState(null, '', location.pathname)")
    page.fill("#code", "the visitor's own")  # whatever came with a link
    page.select_option("#example", FIRST_EXAMPLE)
    page.click("#reset")
    dismiss_problems(page)
    page.evaluate("heard.length = 0")
    assert page.evaluate("localStorage.getItem('rlxweb-playground')") is None
    wait_until_ready(page)


def wait_until_ready(page: Page) -> Page:
    """Wait until Python is up and nothing runs, and return the page."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page


def open_playground(open_page: OpenPage, fragment: str = "") -> Page:
    """Open a separate page in which Python is still starting."""
    return open_page(PATH + fragment, init_script=LITTLE_MEMORY)


def open_editor(open_page: OpenPage, fragment: str = "", **context: object) -> Page:
    """Open the page with a program on it, in a browser where Python never starts."""
    page = open_without_python(partial(open_page, **context), f"playground/{fragment}")
    expect(page.locator("#code")).not_to_have_value("")
    return page


def start_program(page: Page, code: str) -> None:
    """Replace the program in the editor and press Ctrl+Enter."""
    page.fill("#code", code)
    page.press("#code", "Control+Enter")


def run_program(page: Page, code: str) -> str:
    """Run a program and return its output."""
    start_program(page, code)
    return wait_for_output(page)


def wait_for_output(page: Page) -> str:
    """Wait until nothing runs any more and return the output."""
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page.inner_text("#output")


def count_canvas_colours(page: Page) -> int:
    """Return the number of colours on the last canvas; a blank one has one."""
    count: int = page.evaluate(
        """() => {
        const canvas = [...document.querySelectorAll("#output canvas")].at(-1);
        const data = canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size; }"""
    )
    return count
