"""Open a source by its name: a file, a URL or a Zarr store, before its format is known.

Owns the choice alone; what is not of this machine is loaded when a name asks for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeAlias

from rlxweb.core.errors import RecordingError
from rlxweb.io.byte_source import ByteSource, open_source
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import is_url, local_path, redact_url
from rlxweb.io.zarr_detection import is_zarr

if TYPE_CHECKING:
    from rlxweb.io.zarr_recording import ZarrSource as Zarr

OpenSource: TypeAlias = "ByteSource | Zarr"


def open_named_source(
    path: str | os.PathLike[str], access: StorageAccess
) -> OpenSource:
    """Open the source with this name for reading.

    Errors   RecordingError for what is missing, empty, or cannot be read or reached.
    """
    if isinstance(path, str):
        url = access.full_url(path)
        if is_url(url):
            local = local_path(url)
            if local is None:
                return _open_remote_source(url, access)
            path = local
    if isinstance(path, str | os.PathLike) and is_zarr(os.fsdecode(path)):
        return _open_zarr_store(os.fsdecode(path), access)
    return open_source(path)


def _open_remote_source(url: str, access: StorageAccess) -> OpenSource:
    """Open a file or a Zarr store behind a URL."""
    if sys.platform == "emscripten":
        raise RecordingError(
            f"reading {redact_url(url)!r}",
            "URLs are not supported in a browser tab",
            "fsspec, which reads URLs, does not run in a browser",
            "have the page write the file into Pyodide's file system, and open it "
            "there by its path",
        )
    if is_zarr(url):
        return _open_zarr_store(url, access)
    from rlxweb.io.remote import open_remote

    file = open_remote(url, access)
    return ByteSource(file, redact_url(url), file.nbytes)


def _open_zarr_store(name: str, access: StorageAccess) -> OpenSource:
    from rlxweb.io.zarr_recording import ZarrSource

    return ZarrSource(name, access)
