"""Fingerprint the state of a recording, to tell whether it changed, without reading it.

Equal texts of one name mean that nobody has touched it between: size and time of a
file, ETag or time of what lies on a server. "" is no state: what cannot be told is
taken for changed.
"""

from __future__ import annotations

from hashlib import sha256

from rlxweb.core.errors import RecordingError
from rlxweb.io.modification_stamp import modification_stamp
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import is_url, local_path
from rlxweb.io.zarr_detection import is_zarr_url


def state_fingerprint(name: str, access: StorageAccess | None = None) -> str:
    """Return a fingerprint of the state of a file, of a folder with all its files, or
    of a URL.

    access  how a URL is reached

    Asks a server once, of a Zarr store its list of files; "" where that says nothing.
    """
    access = access or StorageAccess()
    url = access.full_url(name)
    if not is_url(url):
        return modification_stamp(name)
    local = local_path(url)
    if local is not None:
        return modification_stamp(local)
    from rlxweb.io.remote import list_file_states, remote_state

    try:
        if not is_zarr_url(url):
            return remote_state(url, access)
        states = list_file_states(url, access)
    except RecordingError:
        return ""
    if not states or not all(state for _, state in states):
        return ""
    return f"a store of {sha256(repr(states).encode('utf-8')).hexdigest()}"


def has_state_when_open(name: str, access: StorageAccess) -> bool:
    """Return whether `Recording.state` tells the state once it is open: true for a file
    behind a URL.
    """
    url = access.full_url(name)
    return is_url(url) and local_path(url) is None and not is_zarr_url(url)
