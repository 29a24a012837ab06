"""The live spectrum driven as a visitor would: sliders, files, microphone, bad days."""

from __future__ import annotations

import re
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, TimeoutError

from tests.browser.conftest import FLAGS, START_MS, Watch

pytestmark = pytest.mark.requires_browser

PATH = "demo/live/"
WAIT_MS = 30_000
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


# --- the page -------------------------------------------------------------------------


def started(page: Page) -> Page:
    """The page, once its first picture is there."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    return page


@pytest.fixture(scope="module")
def opened(browser: Browser, site_url: str) -> Iterator[tuple[Page, Watch]]:
    """One live page for the tests of this file."""
    watch = Watch(site_url)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(SPY)
    watch.on(context)
    page = context.new_page()
    page.goto(site_url + PATH)
    yield started(page), watch
    context.close()


@pytest.fixture
def live(opened: tuple[Page, Watch]) -> Iterator[Page]:
    """The page, showing the synthetic EEG on whatever engine it chooses."""
    page, watch = opened
    choose(page, "device", "auto")
    choose(page, "source", "recording")  # from anywhere: the defaults come with it
    choose(page, "source", "synthetic")
    page.select_option("#channels", "8")
    shown(page, "Synthetic EEG")
    yield page
    watch.check()


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


def until_ran_on(page: Page, engine: str) -> None:
    until(
        page,
        "name => document.getElementById('ran-on').textContent.includes(name)",
        engine,
    )


def problems(page: Page) -> str:
    return " ".join(page.locator(".problem").all_inner_texts())


def problem(page: Page, words: str) -> str:
    """Wait for a message with these words in it."""
    page.locator(".problem", has_text=words).first.wait_for(timeout=WAIT_MS)
    return problems(page)


# --- starting -------------------------------------------------------------------------


def test_the_page_says_how_it_started(live: Page) -> None:
    """Each step with its time, and when the first result was there."""
    start = live.locator(".start")
    assert re.search(r"First result \d+\.\d s", start.inner_text())
    start.locator("summary").click()
    steps = start.locator("li").all_inner_texts()
    assert [re.sub(r"\s+\d+ ms$", "", step) for step in steps] == [
        "Python runtime",
        "NumPy",
        "rlxweb",
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


# --- the synthetic signal -------------------------------------------------------------


def test_a_rhythm_that_is_turned_up_is_found(live: Page) -> None:
    """In every channel, at the rhythm's frequency."""
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
    """n_fft, segments, window, k and what counts as a peak."""
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
    """Only those are computed; without any the page asks for one."""
    live.get_by_role("button", name="None", exact=True).click()
    until(
        live,
        "() => document.getElementById('picked-said').textContent.includes('0 of 8')",
    )
    for name in ("C3", "O1"):
        live.get_by_role("checkbox", name=name).check()
    until(
        live,
        "() => new Set([...peaks.rows].map(r => r.cells[0].textContent)).size === 2",
    )
    assert set(first_peaks(live)) == {"C3", "O1"}
    live.select_option("#shown", label="C3")
    assert live.locator("#peaks tr[data-shown] th").all_inner_texts() == ["C3"] * 4
    live.get_by_role("button", name="All", exact=True).click()
    until(
        live,
        "() => new Set([...peaks.rows].map(r => r.cells[0].textContent)).size === 8",
    )
    live.select_option("#shown", "")


def test_many_channels_are_many_rows_of_one_call(live: Page) -> None:
    live.select_option("#channels", "64")
    until(live, "() => document.getElementById('call').textContent.includes('[64, ')")
    assert "more peaks" in live.locator("#peaks-more").inner_text()


def picture(page: Page) -> str:
    return str(page.evaluate("document.getElementById('chart').toDataURL()"))


def test_pause_stands_still_and_goes_on(live: Page) -> None:
    """By keyboard."""
    button = live.locator("#pause")
    button.focus()
    live.keyboard.press("Space")
    until(live, "() => spy.now === 0")
    assert button.get_attribute("aria-pressed") == "true"
    assert live.locator("#resting").inner_text() == "paused"
    calls, before = live.evaluate("spy.calls"), picture(live)
    live.evaluate("() => new Promise(done => setTimeout(done, 400))")
    assert live.evaluate("spy.calls") == calls
    assert picture(live) == before
    choose(live, "axis", "linear")
    assert picture(live) != before, "the axis changes while paused, too"
    choose(live, "axis", "log")
    live.keyboard.press("Tab")
    button.click()
    until(live, "calls => spy.calls > calls + 3", calls)
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
    live.evaluate("() => new Promise(done => setTimeout(done, 400))")
    assert live.evaluate("spy.calls") == calls
    live.evaluate(hide, False)
    until(live, "calls => spy.calls > calls + 3", calls)
    assert live.locator("#resting").is_hidden()


def test_never_two_calls_at_once_and_dropped_frames_are_counted(live: Page) -> None:
    """A job that takes longer than a frame of the screen."""
    live.evaluate("() => { spy.most = spy.now; }")
    live.select_option("#channels", "256")
    live.select_option("#nperseg", "4096")
    until(
        live, "() => Number(document.getElementById('figure-dropped').textContent) > 3"
    )
    assert live.evaluate("spy.most") == 1


# --- devices --------------------------------------------------------------------------


def test_the_gpu_gives_the_peaks_of_numpy(live: Page) -> None:
    """Of the very same samples: the picture of a paused recording does not move."""
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
    until(live, "calls => spy.calls > calls + 3", calls)
    live.get_by_role("button", name="Try the GPU again").click()
    until(live, "() => document.querySelectorAll('.problem').length === 0")
    until_ran_on(live, "swiftshader")
    assert "instead" not in live.locator("#ran-on").inner_text()
    advanced.click()


def test_every_way_that_was_weighed_is_listed(live: Page) -> None:
    """With its predicted time or the reason it was not taken."""
    until_ran_on(live, "NumPy")
    rows = live.locator("#ways tr").all_inner_texts()
    assert any(row.startswith("fast") and "ms" in row for row in rows)
    assert any(row.startswith("ultra") for row in rows)


# --- recordings -----------------------------------------------------------------------

FS = 256
SECONDS = 30


def tone(hz: float, fs: float = FS, seconds: float = SECONDS) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(seconds * fs)) / fs)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings whose rhythms are known, and files that are none."""
    import edfio

    folder = tmp_path_factory.mktemp("recordings")
    span = {"physical_dimension": "uV", "physical_range": (-200, 200)}
    signals = [
        edfio.EdfSignal(50 * tone(7), FS, label="EEG A", **span),
        edfio.EdfSignal(50 * tone(23), FS, label="EEG B", **span),
        edfio.EdfSignal(tone(2, 64), 64, label="Resp", **span),
    ]
    notes = [edfio.EdfAnnotation(1, None, "eyes closed")]
    edf = edfio.Edf(signals, data_record_duration=1, annotations=notes)
    edf.write(folder / "two.edf")
    wide = {"physical_dimension": "uV", "physical_range": (-262144, 262143)}
    bdf = [edfio.BdfSignal(50 * tone(12), FS, label="C3", **wide)]
    edfio.Bdf(bdf, data_record_duration=1).write(folder / "one.bdf")
    with wave.open(str(folder / "tones.wav"), "wb") as out:
        out.setparams((2, 2, 8000, 0, "NONE", "not compressed"))
        both = np.stack([tone(440, 8000, 5), tone(1000, 8000, 5)], 1)
        out.writeframes((20_000 * both).astype("<i2").tobytes())
    np.save(folder / "x.npy", np.stack([tone(15), tone(31)]).astype(np.float32))
    rows = zip(np.arange(3000) / 100, tone(8, 100), tone(20, 100), strict=True)
    lines = ["time,a,b", *(f"{t:.2f},{a:.5f},{b:.5f}" for t, a, b in rows)]
    (folder / "table.csv").write_text("\n".join(lines), "utf-8")
    (folder / "cut.edf").write_bytes((folder / "two.edf").read_bytes()[:9000])
    (folder / "named.edf").write_bytes(b"this is no EDF file")
    (folder / "page.pdf").write_bytes(b"%PDF-1.7\n\0\1\2" + bytes(range(256)))
    (folder / "empty.wav").write_bytes(b"")
    with (folder / "huge.edf").open("wb") as out:
        out.truncate(2 << 30)
    return folder


def open_file(page: Page, path: Path) -> None:
    choose(page, "source", "recording")
    page.set_input_files("#file", path)


@pytest.mark.parametrize(
    ("name", "facts", "peaks"),
    [
        ("two.edf", "EDF+C", {"EEG A": 7, "EEG B": 23}),
        ("one.bdf", "BDF", {"C3": 12}),
        ("tones.wav", "WAV", {"ch1": 440, "ch2": 1000}),
        ("table.csv", "CSV", {"a": 8, "b": 20}),
    ],
)
def test_a_recording_is_played(
    live: Page, files: Path, name: str, facts: str, peaks: dict[str, float]
) -> None:
    """Its peaks are those put into it, and its position moves on."""
    open_file(live, files / name)
    shown(live, name)
    until_peaks(live, peaks, within=2.0 if name == "tones.wav" else 0.3)
    assert facts in live.locator("#file-facts").inner_text()
    position = live.locator("#position-said").inner_text()
    until(
        live,
        "said => document.getElementById('position-said').textContent !== said",
        position,
    )


def test_channels_of_another_rate_are_a_group_of_their_own(
    live: Page, files: Path
) -> None:
    open_file(live, files / "two.edf")
    shown(live, "two.edf")
    live.select_option("#group", label="1 channel at 64 Hz")
    until_peaks(live, {"Resp": 2})
    live.locator("#left-out summary").click()
    assert "annotations" in live.locator("#left-out-list").inner_text()


def test_the_position_is_chosen_by_its_slider(live: Page, files: Path) -> None:
    open_file(live, files / "two.edf")
    shown(live, "two.edf")
    slide(live, "position", 500)
    until(
        live,
        """() => /0:1[5-9] of/
            .test(document.getElementById("position-said").textContent)""",
    )


def test_a_file_without_a_rate_asks_for_it(live: Page, files: Path) -> None:
    open_file(live, files / "x.npy")
    live.locator("#asked").wait_for()
    assert "x.npy does not tell its sampling rate" in live.inner_text("#asked-why")
    live.locator("#rate").fill("256")
    live.keyboard.press("Enter")
    shown(live, "x.npy")
    until_peaks(live, {"ch1": 15, "ch2": 31})
    assert live.locator("#layout-field").is_visible()


def test_a_file_is_dropped_on_the_page(live: Page, files: Path) -> None:
    data = list((files / "one.bdf").read_bytes())
    carried = live.evaluate_handle(
        """data => {
            const carried = new DataTransfer();
            carried.items.add(new File([new Uint8Array(data)], "dropped.bdf"));
            return carried;
        }""",
        data,
    )
    for event in ("dragenter", "dragover", "drop"):
        live.dispatch_event("#chart", event, {"dataTransfer": carried})
    shown(live, "dropped.bdf")
    until_peaks(live, {"C3": 12})
    assert "dropping" not in (live.locator("body").get_attribute("class") or "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut.edf", "the file is cut short; 30 data records need"),
        ("named.edf", "it is named .edf but does not begin like EDF"),
        ("page.pdf", "rlxweb reads EDF, BDF, WAV, NPY, NPZ and CSV"),
        ("empty.wav", "empty.wav is empty (0 bytes)"),
        ("huge.edf", "huge.edf has 2.0 GiB; this page takes recordings up to 1.0 GiB"),
    ],
)
def test_a_file_that_cannot_be_shown_is_told_why(
    live: Page, files: Path, name: str, words: str
) -> None:
    """And the page goes on with the next one."""
    open_file(live, files / name)
    assert words in problem(live, f"{name} cannot be shown")
    assert "/files/" not in problems(live), "a folder the visitor never saw"
    live.set_input_files("#file", files / "one.bdf")
    shown(live, "one.bdf")
    assert problems(live) == ""


def test_of_two_files_chosen_in_a_hurry_the_last_is_shown(
    live: Page, files: Path
) -> None:
    """While a third one plays."""
    open_file(live, files / "two.edf")
    shown(live, "two.edf")
    live.set_input_files("#file", files / "table.csv")
    live.set_input_files("#file", files / "one.bdf")
    shown(live, "one.bdf")
    until_peaks(live, {"C3": 12})
    assert problems(live) == ""


def test_a_sample_that_is_no_number_is_named(live: Page, files: Path) -> None:
    x = np.stack([tone(15, 100), tone(31, 100)])
    x[1, 777] = np.nan
    rows = zip(np.arange(x.shape[1]) / 100, *x, strict=True)
    lines = ["time,a,b", *(f"{t:.2f},{a:.5f},{b:.5f}" for t, a, b in rows)]
    (files / "gap.csv").write_text("\n".join(lines), "utf-8")
    open_file(live, files / "gap.csv")
    said = problem(live, "could not be computed")
    assert "channel 'b' is nan at sample 777 (7.770 s)" in said
    live.get_by_role("checkbox", name="b", exact=True).uncheck()
    until_peaks(live, {"a": 15})
    assert problems(live) == ""


def test_a_file_that_changed_since_is_told(live: Page, files: Path) -> None:
    """The browser refuses to read it on; the page stays alive."""
    changing = files / "changing.edf"
    changing.write_bytes((files / "two.edf").read_bytes())
    open_file(live, changing)
    shown(live, "changing.edf")
    with changing.open("ab") as file:
        file.write(b"more")
    assert "choose it again" in problem(live, "could not be computed")
    choose(live, "source", "synthetic")
    shown(live, "Synthetic EEG")
    assert problems(live) == ""


# --- the microphone -------------------------------------------------------------------


def test_the_microphone_is_heard_and_let_go(live: Page) -> None:
    """Its track ends as soon as another signal is chosen."""
    choose(live, "source", "microphone")
    shown(live, "Microphone")
    assert live.evaluate("spy.tracks.at(-1).readyState") == "live"
    choose(live, "source", "synthetic")
    shown(live, "Synthetic EEG")
    until(live, "() => spy.tracks.every(track => track.readyState === 'ended')")


def test_a_refused_microphone_leads_back_to_the_synthetic_signal(
    launch: Callable[..., Browser], site_url: str
) -> None:
    """With the words of what to do about it."""
    flags = tuple(flag for flag in FLAGS if "fake-ui" not in flag)
    browser = launch(only=flags)
    watch = Watch(site_url)
    context = browser.new_context()
    watch.on(context)
    page = context.new_page()
    page.goto(site_url + PATH)
    started(page)
    choose(page, "source", "microphone")
    assert "Allow it beside the address" in problem(page, "No microphone")
    shown(page, "Synthetic EEG")
    assert page.locator('input[value="synthetic"]').is_checked()
    browser.close()
    watch.check()


# --- browsers that lack something -----------------------------------------------------


def before_worker(page: Page, code: str) -> None:
    """Run JavaScript in the Worker before anything else."""

    def answer(route: Route) -> None:
        found = route.fetch()
        route.fulfill(response=found, body=f"{code}\n{found.text()}")

    page.context.route("**/demo/worker.js", answer)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "Object.defineProperty(navigator, 'gpu', {value: undefined});",
            "no WebGPU (navigator.gpu)",
        ),
        ("navigator.gpu.requestAdapter = async () => null;", "offers no adapter"),
    ],
)
def test_without_webgpu_the_page_says_so_and_runs_on_numpy(
    browser: Browser, site_url: str, watch: Watch, code: str, why: str
) -> None:
    context = browser.new_context()
    watch.on(context)
    page = context.new_page()
    before_worker(page, code)
    page.goto(site_url + PATH)
    started(page)
    assert why in problem(page, "No WebGPU here")
    assert page.locator('input[value="webgpu"]').is_disabled()
    until_ran_on(page, "NumPy")
    shown(page, "Synthetic EEG")
    context.close()


def test_without_stack_switching_the_gpu_is_awaited(
    browser: Browser, site_url: str, watch: Watch
) -> None:
    context = browser.new_context()
    watch.on(context)
    page = context.new_page()
    before_worker(page, "delete WebAssembly.Suspending; delete WebAssembly.promising;")
    page.goto(site_url + PATH)
    started(page)
    choose(page, "device", "webgpu")
    until_ran_on(page, "swiftshader")
    shown(page, "Synthetic EEG")
    page.locator(".decision summary").click()
    assert page.get_by_role("button", name="Measure the engines").is_disabled()
    page.get_by_role("button", name="Lose the GPU").click()
    problem(page, "The GPU failed")
    page.get_by_role("button", name="Try the GPU again").click()
    until(page, "() => document.querySelectorAll('.problem').length === 0")
    until_ran_on(page, "swiftshader")
    context.close()


def test_where_motion_is_to_be_reduced_the_picture_changes_twice_a_second(
    open_page: Callable[..., Page],
) -> None:
    page = open_page(PATH, reduced_motion="reduce")
    until(page, "() => document.getElementById('pace').value === '500'")


# --- looks ----------------------------------------------------------------------------


def test_a_phone_shows_it_all_without_scrolling_sideways(live: Page) -> None:
    live.set_viewport_size({"width": 390, "height": 844})
    for colours in ("light", "dark"):
        live.emulate_media(color_scheme=colours)
        assert live.evaluate("document.documentElement.scrollWidth") <= 390
    assert live.locator("#chart").bounding_box()["width"] > 300
    live.set_viewport_size({"width": 1280, "height": 900})
    live.emulate_media(color_scheme="light")


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
    other.goto(site_url + PATH)
    assert other.evaluate("document.documentElement.dataset.theme") == "dark"
    other.close()
    live.get_by_role("button", name="Use light colours").click()


def test_every_control_has_a_name(live: Page) -> None:
    """Inputs, selects and buttons, as a screen reader hears them."""
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


def test_measured_engines_decide_by_figures(live: Page) -> None:
    """Comes last: from here on "auto" may choose either engine."""
    live.locator(".decision summary").click()
    live.get_by_role("button", name="Measure the engines").click()
    until(
        live,
        """() => document.querySelector(".said").textContent.startsWith("Measured")""",
    )
    live.select_option("#channels", "64")
    until(live, "() => document.getElementById('call').textContent.includes('[64, ')")
    until(
        live, "() => document.getElementById('ways').textContent.includes('calibrated')"
    )
