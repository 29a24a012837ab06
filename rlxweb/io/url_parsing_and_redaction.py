"""Parsing and redaction of URLs that name recordings.

A URL may carry a password or a signature, and names stand in results, messages and
progress. So a URL is shown without its password, and of its query only what is known to
be no secret. Opens nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from rlxweb.core.errors import UsageError

REDACTED = "…"
# A scheme has two letters or more: one is a drive of Windows. "zip://a.edf::s3://b/c"
# and "simplecache::s3://b/c" are chains, as fsspec writes them.
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]+::)*([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/?#@]*@")
_QUERY = re.compile(r"\?[^#]*$")
_FRAGMENT = re.compile(r"#.*$")
# Of a query: what tells which file is meant and is no key to it.
_PUBLIC_PARAMETERS = frozenset(
    "versionid generation snapshot version file filename name path id format download "
    "dl alt raw ref".split()
)
_HTTP_SCHEMES = ("http", "https")


def is_url(name: str) -> bool:
    """Return whether a name is a URL ("scheme://…") or a chain of URLs."""
    return _URL.match(name) is not None


def url_scheme(url: str) -> str:
    """Return the first scheme of a URL that stands before "://", in lower case; "" if
    there is none.
    """
    match = _URL.match(url)
    return match[1].lower() if match else ""


def is_chain(url: str) -> bool:
    """Return whether a URL leads through several file systems."""
    return "::" in url.split("?")[0]


def is_plain_http(url: str) -> bool:
    """Return whether a URL is a plain HTTP(S) URL."""
    return url_scheme(url) in _HTTP_SCHEMES and not is_chain(url)


def has_http_link(url: str) -> bool:
    """Return whether one link of the chain is an HTTP(S) URL."""
    return any(url_scheme(link) in _HTTP_SCHEMES for link in url.split("::"))


def redact_url(url: str) -> str:
    """Return the URL without password and signature."""
    return "::".join(_redact_link(link) for link in url.split("::"))


def _redact_link(link: str) -> str:
    """Return one link of a chain without its secrets."""
    link = _USER_INFO.sub(f"{REDACTED}@", link)
    # A "?" or "#" is part of a name but on the web; a query may follow all the same.
    if url_scheme(link) in _HTTP_SCHEMES:
        link = _FRAGMENT.sub("", link)
    query = _QUERY.search(link)
    if query is None:
        return link
    parameters = [_redact_parameter(parameter) for parameter in query[0][1:].split("&")]
    return f"{link[: query.start()]}?{'&'.join(parameters)}"


def _redact_parameter(parameter: str) -> str:
    """Return a query parameter, its value redacted unless the parameter is known to be
    public.
    """
    name, equals, _ = parameter.partition("=")
    if name.lower() in _PUBLIC_PARAMETERS or "*" in parameter:
        return parameter
    # A query without a name is a value.
    return f"{name}={REDACTED}" if equals else REDACTED


def url_secrets(url: str) -> list[str]:
    """Return the parts of a URL that are redacted, both quoted and unquoted."""
    secrets = [text[:-1] for text in _USER_INFO.findall(url)]
    secrets += [text.partition(":")[2] for text in secrets]
    for link in url.split("::"):
        query = _QUERY.search(link)
        for parameter in query[0][1:].split("&") if query else ():
            if _redact_parameter(parameter) != parameter:
                secrets.append(parameter.partition("=")[2] or parameter)
    return [*secrets, *map(unquote, secrets)]


def local_path(url: str) -> str | None:
    """Return the path of a `file://` URL on this machine; None for any other URL.

    Errors   UsageError for the file of another machine.
    """
    if url_scheme(url) not in ("file", "local") or is_chain(url):
        return None
    location = url.partition("://")[2]
    host, slash, path = location.partition("/")
    if host not in ("", "localhost") and slash:
        raise UsageError(
            f"reading {url!r}",
            f"the URL refers to a file on the machine {host!r}",
            "file:// supports only local files",
            "start the path with a third slash: file:///…",
        )
    path = os.fsdecode(unquote_to_bytes(f"/{path}" if slash else location))
    # A drive of Windows: file:///C:/night.edf.
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path


def file_suffix(name: str) -> str:
    """Return the suffix of a file name or URL, in lower case, with its dot."""
    path = PurePosixPath(url_file_name(name)) if is_url(name) else PurePath(name)
    return path.suffix.lower()


def url_file_name(url: str) -> str:
    """Return the last part of a URL's path; for a chain, of the first path."""
    link = path_link(url)
    path = (
        urlsplit(link).path
        if url_scheme(link) in _HTTP_SCHEMES
        else _QUERY.sub("", link)
    )
    return path.rstrip("/").rpartition("/")[2]


def path_link(url: str) -> str:
    """Return the link of a chain that has the path; the URL itself if it is no
    chain.
    """
    return next((link for link in url.split("::") if "://" in link), url)
