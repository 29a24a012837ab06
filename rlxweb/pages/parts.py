"""Files of the site that pages of ours are made of too, so that there is one of each.

A wheel holds copies of them; in a checkout they are read where the site has them.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from rlxweb.errors import RlxError

KEPT_AT: Final = "pages/site"
"""In the package, as the wheel is made."""


def site_part(name: str, doing: str) -> bytes:
    """A file by its path in the site's sources, such as "demo/shared.css".

    Errors   RlxError where it is neither in the package nor beside the checkout.
    """
    inside = resources.files("rlxweb").joinpath(*KEPT_AT.split("/"), *name.split("/"))
    beside = Path(__file__).resolve().parents[2] / "site" / name
    for place in (inside, beside):
        if place.is_file():
            return place.read_bytes()
    raise RlxError(
        doing,
        f"{name} is neither in the package nor beside the checkout",
        hint="install rlxweb again",
    )
