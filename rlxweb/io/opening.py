"""Opening what a name stands for: a file, a URL, a Zarr store; the format comes later.

Owns the choice alone; what is not of this machine is loaded when a name asks for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeAlias

from rlxweb.errors import RecordingError
from rlxweb.io.access import Access
from rlxweb.io.source import ByteSource, open_source
from rlxweb.io.urls import is_url, local_path, shown_url
from rlxweb.io.zarr_name import is_zarr

if TYPE_CHECKING:
    from rlxweb.io.zarr_store import ZarrSource as Zarr

Opened: TypeAlias = "ByteSource | Zarr"


def opened(path: str | os.PathLike[str], access: Access) -> Opened:
    """What a name stands for, open for reading.

    Errors   RecordingError for what is missing, empty, or cannot be read or reached.
    """
    if isinstance(path, str):
        url = access.url_of(path)
        if is_url(url):
            local = local_path(url)
            if local is None:
                return _remote(url, access)
            path = local
    if isinstance(path, str | os.PathLike) and is_zarr(os.fsdecode(path)):
        return _zarr(os.fsdecode(path), access)
    return open_source(path)


def _remote(url: str, access: Access) -> Opened:
    if sys.platform == "emscripten":
        raise RecordingError(
            f"reading {shown_url(url)!r}",
            "no server is asked in a tab",
            "fsspec, which reads URLs, does not work there",
            "fetch the file with the page's own means and open it by its name",
        )
    if is_zarr(url):
        return _zarr(url, access)
    from rlxweb.io.remote import open_remote

    file = open_remote(url, access)
    return ByteSource(file, shown_url(url), file.nbytes)


def _zarr(name: str, access: Access) -> Opened:
    from rlxweb.io.zarr_store import ZarrSource

    return ZarrSource(name, access)
