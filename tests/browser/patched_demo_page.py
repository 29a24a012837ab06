"""Open demos of the site with some of their files changed on the way to the browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, Route, expect

OpenPage = Callable[..., Page]
DEMO = Path(__file__).resolve().parents[2] / "site" / "demo"
NO_GPU = 'Object.defineProperty(navigator, "gpu", { value: undefined });\n'
"""Code for the end of worker.js that hides WebGPU."""


Change = Callable[[str], str]


def open_with_change(
    open_page: OpenPage, demo_path: str, file: str, change: Change
) -> Page:
    """Open a page of the demos with one of their files changed."""
    return open_with_changes(open_page, demo_path, {file: change})


def open_with_changes(
    open_page: OpenPage, demo_path: str, changes: Mapping[str, Change]
) -> Page:
    """Open a page of the demos with some of their files changed."""
    page = open_page("demo/icon.svg")
    for file, change in changes.items():
        text = change((DEMO / file).read_text("utf-8"))
        kind = "text/javascript" if file.endswith(".js") else "text/plain"
        answer = partial(fulfill_route, text, kind)
        page.context.route(re.compile(rf"/demo/{re.escape(file)}$"), answer)
    page.goto(page.url.replace("icon.svg", demo_path))
    return page


def open_without_python(open_page: OpenPage, demo_path: str) -> Page:
    """Open a page of the demos in a browser where Python never starts."""
    return open_with_change(open_page, demo_path, "worker.js", lambda _: "")


def check_page_fits_phone(open_page: OpenPage, demo_path: str) -> None:
    """Check that a page 390 pixels wide scrolls only vertically, light and dark."""
    phone = partial(open_page, viewport={"width": 390, "height": 844})
    page = open_without_python(phone, demo_path)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        expect(page.locator("[aria-current]")).to_be_in_viewport()


def fulfill_route(text: str, kind: str, route: Route) -> None:
    """Answer a request with the text."""
    route.fulfill(body=text, content_type=kind)
