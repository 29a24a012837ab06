"""The live spectrum on recordings, the microphone, and browsers that lack something."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page

from tests.browser.demo_page import NO_GPU, OpenPage, changed, without_python
from tests.browser.live_page import (
    PATH,
    choose,
    problem,
    problems,
    shown,
    slide,
    started,
    until,
    until_peaks,
    until_ran_on,
)

pytestmark = pytest.mark.requires_browser


FS = 256
SECONDS = 30


def tone(hz: float, fs: float = FS, seconds: float = SECONDS) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(seconds * fs)) / fs)


def write_table(path: Path, a: np.ndarray, b: np.ndarray) -> None:
    """Two columns at 100 Hz beside their clock."""
    rows = zip(np.arange(len(a)) / 100, a, b, strict=True)
    lines = ["time,a,b", *(f"{t:.2f},{x:.5f},{y:.5f}" for t, x, y in rows)]
    path.write_text("\n".join(lines), "utf-8")


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
    both = np.stack([tone(440, 8000, 5), tone(1000, 8000, 5)], 1)
    soundfile.write(folder / "tones.wav", (20_000 * both).astype(np.int16), 8000)
    np.save(folder / "x.npy", np.stack([tone(15), tone(31)]).astype(np.float32))
    write_table(folder / "table.csv", tone(8, 100), tone(20, 100))
    (folder / "cut.edf").write_bytes((folder / "two.edf").read_bytes()[:-1000])
    (folder / "named.edf").write_bytes(b"this is no EDF file")
    (folder / "page.pdf").write_bytes(b"%PDF-1.7\n\0\1\2" + bytes(range(256)))
    (folder / "empty.wav").write_bytes(b"")
    with (folder / "huge.edf").open("wb") as out:
        out.truncate(2 << 30)
    return folder


def open_file(page: Page, path: Path) -> None:
    choose(page, "source", "recording")
    page.set_input_files("#file", path)


@pytest.mark.full("one.bdf", "tones.wav")
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
    """A recording is played: its peaks are found, and its position moves on."""
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


def test_a_file_that_was_cut_is_shown_with_what_is_missing(
    live: Page, files: Path
) -> None:
    """A file that was cut is read as far as it is whole, and the page says so."""
    open_file(live, files / "cut.edf")
    shown(live, "cut.edf")
    assert "its header says 30 data records" in live.inner_text("#file-warnings")
    live.set_input_files("#file", files / "one.bdf")
    shown(live, "one.bdf")
    assert not live.locator("#file-warnings").is_visible()


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
        ("named.edf", "it is named .edf but does not begin like EDF"),
        ("page.pdf", "rlxweb reads EDF, BDF, WAV, NPY, NPZ, CSV, Zarr"),
        ("empty.wav", "empty.wav is empty (0 bytes)"),
        ("huge.edf", "huge.edf has 2.0 GiB; this page takes recordings up to 1.0 GiB"),
    ],
)
def test_a_file_that_cannot_be_shown_is_told_why(
    live: Page, files: Path, name: str, words: str
) -> None:
    """A file that cannot be shown is told why, and the next one is played."""
    open_file(live, files / name)
    assert words in problem(live, f"{name} cannot be shown")
    assert "/files/" not in problems(live), "a folder the visitor never saw"
    live.set_input_files("#file", files / "one.bdf")
    shown(live, "one.bdf")
    assert problems(live) == ""


def test_of_two_files_chosen_in_a_hurry_the_last_is_shown(
    live: Page, files: Path
) -> None:
    """The last of two files chosen in a hurry is shown, while a third one plays."""
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
    write_table(files / "gap.csv", *x)
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


def test_names_of_strangers_are_text_and_hide_nothing(live: Page, files: Path) -> None:
    """Markup, overrides of writing direction and controls, in channels and files."""
    names = ["<img src=x onerror=alert(1)>", "ab\u202egpj", "two\nlines\x1b[31m"]
    path = files / "<b>\u202ezpn.npz"
    x = np.stack([tone(hz) for hz in (7, 12, 23)])
    np.savez(path, x=x.astype(np.float32), fs=FS, channels=np.array(names))
    open_file(live, path)
    shown(live, "<b>\\u202ezpn.npz")
    shown_names = [
        "<img src=x onerror=alert(1)>",
        "ab\\u202egpj",
        "two\\nlines\\x1b[31m",
    ]
    until_peaks(live, dict(zip(shown_names, (7, 12, 23), strict=True)))
    assert live.locator("#picks span").all_inner_texts() == shown_names
    assert live.locator("#shown option").all_inner_texts()[1:] == shown_names
    assert live.locator("#file-name").inner_text() == "<b>\\u202ezpn.npz"
    assert live.locator("main img, main b").count() == 0
    assert "\u202e" not in live.content()


@pytest.mark.full
def test_forty_thousand_channels_leave_the_page_alive(live: Page, files: Path) -> None:
    """The lists have an end, and any channel can be found."""
    x = np.zeros((40_000, 320), np.int16)
    x[0] = x[-1] = 1000 * tone(2, 8, 40)
    names = [f"ch{at}" for at in range(1, 40_001)]
    np.savez_compressed(files / "many.npz", x=x, fs=8, channels=np.array(names))
    open_file(live, files / "many.npz")
    shown(live, "many.npz")
    assert live.locator("#picks input").count() == 256
    assert "39,744 more" in live.inner_text("#picks-more")
    assert "64 of 40,000" in live.inner_text("#picked-said")
    live.click("#all")
    assert "256 of 40,000" in live.inner_text("#picked-said")
    live.click("#none")
    live.fill("#find", "ch40000")
    live.get_by_role("checkbox", name="ch40000", exact=True).check()
    until_peaks(live, {"ch40000": 2})
    assert live.locator("#shown option").count() == 2


def test_the_microphone_is_heard_and_let_go(live: Page) -> None:
    """The microphone's track ends as soon as another signal is chosen."""
    choose(live, "source", "microphone")
    shown(live, "Microphone")
    assert live.evaluate("spy.tracks.at(-1).readyState") == "live"
    choose(live, "source", "synthetic")
    shown(live, "Synthetic EEG")
    until(live, "() => spy.tracks.every(track => track.readyState === 'ended')")


# As a browser in which the visitor says no; this one never asks.
REFUSE_ONCE = """() => {
    const { mediaDevices } = navigator;
    const ask = mediaDevices.getUserMedia;
    mediaDevices.getUserMedia = async () => {
        mediaDevices.getUserMedia = ask;
        throw new DOMException("Permission denied", "NotAllowedError");
    };
}"""


def test_a_refused_microphone_leads_back_to_the_synthetic_signal(live: Page) -> None:
    """A refused microphone leads back to the synthetic signal with advice."""
    live.evaluate(REFUSE_ONCE)
    choose(live, "source", "microphone")
    assert "Allow it beside the address" in problem(live, "No microphone")
    shown(live, "Synthetic EEG")
    assert live.locator('input[value="synthetic"]').is_checked()


@pytest.fixture
def lacking(open_page: OpenPage) -> OpenPage:
    """Opens the page where this JavaScript ran in the Worker before anything else."""

    def open_(code: str) -> Page:
        to = PATH.removeprefix("demo/")
        page = changed(open_page, to, "worker.js", lambda text: f"{code}\n{text}")
        started(page).select_option("#pace", "100")
        return page

    return open_


@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (NO_GPU, "no WebGPU (navigator.gpu)"),
        pytest.param(
            "navigator.gpu.requestAdapter = async () => null;",
            "offers no adapter",
            marks=pytest.mark.full,
        ),
    ],
)
def test_without_webgpu_the_page_says_so_and_runs_on_numpy(
    lacking: OpenPage, code: str, why: str
) -> None:
    page = lacking(code)
    assert why in problem(page, "No WebGPU here")
    assert page.locator('input[value="webgpu"]').is_disabled()
    until_ran_on(page, "NumPy")
    shown(page, "Synthetic EEG")


def test_without_stack_switching_the_gpu_is_awaited(lacking: OpenPage) -> None:
    page = lacking("delete WebAssembly.Suspending; delete WebAssembly.promising;")
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


def test_where_motion_is_to_be_reduced_the_picture_changes_twice_a_second(
    open_page: OpenPage,
) -> None:
    calm = partial(open_page, reduced_motion="reduce")
    page = without_python(calm, "live/")
    until(page, "() => document.getElementById('pace').value === '500'")
