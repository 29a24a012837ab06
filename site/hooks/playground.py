"""Links that open a program in the playground: the code is in the link itself.

The same form that `site/demo/playground/share.js` reads: deflated, in base64url.
"""

from __future__ import annotations

import base64
import re
import zlib

from mkdocs.utils import get_relative_url

_MARKED = re.compile(
    r"^<!-- playground -->\n(?P<block>```python[^\n]*\n(?P<code>.*?)^```)$",
    re.MULTILINE | re.DOTALL,
)
WORDS = "Run it in the playground"


def fragment(code: str) -> str:
    """The part of the address after the page's own."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(code.encode()) + packer.flush()
    return "#code=1" + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def with_links(markdown: str, url: str) -> str:
    """A link under each block marked `<!-- playground -->`; `url` is the page's own."""
    to = get_relative_url("demo/playground/", url)

    def linked(found: re.Match[str]) -> str:
        link = f"[{WORDS}]({to}{fragment(found['code'])})"
        return f"{found['block']}\n\n{link}{{ .rlx-run }}"

    return _MARKED.sub(linked, markdown)
