"""Errors of the site build, in rlxweb's four parts."""

from __future__ import annotations

from rlxweb.errors import RlxError


class SiteError(RlxError):
    """The site cannot be built; the old one, if any, stays as it was."""


class RegistryUnavailable(SiteError):
    """A registry did not answer, or its client is missing; the next source is tried."""


class HashMismatch(SiteError):
    """A file does not have the expected hash."""

    def __init__(self, context: str, actual: str, expected: str, hint: str) -> None:
        super().__init__(
            context,
            "the file has the wrong hash",
            f"expected {expected}, got {actual}",
            hint,
        )
