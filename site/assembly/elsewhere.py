"""Proof that the pages load nothing from elsewhere: no other host, no fixed root.

Links a visitor may follow may lead anywhere; what a page loads by itself may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from assembly.errors import SiteError

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
CSS_LOAD = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class Loads(HTMLParser):
    """Collects the URLs a page loads without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag in LOADS and LOADS[tag] in has:
            self.urls.append(has[LOADS[tag]])
        if tag == "link" and LINKS_THAT_LOAD & set(has.get("rel", "").lower().split()):
            self.urls.append(has.get("href", ""))


def refuse_elsewhere(site: Path) -> None:
    """Refuse a site with a page that would not work offline or under a sub-path."""
    found = list(elsewhere(site))
    if found:
        page, url = found[0]
        more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
        raise SiteError(
            "checking that the site needs no other host",
            f"{page} loads {url}{more}",
            "pages load by relative URLs only",
            "keep a copy in the site; for mkdocs-material's fonts: theme.font: false",
        )


def elsewhere(site: Path) -> Iterator[tuple[str, str]]:
    """(page, URL) of everything that is loaded from outside the folder."""
    for path in sorted(site.rglob("*")):
        page = path.relative_to(site).as_posix()
        if path.suffix == ".html":
            loads = Loads()
            loads.feed(path.read_text("utf-8"))
            for url in loads.urls:
                if leaves(url, rooted=page == "404.html"):
                    yield page, url
        elif path.suffix == ".css":
            for url in CSS_LOAD.findall(path.read_text("utf-8")):
                yield page, url


def leaves(url: str, *, rooted: bool) -> bool:
    """Whether the URL leaves the site; a page served at any depth may be rooted."""
    if re.match(r"(https?:)?//", url.strip(), re.IGNORECASE):
        return True
    return url.strip().startswith("/") and not rooted
