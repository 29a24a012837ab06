"""The demo that hears notes: its tune, a file, other settings; a GPU and NumPy."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from assembly.models import add_models
from playwright.sync_api import Page, Route, expect

from tests import recordings
from tests.browser.demo_page import NO_GPU, OpenPage, changed, check_fits_a_phone
from tests.browser.watch import START_MS
from tests.unit.examples.sounds import song

pytestmark = pytest.mark.requires_browser

TUNE = {"A3", "E4", "A4", "C5", "G3", "E5", "D5", "B4", "F3", "E3", "G♯4"}
NAME = "basic_pitch.rlxg"


@cache
def saved() -> bytes:
    """The model as the site has it."""
    with TemporaryDirectory() as folder:
        add_models(Path(folder) / "models", ["basic-pitch"])
        return (Path(folder) / "models" / "basic-pitch" / NAME).read_bytes()


def served(page: Page) -> None:
    """Serve the model's file, as a site does that was built with it."""

    def answer(route: Route) -> None:
        listed = json.dumps({"basic-pitch": {NAME: len(saved())}}).encode()
        is_list = route.request.url.endswith("models.json")
        route.fulfill(body=listed if is_list else saved())

    page.context.route("**/models/**", answer)


def told(page: Page) -> int:
    """How many notes there are."""
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    return int(page.inner_text("#said").split()[0])


@pytest.mark.slow
def test_a_tune_becomes_notes(open_page: OpenPage) -> None:
    """A tune becomes notes unasked, on the GPU, and a MIDI file.

    By other settings there are fewer notes.
    """
    page = open_page("demo/icon.svg")
    served(page)
    page.goto(page.url.replace("icon.svg", "notes/"))
    expect(page.locator("#said")).to_contain_text("· a tune:", timeout=3 * START_MS)
    count = told(page)
    assert "swiftshader" in page.inner_text("#said")
    page.click("#listed summary")
    heard = set(page.locator("#lines th").all_inner_texts())
    assert len(heard & TUNE) >= 8
    page.fill("#onset", "0.95")
    page.fill("#frame", "0.8")
    expect(page.locator("#said")).not_to_contain_text(f"{count} notes")
    assert told(page) < count
    with page.expect_download() as saving:
        page.click("#midi")
    assert saving.value.suggested_filename == "a tune.mid"
    assert Path(saving.value.path()).read_bytes()[:4] == b"MThd"


@pytest.mark.full
def test_without_a_model_the_visitor_brings_one(
    open_page: OpenPage, tmp_path: Path
) -> None:
    """A visitor is told what is wrong with a model, and brings one and a sound."""
    page = changed(open_page, "notes/", "worker.js", lambda text: text + NO_GPU)
    expect(page.locator("#model-files")).to_be_visible(timeout=START_MS)
    assert page.is_disabled("#record")
    other = {"name": "other.rlxg", "mimeType": "", "buffer": b"no graph at all"}
    page.set_input_files("#pick-model", [other])
    problem = page.locator(".problem")
    expect(problem).to_contain_text("The model cannot be used")
    own = {"name": NAME, "mimeType": "", "buffer": saved()}
    page.set_input_files("#pick-model", [own])
    expect(page.locator("#said")).to_contain_text("· a tune:", timeout=START_MS)
    expect(problem).to_have_count(0)
    assert "by NumPy" in page.inner_text("#said")
    path = tmp_path / "song.wav"
    recordings.saved(str(path), song(1.5, 16000)[0][None], fs=16000, bits=16)
    page.set_input_files("#pick-sound", str(path))
    expect(page.locator("#said")).to_contain_text("· song.wav: 1.5 s", timeout=START_MS)
    assert told(page) > 0
    page.press("#roll", "+")
    page.set_input_files("#pick-sound", [{**other, "name": "a.wav"}])
    expect(problem).to_contain_text("cannot read it as sound")


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    """The demo of notes does not scroll sideways on a phone."""
    check_fits_a_phone(open_page, "notes/")
