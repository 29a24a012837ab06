"""Check HTML pages of plots, opened as files by a browser without network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import rlxweb as rlx
from rlxweb.results.labels import Labels

pytestmark = pytest.mark.requires_browser

FS = 200.0
T = np.arange(6000) / FS
HOSTILE_NAMES = (
    "</script><script>document.title='no'</script>",
    '"><img src=x onerror="document.title=1">',
    "@policy@ \u202eright to left",
    "脳波 é",
)
ELECTRODES = ("Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2")
OpenHtml = Callable[..., Page]


def sine_rows(rows: int) -> np.ndarray:
    """Return noise with a rhythm of 10 + row Hz in each row, between two bins."""
    x = 0.1 * np.random.default_rng(1).standard_normal((rows, len(T)))
    return x + np.stack([np.sin(2 * np.pi * (10.13 + n) * T) for n in range(rows)])


def channel_labels(names: tuple[str, ...]) -> Labels:
    return Labels(("channel",), (names,), "uV")


@pytest.fixture
def open_html(browser: Browser, tmp_path: Path) -> Iterator[OpenHtml]:
    """Yield `open_html(result, log=…, **context)`, which returns the page; errors and
    requests of pages fail the test.
    """
    problems: list[str] = []
    pages: list[Page] = []

    def open_(
        result: Any, *, log: bool = False, dark: bool = False, **context: Any
    ) -> Page:
        path = tmp_path / "picture.html"
        rlx.plot.html(result, path, title="night <1>", log=log, dark=dark)
        browser_context = browser.new_context(offline=True, **context)
        browser_context.on("console", lambda event: problems.append(event.text))
        browser_context.on("weberror", lambda event: problems.append(str(event.error)))
        page = browser_context.new_page()
        report = problems.append
        page.on("request", lambda r: None if r.url == path.as_uri() else report(r.url))
        page.goto(path.as_uri())
        expect(page.locator("html")).to_have_attribute("data-ready", "yes")
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.context.close()
    assert not problems


@pytest.fixture
def peaks() -> Any:
    """Return peaks of channels with hostile names, with the whole spectrum."""
    result = rlx.welch_peaks(
        sine_rows(4), FS, nperseg=400, mode="peaks", preset="scipy", k=1, spectrum=True
    )
    return result.named(channel_labels(HOSTILE_NAMES))


def frequency_under_pointer(page: Page, share: float) -> float:
    """Return the frequency in the tooltip at a share of the first canvas's width."""
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    text = page.locator(".tip b").first.inner_text()
    return float(text.split()[0])


def canvas_screenshot(page: Page) -> bytes:
    """Return a screenshot of the first canvas."""
    return page.locator("canvas").first.screenshot()


def test_untrusted_names_are_escaped(open_html: OpenHtml, peaks: Any) -> None:
    page = open_html(peaks)
    expect(page).to_have_title("night <1> · rlxweb")
    names = page.locator(".legend button").all_inner_texts()
    assert names[0] == HOSTILE_NAMES[0]
    assert names[2] == r"@policy@ \u202eright to left"
    assert names[3] == HOSTILE_NAMES[3]
    assert page.locator("#panels script, #panels img").count() == 0


def test_tooltip_shows_frequency_levels_and_peak(
    open_html: OpenHtml, peaks: Any
) -> None:
    """The tooltip shows the bin's frequency, every channel's level there, and the exact
    peak.
    """
    page = open_html(peaks)
    box = page.locator("canvas").bounding_box()
    assert box is not None
    left, right = box["x"] + 52, box["x"] + box["width"] - 14
    page.mouse.move(left + 10.0 / 100 * (right - left), box["y"] + 60)
    tip = page.locator(".tip")
    expect(tip).to_contain_text("10.00 Hz")
    expect(tip).to_contain_text(f"peak at {peaks.hz[0, 0]:.2f} Hz")
    level = 10 * np.log10(peaks.spectrum.power[0, 20])
    expect(tip).to_contain_text(f"{level:.1f} dB")
    assert tip.locator("img, script").count() == 0
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    expect(tip).to_be_hidden()


def test_the_axis_is_zoomed_moved_and_reset(open_html: OpenHtml, peaks: Any) -> None:
    """The axis is moved by wheel, drag, buttons and keys, and can be reset."""
    page = open_html(peaks)
    before = canvas_screenshot(page)
    full_hz = frequency_under_pointer(page, 0.9)
    middle_hz = frequency_under_pointer(page, 0.5)
    page.mouse.wheel(0, -600)
    assert frequency_under_pointer(page, 0.5) == pytest.approx(middle_hz, abs=0.5)
    zoomed_hz = frequency_under_pointer(page, 0.9)
    assert middle_hz < zoomed_hz < full_hz - 10
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.up()
    assert frequency_under_pointer(page, 0.5) > middle_hz + 1
    page.get_by_label("Show all again").click()
    assert frequency_under_pointer(page, 0.9) == full_hz
    page.mouse.move(0, 0)
    assert canvas_screenshot(page) == before
    page.locator("canvas").focus()
    page.keyboard.press("+")
    zoomed_hz = frequency_under_pointer(page, 0.9)
    assert zoomed_hz < full_hz
    page.keyboard.press("ArrowLeft")
    assert frequency_under_pointer(page, 0.89) < zoomed_hz - 2
    page.keyboard.press("0")
    assert frequency_under_pointer(page, 0.9) == full_hz


def test_two_fingers_zoom(open_html: OpenHtml, peaks: Any) -> None:
    page = open_html(peaks, has_touch=True)
    full_hz = frequency_under_pointer(page, 0.9)
    page.evaluate(
        """() => {
          const canvas = document.querySelector("canvas");
          const { left, top } = canvas.getBoundingClientRect();
          const send = (type, pointerId, x) => {
            const where = { clientX: left + x, clientY: top + 99, button: 0 };
            const finger = { pointerId, pointerType: "touch", ...where };
            canvas.dispatchEvent(new PointerEvent(type, finger));
          };
          canvas.setPointerCapture = () => {};
          send("pointerdown", 1, 500);
          send("pointerdown", 2, 600);
          send("pointermove", 2, 800);
          send("pointerup", 1, 500);
          send("pointerup", 2, 800);
        }"""
    )
    assert frequency_under_pointer(page, 0.9) < full_hz - 10


def test_axis_is_logarithmic_on_request(open_html: OpenHtml, peaks: Any) -> None:
    """The axis is logarithmic when asked for, and linear by its switch."""
    page = open_html(peaks, log=True)
    assert page.locator('input[value="log"]').is_checked()
    middle = frequency_under_pointer(page, 0.5)
    assert 4 < middle < 10  # the middle of 0.5 to 100 by their logarithms
    page.check('input[value="linear"]', force=True)
    assert frequency_under_pointer(page, 0.5) == pytest.approx(50, abs=2)


def test_channels_are_switched_by_mouse_and_keys(
    open_html: OpenHtml, peaks: Any
) -> None:
    page = open_html(peaks)
    before = canvas_screenshot(page)
    first = page.locator(".legend button").first
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    page.mouse.move(0, 0)
    first.evaluate("one => one.blur()")
    assert canvas_screenshot(page) != before
    frequency_under_pointer(page, 0.5)
    assert page.locator(".tip div").count() == 3
    first.focus()
    page.keyboard.press("Enter")
    first.evaluate("one => one.blur()")
    page.mouse.move(0, 0)
    assert canvas_screenshot(page) == before
    page.get_by_label("Show no channel").click()
    page.check('input[value="offset"]', force=True)
    page.get_by_label("Show all channels").click()
    page.check('input[value="heatmap"]', force=True)
    frequency_under_pointer(page, 0.5)
    assert page.locator(".tip div").count() in (4, 5)


def test_many_channels_and_bins_are_painted_quickly(open_html: OpenHtml) -> None:
    """Painting 64 channels of 8,193 bins takes less than two seconds in each mode."""
    x = np.random.default_rng(2).standard_normal((64, 16_384)).astype(np.float32)
    page = open_html(rlx.welch(x, 2048.0, nperseg=16_384))
    assert page.locator(".legend button").count() == 64
    for mode in ("overlaid", "offset", "heatmap"):
        page.check(f'input[value="{mode}"]', force=True)
        elapsed_ms = page.evaluate(
            """() => {
              const canvas = document.querySelector("canvas");
              const begun = performance.now();
              canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
              return performance.now() - begun;
            }"""
        )
        assert elapsed_ms < 2000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_phone_in_light_and_dark(
    open_html: OpenHtml, peaks: Any, scheme: str
) -> None:
    page = open_html(peaks, color_scheme=scheme, viewport={"width": 360, "height": 640})
    scroll_width = page.evaluate("document.documentElement.scrollWidth")
    assert scroll_width <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (
        background == {"light": "rgb(247, 248, 248)", "dark": "rgb(18, 23, 27)"}[scheme]
    )
    before = canvas_screenshot(page)
    page.locator("#theme button").click()
    assert canvas_screenshot(page) != before


def test_page_is_dark_on_request(open_html: OpenHtml, peaks: Any) -> None:
    page = open_html(peaks, dark=True, color_scheme="light")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(18, 23, 27)"


def test_page_is_printed_on_white(open_html: OpenHtml, peaks: Any) -> None:
    page = open_html(peaks, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator(".tools").first).to_be_hidden()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme ?? ''") == ""


def test_spectrogram_tooltip_shows_time_frequency_and_level(
    open_html: OpenHtml,
) -> None:
    """A spectrogram tells time, frequency and level of the result under the pointer.

    Its channels are zoomed together.
    """
    spectrogram = rlx.spectrogram(sine_rows(2), FS, nperseg=400, noverlap=200)
    page = open_html(spectrogram.named(channel_labels(("a", "b"))))
    assert page.locator("canvas").count() == 2
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    plot_width, plot_height = box["width"] - 52 - 74, box["height"] - 6 - 36
    top = box["y"] + 6 + (1 - 10.25 / 100.25) * plot_height
    page.mouse.move(box["x"] + 52 + 0.5 * plot_width, top)
    tip_lines = page.locator(".tip").first.inner_text().split("\n")
    seconds, hz = (float(part.split()[0]) for part in tip_lines[0].split(", "))
    column = int(np.abs(spectrogram.t - seconds).argmin())
    row = int(np.abs(spectrogram.f - hz).argmin())
    assert hz == pytest.approx(10.0, abs=0.26)
    level = 10 * np.log10(spectrogram.values[0, row, column])
    assert float(tip_lines[-1].strip("≥≤ dB")) == pytest.approx(level, abs=0.6)
    before = page.locator("canvas").nth(1).screenshot()
    page.mouse.wheel(0, -600)
    assert page.locator("canvas").nth(1).screenshot() != before
    page.check('input[value="log"]', force=True)


def test_bands_have_bars_maps_and_numbers(open_html: OpenHtml) -> None:
    bands = rlx.band_power(sine_rows(10), FS).named(channel_labels(ELECTRODES))
    page = open_html(bands)
    assert page.locator(".head canvas").count() == 5
    bar = page.locator(".bar").first.locator("div > div")
    share = bands.relative[0, 2]
    bar.nth(2).hover()
    expect(page.locator(".bars .tip")).to_contain_text(f"{100 * share:.1f} %")
    page.check('input[value="3"]', force=True)
    first_channel = ELECTRODES[int(bands.relative[:, 3].argmax())]
    expect(page.locator(".bar > span").first).to_have_text(first_channel)
    page.get_by_text("Numbers").click()
    assert page.locator("tbody tr").count() == 50
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    head = page.locator(".head canvas").first.bounding_box()
    assert head is not None
    assert head["height"] == pytest.approx(1.08 * head["width"], rel=0.02)
