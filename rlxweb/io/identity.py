"""What tells one state of a recording from another without reading it.

Equal texts of one name mean that nobody has touched it between: size and time of a
file, ETag or time of what lies on a server. "" is no state: what cannot be told is
taken for changed.
"""

from __future__ import annotations

from hashlib import sha256

from rlxweb.errors import RecordingError
from rlxweb.io.access import Access
from rlxweb.io.stamp import stamp_of
from rlxweb.io.urls import is_url, local_path
from rlxweb.io.zarr_name import is_zarr_name


def identity(name: str, access: Access | None = None) -> str:
    """The state of a file, of a folder with all that lies in it, or of a URL.

    access  how a URL is reached

    Asks a server once, of a Zarr store its list of files; "" where that says nothing.
    """
    access = access or Access()
    url = access.url_of(name)
    if not is_url(url):
        return stamp_of(name)
    local = local_path(url)
    if local is not None:
        return stamp_of(local)
    from rlxweb.io.remote import state_of, states_below

    try:
        if not is_zarr_name(url):
            return state_of(url, access)
        states = states_below(url, access)
    except RecordingError:
        return ""
    if not states or not all(state for _, state in states):
        return ""
    return f"a store of {sha256(repr(states).encode('utf-8')).hexdigest()}"


def is_told_when_open(name: str, access: Access) -> bool:
    """True for what tells its state in `Recording.state`: a file behind a URL."""
    url = access.url_of(name)
    return is_url(url) and local_path(url) is None and not is_zarr_name(url)
