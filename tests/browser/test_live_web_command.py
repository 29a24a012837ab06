"""Check `rlxweb live --web` on a terminal, and its page in a real browser."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.page_monitor import PageMonitor, check_schemes_on_a_phone
from tests.pseudo_terminal import Terminal

pytestmark = pytest.mark.requires_browser

FS = 128
T = np.arange(20 * FS) / FS
X = np.random.default_rng(4).standard_normal((3, T.size))
X += np.sin(2 * np.pi * np.array([[10.0], [20.0], [30.0]]) * T) * [[3.0], [6.0], [3.0]]
RAW_OPTIONS = ("--raw", "f32", "--channels", "3", "--fs", str(FS))


@pytest.fixture
def live_command() -> Iterator[tuple[Terminal, str]]:
    """Run the command on a terminal and feed it some signal; yield it with the address
    it prints.
    """
    with Terminal("live", "-", *RAW_OPTIONS, "--web", "--no-open") as terminal:
        url = terminal.wait_for(r"(http://127\.0\.0\.1:\d+/[\w-]{24}/)\r\n")[1]
        terminal.write_input(X.T.astype("<f4").tobytes())
        yield terminal, url


def open_live_page(
    browser: Browser, url: str, **context_options: object
) -> tuple[Page, PageMonitor]:
    """Return the page once it shows a picture, and the monitor of its errors."""
    watch = PageMonitor(url)
    page = watch.open_page(browser, "", **context_options)
    expect(page.locator("#peaks tr")).not_to_have_count(0)
    return page, watch


def first_peaks(page: Page) -> dict[str, float]:
    """Return the strongest frequency of each channel in the table, to a tenth of a
    hertz.
    """
    cells = page.locator("#peaks tr").all_inner_texts()
    rows = [row.split("\t") for row in cells]
    hz = {row[0]: float(row[2].removesuffix(" Hz")) for row in rows if row[1] == "1"}
    return {name: round(frequency, 1) for name, frequency in hz.items()}


def test_signal_is_shown_through_stall_interaction_and_end(
    live_command: tuple[Terminal, str], browser: Browser
) -> None:
    terminal, url = live_command
    page, watch = open_live_page(browser, url, viewport={"width": 1280, "height": 900})
    expect(page.locator("#picture-title")).to_have_text("stdin")
    expect(page.locator("#facts")).to_have_text("3 channels at 128 Hz")
    assert first_peaks(page) == {"ch1": 10.0, "ch2": 20.0, "ch3": 30.0}
    assert page.locator("#peaks tr[data-shown] th").first.inner_text() == "ch2"
    bars = page.locator("#bands .share")
    assert "beta 9" in (bars.nth(1).get_attribute("aria-label") or "")
    expect(page.locator("#state")).to_have_text(re.compile(r"no samples for \d s"))
    terminal.wait_for(r"no samples for \d s · 1 viewer")

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
    terminal.wait_for("0 viewers")
    page.keyboard.press(" ")
    expect(page.locator("#state")).to_have_text(re.compile("no samples"))

    # The waterfall is read out by its own arrows, which mark no channel.
    page.focus("#waterfall")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    readout_pattern = re.compile(r"^[\d.]+ Hz · (now|[\d.]+ s ago) · −?-?[\d.]+ dB$")
    expect(page.locator("#waterfall-said")).to_have_text(readout_pattern)
    expect(page.locator("#peaks tr[data-shown] th").first).to_have_text("ch3")

    # Channels of one's choice only; none is no error.
    page.click("#none")
    expect(page.locator("#state")).to_have_text("no channel selected")
    page.check('#picks input[value="0"]')
    terminal.write_input(X.T.astype("<f4").tobytes())
    expect(page.locator("#figure-seconds")).to_have_text("40.0 s")
    expect(page.locator("#peaks tr[data-shown] th").first).to_have_text("ch1")
    assert first_peaks(page) == {"ch1": 10.0}

    terminal.end_input()
    expect(page.locator("#state")).to_have_text("ended")
    assert terminal.exit_code() == 0
    assert terminal.output.count("http://") == 1
    page.context.close()
    watch.check()


def test_page_fits_a_phone_and_ctrl_c_ends_all_viewers(
    live_command: tuple[Terminal, str], browser: Browser
) -> None:
    """Ctrl-C ends the pages of two viewers; one fits a phone, light or dark."""
    terminal, url = live_command
    size = {"width": 390, "height": 844}
    page, watch = open_live_page(browser, url, has_touch=True, viewport=size)
    second_page, second_watch = open_live_page(browser, url)
    terminal.wait_for("2 viewers")
    check_schemes_on_a_phone(page)
    page.locator("#pause").tap()
    expect(page.locator("#state")).to_have_text("paused")
    page.locator("#pause").tap()
    # More samples, for after seconds without any the page says so instead.
    terminal.write_input(X.T.astype("<f4").tobytes())
    # A page that is not connected yet would hear of no end.
    expect(page.locator("#state")).to_have_text("running")
    terminal.process.send_signal(signal.SIGINT)
    expect(page.locator("#state")).to_have_text("ended")
    assert terminal.exit_code() == 130
    assert "Traceback" not in terminal.output
    second_page.context.close()
    page.context.close()
    watch.check()
    second_watch.check()
