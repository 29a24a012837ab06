"""The manual for its tests: built with the site, its hooks, and its pages as read.

Needs the packages of the extra `docs`; without them the tests are skipped, in CI they
fail. The pages are looked at as a browser would find them.
"""

from __future__ import annotations

import html
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.site_build import ROOT, BuiltSite

SITE = ROOT / "site"
PAGES = SITE / "pages"
WRITTEN = sorted([*PAGES.rglob("*.md"), ROOT / "README.md"])
NEEDED = ("mkdocs", "material", "mkdocstrings")


def import_mkdocs() -> None:
    """Import what builds the manual: what is missing is handled by tests/extras.py."""
    for name in NEEDED:
        import_module(name)


def hook(name: str) -> ModuleType:
    """A module of site/hooks, imported as mkdocs imports it."""
    import_mkdocs()
    sys.path.insert(0, str(SITE / "hooks"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(SITE / "hooks"))


@dataclass(frozen=True, slots=True)
class Manual:
    """The manual as the site has it."""

    folder: Path

    @property
    def pages(self) -> list[Path]:
        """The pages that mkdocs wrote: all but the demos'."""
        every = sorted(self.folder.rglob("*.html"))
        own = (page.relative_to(self.folder).parts[0] for page in every)
        return [
            page
            for page, top in zip(every, own, strict=True)
            if top not in ("demo", "examples", "runtime")
        ]

    def text(self, page: str) -> str:
        """Return the HTML of a page by its path in the nav ("" is the front page)."""
        return (self.folder / page / "index.html").read_text("utf-8")


@pytest.fixture(scope="session")
def manual(request: pytest.FixtureRequest) -> Manual:
    """The manual of the site that all tests of a run share."""
    import_mkdocs()
    site: BuiltSite = request.getfixturevalue("built_site")
    return Manual(site.folder)


LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
    "link": "href",
}
NOT_LOADED = {"canonical", "prev", "next", "alternate"}


@dataclass(slots=True)
class Facts(HTMLParser):
    """What a page loads, links to, and can be linked at."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        target = found.get(LOADS.get(tag, ""), "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif target and found.get("rel") not in NOT_LOADED:
            self.loads.append(target)

    @classmethod
    def of(cls, page: Path) -> Facts:
        facts = cls()
        facts.feed(page.read_text("utf-8"))
        return facts


def shown(page: str) -> str:
    """The words of a page, as a reader sees them."""
    words = html.unescape(re.sub(r"<[^>]*>", " ", page))
    joined = re.sub(r"\s+", " ", words)
    # spans of highlighted code stand without space between them
    close = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page)))
    return f"{joined}\n{close}"
