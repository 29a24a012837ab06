"""The live spectrum driven as a visitor would: sliders, files, microphone, bad days."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page

from tests.browser.demo_page import OpenPage
from tests.browser.live_page import (
    PATH,
    choose,
    first_peaks,
    frames,
    problem,
    slide,
    started,
    until,
    until_called,
    until_peaks,
    until_ran_on,
    until_says,
)

pytestmark = pytest.mark.requires_browser

CHANNELS = """many =>
    new Set([...peaks.rows].map(row => row.cells[0].textContent)).size === many"""


def test_the_page_says_how_it_started(live: Page) -> None:
    """The live page tells the time of each step, and of the first result."""
    start = live.locator(".start")
    assert re.search(r"First result \d+\.\d s", start.inner_text())
    start.locator("summary").click()
    steps = start.locator("li").all_inner_texts()
    assert [re.sub(r"\s+\d+ ms$", "", step) for step in steps] == [
        "Python runtime",
        "NumPy and rlxweb",
        "GPU adapter",
        "shaders and first result",
    ]
    assert all(re.search(r"\d+ ms$", step) for step in steps)
    start.locator("summary").click()


def test_the_engine_and_the_versions_are_in_the_status_line(live: Page) -> None:
    line = live.locator(".shell-status").inner_text()
    assert "rlxweb" in line
    assert "NumPy 2." in line
    assert "Python 3." in line


@pytest.mark.full
def test_a_rhythm_that_is_turned_up_is_found(live: Page) -> None:
    """A rhythm that is turned up is found in every channel, at its frequency."""
    live.select_option("#nperseg", "512")
    live.select_option("#segments", "4")  # a short while, which soon holds nothing else
    before = {
        name: live.locator(f"#rhythm-{name}").input_value()
        for name in ("delta", "theta", "alpha", "beta", "gamma", "noise")
    }
    for name in before:
        slide(live, f"rhythm-{name}", 0)
    slide(live, "rhythm-gamma", 40)
    slide(live, "rhythm-noise", 1)
    until_peaks(live, dict.fromkeys(("Fp1", "C3", "O2"), 40.0), within=2.0)
    slide(live, "rhythm-gamma", 0)
    slide(live, "rhythm-beta", 30)
    until_peaks(live, dict.fromkeys(("Fp1", "C3", "O2"), 20.0), within=1.5)
    for name, value in before.items():
        slide(live, f"rhythm-{name}", float(value))


def test_the_controls_reach_the_call(live: Page) -> None:
    """The controls of n_fft, segments, window, k and peaks reach the call."""
    live.select_option("#nperseg", "1024")
    live.select_option("#segments", "4")
    live.select_option("#window", "blackmanharris")
    live.select_option("#mode", "bins")
    slide(live, "k", 2)
    until(
        live,
        """() => /4 segments of 1024 samples every 512, resolution 0.25 Hz/
            .test(document.getElementById("explain").textContent)""",
    )
    until(live, "() => document.getElementById('peaks').rows.length === 16")
    call = live.locator("#call").inner_text()
    assert "nperseg=1024, k=2" in call
    assert 'window="blackmanharris"' in call
    assert 'mode="bins"' in call
    assert "[8, 2560]" in call
    assert "0.25 Hz, from the last 10 s" in live.locator("#estimate-said").inner_text()
    live.select_option("#mode", "peaks")
    live.select_option("#window", "hann")
    slide(live, "k", 4)


def test_channels_are_chosen_by_their_boxes(live: Page) -> None:
    """Only the channels whose boxes are checked are computed."""
    live.get_by_role("button", name="None", exact=True).click()
    until_says(live, "picked-said", "0 of 8")
    for name in ("C3", "O1"):
        live.get_by_role("checkbox", name=name).check()
    until(live, CHANNELS, 2)
    assert set(first_peaks(live)) == {"C3", "O1"}
    live.select_option("#shown", label="C3")
    assert live.locator("#peaks tr[data-shown] th").all_inner_texts() == ["C3"] * 4
    live.get_by_role("button", name="All", exact=True).click()
    until(live, CHANNELS, 8)
    live.select_option("#shown", "")


def test_many_channels_are_many_rows_of_one_call(live: Page) -> None:
    live.select_option("#channels", "64")
    until_says(live, "call", "[64, ")
    assert "more peaks" in live.locator("#peaks-more").inner_text()


def picture(page: Page) -> str:
    return str(page.evaluate("document.getElementById('chart').toDataURL()"))


def test_pause_stands_still_and_goes_on(live: Page) -> None:
    """The keyboard pauses the live page, and a click lets it go on."""
    button = live.locator("#pause")
    button.focus()
    live.keyboard.press("Space")
    until(live, "() => spy.now === 0")
    assert button.get_attribute("aria-pressed") == "true"
    assert live.locator("#resting").inner_text() == "paused"
    calls, before = live.evaluate("spy.calls"), picture(live)
    frames(live, 30)
    assert live.evaluate("spy.calls") == calls
    assert picture(live) == before
    choose(live, "axis", "linear")
    assert picture(live) != before, "the axis changes while paused, too"
    choose(live, "axis", "log")
    live.keyboard.press("Tab")
    button.click()
    until_called(live, calls)
    assert live.locator("#resting").is_hidden()


def test_a_hidden_tab_rests_and_goes_on_when_shown(live: Page) -> None:
    hide = """hidden => {
        const get = () => hidden;
        Object.defineProperty(document, "hidden", {configurable: true, get});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    live.evaluate(hide, True)
    until(live, "() => spy.now === 0")
    assert "hidden" in live.locator("#resting").inner_text()
    calls = live.evaluate("spy.calls")
    frames(live, 30)
    assert live.evaluate("spy.calls") == calls
    live.evaluate(hide, False)
    until_called(live, calls)
    assert live.locator("#resting").is_hidden()


def test_never_two_calls_at_once_and_dropped_frames_are_counted(live: Page) -> None:
    """A job that takes longer than a frame of the screen."""
    live.select_option("#pace", "0")
    live.evaluate("() => { spy.most = spy.now; }")
    live.select_option("#channels", "256")
    live.select_option("#nperseg", "4096")
    until(
        live, "() => Number(document.getElementById('figure-dropped').textContent) > 3"
    )
    assert live.evaluate("spy.most") == 1


def test_the_gpu_gives_the_peaks_of_numpy(live: Page) -> None:
    """The GPU and NumPy find the same peak of the synthetic signal."""
    for name in ("delta", "theta", "beta", "gamma"):
        slide(live, f"rhythm-{name}", 0)
    slide(live, "rhythm-alpha", 30)
    choose(live, "device", "webgpu")
    until_ran_on(live, "swiftshader")
    until_peaks(live, {"O1": 10.0, "O2": 10.0}, within=0.8)
    assert "it was asked for" in live.locator("#explain").inner_text()
    assert 'device="webgpu"' in live.locator("#call").inner_text()
    choose(live, "device", "cpu")
    until_ran_on(live, "NumPy")
    until_peaks(live, {"O1": 10.0, "O2": 10.0}, within=0.8)
    assert "ran on NumPy" in live.locator("#explain").inner_text().replace("Ran", "ran")


def test_a_lost_gpu_is_replaced_by_numpy_and_can_be_opened_again(live: Page) -> None:
    choose(live, "device", "webgpu")
    until_ran_on(live, "swiftshader")
    advanced = live.locator(".decision summary")
    advanced.click()
    live.get_by_role("button", name="Lose the GPU").click()
    said = problem(live, "The GPU failed")
    assert "the device was lost" in said.lower()
    until_ran_on(live, "instead of the GPU")
    assert "fell back from the GPU" in live.locator("#explain").inner_text()
    calls = live.evaluate("spy.calls")
    until_called(live, calls)
    live.get_by_role("button", name="Try the GPU again").click()
    until(live, "() => document.querySelectorAll('.problem').length === 0")
    until_ran_on(live, "swiftshader")
    assert "instead" not in live.locator("#ran-on").inner_text()
    advanced.click()


def test_every_way_that_was_weighed_is_listed(live: Page) -> None:
    """Every way that was weighed has its predicted time, or why it was not taken."""
    until_ran_on(live, "NumPy")
    rows = live.locator("#ways tr").all_inner_texts()
    assert any(row.startswith("fast") and "ms" in row for row in rows)
    assert any(row.startswith("ultra") for row in rows)


def test_a_phone_shows_it_all_without_scrolling_sideways(live: Page) -> None:
    live.set_viewport_size({"width": 390, "height": 844})
    for colours in ("light", "dark"):
        live.emulate_media(color_scheme=colours)
        assert live.evaluate("document.documentElement.scrollWidth") <= 390
    assert live.locator("#chart").bounding_box()["width"] > 300


def test_the_colours_chosen_are_remembered(live: Page, site_url: str) -> None:
    before = picture(live)
    live.get_by_role("button", name="Use dark colours").click()
    assert live.evaluate("document.documentElement.dataset.theme") == "dark"
    until(
        live,
        "before => document.getElementById('chart').toDataURL() !== before",
        before,
    )
    other = live.context.new_page()
    other.route("**/runtime/**", lambda route: route.abort())  # Python is not needed
    other.goto(site_url + PATH)
    assert other.evaluate("document.documentElement.dataset.theme") == "dark"
    other.close()
    live.get_by_role("button", name="Use light colours").click()


def test_every_control_has_a_name(live: Page) -> None:
    """Every input, select and button has a name for a screen reader."""
    unnamed = live.evaluate(
        """() => [...document.querySelectorAll("input, select, button")].filter(node =>
            !(node.labels?.length || node.ariaLabel || node.textContent.trim()))
          .map(node => node.outerHTML)"""
    )
    assert unnamed == []


def test_devices_are_chosen_by_keyboard(live: Page) -> None:
    live.locator('input[name="device"][value="auto"]').focus()
    live.keyboard.press("ArrowRight")
    assert live.locator('input[value="webgpu"]').is_checked()
    until_ran_on(live, "swiftshader")


@pytest.mark.full
def test_measured_engines_decide_by_figures(open_page: OpenPage) -> None:
    """Ways are weighed by calibrated figures once the engines were measured."""
    live = started(open_page(PATH))
    live.locator(".decision summary").click()
    live.get_by_role("button", name="Measure the engines").click()
    until(
        live,
        """() => document.querySelector(".said").textContent.startsWith("Measured")""",
    )
    live.select_option("#channels", "64")
    until_says(live, "call", "[64, ")
    until_says(live, "ways", "calibrated")
