"""A smoke report as one web page: the matrix of the site's check page, and the numbers.

Owns how the page is put together: the parts that the check page has too are read from
the site's sources (from their copy inside of a wheel), so there is one of each. The
page needs no network and no other file, and its own content policy forbids both. Knows
the document only as something that JSON can hold.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import Any

from rlxweb.errors import RlxError
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

_IMPORT = re.compile(r'^import \{[^}]*\} from "[./]+/([\w./-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)
_LEFT = re.compile(r"^(import|export)\b.*|\bimport\.meta\b", re.MULTILINE)


def page(document: dict[str, Any]) -> str:
    """The page of a report `rlxweb.smoke/1`, as HTML.

    Errors   RlxError where the package lacks a part of the page.
    """
    script = "\n" + "".join(_scoped(name) for name in SCRIPTS)
    styles = "\n" + "".join(_part(name) for name in STYLES)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    # What ends a script, or begins a comment in one, begins with "<".
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    given = {"policy": policy, "styles": styles, "script": script, "document": text}
    return re.sub(r"@(\w+)@", lambda at: given[at[1]], _part("page.html"))


def _scoped(name: str) -> str:
    """A module as a statement that leaves the names it exports, and no others."""
    text = _IMPORT.sub("", _part(name))
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", text)
    left = _LEFT.search(text)
    if left:
        raise RlxError(
            f"inlining {name}",
            f"it holds {left[0]!r}",
            hint="import and export by name, each in a statement of its own",
        )
    names = ", ".join(exported)
    return f"const {{ {names} }} = (() => {{\n{text}return {{ {names} }};\n}})();\n"


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _part(name: str) -> str:
    """A file of the page, or of the site's that it has in common with it."""
    if name.startswith("demo/"):
        return site_part(name, "drawing the report's page").decode("utf-8")
    own = resources.files("rlxweb") / "smoke" / "page_parts" / name
    return own.read_text(encoding="utf-8")
