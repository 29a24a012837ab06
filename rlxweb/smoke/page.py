"""A smoke report as one web page: the matrix of the site's check page, and the numbers.

Owns how the page is put together: the parts that the check page has too are read from
the site's sources (from their copy inside of a wheel), so there is one of each. The
page needs no network and no other file, and its own content policy forbids both. Knows
the document only as something that JSON can hold.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from rlxweb.pages.inlined import one_file
from rlxweb.pages.parts import site_part

STYLES = ("demo/shared.css", "demo/check/check.css", "page.css")
SCRIPTS = (
    "demo/make.js",
    "demo/printable.js",
    "demo/check/words.js",
    "demo/check/details.js",
    "demo/check/download.js",
    "demo/check/matrix.js",
    "demo/check/sheet.js",
    "rows.js",
    "page.js",
)
"""Each after those that it imports from."""


def page(document: dict[str, Any]) -> str:
    """The page of a report `rlxweb.smoke/1`, as HTML.

    Errors   RlxError where the package lacks a part of the page.
    """
    return one_file(_part("page.html"), STYLES, SCRIPTS, document, _part)


def _part(name: str) -> str:
    """A file of the page, or of the site's that it has in common with it."""
    if name.startswith("demo/"):
        return site_part(name, "drawing the report's page").decode("utf-8")
    own = resources.files("rlxweb") / "smoke" / "page_parts" / name
    return own.read_text(encoding="utf-8")
