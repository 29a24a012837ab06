"""Check the live spectrum's bands, waterfall, annotations, and recordings with gaps."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.browser.live_page import (
    choose_option,
    problem_text,
    set_slider,
    wait_for_text,
    wait_for_title,
    wait_until,
)
from tests.edf_bdf_recordings import write_discontinuous

pytestmark = pytest.mark.requires_browser

FS = 256
ANNOTATIONS = [(2.0, "go"), (10.0, "stop"), (20.0, "go")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a recording with alpha in one channel and beta in the other for a minute,
    and one with gaps.
    """
    import edfio

    folder = tmp_path_factory.mktemp("pictures")
    t = np.arange(60 * FS) / FS
    span = {"physical_dimension": "uV", "physical_range": (-200, 200)}
    signals = [
        edfio.EdfSignal(50 * np.sin(2 * np.pi * 10 * t), FS, label="Oz", **span),
        edfio.EdfSignal(25 * np.sin(2 * np.pi * 20 * t), FS, label="Cz", **span),
    ]
    annotations = [edfio.EdfAnnotation(at, None, text) for at, text in ANNOTATIONS]
    annotations.append(edfio.EdfAnnotation(30, 12, "eyes closed"))
    edf = edfio.Edf(signals, data_record_duration=1, annotations=annotations)
    edf.startdate = datetime(2024, 5, 17).date()
    edf.starttime = datetime(2024, 5, 17, 23, 59, 50).time()
    edf.write(folder / "whole.edf")
    starts = [*map(str, range(20)), *(f"{at}.5" for at in range(50, 80))]
    gap_annotations = [("3", "first"), ("30", "in the gap"), ("60.25\x154", "last")]
    write_discontinuous(
        folder / "gaps.edf", starts, ("Fz", FS), ("Cz", FS), notes=gap_annotations
    )
    return folder


def open_file(page: Page, path: Path) -> None:
    choose_option(page, "source", "recording")
    page.set_input_files("#file", path)
    wait_for_title(page, path.name)


def band_table(page: Page) -> dict[str, list[str]]:
    """Return the band table of the selected channel: edges, power, share, peak."""
    rows = page.eval_on_selector_all(
        "#band-values tr",
        "rows => rows.map(row => [...row.cells].map(c => c.textContent))",
    )
    return {row[0]: row[1:] for row in rows}


def select_channel(page: Page, name: str) -> None:
    """Select the channel and wait until its bands are shown."""
    page.select_option("#shown", label=name)
    wait_for_text(page, "band-channel", name)
    wait_until(page, "() => document.getElementById('band-values').rows.length > 0")


@pytest.mark.full
def test_band_powers_of_a_channel(live: Page, files: Path) -> None:
    """A sine of 50 µV has a power of 1,250 µV², all of it in its band."""
    open_file(live, files / "whole.edf")
    select_channel(live, "Oz")
    bands = band_table(live)
    assert list(bands) == ["delta", "theta", "alpha", "beta", "gamma"]
    edges, power, share, peak = bands["alpha"]
    assert (edges, share) == ("8–13", "100 %")
    assert float(power) == pytest.approx(1250, rel=0.01)
    assert float(peak) == pytest.approx(10, abs=0.1)
    assert "µV²" in live.locator("#band-unit").inner_text()
    bars = live.locator("#bands .share")
    assert re.search(
        r"alpha 100 %, 12\d\d µV², peak at 10\.0 Hz", bar_label(bars.nth(0))
    )
    assert re.search(r"beta 100 %, 31\d µV², peak at 20\.0 Hz", bar_label(bars.nth(1)))


def bar_label(bar: object) -> str:
    """Return the bar's accessible label."""
    return str(bar.get_attribute("aria-label"))  # type: ignore[attr-defined]


def test_bars_are_shares_or_powers(live: Page, files: Path) -> None:
    """The power of beta is a quarter of alpha's; a click on a row marks its channel."""
    open_file(live, files / "whole.edf")
    select_channel(live, "Oz")
    beta_width_js = """() => parseFloat(document.querySelectorAll("#bands .share")[1]
        .children[3].style.width)"""
    assert live.evaluate(beta_width_js) == 100
    choose_option(live, "band-axis", "power")
    assert 24 < live.evaluate(beta_width_js) < 26
    live.locator("#bands th", has_text="Cz").click()
    assert live.locator("#shown option:checked").inner_text() == "Cz"
    wait_for_text(live, "band-channel", "Cz")
    choose_option(live, "band-axis", "share")


def test_bands_that_cannot_be_told_apart_are_refused(live: Page, files: Path) -> None:
    open_file(live, files / "whole.edf")
    live.select_option("#band-set", "hrv")
    wait_for_text(live, "bands-why", "choose a larger n_fft")
    live.select_option("#band-set", "octaves")
    wait_until(live, "() => document.getElementById('band-values').rows.length === 0")
    wait_for_text(live, "bands-why", "half the sampling rate is 128 Hz")
    live.select_option("#band-set", "")
    assert not live.locator("#bands-there").is_visible()
    live.select_option("#band-set", "eeg")
    select_channel(live, "Oz")
    assert not live.locator("#bands-why").is_visible()


def test_sound_is_shown_in_octave_bands(live: Page) -> None:
    """A sound is shown in octaves, without what it has below 20 Hz."""
    choose_option(live, "source", "microphone")
    band_names = ["125 Hz", "250 Hz", "500 Hz", "1 kHz", "2 kHz", "4 kHz", "8 kHz"]
    wait_until(
        live,
        """names => [...document.getElementById("band-values").rows]
            .map(row => row.cells[0].textContent).join() === names.join()""",
        band_names,
    )
    assert "fmin=20, fmax=8000" in live.locator("#call").inner_text()
    choose_option(live, "source", "synthetic")


def waterfall_level_db(page: Page) -> float:
    """Return the level under the pointer that the waterfall shows, in dB."""
    return float(re.search(r"(-?[\d.]+) dB", waterfall_readout(page))[1])  # type: ignore[index]


def waterfall_readout(page: Page) -> str:
    """Return the text that the waterfall shows for the pointer."""
    return page.locator("#waterfall-said").inner_text()


def test_the_waterfall_is_read_by_pointer_and_by_keys(live: Page, files: Path) -> None:
    """The waterfall's level is strong at the sine's frequency and weak beside it, on a
    linear and a logarithmic axis.
    """
    open_file(live, files / "whole.edf")
    select_channel(live, "Oz")
    canvas = live.locator("#waterfall")
    canvas.scroll_into_view_if_needed()
    plot_width = canvas.bounding_box()["width"] - 76  # type: ignore[index]
    live.click("#pause")
    x_of_hz = {hz: 56 + plot_width * (hz - 1) / 59 for hz in (10, 40)}
    canvas.hover(position={"x": x_of_hz[10], "y": 5})
    strong = waterfall_level_db(live)
    assert re.match(r"(9\.9\d?|10(\.\d)?) Hz · now", waterfall_readout(live))
    canvas.hover(position={"x": x_of_hz[40], "y": 5})
    assert waterfall_level_db(live) < strong - 40
    choose_option(live, "hz", "log")
    canvas.hover(position={"x": 56 + plot_width * np.log(10) / np.log(60), "y": 5})
    assert waterfall_level_db(live) == pytest.approx(strong, abs=1)
    live.locator("#chart").hover()
    wait_until(live, "() => !document.getElementById('waterfall-said').textContent")
    canvas.focus()
    live.keyboard.press("ArrowRight")
    assert " Hz · " in waterfall_readout(live)
    choose_option(live, "hz", "linear")
    live.click("#pause")


def test_annotations_are_listed_and_seek_to_their_times(
    live: Page, files: Path
) -> None:
    open_file(live, files / "whole.edf")
    assert "started at 23:59:50" in live.locator("#file-facts").inner_text()
    wait_for_text(live, "notes-said", "4 annotations")
    live.locator("#notes summary").click()
    texts = live.locator("#note-text option").all_inner_texts()
    assert texts == ["all", "go (2)", "stop (1)", "eyes closed (1)"]
    live.select_option("#note-text", "go")
    buttons = live.locator("#notes-list button")
    assert [" ".join(text.split()) for text in buttons.all_inner_texts()] == [
        "0:02.0 go",
        "0:20.0 go",
    ]
    live.click("#pause")
    buttons.nth(1).click()
    # Past midnight the clock begins anew.
    assert live.locator("#position-said").inner_text() == "0:20 of 1:00 · 00:00:10"
    calls = live.evaluate("spy.calls")
    buttons.nth(0).click()
    wait_until(live, "calls => spy.calls > calls && spy.now === 0", calls)
    assert live.locator("#resting").inner_text() == "paused"
    live.click("#pause")
    live.locator("#notes summary").click()


def test_range_between_annotations_is_looped(live: Page, files: Path) -> None:
    open_file(live, files / "whole.edf")
    wait_for_text(live, "notes-said", "4 annotations")
    live.locator("#notes summary").click()
    live.select_option("#since", label="0:20 go")
    live.select_option("#until", label="0:42 end of eyes closed")
    position_js = (
        "parseFloat(document.getElementById('position-said').textContent.slice(2))"
    )
    wait_until(live, f"() => {position_js} >= 20 && {position_js} < 42")
    set_slider(live, "position", 500)  # 30 s: inside
    assert live.locator("#since").input_value() == "20"
    set_slider(live, "position", 900)  # 54 s: all of it is played again
    assert live.locator("#since").input_value() == "0"
    live.locator("#notes summary").click()


def test_a_recording_with_gaps_is_played_past_them(live: Page, files: Path) -> None:
    """Gaps are reported, shown empty, and never part of a spectrum."""
    open_file(live, files / "gaps.edf")
    assert (
        "2 channels in µV at 256 Hz, 1:20 with a gap"
        in live.locator("#file-facts").inner_text()
    )
    assert "a gap of 30.5 s at 20 s" in live.inner_text("#file-warnings")
    wait_for_text(live, "notes-said", "3 annotations")
    live.locator("#notes summary").click()
    live.locator("#notes-list button", has_text="in the gap").click()
    wait_until(
        live,
        """() => /^0:5[0-9] of/
            .test(document.getElementById("position-said").textContent)""",
    )
    assert problem_text(live) == ""
    live.locator("#notes summary").click()
    canvas = live.locator("#overview")
    canvas.scroll_into_view_if_needed()
    wait_until(
        live,
        """() => document.getElementById("overview-channel").textContent
            && !document.getElementById("of-overview").hidden""",
    )
    plot_width = canvas.bounding_box()["width"] - 76  # type: ignore[index]
    # All columns are there when the last moment has a level.
    for seconds, pattern in (
        (78, r"\d dB$"),
        (35, "nothing recorded$"),
        (60.3, "last$"),
    ):
        wait_for_overview_readout(live, 56 + plot_width * seconds / 80.5, pattern)
    canvas.click(position={"x": 56 + plot_width * 5 / 80.5, "y": 40})
    wait_for_text(live, "position-said", "0:05 of 1:20")


def wait_for_overview_readout(page: Page, x: float, pattern: str) -> None:
    """Point at the overview until its readout matches the pattern."""
    wait_until(
        page,
        """([x, words]) => {
            const canvas = document.getElementById("overview");
            const { left, top } = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent("pointermove",
              { clientX: left + x, clientY: top + 60 }));
            const said = document.getElementById("overview-said").textContent;
            return new RegExp(words).test(said);
        }""",
        [x, pattern],
    )


def test_recording_fits_a_narrow_phone(live: Page, files: Path) -> None:
    """A recording is shown whole at 360 pixels, without scrolling sideways."""
    open_file(live, files / "whole.edf")
    live.set_viewport_size({"width": 360, "height": 740})
    assert live.evaluate("document.documentElement.scrollWidth") <= 360
    for id_ in ("chart", "waterfall", "overview"):
        assert live.locator(f"#{id_}").bounding_box()["width"] > 280  # type: ignore[index]
