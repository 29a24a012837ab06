"""How remote recordings are reached: options of fsspec, and URLs that are not shown.

Holds what must not be read by everybody, so nothing of it prints or becomes JSON;
it pickles, for a worker needs it. What is not given here is fsspec's own to find:
its configuration files, FSSPEC_* and each store's environment and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rlxweb.errors import UsageError
from rlxweb.io.urls import HIDDEN, is_chain, is_url, scheme_of, secrets_of, shown_url

_DOING = "storage options"
_SHORTEST = 4  # what is shorter is no secret, and may be part of any word


class Access:
    """What opens remote recordings: storage options, and URLs by how they are shown.

    options  of fsspec; those under the name of a scheme are of its URLs alone
    """

    __slots__ = ("_options", "_urls")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not isinstance(options, Mapping):
            raise UsageError(
                _DOING,
                f"they are {type(options).__name__}",
                "a mapping of names to values, as fsspec takes it",
            )
        self._options = dict(options or {})
        self._urls: dict[str, str] = {}

    def admit(self, url: str) -> str:
        """The name a URL has from now on; the URL itself is kept here.

        Errors   UsageError for two URLs that differ in nothing that may be shown.
        """
        name = shown_url(url)
        if name == url:
            return url
        if self._urls.setdefault(name, url) != url:
            raise UsageError(
                f"reading {name!r}",
                "two URLs differ only in what is not shown (a password, a signature), "
                "so their results could not be told apart",
                hint="do them in two runs",
            )
        return name

    def url_of(self, name: str) -> str:
        """The URL that is shown as `name`, or the name itself."""
        return self._urls.get(name, name)

    @property
    def options(self) -> Mapping[str, Any]:
        """All that were given; for whoever opens."""
        return MappingProxyType(self._options)

    def options_of(self, url: str, schemes: Iterable[str]) -> dict[str, Any]:
        """Those of one URL: under the name of a scheme stand the options of its own.

        schemes  all that there are; links of a chain get theirs from fsspec
        """
        if is_chain(url):
            return dict(self._options)
        known = set(schemes)
        own = {
            name: value
            for name, value in self._options.items()
            if not (name in known and isinstance(value, Mapping))
        }
        return own | dict(self._options.get(scheme_of(url)) or {})

    def cleaned(self, text: str, url: str = "") -> str:
        """Somebody else's message without the secrets of `url` and of the options."""
        secrets = [*secrets_of(url), *_texts_in(self._options)]
        if url:
            text = text.replace(url, shown_url(url))
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST:
                text = text.replace(secret, HIDDEN)
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Access):
            return NotImplemented
        return (self._options, self._urls) == (other._options, other._urls)

    __hash__ = None  # type: ignore[assignment]  # it may come to know more URLs

    def __repr__(self) -> str:
        return f"Access({', '.join(sorted(self._options)) or 'nothing given'})"


def _texts_in(options: Mapping[str, Any]) -> Iterator[str]:
    """What may be secret of nested options: texts, but for addresses."""
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _texts_in(value)
        elif isinstance(value, str) and not is_url(value):
            yield value
        elif isinstance(value, str):
            yield from secrets_of(value)
        elif isinstance(value, list | tuple):
            yield from _texts_in({str(n): one for n, one in enumerate(value)})
