"""How the browser is started, and what its pages complain about."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-unsafe-webgpu",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    # Python is started hundreds of times, and runs too shortly to be optimised.
    "--js-flags=--liftoff-only",
)
# Far longer than on two busy cores, since a wait ends as soon as it is over.
START_MS = 300_000
WAIT_MS = 120_000
expect.set_options(timeout=WAIT_MS)
GROUNDS: dict[Literal["light", "dark"], str] = {
    "light": "rgb(247, 248, 248)",
    "dark": "rgb(18, 23, 27)",
}
"""Color scheme → the background of our pages in it."""


def dismiss_problems(page: Page) -> None:
    """Dismiss every message, as a visitor would."""
    found = page.locator(".problem")
    while found.count():
        found.first.get_by_role("button", name="Dismiss").click()


def reset_look(page: Page, size: ViewportSize) -> None:
    """Give a page that tests share its size and its light colours back."""
    if page.viewport_size != size:
        page.set_viewport_size(size)
    page.emulate_media(color_scheme="light")
    if page.evaluate("document.documentElement.dataset.theme") == "dark":
        page.get_by_role("button", name="Use light colours").click()


@dataclass
class Watch:
    """What went wrong in the pages of one test."""

    site: str
    wrong: list[str] = field(default_factory=list)

    def page(self, browser: Browser, path: str, first: str = "", **more: Any) -> Page:
        """A page of the site in a context of its own, which is kept off other hosts.

        first   JavaScript to run before the page's own
        more    Playwright's own words: viewport, color_scheme, permissions …
        """
        context = browser.new_context(**more)
        context.set_default_timeout(WAIT_MS)
        context.on("console", self._console)
        context.on("weberror", lambda e: self.wrong.append(f"page error: {e.error}"))
        self.keep_off_others(context)
        context.add_init_script(first)
        page = context.new_page()
        page.goto(self.site + path.lstrip("/"))
        return page

    def keep_off_others(self, context: BrowserContext) -> None:
        """Refuse what goes to another host than `site`.

        By a pattern, so that only such a request comes here to be looked at.
        """
        ours = "|".join((re.escape(self.site), "data:", "blob:", "about:"))
        context.route(re.compile(f"^(?!{ours})"), self._refuse)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.wrong.append(f"console {message.type}: {message.text}")

    def _refuse(self, route: Any) -> None:
        self.wrong.append(f"a request to another host: {route.request.url}")
        route.abort()

    def check(self) -> None:
        """Fails with everything that was heard."""
        found, self.wrong = self.wrong, []
        assert not found, "\n".join(found)


def check_schemes_on_a_phone(page: Page) -> None:
    """Check that a page of 390 pixels is light or dark, and never scrolls sideways."""
    for scheme, ground in GROUNDS.items():
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        expect(page.locator("body")).to_have_css("background-color", ground)
