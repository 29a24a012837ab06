"""A demo of the site with one of its files changed on its way to the browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Route

OpenPage = Callable[..., Page]
DEMO = Path(__file__).resolve().parents[2] / "site" / "demo"
NO_GPU = 'Object.defineProperty(navigator, "gpu", { value: undefined });\n'
"""At the end of worker.js: a browser without WebGPU."""


def changed(
    open_page: OpenPage, to: str, file: str, change: Callable[[str], str]
) -> Page:
    """The page `to` of the demos, with `file` of theirs changed."""
    page = open_page("demo/icon.svg")
    text = change((DEMO / file).read_text("utf-8"))
    kind = "text/javascript" if file.endswith(".js") else "text/plain"

    def answer(route: Route) -> None:
        route.fulfill(body=text, content_type=kind)

    page.context.route(re.compile(rf"/demo/{re.escape(file)}$"), answer)
    page.goto(page.url.replace("icon.svg", to))
    return page
