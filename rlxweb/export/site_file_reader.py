"""Reader of the site's files that the package's own pages share.

A wheel holds copies of them; in a checkout they are read where the site has them.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from rlxweb.core.errors import RlxError

PACKAGED_SITE_DIR: Final = "export/site"
"""Directory of the copies in the package, as the wheel is built."""


def read_site_file(name: str, context: str) -> bytes:
    """Read a file by its path in the site's sources, such as "demo/shared.css".

    Errors   RlxError where it is neither in the package nor beside the checkout.
    """
    packaged_path = resources.files("rlxweb").joinpath(
        *PACKAGED_SITE_DIR.split("/"), *name.split("/")
    )
    checkout_path = Path(__file__).resolve().parents[2] / "site" / name
    for path in (packaged_path, checkout_path):
        if path.is_file():
            return path.read_bytes()
    raise RlxError(
        context,
        f"{name} is missing from the package and from the checkout",
        hint="reinstall rlxweb",
    )
