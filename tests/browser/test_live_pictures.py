"""The live spectrum's bands, waterfall, annotations, and recordings with gaps."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.browser.live_page import choose, problems, shown, slide, until, until_says
from tests.recordings import discontinuous

pytestmark = pytest.mark.requires_browser

FS = 256
NOTES = [(2.0, "go"), (10.0, "stop"), (20.0, "go")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of alpha in one channel, of beta in the other; and a file with gaps."""
    import edfio

    folder = tmp_path_factory.mktemp("pictures")
    t = np.arange(60 * FS) / FS
    span = {"physical_dimension": "uV", "physical_range": (-200, 200)}
    signals = [
        edfio.EdfSignal(50 * np.sin(2 * np.pi * 10 * t), FS, label="Oz", **span),
        edfio.EdfSignal(25 * np.sin(2 * np.pi * 20 * t), FS, label="Cz", **span),
    ]
    notes = [edfio.EdfAnnotation(at, None, text) for at, text in NOTES]
    notes.append(edfio.EdfAnnotation(30, 12, "eyes closed"))
    whole = edfio.Edf(signals, data_record_duration=1, annotations=notes)
    whole.startdate = datetime(2024, 5, 17).date()
    whole.starttime = datetime(2024, 5, 17, 23, 59, 50).time()
    whole.write(folder / "whole.edf")
    starts = [*map(str, range(20)), *(f"{at}.5" for at in range(50, 80))]
    noted = [("3", "first"), ("30", "in the gap"), ("60.25\x154", "last")]
    discontinuous(folder / "gaps.edf", starts, ("Fz", FS), ("Cz", FS), notes=noted)
    return folder


def open_file(page: Page, path: Path) -> None:
    choose(page, "source", "recording")
    page.set_input_files("#file", path)
    shown(page, path.name)


def values(page: Page) -> dict[str, list[str]]:
    """The table of the marked channel's bands: edges, power, share, peak."""
    rows = page.eval_on_selector_all(
        "#band-values tr",
        "rows => rows.map(row => [...row.cells].map(c => c.textContent))",
    )
    return {row[0]: row[1:] for row in rows}


def marked(page: Page, name: str) -> None:
    page.select_option("#shown", label=name)
    until_says(page, "band-channel", name)
    until(page, "() => document.getElementById('band-values').rows.length > 0")


@pytest.mark.full
def test_bands_say_what_a_channel_is_made_of(live: Page, files: Path) -> None:
    """A sine of 50 µV has a power of 1,250 µV², all of it in its band."""
    open_file(live, files / "whole.edf")
    marked(live, "Oz")
    found = values(live)
    assert list(found) == ["delta", "theta", "alpha", "beta", "gamma"]
    edges, power, share, peak = found["alpha"]
    assert (edges, share) == ("8–13", "100 %")
    assert float(power) == pytest.approx(1250, rel=0.01)
    assert float(peak) == pytest.approx(10, abs=0.1)
    assert "µV²" in live.locator("#band-unit").inner_text()
    bars = live.locator("#bands .share")
    assert re.search(r"alpha 100 %, 12\d\d µV², peak at 10\.0 Hz", said(bars.nth(0)))
    assert re.search(r"beta 100 %, 31\d µV², peak at 20\.0 Hz", said(bars.nth(1)))


def said(bar: object) -> str:
    return str(bar.get_attribute("aria-label"))  # type: ignore[attr-defined]


def test_bars_are_shares_or_powers(live: Page, files: Path) -> None:
    """The power of beta is a quarter of alpha's; a click on a row marks its channel."""
    open_file(live, files / "whole.edf")
    marked(live, "Oz")
    beta = """() => parseFloat(document.querySelectorAll("#bands .share")[1]
        .children[3].style.width)"""
    assert live.evaluate(beta) == 100
    choose(live, "band-axis", "power")
    assert 24 < live.evaluate(beta) < 26
    live.locator("#bands th", has_text="Cz").click()
    assert live.locator("#shown option:checked").inner_text() == "Cz"
    until_says(live, "band-channel", "Cz")
    choose(live, "band-axis", "share")


def test_bands_that_cannot_be_told_apart_are_refused(live: Page, files: Path) -> None:
    open_file(live, files / "whole.edf")
    live.select_option("#band-set", "hrv")
    until_says(live, "bands-why", "choose a larger n_fft")
    live.select_option("#band-set", "octaves")
    until(live, "() => document.getElementById('band-values').rows.length === 0")
    until_says(live, "bands-why", "half the rate is 128 Hz")
    live.select_option("#band-set", "")
    assert not live.locator("#bands-there").is_visible()
    live.select_option("#band-set", "eeg")
    marked(live, "Oz")
    assert not live.locator("#bands-why").is_visible()


def test_a_sound_has_octaves(live: Page) -> None:
    """A sound is shown in octaves, without what it has below 20 Hz."""
    choose(live, "source", "microphone")
    shown_bands = ["125 Hz", "250 Hz", "500 Hz", "1 kHz", "2 kHz", "4 kHz", "8 kHz"]
    until(
        live,
        """names => [...document.getElementById("band-values").rows]
            .map(row => row.cells[0].textContent).join() === names.join()""",
        shown_bands,
    )
    assert "fmin=20, fmax=8000" in live.locator("#call").inner_text()
    choose(live, "source", "synthetic")


def level(page: Page) -> float:
    return float(re.search(r"(-?[\d.]+) dB", read_out(page))[1])  # type: ignore[index]


def read_out(page: Page) -> str:
    return page.locator("#waterfall-said").inner_text()


def test_the_waterfall_is_read_by_pointer_and_by_keys(live: Page, files: Path) -> None:
    """Strong where the sine is, weak beside it, on a linear and a logarithmic axis."""
    open_file(live, files / "whole.edf")
    marked(live, "Oz")
    canvas = live.locator("#waterfall")
    canvas.scroll_into_view_if_needed()
    wide = canvas.bounding_box()["width"] - 76  # type: ignore[index]
    live.click("#pause")
    at = {hz: 56 + wide * (hz - 1) / 59 for hz in (10, 40)}
    canvas.hover(position={"x": at[10], "y": 5})
    strong = level(live)
    assert re.match(r"(9\.9\d?|10(\.\d)?) Hz · now", read_out(live))
    canvas.hover(position={"x": at[40], "y": 5})
    assert level(live) < strong - 40
    choose(live, "hz", "log")
    canvas.hover(position={"x": 56 + wide * np.log(10) / np.log(60), "y": 5})
    assert level(live) == pytest.approx(strong, abs=1)
    live.locator("#chart").hover()
    until(live, "() => !document.getElementById('waterfall-said').textContent")
    canvas.focus()
    live.keyboard.press("ArrowRight")
    assert " Hz · " in read_out(live)
    choose(live, "hz", "linear")
    live.click("#pause")


def test_annotations_are_listed_and_lead_to_their_moments(
    live: Page, files: Path
) -> None:
    open_file(live, files / "whole.edf")
    assert "begun at 23:59:50" in live.locator("#file-facts").inner_text()
    until_says(live, "notes-said", "4 annotations")
    live.locator("#notes summary").click()
    words = live.locator("#note-text option").all_inner_texts()
    assert words == ["all", "go (2)", "stop (1)", "eyes closed (1)"]
    live.select_option("#note-text", "go")
    listed = live.locator("#notes-list button")
    assert [" ".join(text.split()) for text in listed.all_inner_texts()] == [
        "0:02.0 go",
        "0:20.0 go",
    ]
    live.click("#pause")
    listed.nth(1).click()
    # Past midnight the clock begins anew.
    assert live.locator("#position-said").inner_text() == "0:20 of 1:00 · 00:00:10"
    calls = live.evaluate("spy.calls")
    listed.nth(0).click()
    until(live, "calls => spy.calls > calls && spy.now === 0", calls)
    assert live.locator("#resting").inner_text() == "paused"
    live.click("#pause")
    live.locator("#notes summary").click()


def test_a_stretch_between_annotations_is_played_again_and_again(
    live: Page, files: Path
) -> None:
    open_file(live, files / "whole.edf")
    until_says(live, "notes-said", "4 annotations")
    live.locator("#notes summary").click()
    live.select_option("#since", label="0:20 go")
    live.select_option("#until", label="0:42 end of eyes closed")
    moment = "parseFloat(document.getElementById('position-said').textContent.slice(2))"
    until(live, f"() => {moment} >= 20 && {moment} < 42")
    slide(live, "position", 500)  # 30 s: inside
    assert live.locator("#since").input_value() == "20"
    slide(live, "position", 900)  # 54 s: all of it is played again
    assert live.locator("#since").input_value() == "0"
    live.locator("#notes summary").click()


def test_a_recording_with_gaps_is_played_past_them(live: Page, files: Path) -> None:
    """What was not recorded is told, shown empty, and never part of a spectrum."""
    open_file(live, files / "gaps.edf")
    assert (
        "2 channels in µV at 256 Hz, 1:20 with a gap"
        in live.locator("#file-facts").inner_text()
    )
    assert "a gap of 30.5 s after 20 s" in live.inner_text("#file-warnings")
    until_says(live, "notes-said", "3 annotations")
    live.locator("#notes summary").click()
    live.locator("#notes-list button", has_text="in the gap").click()
    until(
        live,
        """() => /^0:5[0-9] of/
            .test(document.getElementById("position-said").textContent)""",
    )
    assert problems(live) == ""
    live.locator("#notes summary").click()
    canvas = live.locator("#overview")
    canvas.scroll_into_view_if_needed()
    until(
        live,
        """() => document.getElementById("overview-channel").textContent
            && !document.getElementById("of-overview").hidden""",
    )
    wide = canvas.bounding_box()["width"] - 76  # type: ignore[index]
    # All columns are there when the last moment has a level.
    for seconds, words in ((78, r"\d dB$"), (35, "nothing recorded$"), (60.3, "last$")):
        until_read(live, 56 + wide * seconds / 80.5, words)
    canvas.click(position={"x": 56 + wide * 5 / 80.5, "y": 40})
    until_says(live, "position-said", "0:05 of 1:20")


def until_read(page: Page, x: float, words: str) -> None:
    """Point at the overview there until it says what matches the words."""
    until(
        page,
        """([x, words]) => {
            const canvas = document.getElementById("overview");
            const { left, top } = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent("pointermove",
              { clientX: left + x, clientY: top + 60 }));
            const said = document.getElementById("overview-said").textContent;
            return new RegExp(words).test(said);
        }""",
        [x, words],
    )


def test_a_narrow_phone_shows_a_recording_whole(live: Page, files: Path) -> None:
    """A recording is shown whole at 360 pixels, without scrolling sideways."""
    open_file(live, files / "whole.edf")
    live.set_viewport_size({"width": 360, "height": 740})
    assert live.evaluate("document.documentElement.scrollWidth") <= 360
    for id_ in ("chart", "waterfall", "overview"):
        assert live.locator(f"#{id_}").bounding_box()["width"] > 280  # type: ignore[index]
