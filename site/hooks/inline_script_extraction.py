"""Move scripts that the theme puts into each page to files of their own.

The site's content policy allows scripts from files only. A file is named after what is
in it, and stands where the script stood, so that it runs at the same moment.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mkdocs.utils import get_relative_url

_INLINE_SCRIPT = re.compile(r"<script>(?P<code>.*?)</script>", re.DOTALL)
FOLDER = "assets/javascripts/inline"


class InlineScripts:
    """Inline scripts of one build, keyed by the path of their file."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def externalize(self, html: str, url: str | None) -> str:
        """Return the page with references to files in place of inline scripts.

        url   the page's own; None for one that is shown at any address
        """

        def script_reference(match: re.Match[str]) -> str:
            code = match["code"]
            name = hashlib.sha256(code.encode()).hexdigest()[:12]
            path = f"{FOLDER}/{name}.js"
            self.files[path] = code
            src = f"/{path}" if url is None else get_relative_url(path, url)
            return f'<script src="{src}"></script>'

        return _INLINE_SCRIPT.sub(script_reference, html)

    def write(self, site: Path) -> None:
        """Write the files into the built manual."""
        for path, code in self.files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(code + "\n", "utf-8")
