"""Pages of one file: styles, scripts and data inside, and nothing from anywhere else.

The page's own content policy forbids whatever is not in it, and lets the one script run
that is: what stands in the data is text, whoever wrote it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlxweb.errors import RlxError

_IMPORT = re.compile(r'^import \{[^}]*\} from "[./]+/([\w./-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)
_LEFT = re.compile(r"^(import|export)\b.*|\bimport\.meta\b", re.MULTILINE)


def one_file(
    html: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    document: Mapping[str, Any],
    part: Callable[[str], str],
    **words: str,
) -> str:
    """The page whose frame is `html`, with @policy@, @styles@, @script@, @document@.

    styles, scripts  names of parts; of the scripts each after those it imports from
    document   plain data
    part       reads one
    words      others that the frame has a place for, as HTML
    Errors     RlxError for a script that cannot be inlined
    """
    script = "\n" + "".join(_scoped(name, part(name)) for name in scripts)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    # What ends a script, or begins a comment in one, begins with "<".
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    given = {
        "policy": policy,
        "styles": "\n" + "".join(map(part, styles)),
        "script": script,
        "document": text,
        **words,
    }
    return re.sub(r"@(\w+)@", lambda at: given[at[1]], html)


def _scoped(name: str, text: str) -> str:
    """A module as a statement that leaves the names it exports, and no others."""
    text = _IMPORT.sub("", text)
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
