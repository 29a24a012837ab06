"""A demo of the site with some of its files changed on their way to the browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, Route, expect

OpenPage = Callable[..., Page]
DEMO = Path(__file__).resolve().parents[2] / "site" / "demo"
NO_GPU = 'Object.defineProperty(navigator, "gpu", { value: undefined });\n'
"""At the end of worker.js: a browser without WebGPU."""


Change = Callable[[str], str]


def changed(open_page: OpenPage, to: str, file: str, change: Change) -> Page:
    """The page `to` of the demos, with `file` of theirs changed."""
    return all_changed(open_page, to, {file: change})


def all_changed(open_page: OpenPage, to: str, changes: Mapping[str, Change]) -> Page:
    """The page `to` of the demos, with some of their files changed."""
    page = open_page("demo/icon.svg")
    for file, change in changes.items():
        text = change((DEMO / file).read_text("utf-8"))
        kind = "text/javascript" if file.endswith(".js") else "text/plain"
        answer = partial(fulfilled, text, kind)
        page.context.route(re.compile(rf"/demo/{re.escape(file)}$"), answer)
    page.goto(page.url.replace("icon.svg", to))
    return page


def without_python(open_page: OpenPage, to: str) -> Page:
    """The page `to` of the demos in a browser where no Python ever starts."""
    return changed(open_page, to, "worker.js", lambda _: "")


def check_fits_a_phone(open_page: OpenPage, to: str) -> None:
    """Check that a page of 390 pixels scrolls up and down alone, light and dark."""
    phone = partial(open_page, viewport={"width": 390, "height": 844})
    page = without_python(phone, to)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        expect(page.locator("[aria-current]")).to_be_in_viewport()


def fulfilled(text: str, kind: str, route: Route) -> None:
    """Answers with the text."""
    route.fulfill(body=text, content_type=kind)
