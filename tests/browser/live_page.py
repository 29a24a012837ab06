"""The live spectrum's page as tests use it: opened once, started, watched.

The fixtures are in the conftest of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, ViewportSize

from tests.browser.watch import START_MS, WAIT_MS, Watch, dismiss_problems, reset_look

PATH = "demo/live/"
SIZE: ViewportSize = {"width": 1280, "height": 900}
SHOWN = ("picture-title", "resting", "figure-rate", "figure-call", "ran-on", "explain")
# Counts the calls into Python that are under way, and keeps every microphone opened.
SPY = """
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


def started(page: Page) -> Page:
    """The page, once its first picture is there."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    return page


@pytest.fixture(scope="session")
def opened(browser: Browser, site_url: str) -> Iterator[tuple[Page, Watch]]:
    """One live page for all tests of this process."""
    watch = Watch(site_url)
    page = watch.page(browser, PATH, SPY, viewport=SIZE)
    yield started(page), watch
    page.context.close()


@pytest.fixture
def live(opened: tuple[Page, Watch]) -> Iterator[Page]:
    """The page, showing the synthetic EEG on whatever engine it chooses."""
    page, watch = opened
    dismiss_problems(page)  # of the test before this one
    reset_look(page, SIZE)
    set_paused(page, False)
    page.select_option("#pace", "100")  # a picture of each frame is work for nothing
    choose(page, "device", "auto")
    choose(page, "source", "recording")  # from anywhere: the defaults come with it
    choose(page, "source", "synthetic")
    page.select_option("#channels", "8")
    shown(page, "Synthetic EEG")
    yield page
    set_paused(page, True)  # else it draws for as long as other tests take
    watch.check()


def set_paused(page: Page, wanted: bool) -> None:
    """Press Pause unless it is as wanted."""
    page.evaluate(
        """wanted => {
            const button = document.getElementById("pause");
            if ((button.ariaPressed === "true") !== wanted) button.click();
        }""",
        wanted,
    )


def choose(page: Page, name: str, value: str) -> None:
    """Click one of a row of radio buttons, by its label."""
    page.locator(f'label:has(input[name="{name}"][value="{value}"])').click()


def slide(page: Page, id_: str, value: float) -> None:
    """Move a slider."""
    page.locator(f"#{id_}").fill(str(value))


def until(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until JavaScript says so; if it never does, what the page shows instead."""
    try:
        page.wait_for_function(condition, arg=argument, timeout=WAIT_MS)
    except TimeoutError:
        shows = {id_: page.locator(f"#{id_}").inner_text() for id_ in SHOWN}
        said = page.locator(".said").inner_text()
        pytest.fail(f"{condition} ({argument}): {shows}, {said!r}, {problems(page)!r}")


def frames(page: Page, count: int) -> None:
    """Let the screen be drawn so often: each time the page may begin a call."""
    page.evaluate(
        """count => new Promise(done => {
            const drawn = () => count-- ? requestAnimationFrame(drawn) : done();
            drawn();
        })""",
        count,
    )


def shown(page: Page, title: str) -> None:
    """Wait for a picture of the signal of that title: its peaks are in the table."""
    until(
        page,
        """title => document.getElementById("picture-title").textContent === title
            && document.getElementById("peaks").rows.length > 0
            && document.getElementById("figure-rate").textContent !== "–" """,
        title,
    )


def first_peaks(page: Page) -> dict[str, float]:
    """The strongest frequency of each channel in the table, in Hz."""
    rows = page.eval_on_selector_all(
        "#peaks tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )
    return {row[0]: float(row[2].removesuffix(" Hz")) for row in rows if row[1] == "1"}


def until_peaks(page: Page, wanted: dict[str, float], within: float = 0.3) -> None:
    """Wait until the strongest peak of each of these channels is where it should be."""
    until(
        page,
        """([wanted, within]) => {
            const rows = [...document.getElementById("peaks").rows]
              .map(row => [...row.cells].map(cell => cell.textContent))
              .filter(cells => cells[1] === "1");
            const hz = Object.fromEntries(rows.map(c => [c[0], parseFloat(c[2])]));
            return Object.entries(wanted).every(([name, at]) =>
              Math.abs(hz[name] - at) <= within);
        }""",
        [wanted, within],
    )


def until_says(page: Page, where: str, words: str) -> None:
    """Wait until the element of that id has these words in it."""
    until(
        page,
        "([id, words]) => document.getElementById(id).textContent.includes(words)",
        [where, words],
    )


def until_ran_on(page: Page, engine: str) -> None:
    until_says(page, "ran-on", engine)


def until_called(page: Page, calls: int) -> None:
    """Wait until the page has called again, and again, since there were so many."""
    until(page, "calls => spy.calls > calls + 3", calls)


def problems(page: Page) -> str:
    return " ".join(page.locator(".problem").all_inner_texts())


def problem(page: Page, words: str) -> str:
    """Wait for a message with these words in it."""
    page.locator(".problem", has_text=words).first.wait_for(timeout=WAIT_MS)
    return problems(page)
