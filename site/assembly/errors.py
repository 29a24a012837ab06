"""What can go wrong while the site is built, in rlxweb's four parts."""

from __future__ import annotations

from rlxweb.errors import RlxError


class SiteError(RlxError):
    """The site cannot be built; the old one, if any, stays as it was."""


class Unreachable(SiteError):
    """A registry did not answer, or its client is missing: try the next source."""


class HashRefused(SiteError):
    """A file is not the one that was promised."""

    def __init__(self, doing: str, found: str, wanted: str, hint: str) -> None:
        super().__init__(
            doing,
            "the file is not the one that is wanted",
            f"its hash is {found}, wanted is {wanted}",
            hint,
        )
