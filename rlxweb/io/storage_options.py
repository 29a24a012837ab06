"""Storage options and credentials with which remote recordings are opened.

Holds what must not be read by everybody, so nothing of it prints or becomes JSON;
it pickles, for a worker needs it. What is not given here is fsspec's own to find:
its configuration files, FSSPEC_* and each store's environment and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rlxweb.core.errors import UsageError
from rlxweb.io.url_parsing_and_redaction import (
    REDACTED,
    is_chain,
    is_url,
    redact_url,
    url_scheme,
    url_secrets,
)

_CONTEXT = "storage options"
_MIN_SECRET_LENGTH = 4  # what is shorter is no secret, and may be part of any word


class StorageAccess:
    """Storage options of remote recordings, and their full URLs by the URLs that are
    shown.

    options  of fsspec; those under the name of a scheme are of its URLs alone
    """

    __slots__ = ("_options", "_urls")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not isinstance(options, Mapping):
            raise UsageError(
                _CONTEXT,
                f"got {type(options).__name__}",
                "must be a mapping of names to values, as in fsspec",
            )
        self._options = dict(options or {})
        self._urls: dict[str, str] = {}

    def register_url(self, url: str) -> str:
        """Store a URL and return the redacted name by which it is shown from now on.

        Errors   UsageError for two URLs that differ in nothing that may be shown.
        """
        name = redact_url(url)
        if name == url:
            return url
        if self._urls.setdefault(name, url) != url:
            raise UsageError(
                f"reading {name!r}",
                "two URLs differ only in hidden parts (a password, a signature), "
                "so their results could not be distinguished",
                hint="process the two URLs in separate runs",
            )
        return name

    def full_url(self, name: str) -> str:
        """Return the full URL that is shown as `name`, or the name itself."""
        return self._urls.get(name, name)

    @property
    def options(self) -> Mapping[str, Any]:
        """Return all storage options, for the code that opens the URL."""
        return MappingProxyType(self._options)

    def options_for_url(self, url: str, schemes: Iterable[str]) -> dict[str, Any]:
        """Return the options of one URL; options nested under a scheme's name belong to
        that scheme.

        schemes  all that there are; links of a chain get theirs from fsspec
        """
        if is_chain(url):
            return dict(self._options)
        known_schemes = set(schemes)
        shared_options = {
            name: value
            for name, value in self._options.items()
            if not (name in known_schemes and isinstance(value, Mapping))
        }
        return shared_options | dict(self._options.get(url_scheme(url)) or {})

    def redact(self, text: str, url: str = "") -> str:
        """Return a third party's message without the secrets of `url` and of the
        options.
        """
        secrets = [*url_secrets(url), *_secret_texts(self._options)]
        if url:
            text = text.replace(url, redact_url(url))
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, REDACTED)
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorageAccess):
            return NotImplemented
        return (self._options, self._urls) == (other._options, other._urls)

    __hash__ = None  # type: ignore[assignment]  # it may come to know more URLs

    def __repr__(self) -> str:
        return f"Access({', '.join(sorted(self._options)) or 'no options'})"


def _secret_texts(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of nested options that may be secret; of addresses only their
    secrets.
    """
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _secret_texts(value)
        elif isinstance(value, str) and not is_url(value):
            yield value
        elif isinstance(value, str):
            yield from url_secrets(value)
        elif isinstance(value, list | tuple):
            yield from _secret_texts(
                {str(index): item for index, item in enumerate(value)}
            )
