"""Proof that the pages load nothing from elsewhere: no other host, no fixed root.

Links a visitor may follow may lead anywhere; what a page loads by itself may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from assembly.errors import SiteError
from assembly.page_parser import parse_page

CSS_LOAD = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


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
            for url in parse_page(path.read_text("utf-8")).urls:
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
