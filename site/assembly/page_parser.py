"""Parser of HTML pages for the URLs they load and the inline code and style in them.

`elsewhere` refuses URLs of other hosts, `inside` refuses inline code and style.
"""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

LOADS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
LINKS_THAT_LOAD = {
    "dns-prefetch",
    "icon",
    "manifest",
    "modulepreload",
    "preconnect",
    "prefetch",
    "preload",
    "stylesheet",
}
_DATA = {"application/json", "application/ld+json"}
"""Types of script elements that run nothing."""


class PageParser(HTMLParser):
    """HTML parser that collects loaded URLs and inline code and style of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        """URLs that a browser fetches when it shows the page."""
        self.inline: list[str] = []
        """Inline scripts, styles and event handlers, which a strict policy refuses."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self._load(tag, has)
        if tag == "script" and "src" not in has and has.get("type") not in _DATA:
            self.inline.append("a <script> without src")
        if tag == "style":
            self.inline.append("a <style>")
        for name, value in has.items():
            code = value.strip().lower().startswith("javascript:")
            if name == "style" or name.startswith("on") or code:
                self.inline.append(f'{name}="{value}" of <{tag}>')

    def _load(self, tag: str, has: dict[str, str]) -> None:
        if tag in LOADS and LOADS[tag] in has:
            self.urls.append(has[LOADS[tag]])
        if tag == "link" and LINKS_THAT_LOAD & set(has.get("rel", "").lower().split()):
            self.urls.append(has.get("href", ""))


@cache
def parse_page(text: str) -> PageParser:
    """Return the parsed page; the two checks of a site build share one parse."""
    found = PageParser()
    found.feed(text)
    return found
