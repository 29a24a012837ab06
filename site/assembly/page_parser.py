"""Parser of HTML pages for the URLs they load and the inline code and style in them.

`elsewhere` refuses URLs of other hosts, `inside` refuses inline code and style.
"""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

URL_ATTRIBUTES = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
LOADING_LINK_TYPES = {
    "dns-prefetch",
    "icon",
    "manifest",
    "modulepreload",
    "preconnect",
    "prefetch",
    "preload",
    "stylesheet",
}
_DATA_TYPES = {"application/json", "application/ld+json"}
"""Types of script elements that run no code."""


class PageParser(HTMLParser):
    """HTML parser that collects loaded URLs and inline code and style of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        """URLs that a browser fetches when it shows the page."""
        self.inline: list[str] = []
        """Inline scripts, styles and event handlers, which a strict policy refuses."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._add_loaded_url(tag, attributes)
        if (
            tag == "script"
            and "src" not in attributes
            and attributes.get("type") not in _DATA_TYPES
        ):
            self.inline.append("a <script> without src")
        if tag == "style":
            self.inline.append("a <style>")
        for name, value in attributes.items():
            is_code_url = value.strip().lower().startswith("javascript:")
            if name == "style" or name.startswith("on") or is_code_url:
                self.inline.append(f'{name}="{value}" of <{tag}>')

    def _add_loaded_url(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in URL_ATTRIBUTES and URL_ATTRIBUTES[tag] in attributes:
            self.urls.append(attributes[URL_ATTRIBUTES[tag]])
        if tag == "link" and LOADING_LINK_TYPES & set(
            attributes.get("rel", "").lower().split()
        ):
            self.urls.append(attributes.get("href", ""))


@cache
def parse_page(text: str) -> PageParser:
    """Return the parsed page; the two checks of a site build share one parse."""
    parser = PageParser()
    parser.feed(text)
    return parser
