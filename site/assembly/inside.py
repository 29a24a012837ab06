"""What is inside the pages: a policy of their own, and no script or style beside it.

Not every host sends headers. The policy is therefore in each page too, as far as a page
can say it, before anything that it is about.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from assembly.errors import SiteError
from assembly.page_parser import parse_page
from assembly.policy import POLICY, kind_of, meta_policy

_START = re.compile(r".*?<head(?:\s[^>]*)?>|\s*<!doctype[^>]*>", re.DOTALL | re.I)


def add_policy(site: Path) -> None:
    """Write its policy into every page, before all that it is about."""
    for path in sorted(site.rglob("*.html")):
        kind = kind_of(path.relative_to(site).as_posix())
        meta = (
            f'<meta http-equiv="{POLICY}" content="{escape(meta_policy(kind), False)}">'
        )
        text = path.read_text("utf-8")
        start = _START.match(text)
        at = start.end() if start else 0
        path.write_text(text[:at] + meta + text[at:], "utf-8")


def refuse_inline(site: Path) -> None:
    """Refuse a site in whose pages stands what their policy would keep from working."""
    for path in sorted(site.rglob("*.html")):
        found = parse_page(path.read_text("utf-8")).inline
        if found:
            raise SiteError(
                "checking that the pages hold no code of their own",
                f"{path.relative_to(site).as_posix()} has {found[0]}",
                "scripts and styles are files, or the content policy refuses them",
                "move it into a .js or .css file",
            )
