"""Self-contained HTML pages with styles, scripts and data inlined.

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

from rlxweb.core.errors import RlxError

_IMPORT = re.compile(r'^import \{[^}]*\} from "[./]+/([\w./-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)
_LEFTOVER_MODULE_SYNTAX = re.compile(
    r"^(import|export)\b.*|\bimport\.meta\b", re.MULTILINE
)


def inline_page(
    html: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    document: Mapping[str, Any],
    read_part: Callable[[str], str],
    **placeholders: str,
) -> str:
    """Return the page of the template `html` with @policy@, @styles@, @script@ and
    @document@ filled in.

    styles, scripts  names of parts; of the scripts each after those it imports from
    document   plain data
    read_part  reads one
    placeholders  others that the frame has a place for, as HTML
    Errors     RlxError for a script that cannot be inlined
    """
    script = "\n" + "".join(_wrap_module(name, read_part(name)) for name in scripts)
    policy = (
        f"default-src 'none'; script-src {_policy_hash(script)}; style-src "
        f"'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    # What ends a script, or begins a comment in one, begins with "<".
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    values = {
        "policy": policy,
        "styles": "\n" + "".join(map(read_part, styles)),
        "script": script,
        "document": text,
        **placeholders,
    }
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], html)


def _wrap_module(name: str, text: str) -> str:
    """Wrap a module in a statement that defines only the names it exports."""
    text = _IMPORT.sub("", text)
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", text)
    leftover = _LEFTOVER_MODULE_SYNTAX.search(text)
    if leftover:
        raise RlxError(
            f"inlining {name}",
            f"unsupported module syntax {leftover[0]!r}",
            hint="import and export by name, each in a separate statement",
        )
    names = ", ".join(exported)
    return f"const {{ {names} }} = (() => {{\n{text}return {{ {names} }};\n}})();\n"


def _policy_hash(script: str) -> str:
    """Return a script's hash for the content security policy."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
