"""Links that open a program in the playground: the code is in the link itself.

The same form that `site/demo/playground/share.js` reads: deflated, in base64url.
"""

from __future__ import annotations

import base64
import re
import zlib

from mkdocs.utils import get_relative_url

_MARKED_BLOCK = re.compile(
    r"^<!-- playground -->\n(?P<block>```python[^\n]*\n(?P<code>.*?)^```)$",
    re.MULTILINE | re.DOTALL,
)
LINK_TEXT = "Run it in the playground"


def fragment(code: str) -> str:
    """Return the URL fragment that holds the code."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(code.encode()) + packer.flush()
    return "#code=1" + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def add_links(markdown: str, url: str) -> str:
    """Add a link under each block marked `<!-- playground -->`; `url` is the page's
    own.
    """
    playground_url = get_relative_url("demo/playground/", url)

    def append_link(block: re.Match[str]) -> str:
        link = f"[{LINK_TEXT}]({playground_url}{fragment(block['code'])})"
        return f"{block['block']}\n\n{link}{{ .rlx-run }}"

    return _MARKED_BLOCK.sub(append_link, markdown)
