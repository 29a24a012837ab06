"""Expand patterns and folders in URLs, with as few server requests as possible."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlxweb.core.errors import RecordingError
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import (
    file_suffix,
    is_plain_http,
    path_link,
    redact_url,
)
from rlxweb.io.zarr_detection import is_zarr_url

_VERSION_QUERY = re.compile(r"\?\w+=[^*\[]*$")


def has_glob_pattern(url: str) -> bool:
    """Return whether a URL is a glob pattern; a URL's query is none."""
    path = path_link(url)
    path = (
        path.partition("?")[0] if is_plain_http(url) else _VERSION_QUERY.sub("", path)
    )
    return any(character in path for character in "*?[")


def is_remote_folder(url: str, access: StorageAccess) -> bool:
    """Return whether a URL ends with a slash or is a folder on its server.

    What has the suffix of a file is taken for one unasked.

    Errors   RecordingError where the server does not tell.
    """
    if is_zarr_url(url):
        return False
    if is_plain_http(url):
        return url.endswith("/")
    if url.endswith("/"):
        return True
    if file_suffix(url):
        return False
    from rlxweb.io.remote import is_remote_folder

    return is_remote_folder(url, access)


def remote_matches(pattern: str, access: StorageAccess) -> list[str]:
    """Return the URLs that match a pattern, in order.

    Errors   RecordingError where nothing is listed.
    """
    _check_can_list(pattern)
    from rlxweb.io.remote import expand_pattern

    return expand_pattern(pattern, access)


def remote_entries(
    folder: str, access: StorageAccess
) -> Iterator[tuple[str, str, bool]]:
    """Yield the URL and name of each entry of a remote folder, and whether it is a
    folder, in order.

    Errors   RecordingError where nothing is listed.
    """
    _check_can_list(folder)
    from rlxweb.io.remote import list_remote_folder

    for url, name, is_folder in list_remote_folder(folder, access):
        yield url, name, is_folder and not is_zarr_url(url)


def _check_can_list(url: str) -> None:
    """Raise an error for a web server, which lists no files."""
    if is_plain_http(url):
        raise RecordingError(
            f"reading {redact_url(url)!r}",
            "a web server does not list files",
            "patterns and folders are supported only for stores such as s3://",
            "pass the URL of every file",
        )
