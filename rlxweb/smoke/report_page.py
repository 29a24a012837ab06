"""HTML page of a smoke report: one self-contained file that needs no network.

Owns how the page is put together: the parts that the check page has too are read from
the site's sources (from their copy inside of a wheel), so there is one of each. The
page needs no network and no other file, and its own content policy forbids both. Knows
the document only as something that JSON can hold.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from rlxweb.export.single_file_page import inline_page
from rlxweb.export.site_file_reader import read_site_file

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
"""Scripts of the page, each after those that it imports from."""


def render_report_page(document: dict[str, Any]) -> str:
    """Render a report `rlxweb.smoke/1` as one HTML page.

    Errors   RlxError where the package lacks a part of the page.
    """
    return inline_page(_read_part("page.html"), STYLES, SCRIPTS, document, _read_part)


def _read_part(name: str) -> str:
    """Read a file of the page, or one that it shares with the site."""
    if name.startswith("demo/"):
        return read_site_file(name, "drawing the report's page").decode("utf-8")
    own_file = resources.files("rlxweb") / "smoke" / "page_parts" / name
    return own_file.read_text(encoding="utf-8")
