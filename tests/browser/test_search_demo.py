"""The demo that searches a visitor's notes, with a model so small that tests make it.

What it answers are nearnesses of that model in NumPy in float64, as in the unit tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.demo_page import NO_GPU, OpenPage, changed, check_fits_a_phone
from tests.browser.watch import START_MS
from tests.unit.examples import tiny
from tests.unit.examples.programs import module

pytestmark = pytest.mark.requires_browser

NOTES = "the cat sat\n\non a mat.\n\nunable, the mat\n\ncats!"


def as_chosen(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Files as Playwright gives them to an input."""
    return [{"name": n, "mimeType": "", "buffer": raw} for n, raw in files.items()]


def served(page: Page, files: Mapping[str, bytes]) -> None:
    """Serve the model's files, as a site does that was built with it."""

    def answer(route: Route) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        sizes = {n: len(raw) for n, raw in files.items()}
        told = json.dumps({"minilm": sizes}).encode()
        route.fulfill(body=told if name == "models.json" else files[name])

    page.context.route("**/models/**", answer)


def asked(page: Page, question: str) -> list[tuple[float, str]]:
    """The hits: how near, and the passage."""
    page.fill("#question", question)
    page.press("#question", "Enter")
    expect(page.locator("#answered")).to_contain_text(f"“{question}”")
    scores = page.locator("#hits .score").all_inner_texts()
    texts = page.locator("#hits p").all_inner_texts()
    return [(float(s), t) for s, t in zip(scores, texts, strict=True)]


@pytest.mark.slow
def test_the_nearest_passages_are_shown(open_page: OpenPage, tmp_path: Path) -> None:
    """The nearest passages, of files too, are shown on the GPU and on NumPy.

    The first answer comes unasked.
    """
    page = open_page("demo/icon.svg")
    served(page, tiny.files())
    page.goto(page.url.replace("icon.svg", "search/"))
    expect(page.locator("#hits li")).to_have_count(5, timeout=START_MS)
    assert "swiftshader" in page.inner_text("#answered")
    page.fill("#text", NOTES)
    found = asked(page, "unable, the mat")
    tokenizer = module("demo/search/wordpiece").WordPiece(tiny.TOKENIZER)
    texts = ("unable, the mat", "on a mat.")
    question, passage = (tiny.embedded(tokenizer.encode(text)) for text in texts)
    assert found[0] == (1.0, "unable, the mat")
    assert len(found) == 4
    (other,) = (score for score, text in found if text == "on a mat.")
    assert other == pytest.approx(question @ passage, abs=0.0051)
    page.check("input[value=cpu]", force=True)
    assert asked(page, "unable , the mat") == found
    assert "by NumPy" in page.inner_text("#answered")
    file = tmp_path / "more.md"
    file.write_text("the cat\n\nthe cat sat on a mat , unable")
    page.set_input_files("#pick-notes", str(file))
    assert asked(page, "the cat")[0] == (1.0, "the cat")
    assert "more.md, line 1" in page.inner_text("#hits li:first-child")
    page.get_by_role("button", name="Remove more.md").click()
    assert (1.0, "the cat") not in asked(page, "the cat !")


def test_without_a_model_the_visitor_brings_one(open_page: OpenPage) -> None:
    """A visitor is told what is missing or wrong in a model, and brings one."""
    page = changed(open_page, "search/", "worker.js", lambda text: text + NO_GPU)
    expect(page.locator("#model-files")).to_be_visible(timeout=START_MS)
    assert page.is_disabled("#go")
    files = tiny.files()
    few = {n: raw for n, raw in files.items() if n != "tokenizer.json"}
    page.set_input_files("#pick-model", as_chosen(few))
    problem = page.locator(".problem")
    expect(problem).to_contain_text("tokenizer.json is missing")
    broken = {**files, "config.json": b'{"model_type": "gpt2"}'}
    page.set_input_files("#pick-model", as_chosen(broken))
    expect(problem).to_contain_text("config.json says 'gpt2'")
    page.set_input_files("#pick-model", as_chosen(files))
    expect(page.locator("#hits li")).to_have_count(5)
    expect(problem).to_have_count(0)
    assert "by NumPy" in page.inner_text("#answered")
    page.fill("#text", " \n\n ")
    page.click("#read")
    expect(page.locator("#read-said")).to_contain_text("nothing to read")


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    """The demo of searching does not scroll sideways on a phone."""
    check_fits_a_phone(open_page, "search/")
