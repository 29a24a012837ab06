"""Pages of pictures, opened as files, by a browser without network."""

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
HOSTILE = (
    "</script><script>document.title='no'</script>",
    '"><img src=x onerror="document.title=1">',
    "@policy@ \u202eright to left",
    "脳波 é",
)
CAP = ("Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2")
Open = Callable[..., Page]


def signal(rows: int) -> np.ndarray:
    """Noise with a rhythm of 10 + row Hz, between two bins."""
    x = 0.1 * np.random.default_rng(1).standard_normal((rows, len(T)))
    return x + np.stack([np.sin(2 * np.pi * (10.13 + n) * T) for n in range(rows)])


def labels(names: tuple[str, ...]) -> Labels:
    return Labels(("channel",), (names,), "uV")


@pytest.fixture
def open_html(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """`open_html(result, log=…, **context)`: its page; complaints fail the test."""
    wrong: list[str] = []
    opened: list[Page] = []

    def open_(
        result: Any, *, log: bool = False, dark: bool = False, **context: Any
    ) -> Page:
        path = tmp_path / "picture.html"
        rlx.plot.html(result, path, title="night <1>", log=log, dark=dark)
        made = browser.new_context(offline=True, **context)
        made.on("console", lambda said: wrong.append(said.text))
        made.on("weberror", lambda said: wrong.append(str(said.error)))
        shown = made.new_page()
        asked = wrong.append
        shown.on("request", lambda r: None if r.url == path.as_uri() else asked(r.url))
        shown.goto(path.as_uri())
        expect(shown.locator("html")).to_have_attribute("data-ready", "yes")
        opened.append(shown)
        return shown

    yield open_
    for one in opened:
        one.context.close()
    assert not wrong


@pytest.fixture
def peaks() -> Any:
    """Peaks of channels with hostile names, with the whole spectrum."""
    found = rlx.welch_peaks(
        signal(4), FS, nperseg=400, mode="peaks", preset="scipy", k=1, spectrum=True
    )
    return found.named(labels(HOSTILE))


def hz_at(page: Page, share: float) -> float:
    """What is told under the pointer, so far across the first canvas."""
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    said = page.locator(".tip b").first.inner_text()
    return float(said.split()[0])


def ink(page: Page) -> bytes:
    return page.locator("canvas").first.screenshot()


def test_names_of_strangers_are_text(open_html: Open, peaks: Any) -> None:
    page = open_html(peaks)
    expect(page).to_have_title("night <1> · rlxweb")
    names = page.locator(".legend button").all_inner_texts()
    assert names[0] == HOSTILE[0]
    assert names[2] == r"@policy@ \u202eright to left"
    assert names[3] == HOSTILE[3]
    assert page.locator("#panels script, #panels img").count() == 0


def test_what_lies_under_the_pointer_is_told(open_html: Open, peaks: Any) -> None:
    """The bin's frequency, every channel's level there, and the peak as it is."""
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


def test_the_axis_is_zoomed_moved_and_reset(open_html: Open, peaks: Any) -> None:
    """The axis is moved by wheel, drag, buttons and keys, and can be reset."""
    page = open_html(peaks)
    before = ink(page)
    whole = hz_at(page, 0.9)
    at = hz_at(page, 0.5)
    page.mouse.wheel(0, -600)
    assert hz_at(page, 0.5) == pytest.approx(at, abs=0.5)
    near = hz_at(page, 0.9)
    assert at < near < whole - 10
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.up()
    assert hz_at(page, 0.5) > at + 1
    page.get_by_label("Show all again").click()
    assert hz_at(page, 0.9) == whole
    page.mouse.move(0, 0)
    assert ink(page) == before
    page.locator("canvas").focus()
    page.keyboard.press("+")
    near = hz_at(page, 0.9)
    assert near < whole
    page.keyboard.press("ArrowLeft")
    assert hz_at(page, 0.89) < near - 2
    page.keyboard.press("0")
    assert hz_at(page, 0.9) == whole


def test_two_fingers_zoom(open_html: Open, peaks: Any) -> None:
    page = open_html(peaks, has_touch=True)
    whole = hz_at(page, 0.9)
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
    assert hz_at(page, 0.9) < whole - 10


def test_the_axis_is_logarithmic_when_it_is_asked_for(
    open_html: Open, peaks: Any
) -> None:
    """The axis is logarithmic when asked for, and linear by its switch."""
    page = open_html(peaks, log=True)
    assert page.locator('input[value="log"]').is_checked()
    middle = hz_at(page, 0.5)
    assert 4 < middle < 10  # the middle of 0.5 to 100 by their logarithms
    page.check('input[value="linear"]', force=True)
    assert hz_at(page, 0.5) == pytest.approx(50, abs=2)


def test_channels_are_switched_by_mouse_and_keys(open_html: Open, peaks: Any) -> None:
    page = open_html(peaks)
    before = ink(page)
    first = page.locator(".legend button").first
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    page.mouse.move(0, 0)
    first.evaluate("one => one.blur()")
    assert ink(page) != before
    hz_at(page, 0.5)
    assert page.locator(".tip div").count() == 3
    first.focus()
    page.keyboard.press("Enter")
    first.evaluate("one => one.blur()")
    page.mouse.move(0, 0)
    assert ink(page) == before
    page.get_by_label("Show no channel").click()
    page.check('input[value="offset"]', force=True)
    page.get_by_label("Show all channels").click()
    page.check('input[value="heatmap"]', force=True)
    hz_at(page, 0.5)
    assert page.locator(".tip div").count() in (4, 5)


def test_many_channels_of_many_bins_stay_quick(open_html: Open) -> None:
    """64 of 8,193 bins: painting takes a part of a frame's budget of patience."""
    x = np.random.default_rng(2).standard_normal((64, 16_384)).astype(np.float32)
    page = open_html(rlx.welch(x, 2048.0, nperseg=16_384))
    assert page.locator(".legend button").count() == 64
    for way in ("overlaid", "offset", "heatmap"):
        page.check(f'input[value="{way}"]', force=True)
        took = page.evaluate(
            """() => {
              const canvas = document.querySelector("canvas");
              const begun = performance.now();
              canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
              return performance.now() - begun;
            }"""
        )
        assert took < 2000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_on_light_and_on_dark(
    open_html: Open, peaks: Any, scheme: str
) -> None:
    page = open_html(peaks, color_scheme=scheme, viewport={"width": 360, "height": 640})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(247, 248, 248)", "dark": "rgb(18, 23, 27)"}[scheme]
    before = ink(page)
    page.locator("#theme button").click()
    assert ink(page) != before


def test_it_begins_dark_when_that_is_asked_for(open_html: Open, peaks: Any) -> None:
    page = open_html(peaks, dark=True, color_scheme="light")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(18, 23, 27)"


def test_it_is_printed_on_white(open_html: Open, peaks: Any) -> None:
    page = open_html(peaks, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator(".tools").first).to_be_hidden()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme ?? ''") == ""


def test_a_spectrogram_tells_time_frequency_and_level(open_html: Open) -> None:
    """A spectrogram tells time, frequency and level of the result under the pointer.

    Its channels are zoomed together.
    """
    found = rlx.spectrogram(signal(2), FS, nperseg=400, noverlap=200)
    page = open_html(found.named(labels(("a", "b"))))
    assert page.locator("canvas").count() == 2
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    wide, tall = box["width"] - 52 - 74, box["height"] - 6 - 36
    top = box["y"] + 6 + (1 - 10.25 / 100.25) * tall
    page.mouse.move(box["x"] + 52 + 0.5 * wide, top)
    said = page.locator(".tip").first.inner_text().split("\n")
    seconds, hz = (float(one.split()[0]) for one in said[0].split(", "))
    column = int(np.abs(found.t - seconds).argmin())
    row = int(np.abs(found.f - hz).argmin())
    assert hz == pytest.approx(10.0, abs=0.26)
    level = 10 * np.log10(found.values[0, row, column])
    assert float(said[-1].strip("≥≤ dB")) == pytest.approx(level, abs=0.6)
    before = page.locator("canvas").nth(1).screenshot()
    page.mouse.wheel(0, -600)
    assert page.locator("canvas").nth(1).screenshot() != before
    page.check('input[value="log"]', force=True)


def test_bands_have_bars_maps_and_numbers(open_html: Open) -> None:
    found = rlx.band_power(signal(10), FS).named(labels(CAP))
    page = open_html(found)
    assert page.locator(".head canvas").count() == 5
    bar = page.locator(".bar").first.locator("div > div")
    share = found.relative[0, 2]
    bar.nth(2).hover()
    expect(page.locator(".bars .tip")).to_contain_text(f"{100 * share:.1f} %")
    page.check('input[value="3"]', force=True)
    best = CAP[int(found.relative[:, 3].argmax())]
    expect(page.locator(".bar > span").first).to_have_text(best)
    page.get_by_text("Numbers").click()
    assert page.locator("tbody tr").count() == 50
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    head = page.locator(".head canvas").first.bounding_box()
    assert head is not None
    assert head["height"] == pytest.approx(1.08 * head["width"], rel=0.02)
