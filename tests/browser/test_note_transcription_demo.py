"""Check the demo that transcribes musical notes from sound: its tune, a file, other
settings, on a GPU and on NumPy.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from assembly.demo_models import add_models
from playwright.sync_api import Page, Route, expect

from tests import edf_bdf_recordings
from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import (
    NO_GPU,
    OpenPage,
    check_page_fits_phone,
    open_with_change,
)
from tests.unit.examples.synthetic_audio import synthesize_song

pytestmark = pytest.mark.requires_browser

TUNE_NOTES = {"A3", "E4", "A4", "C5", "G3", "E5", "D5", "B4", "F3", "E3", "G♯4"}
MODEL_FILE = "basic_pitch.rlxg"


@cache
def model_bytes() -> bytes:
    """Return the model's file as the site serves it."""
    with TemporaryDirectory() as folder:
        add_models(Path(folder) / "models", ["basic-pitch"])
        return (Path(folder) / "models" / "basic-pitch" / MODEL_FILE).read_bytes()


def serve_model(page: Page) -> None:
    """Serve the model's file as a site built with it does."""

    def answer(route: Route) -> None:
        model_list = json.dumps(
            {"basic-pitch": {MODEL_FILE: len(model_bytes())}}
        ).encode()
        is_list = route.request.url.endswith("models.json")
        route.fulfill(body=model_list if is_list else model_bytes())

    page.context.route("**/models/**", answer)


def count_notes(page: Page) -> int:
    """Return the number of notes on the page once it is idle."""
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    return int(page.inner_text("#said").split()[0])


@pytest.mark.slow
def test_a_tune_becomes_notes(open_page: OpenPage) -> None:
    """A tune becomes notes unasked, on the GPU, and a MIDI file.

    By other settings there are fewer notes.
    """
    page = open_page("demo/icon.svg")
    serve_model(page)
    page.goto(page.url.replace("icon.svg", "notes/"))
    expect(page.locator("#said")).to_contain_text("· a tune:", timeout=3 * START_MS)
    count = count_notes(page)
    assert "swiftshader" in page.inner_text("#said")
    page.click("#listed summary")
    notes = set(page.locator("#lines th").all_inner_texts())
    assert len(notes & TUNE_NOTES) >= 8
    page.fill("#onset", "0.95")
    page.fill("#frame", "0.8")
    expect(page.locator("#said")).not_to_contain_text(f"{count} notes")
    assert count_notes(page) < count
    with page.expect_download() as download:
        page.click("#midi")
    assert download.value.suggested_filename == "a tune.mid"
    assert Path(download.value.path()).read_bytes()[:4] == b"MThd"


@pytest.mark.full
def test_visitor_supplies_a_missing_model(open_page: OpenPage, tmp_path: Path) -> None:
    """The page says what is wrong with a visitor's model, and takes a right one and a
    sound.
    """
    page = open_with_change(
        open_page, "notes/", "worker.js", lambda text: text + NO_GPU
    )
    expect(page.locator("#model-files")).to_be_visible(timeout=START_MS)
    assert page.is_disabled("#record")
    bad_file = {"name": "other.rlxg", "mimeType": "", "buffer": b"no graph at all"}
    page.set_input_files("#pick-model", [bad_file])
    problem = page.locator(".problem")
    expect(problem).to_contain_text("The model cannot be used")
    model_file = {"name": MODEL_FILE, "mimeType": "", "buffer": model_bytes()}
    page.set_input_files("#pick-model", [model_file])
    expect(page.locator("#said")).to_contain_text("· a tune:", timeout=START_MS)
    expect(problem).to_have_count(0)
    assert "by NumPy" in page.inner_text("#said")
    path = tmp_path / "song.wav"
    edf_bdf_recordings.save_recording(
        str(path), synthesize_song(1.5, 16000)[0][None], fs=16000, bits=16
    )
    page.set_input_files("#pick-sound", str(path))
    expect(page.locator("#said")).to_contain_text("· song.wav: 1.5 s", timeout=START_MS)
    assert count_notes(page) > 0
    page.press("#roll", "+")
    page.set_input_files("#pick-sound", [{**bad_file, "name": "a.wav"}])
    expect(problem).to_contain_text("cannot decode the file as sound")


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    """The demo of notes does not scroll sideways on a phone."""
    check_page_fits_phone(open_page, "notes/")
