"""Names of recordings that are no local paths: what a URL is, and what of it is shown.

A URL may carry a password or a signature, and names stand in results, messages and
progress. So a URL is shown without its password, and of its query only what is known to
be no secret. Opens nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from rlxweb.errors import UsageError

HIDDEN = "…"
# A scheme has two letters or more: one is a drive of Windows. "zip://a.edf::s3://b/c"
# and "simplecache::s3://b/c" are chains, as fsspec writes them.
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]+::)*([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/?#@]*@")
_QUERY = re.compile(r"\?[^#]*$")
_FRAGMENT = re.compile(r"#.*$")
# Of a query: what tells which file is meant and is no key to it.
_OPEN = frozenset(
    "versionid generation snapshot version file filename name path id format download "
    "dl alt raw ref".split()
)
_HTTP = ("http", "https")


def is_url(name: str) -> bool:
    """True for "scheme://…" and chains of such."""
    return _URL.match(name) is not None


def scheme_of(url: str) -> str:
    """The first scheme of a URL that follows `::` at most, in small letters."""
    found = _URL.match(url)
    return found[1].lower() if found else ""


def is_chain(url: str) -> bool:
    """True for a URL through several file systems."""
    return "::" in url.split("?")[0]


def is_http(url: str) -> bool:
    """True for a plain URL of the web."""
    return scheme_of(url) in _HTTP and not is_chain(url)


def is_web(url: str) -> bool:
    """True where one link of the chain is a URL of the web."""
    return any(scheme_of(link) in _HTTP for link in url.split("::"))


def shown_url(url: str) -> str:
    """The URL as it may be read by anybody: no password, no signature."""
    return "::".join(_shown_link(link) for link in url.split("::"))


def _shown_link(link: str) -> str:
    link = _USER.sub(f"{HIDDEN}@", link)
    # A "?" or "#" is part of a name but on the web; a query may follow all the same.
    if scheme_of(link) in _HTTP:
        link = _FRAGMENT.sub("", link)
    query = _QUERY.search(link)
    if query is None:
        return link
    parts = [_shown_part(part) for part in query[0][1:].split("&")]
    return f"{link[: query.start()]}?{'&'.join(parts)}"


def _shown_part(part: str) -> str:
    name, equals, _ = part.partition("=")
    if name.lower() in _OPEN or "*" in part:
        return part
    # A query without a name is a value.
    return f"{name}={HIDDEN}" if equals else HIDDEN


def secrets_of(url: str) -> list[str]:
    """The parts of a URL that are not shown, as they stand there and unquoted."""
    found = [text[:-1] for text in _USER.findall(url)]
    found += [text.partition(":")[2] for text in found]
    for link in url.split("::"):
        query = _QUERY.search(link)
        for part in query[0][1:].split("&") if query else ():
            if _shown_part(part) != part:
                found.append(part.partition("=")[2] or part)
    return [*found, *map(unquote, found)]


def local_path(url: str) -> str | None:
    """The path a `file://` URL names on this machine; None for another URL.

    Errors   UsageError for the file of another machine.
    """
    if scheme_of(url) not in ("file", "local") or is_chain(url):
        return None
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") and slash:
        raise UsageError(
            f"reading {url!r}",
            f"it is a file of the machine {host!r}",
            "file:// names files of this machine",
            "a path begins with a third slash: file:///…",
        )
    path = os.fsdecode(unquote_to_bytes(f"/{path}" if slash else rest))
    # A drive of Windows: file:///C:/night.edf.
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path


def suffix_of(name: str) -> str:
    """The suffix of a file or of a URL, in small letters, with its dot."""
    last = PurePosixPath(file_name(name)) if is_url(name) else PurePath(name)
    return last.suffix.lower()


def file_name(url: str) -> str:
    """The last part of the path of a URL; of a chain, that of the first path."""
    link = path_link(url)
    path = urlsplit(link).path if scheme_of(link) in _HTTP else _QUERY.sub("", link)
    return path.rstrip("/").rpartition("/")[2]


def path_link(url: str) -> str:
    """The link of a chain that has the path; the URL itself where it is no chain."""
    return next((link for link in url.split("::") if "://" in link), url)
