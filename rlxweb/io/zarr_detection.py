"""Detection of Zarr stores: folders by their contents, URLs by their suffix."""

from __future__ import annotations

import os

from rlxweb.io.url_parsing_and_redaction import is_plain_http, is_url, path_link

ZARR_SUFFIX = ".zarr"
ZARR_ZIP_SUFFIX = ".zarr.zip"
_METADATA_NAMES = ("zarr.json", ".zarray", ".zgroup")


def is_zarr_folder(path: str) -> bool:
    """Return whether a local folder holds an array or a group of Zarr."""
    return any(os.path.isfile(os.path.join(path, name)) for name in _METADATA_NAMES)


def is_zarr_url(url: str) -> bool:
    """Return whether a URL ends with .zarr or .zarr.zip, or leads into such a store."""
    link = path_link(url)
    path = link.partition("?")[0] if is_plain_http(link) else link
    parts = [part.lower() for part in path.rstrip("/").split("/")]
    if parts[-1].endswith(ZARR_ZIP_SUFFIX):
        return True
    is_inside_store = any(part.endswith(ZARR_SUFFIX) for part in parts[:-1])
    return parts[-1].endswith(ZARR_SUFFIX) or (is_inside_store and "." not in parts[-1])


def is_zarr(name: str) -> bool:
    """Return whether a name is opened as a Zarr store."""
    if is_url(name):
        return is_zarr_url(name)
    if os.path.isdir(name):
        return is_zarr_folder(name)
    return name.lower().endswith(ZARR_ZIP_SUFFIX)
