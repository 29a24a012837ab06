"""What is inside the pages: a policy of their own, and no script or style beside it.

Not every host sends headers. The policy is therefore in each page too, as far as a page
can say it, before anything that it is about.
"""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

from assembly.errors import SiteError
from assembly.policy import POLICY, kind_of, meta_policy

_START = re.compile(r".*?<head(?:\s[^>]*)?>|\s*<!doctype[^>]*>", re.DOTALL | re.I)
_DATA = {"application/json", "application/ld+json"}
"""Types of script elements that run nothing."""


def add_policy(site: Path) -> None:
    """Write its policy into every page, before all that it is about."""
    for path in sorted(site.rglob("*.html")):
        kind = kind_of(path.relative_to(site).as_posix())
        meta = (
            f'<meta http-equiv="{POLICY}" content="{escape(meta_policy(kind), False)}">'
        )
        text = path.read_text("utf-8")
        start = _START.match(text)
        at = start.end() if start else 0
        path.write_text(text[:at] + meta + text[at:], "utf-8")


class Inline(HTMLParser):
    """Collects what a strict policy refuses: code and style that is in the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in has and has.get("type") not in _DATA:
            self.found.append("a <script> without src")
        if tag == "style":
            self.found.append("a <style>")
        for name, value in has.items():
            code = value.strip().lower().startswith("javascript:")
            if name == "style" or name.startswith("on") or code:
                self.found.append(f'{name}="{value}" of <{tag}>')


def refuse_inline(site: Path) -> None:
    """Refuse a site in whose pages stands what their policy would keep from working."""
    for path in sorted(site.rglob("*.html")):
        page = Inline()
        page.feed(path.read_text("utf-8"))
        if page.found:
            raise SiteError(
                "checking that the pages hold no code of their own",
                f"{path.relative_to(site).as_posix()} has {page.found[0]}",
                "scripts and styles are files, or the content policy refuses them",
                "move it into a .js or .css file",
            )
