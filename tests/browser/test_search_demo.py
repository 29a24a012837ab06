"""Check the demo of semantic search in a visitor's texts, with a tiny generated
embedding model.

What it answers are nearnesses of that model in NumPy in float64, as in the unit tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import (
    NO_GPU,
    OpenPage,
    check_page_fits_phone,
    open_with_change,
)
from tests.unit.examples import tiny_sentence_encoder
from tests.unit.examples.site_module_loader import load_site_module

pytestmark = pytest.mark.requires_browser

NOTES = "the cat sat\n\non a mat.\n\nunable, the mat\n\ncats!"


def input_files(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return files in the form in which Playwright gives them to an input element."""
    return [{"name": n, "mimeType": "", "buffer": raw} for n, raw in files.items()]


def serve_model(page: Page, files: Mapping[str, bytes]) -> None:
    """Serve the model's files as a site built with it does."""

    def answer(route: Route) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        sizes = {n: len(raw) for n, raw in files.items()}
        model_list = json.dumps({"minilm": sizes}).encode()
        route.fulfill(body=model_list if name == "models.json" else files[name])

    page.context.route("**/models/**", answer)


def search(page: Page, question: str) -> list[tuple[float, str]]:
    """Search for the question and return the hits: score and passage."""
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
    serve_model(page, tiny_sentence_encoder.tiny_model_files())
    page.goto(page.url.replace("icon.svg", "search/"))
    expect(page.locator("#hits li")).to_have_count(5, timeout=START_MS)
    assert "swiftshader" in page.inner_text("#answered")
    page.fill("#text", NOTES)
    hits = search(page, "unable, the mat")
    tokenizer = load_site_module("demo/search/wordpiece").WordPiece(
        tiny_sentence_encoder.TOKENIZER
    )
    texts = ("unable, the mat", "on a mat.")
    question, passage = (
        tiny_sentence_encoder.reference_embedding(tokenizer.encode(text))
        for text in texts
    )
    assert hits[0] == (1.0, "unable, the mat")
    assert len(hits) == 4
    (other_score,) = (score for score, text in hits if text == "on a mat.")
    assert other_score == pytest.approx(question @ passage, abs=0.0051)
    page.check("input[value=cpu]", force=True)
    assert search(page, "unable , the mat") == hits
    assert "by NumPy" in page.inner_text("#answered")
    file = tmp_path / "more.md"
    file.write_text("the cat\n\nthe cat sat on a mat , unable")
    page.set_input_files("#pick-notes", str(file))
    assert search(page, "the cat")[0] == (1.0, "the cat")
    assert "more.md, line 1" in page.inner_text("#hits li:first-child")
    page.get_by_role("button", name="Remove more.md").click()
    assert (1.0, "the cat") not in search(page, "the cat !")


def test_visitor_supplies_a_missing_model(open_page: OpenPage) -> None:
    """The page says what is missing or wrong in a visitor's model, and takes a right
    one.
    """
    page = open_with_change(
        open_page, "search/", "worker.js", lambda text: text + NO_GPU
    )
    expect(page.locator("#model-files")).to_be_visible(timeout=START_MS)
    assert page.is_disabled("#go")
    files = tiny_sentence_encoder.tiny_model_files()
    incomplete_files = {n: raw for n, raw in files.items() if n != "tokenizer.json"}
    page.set_input_files("#pick-model", input_files(incomplete_files))
    problem = page.locator(".problem")
    expect(problem).to_contain_text("tokenizer.json is missing")
    broken_files = {**files, "config.json": b'{"model_type": "gpt2"}'}
    page.set_input_files("#pick-model", input_files(broken_files))
    expect(problem).to_contain_text("config.json has model_type 'gpt2'")
    page.set_input_files("#pick-model", input_files(files))
    expect(page.locator("#hits li")).to_have_count(5)
    expect(problem).to_have_count(0)
    assert "by NumPy" in page.inner_text("#answered")
    page.fill("#text", " \n\n ")
    page.click("#read")
    expect(page.locator("#read-said")).to_contain_text("nothing to read")


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    """The demo of searching does not scroll sideways on a phone."""
    check_page_fits_phone(open_page, "search/")
