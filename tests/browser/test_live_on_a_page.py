"""`rlxweb live --web` on a terminal, and its page in a real browser."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.watch import Watch, check_schemes_on_a_phone
from tests.terminal import Terminal

pytestmark = pytest.mark.requires_browser

FS = 128
T = np.arange(20 * FS) / FS
X = np.random.default_rng(4).standard_normal((3, T.size))
X += np.sin(2 * np.pi * np.array([[10.0], [20.0], [30.0]]) * T) * [[3.0], [6.0], [3.0]]
RAW = ("--raw", "f32", "--channels", "3", "--fs", str(FS))


@pytest.fixture
def shown() -> Iterator[tuple[Terminal, str]]:
    """The command on a terminal, some signal given; the address it tells."""
    with Terminal("live", "-", *RAW, "--web", "--no-open") as terminal:
        url = terminal.until(r"(http://127\.0\.0\.1:\d+/[\w-]{24}/)\r\n")[1]
        terminal.give(X.T.astype("<f4").tobytes())
        yield terminal, url


def opened(browser: Browser, url: str, **how: object) -> tuple[Page, Watch]:
    """The page with a picture on it, and all that it complains about."""
    watch = Watch(url)
    page = watch.page(browser, "", **how)
    expect(page.locator("#peaks tr")).not_to_have_count(0)
    return page, watch


def first_peaks(page: Page) -> dict[str, float]:
    """The strongest frequency of each channel in the table, to a tenth of a hertz."""
    cells = page.locator("#peaks tr").all_inner_texts()
    rows = [row.split("\t") for row in cells]
    hz = {row[0]: float(row[2].removesuffix(" Hz")) for row in rows if row[1] == "1"}
    return {name: round(one, 1) for name, one in hz.items()}


def test_a_signal_is_shown_stalls_is_looked_at_and_ends(
    shown: tuple[Terminal, str], browser: Browser
) -> None:
    terminal, url = shown
    page, watch = opened(browser, url, viewport={"width": 1280, "height": 900})
    expect(page.locator("#picture-title")).to_have_text("stdin")
    expect(page.locator("#facts")).to_have_text("3 channels at 128 Hz")
    assert first_peaks(page) == {"ch1": 10.0, "ch2": 20.0, "ch3": 30.0}
    assert page.locator("#peaks tr[data-shown] th").first.inner_text() == "ch2"
    bars = page.locator("#bands .share")
    assert "beta 9" in (bars.nth(1).get_attribute("aria-label") or "")
    expect(page.locator("#state")).to_have_text(re.compile(r"no samples for \d s"))
    terminal.until(r"no samples for \d s · 1 viewer")

    # Keys: another channel is marked, the axes change, it pauses and goes on.
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator("#peaks tr[data-shown] th").first).to_have_text("ch3")
    page.keyboard.press("f")
    expect(page.locator('input[name="hz"][value="log"]')).to_be_checked()
    page.keyboard.press("p")
    expect(page.locator('input[name="axis"][value="linear"]')).to_be_checked()
    page.keyboard.press(" ")
    expect(page.locator("#state")).to_have_text("paused")
    terminal.until("0 viewers")
    page.keyboard.press(" ")
    expect(page.locator("#state")).to_have_text(re.compile("no samples"))

    # The waterfall is read out by its own arrows, which mark no channel.
    page.focus("#waterfall")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    said = re.compile(r"^[\d.]+ Hz · (now|[\d.]+ s ago) · −?-?[\d.]+ dB$")
    expect(page.locator("#waterfall-said")).to_have_text(said)
    expect(page.locator("#peaks tr[data-shown] th").first).to_have_text("ch3")

    # Channels of one's choice only; none is no error.
    page.click("#none")
    expect(page.locator("#state")).to_have_text("resting")
    page.check('#picks input[value="0"]')
    terminal.give(X.T.astype("<f4").tobytes())
    expect(page.locator("#figure-seconds")).to_have_text("40.0 s")
    expect(page.locator("#peaks tr[data-shown] th").first).to_have_text("ch1")
    assert first_peaks(page) == {"ch1": 10.0}

    terminal.end_input()
    expect(page.locator("#state")).to_have_text("ended")
    assert terminal.code() == 0
    assert terminal.said.count("http://") == 1
    page.context.close()
    watch.check()


def test_it_fits_a_phone_and_ctrl_c_ends_all(
    shown: tuple[Terminal, str], browser: Browser
) -> None:
    """Ctrl-C ends the pages of two viewers; one fits a phone, light or dark."""
    terminal, url = shown
    size = {"width": 390, "height": 844}
    page, watch = opened(browser, url, has_touch=True, viewport=size)
    other, other_watch = opened(browser, url)
    terminal.until("2 viewers")
    check_schemes_on_a_phone(page)
    page.locator("#pause").tap()
    expect(page.locator("#state")).to_have_text("paused")
    page.locator("#pause").tap()
    # More samples, for after seconds without any the page says so instead.
    terminal.give(X.T.astype("<f4").tobytes())
    # A page that is not connected yet would hear of no end.
    expect(page.locator("#state")).to_have_text("running")
    terminal.process.send_signal(signal.SIGINT)
    expect(page.locator("#state")).to_have_text("ended")
    assert terminal.code() == 130
    assert "Traceback" not in terminal.said
    other.context.close()
    page.context.close()
    watch.check()
    other_watch.check()
