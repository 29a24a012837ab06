"""Browser flags and timeouts, and a monitor of errors in the pages under test."""

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
SCHEME_BACKGROUNDS: dict[Literal["light", "dark"], str] = {
    "light": "rgb(247, 248, 248)",
    "dark": "rgb(18, 23, 27)",
}
"""Color scheme → the background of our pages in it."""


def dismiss_problems(page: Page) -> None:
    """Dismiss every message, as a visitor would."""
    problems = page.locator(".problem")
    while problems.count():
        problems.first.get_by_role("button", name="Dismiss").click()


def reset_appearance(page: Page, size: ViewportSize) -> None:
    """Restore the size and the light colours of a page that tests share."""
    if page.viewport_size != size:
        page.set_viewport_size(size)
    page.emulate_media(color_scheme="light")
    if page.evaluate("document.documentElement.dataset.theme") == "dark":
        page.get_by_role("button", name="Use light colours").click()


@dataclass
class PageMonitor:
    """Monitor of errors and forbidden requests in the pages of one test."""

    site_url: str
    problems: list[str] = field(default_factory=list)

    def open_page(
        self, browser: Browser, path: str, init_script: str = "", **context_options: Any
    ) -> Page:
        """Open a page of the site in its own context, without access to other hosts.

        init_script  JavaScript to run before the page's own
        context_options  Playwright's own words: viewport, color_scheme, permissions …
        """
        context = browser.new_context(**context_options)
        context.set_default_timeout(WAIT_MS)
        context.on("console", self._record_console_message)
        context.on(
            "weberror", lambda event: self.problems.append(f"page error: {event.error}")
        )
        self.block_other_hosts(context)
        context.add_init_script(init_script)
        page = context.new_page()
        page.goto(self.site_url + path.lstrip("/"))
        return page

    def block_other_hosts(self, context: BrowserContext) -> None:
        """Refuse requests to other hosts than the site's.

        By a pattern, so that only such a request comes here to be looked at.
        """
        allowed_prefixes = "|".join(
            (re.escape(self.site_url), "data:", "blob:", "about:")
        )
        context.route(re.compile(f"^(?!{allowed_prefixes})"), self._refuse_request)

    def _record_console_message(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.problems.append(f"console {message.type}: {message.text}")

    def _refuse_request(self, route: Any) -> None:
        self.problems.append(f"a request to another host: {route.request.url}")
        route.abort()

    def check(self) -> None:
        """Fail with every problem seen since the last check."""
        problems, self.problems = self.problems, []
        assert not problems, "\n".join(problems)


def check_schemes_on_a_phone(page: Page) -> None:
    """Check that a page of 390 pixels is light or dark, and never scrolls sideways."""
    for scheme, background in SCHEME_BACKGROUNDS.items():
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        expect(page.locator("body")).to_have_css("background-color", background)
