"""Check the built site as a visitor meets it: pages, search, the live demo, the
snippet.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import START_MS
from tests.browser.patched_demo_page import OpenPage
from tests.suite_tiers import Sampler

pytestmark = pytest.mark.requires_browser

PAGES = (
    "",
    "quickstart/desktop/",
    "quickstart/browser/",
    "concepts/decisions/",
    "howto/your-page/",
    "reference/ops/softmax/",
    "benchmarks/",
    "demos/",
)
EMPTY_SEARCH_INDEX = {
    "config": {
        "lang": ["en"],
        "separator": "-",
        "pipeline": [],
        "fields": {"title": {"boost": 1.0}},
    },
    "docs": [],
}
"""An empty search index in the format of mkdocs."""
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def test_pages_fit_and_report_no_errors(open_page: OpenPage, sampled: Sampler) -> None:
    """No page is wider than a desktop's screen or a phone's, and none is empty."""
    page = open_page("demo/icon.svg")
    # else each page takes a second to read what can be searched
    page.context.route(
        "**/search_index.json", lambda route: route.fulfill(json=EMPTY_SEARCH_INDEX)
    )
    base = page.url.removesuffix("demo/icon.svg")
    scroll_width_js = "document.documentElement.scrollWidth"
    for path in sampled(PAGES, 5, quick=3):
        page.set_viewport_size(DESKTOP)
        page.goto(base + path)
        assert page.locator("h1").count() == 1, path
        assert page.evaluate(scroll_width_js) <= 1280, path
        page.set_viewport_size(PHONE)
        # what moves to its new place may lie beside the screen on its way
        page.wait_for_function(f"{scroll_width_js} <= 390")


def test_search_finds_an_op(open_page: OpenPage) -> None:
    """The search finds an op without a server behind it."""
    page = open_page("")
    # with the keys that it listens to
    page.locator("input.md-search__input").press_sequentially("softmax")
    search_hit = page.locator(".md-search-result__link").first
    expect(search_hit).to_be_visible(timeout=START_MS)
    search_hit.click()
    page.wait_for_url("**/softmax/**")


def test_front_page_starts_live_demo_on_request(open_page: OpenPage) -> None:
    """The front page starts the live demo only when its button is pressed."""
    page = open_page("")
    assert page.locator("iframe").count() == 0
    page.get_by_role("button", name="Start the live demo").click()
    frame = page.frame_locator("iframe")
    expect(frame.locator("#peaks tr").nth(2)).to_be_visible(timeout=START_MS)


def test_manual_snippet_runs_unchanged(open_page: OpenPage) -> None:
    """The manual's snippet shows peaks beside runtime/."""
    page = open_page("snippet.html")
    page.wait_for_function("document.body.innerText.includes('Hz')", timeout=START_MS)
    output = page.locator("#out").inner_text()
    assert re.fullmatch(r"\[10\. .*\] Hz on NumPy .*", output), output
