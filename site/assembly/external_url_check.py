"""Check that the pages load nothing from another host or from a fixed root.

Links a visitor may follow may lead anywhere; what a page loads by itself may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from assembly.errors import SiteError
from assembly.page_parser import parse_page

CSS_EXTERNAL_URL = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


def refuse_external_urls(site: Path) -> None:
    """Refuse a site with a page that would not work offline or under a sub-path."""
    external = list(iter_external_urls(site))
    if external:
        page, url = external[0]
        more = (
            f" (and {len(external) - 1} more of this kind)" if len(external) > 1 else ""
        )
        raise SiteError(
            "checking that the site loads nothing from other hosts",
            f"{page} loads {url}{more}",
            "pages must use relative URLs only",
            "store a copy in the site; for the fonts of mkdocs-material set "
            "theme.font: false",
        )


def iter_external_urls(site: Path) -> Iterator[tuple[str, str]]:
    """Iterate over (page, URL) of everything that is loaded from outside the folder."""
    for path in sorted(site.rglob("*")):
        page = path.relative_to(site).as_posix()
        if path.suffix == ".html":
            for url in parse_page(path.read_text("utf-8")).urls:
                if is_external(url, can_be_rooted=page == "404.html"):
                    yield page, url
        elif path.suffix == ".css":
            for url in CSS_EXTERNAL_URL.findall(path.read_text("utf-8")):
                yield page, url


def is_external(url: str, *, can_be_rooted: bool) -> bool:
    """Return whether the URL leaves the site; a page served at any depth may use rooted
    URLs.
    """
    if re.match(r"(https?:)?//", url.strip(), re.IGNORECASE):
        return True
    return url.strip().startswith("/") and not can_be_rooted
