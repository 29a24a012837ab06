"""What is in a page: the URLs it loads by itself, and the code and style it holds."""

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


class Seen(HTMLParser):
    """Collects both while it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        """What the page loads without being asked."""
        self.inline: list[str] = []
        """What a strict policy refuses: code and style that is in the page."""

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
def seen_in(text: str) -> Seen:
    """What is in a page of this HTML; it is read once, whoever asks."""
    found = Seen()
    found.feed(text)
    return found
