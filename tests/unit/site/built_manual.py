"""Built manual for the tests: its pages, its mkdocs hooks and what its pages load.

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

from tests.built_site_fixture import ROOT, BuiltSite

SITE = ROOT / "site"
PAGES = SITE / "pages"
SOURCE_PAGES = sorted([*PAGES.rglob("*.md"), ROOT / "README.md"])
REQUIRED_PACKAGES = ("mkdocs", "material", "mkdocstrings")


def import_mkdocs() -> None:
    """Import the packages that build the manual; tests/skip_missing_libraries.py
    handles missing ones.
    """
    for name in REQUIRED_PACKAGES:
        import_module(name)


def import_hook(name: str) -> ModuleType:
    """Import a module of site/hooks as mkdocs imports it."""
    import_mkdocs()
    sys.path.insert(0, str(SITE / "hooks"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(SITE / "hooks"))


@dataclass(frozen=True, slots=True)
class BuiltManual:
    """The manual as it is in the built site."""

    folder: Path

    @property
    def pages(self) -> list[Path]:
        """Return the pages that mkdocs wrote, which are all but the demos'."""
        paths = sorted(self.folder.rglob("*.html"))
        top_folders = (page.relative_to(self.folder).parts[0] for page in paths)
        return [
            page
            for page, top in zip(paths, top_folders, strict=True)
            if top not in ("demo", "examples", "runtime")
        ]

    def page_html(self, page: str) -> str:
        """Return the HTML of a page by its path in the nav ("" is the front page)."""
        return (self.folder / page / "index.html").read_text("utf-8")


@pytest.fixture(scope="session")
def manual(request: pytest.FixtureRequest) -> BuiltManual:
    """The manual of the site that all tests of a run share."""
    import_mkdocs()
    site: BuiltSite = request.getfixturevalue("built_site")
    return BuiltManual(site.folder)


LOADING_ATTRIBUTES = {
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
NON_LOADING_RELS = {"canonical", "prev", "next", "alternate"}


@dataclass(slots=True)
class PageLinks(HTMLParser):
    """URLs that a page loads or links to, and its anchors."""

    loaded_urls: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {
            attributes[key] for key in ("id", "name") if attributes.get(key)
        }
        target = attributes.get(LOADING_ATTRIBUTES.get(tag, ""), "")
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif target and attributes.get("rel") not in NON_LOADING_RELS:
            self.loaded_urls.append(target)

    @classmethod
    def from_file(cls, page: Path) -> PageLinks:
        facts = cls()
        facts.feed(page.read_text("utf-8"))
        return facts


def visible_text(page: str) -> str:
    """Return the words of a page as a reader sees them."""
    spaced_text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    normalized_text = re.sub(r"\s+", " ", spaced_text)
    # spans of highlighted code stand without space between them
    unspaced_text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page)))
    return f"{normalized_text}\n{unspaced_text}"
