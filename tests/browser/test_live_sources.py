"""Check the live spectrum on recordings, the microphone, and browsers that lack
features.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page

from tests.browser.live_page import (
    PATH,
    choose_option,
    problem_text,
    set_slider,
    wait_for_engine,
    wait_for_first_picture,
    wait_for_peaks,
    wait_for_problem,
    wait_for_title,
    wait_until,
)
from tests.browser.patched_demo_page import (
    NO_GPU,
    OpenPage,
    open_with_change,
    open_without_python,
)

pytestmark = pytest.mark.requires_browser


FS = 256
SECONDS = 30


def sine(hz: float, fs: float = FS, seconds: float = SECONDS) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(seconds * fs)) / fs)


def write_table(path: Path, a: np.ndarray, b: np.ndarray) -> None:
    """Write a CSV table of a clock and two columns at 100 Hz."""
    rows = zip(np.arange(len(a)) / 100, a, b, strict=True)
    lines = ["time,a,b", *(f"{t:.2f},{x:.5f},{y:.5f}" for t, x, y in rows)]
    path.write_text("\n".join(lines), "utf-8")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write recordings with known rhythms, and files that are no recordings."""
    import edfio

    folder = tmp_path_factory.mktemp("recordings")
    physical_range_uv = {"physical_dimension": "uV", "physical_range": (-200, 200)}
    signals = [
        edfio.EdfSignal(50 * sine(7), FS, label="EEG A", **physical_range_uv),
        edfio.EdfSignal(50 * sine(23), FS, label="EEG B", **physical_range_uv),
        edfio.EdfSignal(sine(2, 64), 64, label="Resp", **physical_range_uv),
    ]
    notes = [edfio.EdfAnnotation(1, None, "eyes closed")]
    edf = edfio.Edf(signals, data_record_duration=1, annotations=notes)
    edf.write(folder / "two.edf")
    physical_range = {"physical_dimension": "uV", "physical_range": (-262144, 262143)}
    bdf = [edfio.BdfSignal(50 * sine(12), FS, label="C3", **physical_range)]
    edfio.Bdf(bdf, data_record_duration=1).write(folder / "one.bdf")
    channels = np.stack([sine(440, 8000, 5), sine(1000, 8000, 5)], 1)
    soundfile.write(folder / "tones.wav", (20_000 * channels).astype(np.int16), 8000)
    np.save(folder / "x.npy", np.stack([sine(15), sine(31)]).astype(np.float32))
    write_table(folder / "table.csv", sine(8, 100), sine(20, 100))
    (folder / "cut.edf").write_bytes((folder / "two.edf").read_bytes()[:-1000])
    (folder / "named.edf").write_bytes(b"this is no EDF file")
    (folder / "page.pdf").write_bytes(b"%PDF-1.7\n\0\1\2" + bytes(range(256)))
    (folder / "empty.wav").write_bytes(b"")
    with (folder / "huge.edf").open("wb") as out:
        out.truncate(2 << 30)
    return folder


def open_file(page: Page, path: Path) -> None:
    choose_option(page, "source", "recording")
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
    wait_for_title(live, name)
    wait_for_peaks(live, peaks, tolerance_hz=2.0 if name == "tones.wav" else 0.3)
    assert facts in live.locator("#file-facts").inner_text()
    position = live.locator("#position-said").inner_text()
    wait_until(
        live,
        "said => document.getElementById('position-said').textContent !== said",
        position,
    )


def test_channels_of_another_rate_form_a_separate_group(
    live: Page, files: Path
) -> None:
    open_file(live, files / "two.edf")
    wait_for_title(live, "two.edf")
    live.select_option("#group", label="1 channel at 64 Hz")
    wait_for_peaks(live, {"Resp": 2})
    live.locator("#left-out summary").click()
    assert "annotations" in live.locator("#left-out-list").inner_text()


def test_position_is_set_by_slider(live: Page, files: Path) -> None:
    open_file(live, files / "two.edf")
    wait_for_title(live, "two.edf")
    set_slider(live, "position", 500)
    wait_until(
        live,
        """() => /0:1[5-9] of/
            .test(document.getElementById("position-said").textContent)""",
    )


def test_a_file_without_a_rate_asks_for_it(live: Page, files: Path) -> None:
    open_file(live, files / "x.npy")
    live.locator("#asked").wait_for()
    assert "The sampling rate of x.npy is unknown" in live.inner_text("#asked-why")
    live.locator("#rate").fill("256")
    live.keyboard.press("Enter")
    wait_for_title(live, "x.npy")
    wait_for_peaks(live, {"ch1": 15, "ch2": 31})
    assert live.locator("#layout-field").is_visible()


def test_truncated_file_is_shown_with_a_warning(live: Page, files: Path) -> None:
    """A truncated file is read as far as it goes, and the page says what is missing."""
    open_file(live, files / "cut.edf")
    wait_for_title(live, "cut.edf")
    assert "the header declares 30 data records" in live.inner_text("#file-warnings")
    live.set_input_files("#file", files / "one.bdf")
    wait_for_title(live, "one.bdf")
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
    wait_for_title(live, "dropped.bdf")
    wait_for_peaks(live, {"C3": 12})
    assert "dropping" not in (live.locator("body").get_attribute("class") or "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("named.edf", "the suffix is .edf but the content is not EDF"),
        ("page.pdf", "rlxweb reads EDF, BDF, WAV, NPY, NPZ, CSV, Zarr"),
        ("empty.wav", "empty.wav is an empty file (0 bytes)"),
        ("huge.edf", "huge.edf has 2.0 GiB; this page takes recordings up to 1.0 GiB"),
    ],
)
def test_unreadable_file_is_refused_with_the_reason(
    live: Page, files: Path, name: str, message: str
) -> None:
    """A file that cannot be shown is refused with the reason, and the next one is
    played.
    """
    open_file(live, files / name)
    assert message in wait_for_problem(live, f"{name} cannot be shown")
    assert "/files/" not in problem_text(live), "a folder the visitor never saw"
    live.set_input_files("#file", files / "one.bdf")
    wait_for_title(live, "one.bdf")
    assert problem_text(live) == ""


def test_last_of_two_files_chosen_quickly_is_shown(live: Page, files: Path) -> None:
    """The last of two files chosen in a hurry is shown, while a third one plays."""
    open_file(live, files / "two.edf")
    wait_for_title(live, "two.edf")
    live.set_input_files("#file", files / "table.csv")
    live.set_input_files("#file", files / "one.bdf")
    wait_for_title(live, "one.bdf")
    wait_for_peaks(live, {"C3": 12})
    assert problem_text(live) == ""


def test_nan_sample_is_named(live: Page, files: Path) -> None:
    x = np.stack([sine(15, 100), sine(31, 100)])
    x[1, 777] = np.nan
    write_table(files / "gap.csv", *x)
    open_file(live, files / "gap.csv")
    message = wait_for_problem(live, "could not be computed")
    assert "channel 'b' is nan at sample 777 (7.770 s)" in message
    live.get_by_role("checkbox", name="b", exact=True).uncheck()
    wait_for_peaks(live, {"a": 15})
    assert problem_text(live) == ""


def test_changed_file_is_reported(live: Page, files: Path) -> None:
    """The browser refuses to read it on; the page stays alive."""
    path = files / "changing.edf"
    path.write_bytes((files / "two.edf").read_bytes())
    open_file(live, path)
    wait_for_title(live, "changing.edf")
    with path.open("ab") as file:
        file.write(b"more")
    assert "choose the file again" in wait_for_problem(live, "could not be computed")
    choose_option(live, "source", "synthetic")
    wait_for_title(live, "Synthetic EEG")
    assert problem_text(live) == ""


def test_untrusted_names_are_escaped(live: Page, files: Path) -> None:
    """Markup, bidirectional overrides and control characters in channel and file names
    are shown as text.
    """
    names = ["<img src=x onerror=alert(1)>", "ab\u202egpj", "two\nlines\x1b[31m"]
    path = files / "<b>\u202ezpn.npz"
    x = np.stack([sine(hz) for hz in (7, 12, 23)])
    np.savez(path, x=x.astype(np.float32), fs=FS, channels=np.array(names))
    open_file(live, path)
    wait_for_title(live, "<b>\\u202ezpn.npz")
    shown_names = [
        "<img src=x onerror=alert(1)>",
        "ab\\u202egpj",
        "two\\nlines\\x1b[31m",
    ]
    wait_for_peaks(live, dict(zip(shown_names, (7, 12, 23), strict=True)))
    assert live.locator("#picks span").all_inner_texts() == shown_names
    assert live.locator("#shown option").all_inner_texts()[1:] == shown_names
    assert live.locator("#file-name").inner_text() == "<b>\\u202ezpn.npz"
    assert live.locator("main img, main b").count() == 0
    assert "\u202e" not in live.content()


@pytest.mark.full
def test_page_stays_responsive_with_forty_thousand_channels(
    live: Page, files: Path
) -> None:
    """Lists of channels are cut off, and any channel can be found."""
    x = np.zeros((40_000, 320), np.int16)
    x[0] = x[-1] = 1000 * sine(2, 8, 40)
    names = [f"ch{at}" for at in range(1, 40_001)]
    np.savez_compressed(files / "many.npz", x=x, fs=8, channels=np.array(names))
    open_file(live, files / "many.npz")
    wait_for_title(live, "many.npz")
    assert live.locator("#picks input").count() == 256
    assert "39,744 more" in live.inner_text("#picks-more")
    assert "64 of 40,000" in live.inner_text("#picked-said")
    live.click("#all")
    assert "256 of 40,000" in live.inner_text("#picked-said")
    live.click("#none")
    live.fill("#find", "ch40000")
    live.get_by_role("checkbox", name="ch40000", exact=True).check()
    wait_for_peaks(live, {"ch40000": 2})
    assert live.locator("#shown option").count() == 2


def test_microphone_is_opened_and_released(live: Page) -> None:
    """The microphone's track ends as soon as another signal is chosen."""
    choose_option(live, "source", "microphone")
    wait_for_title(live, "Microphone")
    assert live.evaluate("spy.tracks.at(-1).readyState") == "live"
    choose_option(live, "source", "synthetic")
    wait_for_title(live, "Synthetic EEG")
    wait_until(live, "() => spy.tracks.every(track => track.readyState === 'ended')")


# As a browser in which the visitor says no; this one never asks.
REFUSE_MICROPHONE_ONCE_JS = """() => {
    const { mediaDevices } = navigator;
    const ask = mediaDevices.getUserMedia;
    mediaDevices.getUserMedia = async () => {
        mediaDevices.getUserMedia = ask;
        throw new DOMException("Permission denied", "NotAllowedError");
    };
}"""


def test_refused_microphone_falls_back_to_synthetic_signal(live: Page) -> None:
    """A refused microphone leads back to the synthetic signal with advice."""
    live.evaluate(REFUSE_MICROPHONE_ONCE_JS)
    choose_option(live, "source", "microphone")
    assert "Allow it next to the address" in wait_for_problem(live, "No microphone")
    wait_for_title(live, "Synthetic EEG")
    assert live.locator('input[value="synthetic"]').is_checked()


@pytest.fixture
def open_with_worker_code(open_page: OpenPage) -> OpenPage:
    """Return a function that opens the page after running JavaScript in its Worker."""

    def open_(code: str) -> Page:
        demo_path = PATH.removeprefix("demo/")
        page = open_with_change(
            open_page, demo_path, "worker.js", lambda text: f"{code}\n{text}"
        )
        wait_for_first_picture(page).select_option("#pace", "100")
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
    open_with_worker_code: OpenPage, code: str, why: str
) -> None:
    page = open_with_worker_code(code)
    assert why in wait_for_problem(page, "WebGPU is not available")
    assert page.locator('input[value="webgpu"]').is_disabled()
    wait_for_engine(page, "NumPy")
    wait_for_title(page, "Synthetic EEG")


def test_without_stack_switching_the_gpu_is_awaited(
    open_with_worker_code: OpenPage,
) -> None:
    page = open_with_worker_code(
        "delete WebAssembly.Suspending; delete WebAssembly.promising;"
    )
    choose_option(page, "device", "webgpu")
    wait_for_engine(page, "swiftshader")
    wait_for_title(page, "Synthetic EEG")
    page.locator(".decision summary").click()
    assert page.get_by_role("button", name="Measure the engines").is_disabled()
    page.get_by_role("button", name="Lose the GPU").click()
    wait_for_problem(page, "The GPU failed")
    page.get_by_role("button", name="Try the GPU again").click()
    wait_until(page, "() => document.querySelectorAll('.problem').length === 0")
    wait_for_engine(page, "swiftshader")


def test_reduced_motion_limits_updates_to_two_a_second(
    open_page: OpenPage,
) -> None:
    open_reduced_motion = partial(open_page, reduced_motion="reduce")
    page = open_without_python(open_reduced_motion, "live/")
    wait_until(page, "() => document.getElementById('pace').value === '500'")
