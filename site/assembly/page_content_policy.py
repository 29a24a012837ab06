"""The content policy in each page, and a check that no page has inline scripts or
styles.

Not every host sends headers. The policy is therefore in each page too, as far as a page
can say it, before anything that it is about.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from assembly.errors import SiteError
from assembly.http_headers import POLICY_HEADER, file_kind, meta_policy
from assembly.page_parser import parse_page

_HEAD_START = re.compile(r".*?<head(?:\s[^>]*)?>|\s*<!doctype[^>]*>", re.DOTALL | re.I)


def add_policy(site: Path) -> None:
    """Insert the content policy into every page, before everything that it governs."""
    for path in sorted(site.rglob("*.html")):
        kind = file_kind(path.relative_to(site).as_posix())
        meta = (
            f'<meta http-equiv="{POLICY_HEADER}" '
            f'content="{escape(meta_policy(kind), False)}">'
        )
        text = path.read_text("utf-8")
        match = _HEAD_START.match(text)
        position = match.end() if match else 0
        path.write_text(text[:position] + meta + text[position:], "utf-8")


def refuse_inline(site: Path) -> None:
    """Refuse a site with inline code or style that the content policy would block."""
    for path in sorted(site.rglob("*.html")):
        inline = parse_page(path.read_text("utf-8")).inline
        if inline:
            raise SiteError(
                "checking that the pages have no inline code",
                f"{path.relative_to(site).as_posix()} has {inline[0]}",
                "the content policy blocks inline scripts and styles",
                "move it into a .js or .css file",
            )
