"""Fixtures and helpers that open, start and watch the live spectrum's page.

The fixtures are in the conftest of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, ViewportSize

from tests.browser.page_monitor import (
    START_MS,
    WAIT_MS,
    PageMonitor,
    dismiss_problems,
    reset_appearance,
)

PATH = "demo/live/"
SIZE: ViewportSize = {"width": 1280, "height": 900}
STATUS_IDS = (
    "picture-title",
    "resting",
    "figure-rate",
    "figure-call",
    "ran-on",
    "explain",
)
# Counts the calls into Python that are under way, and keeps every microphone opened.
SPY_SCRIPT = """
globalThis.spy = { now: 0, most: 0, calls: 0, tracks: [] };
const send = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  if (!spy.worker) {
    spy.worker = this;
    this.addEventListener("message", ({ data }) => { if ("id" in data) spy.now--; });
  }
  if ("id" in message) {
    spy.now++;
    spy.calls++;
    spy.most = Math.max(spy.most, spy.now);
  }
  return send.call(this, message, ...rest);
};
const ask = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
if (ask) navigator.mediaDevices.getUserMedia = async (wish) => {
  const stream = await ask(wish);
  spy.tracks.push(...stream.getTracks());
  return stream;
};
"""


def wait_for_first_picture(page: Page) -> Page:
    """Wait for the page's first picture and return the page."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    return page


@pytest.fixture(scope="session")
def opened(browser: Browser, site_url: str) -> Iterator[tuple[Page, PageMonitor]]:
    """Open one live page for all tests of this process."""
    watch = PageMonitor(site_url)
    page = watch.open_page(browser, PATH, SPY_SCRIPT, viewport=SIZE)
    yield wait_for_first_picture(page), watch
    page.context.close()


@pytest.fixture
def live(opened: tuple[Page, PageMonitor]) -> Iterator[Page]:
    """Yield the page, showing the synthetic EEG on whatever engine it chooses."""
    page, watch = opened
    dismiss_problems(page)  # of the test before this one
    reset_appearance(page, SIZE)
    set_paused(page, False)
    page.select_option("#pace", "100")  # a picture of each frame is work for nothing
    choose_option(page, "device", "auto")
    choose_option(
        page, "source", "recording"
    )  # from anywhere: the defaults come with it
    choose_option(page, "source", "synthetic")
    page.select_option("#channels", "8")
    wait_for_title(page, "Synthetic EEG")
    yield page
    set_paused(page, True)  # else it draws for as long as other tests take
    watch.check()


def set_paused(page: Page, is_paused: bool) -> None:
    """Press Pause unless the page is in that state already."""
    page.evaluate(
        """wanted => {
            const button = document.getElementById("pause");
            if ((button.ariaPressed === "true") !== wanted) button.click();
        }""",
        is_paused,
    )


def choose_option(page: Page, name: str, value: str) -> None:
    """Click one of a row of radio buttons, by its label."""
    page.locator(f'label:has(input[name="{name}"][value="{value}"])').click()


def set_slider(page: Page, id_: str, value: float) -> None:
    """Move a slider."""
    page.locator(f"#{id_}").fill(str(value))


def wait_until(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until a JavaScript condition holds; if it never does, fail with what the
    page shows.
    """
    try:
        page.wait_for_function(condition, arg=argument, timeout=WAIT_MS)
    except TimeoutError:
        status = {id_: page.locator(f"#{id_}").inner_text() for id_ in STATUS_IDS}
        message = page.locator(".said").inner_text()
        pytest.fail(
            f"{condition} ({argument}): {status}, {message!r}, {problem_text(page)!r}"
        )


def wait_frames(page: Page, count: int) -> None:
    """Wait for this many animation frames: in each the page may start a call."""
    page.evaluate(
        """count => new Promise(done => {
            const drawn = () => count-- ? requestAnimationFrame(drawn) : done();
            drawn();
        })""",
        count,
    )


def wait_for_title(page: Page, title: str) -> None:
    """Wait for a picture of the signal with that title and its peaks in the table."""
    wait_until(
        page,
        """title => document.getElementById("picture-title").textContent === title
            && document.getElementById("peaks").rows.length > 0
            && document.getElementById("figure-rate").textContent !== "–" """,
        title,
    )


def first_peaks(page: Page) -> dict[str, float]:
    """Return the strongest frequency of each channel in the table, in Hz."""
    rows = page.eval_on_selector_all(
        "#peaks tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )
    return {row[0]: float(row[2].removesuffix(" Hz")) for row in rows if row[1] == "1"}


def wait_for_peaks(
    page: Page, expected_hz: dict[str, float], tolerance_hz: float = 0.3
) -> None:
    """Wait until the strongest peak of each of these channels is at its expected
    frequency.
    """
    wait_until(
        page,
        """([wanted, within]) => {
            const rows = [...document.getElementById("peaks").rows]
              .map(row => [...row.cells].map(cell => cell.textContent))
              .filter(cells => cells[1] === "1");
            const hz = Object.fromEntries(rows.map(c => [c[0], parseFloat(c[2])]));
            return Object.entries(wanted).every(([name, at]) =>
              Math.abs(hz[name] - at) <= within);
        }""",
        [expected_hz, tolerance_hz],
    )


def wait_for_text(page: Page, element_id: str, words: str) -> None:
    """Wait until the element of that id has these words in it."""
    wait_until(
        page,
        "([id, words]) => document.getElementById(id).textContent.includes(words)",
        [element_id, words],
    )


def wait_for_engine(page: Page, engine: str) -> None:
    wait_for_text(page, "ran-on", engine)


def wait_for_calls(page: Page, calls: int) -> None:
    """Wait until the page has made more than three calls beyond `calls`."""
    wait_until(page, "calls => spy.calls > calls + 3", calls)


def problem_text(page: Page) -> str:
    return " ".join(page.locator(".problem").all_inner_texts())


def wait_for_problem(page: Page, words: str) -> str:
    """Wait for a message with these words in it."""
    page.locator(".problem", has_text=words).first.wait_for(timeout=WAIT_MS)
    return problem_text(page)
