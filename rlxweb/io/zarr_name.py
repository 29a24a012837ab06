"""Which names are Zarr stores: folders by what lies in them, URLs by their suffix."""

from __future__ import annotations

import os

from rlxweb.io.urls import is_http, is_url, path_link

SUFFIX = ".zarr"
PACKED = ".zarr.zip"
_MARKS = ("zarr.json", ".zarray", ".zgroup")


def is_zarr_folder(path: str) -> bool:
    """True for a folder of this machine that holds an array or a group of Zarr."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in _MARKS)


def is_zarr_name(url: str) -> bool:
    """True for a URL that ends with .zarr or .zarr.zip, or leads into such a store."""
    link = path_link(url)
    path = link.partition("?")[0] if is_http(link) else link
    parts = [part.lower() for part in path.rstrip("/").split("/")]
    if parts[-1].endswith(PACKED):
        return True
    inside = any(part.endswith(SUFFIX) for part in parts[:-1])
    return parts[-1].endswith(SUFFIX) or (inside and "." not in parts[-1])


def is_zarr(name: str) -> bool:
    """True for what is opened as a Zarr store."""
    if is_url(name):
        return is_zarr_name(name)
    if os.path.isdir(name):
        return is_zarr_folder(name)
    return name.lower().endswith(PACKED)
