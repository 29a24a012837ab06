"""What patterns and folders in URLs stand for; asks a server only where need be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlxweb.errors import RecordingError
from rlxweb.io.access import Access
from rlxweb.io.urls import is_http, path_link, shown_url, suffix_of
from rlxweb.io.zarr_name import is_zarr_name

_VERSION = re.compile(r"\?\w+=[^*\[]*$")


def has_magic(url: str) -> bool:
    """True for a pattern; the query of a URL is none."""
    path = path_link(url)
    path = path.partition("?")[0] if is_http(url) else _VERSION.sub("", path)
    return any(letter in path for letter in "*?[")


def is_remote_folder(url: str, access: Access) -> bool:
    """True for a URL that ends with a slash, or is found to be a folder.

    What has the suffix of a file is taken for one unasked.

    Errors   RecordingError where the server does not tell.
    """
    if is_zarr_name(url):
        return False
    if is_http(url):
        return url.endswith("/")
    if url.endswith("/"):
        return True
    if suffix_of(url):
        return False
    from rlxweb.io.remote import is_folder

    return is_folder(url, access)


def remote_matches(pattern: str, access: Access) -> list[str]:
    """The URLs of what matches a pattern, in order.

    Errors   RecordingError where nothing is listed.
    """
    _check_listed(pattern)
    from rlxweb.io.remote import matches_of

    return matches_of(pattern, access)


def remote_entries(folder: str, access: Access) -> Iterator[tuple[str, str, bool]]:
    """What lies in a remote folder: URL, name and whether it is a folder; in order.

    Errors   RecordingError where nothing is listed.
    """
    _check_listed(folder)
    from rlxweb.io.remote import entries_of

    for url, name, is_folder in entries_of(folder, access):
        yield url, name, is_folder and not is_zarr_name(url)


def _check_listed(url: str) -> None:
    if is_http(url):
        raise RecordingError(
            f"reading {shown_url(url)!r}",
            "a web server lists no files",
            "patterns and folders are for stores such as s3://",
            "name every file by its URL",
        )
