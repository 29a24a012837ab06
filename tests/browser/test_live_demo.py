"""Drive the live spectrum as a visitor would: sliders, files, microphone, failures."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page

from tests.browser.live_page import (
    PATH,
    choose_option,
    first_peaks,
    set_slider,
    wait_for_calls,
    wait_for_engine,
    wait_for_first_picture,
    wait_for_peaks,
    wait_for_problem,
    wait_for_text,
    wait_frames,
    wait_until,
)
from tests.browser.patched_demo_page import OpenPage

pytestmark = pytest.mark.requires_browser

HAS_CHANNEL_COUNT_JS = """many =>
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
        set_slider(live, f"rhythm-{name}", 0)
    set_slider(live, "rhythm-gamma", 40)
    set_slider(live, "rhythm-noise", 1)
    wait_for_peaks(live, dict.fromkeys(("Fp1", "C3", "O2"), 40.0), tolerance_hz=2.0)
    set_slider(live, "rhythm-gamma", 0)
    set_slider(live, "rhythm-beta", 30)
    wait_for_peaks(live, dict.fromkeys(("Fp1", "C3", "O2"), 20.0), tolerance_hz=1.5)
    for name, value in before.items():
        set_slider(live, f"rhythm-{name}", float(value))


def test_the_controls_reach_the_call(live: Page) -> None:
    """The controls of n_fft, segments, window, k and peaks reach the call."""
    live.select_option("#nperseg", "1024")
    live.select_option("#segments", "4")
    live.select_option("#window", "blackmanharris")
    live.select_option("#mode", "bins")
    set_slider(live, "k", 2)
    wait_until(
        live,
        """() => /4 segments of 1024 samples with a hop of 512, resolution 0.25 Hz/
            .test(document.getElementById("explain").textContent)""",
    )
    wait_until(live, "() => document.getElementById('peaks').rows.length === 16")
    call = live.locator("#call").inner_text()
    assert "nperseg=1024, k=2" in call
    assert 'window="blackmanharris"' in call
    assert 'mode="bins"' in call
    assert "[8, 2560]" in call
    assert "0.25 Hz, from the last 10 s" in live.locator("#estimate-said").inner_text()
    live.select_option("#mode", "peaks")
    live.select_option("#window", "hann")
    set_slider(live, "k", 4)


def test_channels_are_chosen_by_checkboxes(live: Page) -> None:
    """Only the channels whose boxes are checked are computed."""
    live.get_by_role("button", name="None", exact=True).click()
    wait_for_text(live, "picked-said", "0 of 8")
    for name in ("C3", "O1"):
        live.get_by_role("checkbox", name=name).check()
    wait_until(live, HAS_CHANNEL_COUNT_JS, 2)
    assert set(first_peaks(live)) == {"C3", "O1"}
    live.select_option("#shown", label="C3")
    assert live.locator("#peaks tr[data-shown] th").all_inner_texts() == ["C3"] * 4
    live.get_by_role("button", name="All", exact=True).click()
    wait_until(live, HAS_CHANNEL_COUNT_JS, 8)
    live.select_option("#shown", "")


def test_many_channels_are_rows_of_one_call(live: Page) -> None:
    live.select_option("#channels", "64")
    wait_for_text(live, "call", "[64, ")
    assert "more peaks" in live.locator("#peaks-more").inner_text()


def chart_image(page: Page) -> str:
    """Return the chart's pixels as a data URL."""
    return str(page.evaluate("document.getElementById('chart').toDataURL()"))


def test_pause_freezes_and_resumes(live: Page) -> None:
    """The keyboard pauses the live page, and a click lets it go on."""
    button = live.locator("#pause")
    button.focus()
    live.keyboard.press("Space")
    wait_until(live, "() => spy.now === 0")
    assert button.get_attribute("aria-pressed") == "true"
    assert live.locator("#resting").inner_text() == "paused"
    calls, before = live.evaluate("spy.calls"), chart_image(live)
    wait_frames(live, 30)
    assert live.evaluate("spy.calls") == calls
    assert chart_image(live) == before
    choose_option(live, "axis", "linear")
    assert chart_image(live) != before, "the axis changes while paused, too"
    choose_option(live, "axis", "log")
    live.keyboard.press("Tab")
    button.click()
    wait_for_calls(live, calls)
    assert live.locator("#resting").is_hidden()


def test_hidden_tab_pauses_until_visible(live: Page) -> None:
    set_hidden_js = """hidden => {
        const get = () => hidden;
        Object.defineProperty(document, "hidden", {configurable: true, get});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    live.evaluate(set_hidden_js, True)
    wait_until(live, "() => spy.now === 0")
    assert "hidden" in live.locator("#resting").inner_text()
    calls = live.evaluate("spy.calls")
    wait_frames(live, 30)
    assert live.evaluate("spy.calls") == calls
    live.evaluate(set_hidden_js, False)
    wait_for_calls(live, calls)
    assert live.locator("#resting").is_hidden()


def test_calls_never_overlap_and_dropped_frames_are_counted(live: Page) -> None:
    """Calls never overlap, even if a job takes longer than a frame of the screen;
    frames dropped meanwhile are counted.
    """
    live.select_option("#pace", "0")
    live.evaluate("() => { spy.most = spy.now; }")
    live.select_option("#channels", "256")
    live.select_option("#nperseg", "4096")
    wait_until(
        live, "() => Number(document.getElementById('figure-dropped').textContent) > 3"
    )
    assert live.evaluate("spy.most") == 1


def test_gpu_peaks_match_numpy(live: Page) -> None:
    """The GPU and NumPy find the same peak of the synthetic signal."""
    for name in ("delta", "theta", "beta", "gamma"):
        set_slider(live, f"rhythm-{name}", 0)
    set_slider(live, "rhythm-alpha", 30)
    choose_option(live, "device", "webgpu")
    wait_for_engine(live, "swiftshader")
    wait_for_peaks(live, {"O1": 10.0, "O2": 10.0}, tolerance_hz=0.8)
    assert "it was requested" in live.locator("#explain").inner_text()
    assert 'device="webgpu"' in live.locator("#call").inner_text()
    choose_option(live, "device", "cpu")
    wait_for_engine(live, "NumPy")
    wait_for_peaks(live, {"O1": 10.0, "O2": 10.0}, tolerance_hz=0.8)
    assert "ran on NumPy" in live.locator("#explain").inner_text().replace("Ran", "ran")


def test_a_lost_gpu_is_replaced_by_numpy_and_can_be_opened_again(live: Page) -> None:
    choose_option(live, "device", "webgpu")
    wait_for_engine(live, "swiftshader")
    advanced = live.locator(".decision summary")
    advanced.click()
    live.get_by_role("button", name="Lose the GPU").click()
    message = wait_for_problem(live, "The GPU failed")
    assert "the device was lost" in message.lower()
    wait_for_engine(live, "instead of the GPU")
    assert (
        "computed by NumPy because the GPU failed"
        in live.locator("#explain").inner_text()
    )
    calls = live.evaluate("spy.calls")
    wait_for_calls(live, calls)
    live.get_by_role("button", name="Try the GPU again").click()
    wait_until(live, "() => document.querySelectorAll('.problem').length === 0")
    wait_for_engine(live, "swiftshader")
    assert "instead" not in live.locator("#ran-on").inner_text()
    advanced.click()


def test_every_candidate_is_listed(live: Page) -> None:
    """Every candidate is listed with its predicted time, or with the reason why it was
    not used.
    """
    wait_for_engine(live, "NumPy")
    rows = live.locator("#ways tr").all_inner_texts()
    assert any(row.startswith("fast") and "ms" in row for row in rows)
    assert any(row.startswith("ultra") for row in rows)


def test_page_fits_a_phone(live: Page) -> None:
    live.set_viewport_size({"width": 390, "height": 844})
    for colours in ("light", "dark"):
        live.emulate_media(color_scheme=colours)
        assert live.evaluate("document.documentElement.scrollWidth") <= 390
    assert live.locator("#chart").bounding_box()["width"] > 300


def test_the_colours_chosen_are_remembered(live: Page, site_url: str) -> None:
    before = chart_image(live)
    live.get_by_role("button", name="Use dark colours").click()
    assert live.evaluate("document.documentElement.dataset.theme") == "dark"
    wait_until(
        live,
        "before => document.getElementById('chart').toDataURL() !== before",
        before,
    )
    second_page = live.context.new_page()
    second_page.route(
        "**/runtime/**", lambda route: route.abort()
    )  # Python is not needed
    second_page.goto(site_url + PATH)
    assert second_page.evaluate("document.documentElement.dataset.theme") == "dark"
    second_page.close()
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
    wait_for_engine(live, "swiftshader")


@pytest.mark.full
def test_calibrated_engines_decide_by_measurements(open_page: OpenPage) -> None:
    """Candidates are compared by calibrated costs once the engines were measured."""
    live = wait_for_first_picture(open_page(PATH))
    live.locator(".decision summary").click()
    live.get_by_role("button", name="Measure the engines").click()
    wait_until(
        live,
        """() => document.querySelector(".said").textContent.startsWith("Measured")""",
    )
    live.select_option("#channels", "64")
    wait_for_text(live, "call", "[64, ")
    wait_for_text(live, "ways", "calibrated")
