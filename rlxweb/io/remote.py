"""Access to remote files through fsspec: S3, Google Storage, the web and its other
stores.

Owns the one door to fsspec: opening a URL for reading by blocks, listing what a pattern
or a folder stands for, and what tells one state of a file from another. What is wrong
is a RecordingError that names the URL without its secrets.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.io import read_ahead
from rlxweb.io.http_ranges import HttpRangeReader
from rlxweb.io.read_ahead import ReadAheadFile
from rlxweb.io.remote_error_translation import RemoteLocation, translate_remote_errors
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import is_chain, is_plain_http, url_scheme

# What a file system tells of a file that is another once the file is.
_VERSION_KEYS = (
    "etag",
    "md5",
    "md5hash",
    "content_md5",
    "checksum",
    "generation",
    "versionid",
)
_TIME_KEYS = (
    "lastmodified",
    "last_modified",
    "mtime",
    "modified",
    "updated",
    "created",
)


# s3fs else asks for the size of what it fetches whole, such as a chunk of Zarr, to get
# what is over 50 MB by several requests: twice the requests for all that is smaller.
_S3_SCHEMES, _S3_OPTIONS = ("s3", "s3a"), {"max_concurrency": 1}


def open_remote(url: str, access: StorageAccess) -> ReadAheadFile:
    """Open a remote file for reading in blocks, with its first block fetched.

    Errors   RecordingError for what is no file that can be read, and for an empty one.
    """
    location = RemoteLocation(url, access)
    with translate_remote_errors(location):
        fs, path = open_file_system(url, access)
        if is_plain_http(url):
            return _open_http(location, fs)
        return _open_store_file(location, fs, path)


def remote_state(url: str, access: StorageAccess) -> str:
    """Return the version of a remote file in words, which changes when the file
    changes; "" if unknown.

    Errors   those of `open_remote`.
    """
    location = RemoteLocation(url, access)
    with translate_remote_errors(location):
        fs, path = open_file_system(url, access)
        if is_plain_http(url):
            http_file = HttpRangeReader(location, fs, _fsspec_sync())
            http_file.read_head(1)
            return http_file.state.as_text if http_file.state else ""
        return _state_from_info(_file_info(fs, path))


def list_file_states(url: str, access: StorageAccess) -> list[tuple[str, str]]:
    """Return every file below a URL with its state, sorted; empty if the server lists
    nothing.

    Errors   those of `open_remote`.
    """
    with translate_remote_errors(RemoteLocation(url, access)):
        fs, path = open_file_system(url, access)
        fs.invalidate_cache()
        infos = fs.find(path, detail=True)
        return sorted((name, _state_from_info(info)) for name, info in infos.items())


def open_file_system(
    url: str, access: StorageAccess, *, is_zip: bool = False
) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it.

    is_zip   it is that of what lies in the zip file there

    Errors   RecordingError for an unknown scheme; those of fsspec and its packages.
    """
    import fsspec

    try:
        options = access.options_for_url(url, fsspec.available_protocols())
        if url_scheme(url) in _S3_SCHEMES:
            options = {**_S3_OPTIONS, **options}
        if is_zip:
            # A link of a chain has the options under the name of its scheme.
            options = options if is_chain(url) else {url_scheme(url): options}
            url = f"zip://::{url}"
        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        protocols = iter(fsspec.available_protocols())
        raise RemoteLocation(url, access).unknown_scheme_error(protocols) from None


def open_async_file_system(
    url: str, access: StorageAccess, *, is_zip: bool = False
) -> tuple[Any, str]:
    """Return the file system of a URL for asynchronous use on the caller's event loop,
    as zarr needs it.

    The same sessions are used, and closed, as everywhere else.
    """
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    fs, path = open_file_system(url, access, is_zip=is_zip)
    return AsyncFileSystemWrapper(fs, asynchronous=True), path


def _open_http(location: RemoteLocation, fs: Any) -> ReadAheadFile:
    """Open a file of a web server. Raises RecordingError if the server does not tell
    its length.
    """
    http_file = HttpRangeReader(location, fs, _fsspec_sync())
    head = http_file.read_head(read_ahead.MAX_BLOCK_NBYTES)
    if http_file.state is None:
        raise location.error("the server does not send the file size")
    state = http_file.state
    return ReadAheadFile(
        http_file.fetch, state.nbytes, http_file.whole_file or head, state.as_text
    )


def _fsspec_sync() -> Callable[..., Any]:
    """Return fsspec's function that runs a coroutine and waits for it."""
    import fsspec.asyn

    return fsspec.asyn.sync  # type: ignore[no-any-return]


def _open_store_file(location: RemoteLocation, fs: Any, path: str) -> ReadAheadFile:
    """Open a file of an object store. Raises RecordingError for a folder and for an
    empty file.
    """
    fs.invalidate_cache(path)
    handle = fs.open(path, "rb", **_uncached_options(fs))
    info = getattr(handle, "details", None) or fs.info(path)
    if info.get("type") == "directory":
        raise location.error(
            "expected a file, got a folder",
            hint="pass the URL of a file in this folder",
        )
    nbytes = info.get("size")
    if nbytes is None:
        nbytes = handle.seek(0, io.SEEK_END)
    if nbytes == 0:
        handle.close()
        raise location.error(
            "the file is empty", "0 bytes", "record or copy the file again"
        )
    store_ranges = _ObjectStoreRanges(location, fs, path, handle, info)
    return _ObjectStoreFile(store_ranges, int(nbytes))


class _ObjectStoreFile(ReadAheadFile):
    """File of an object store that closes the store's handle with itself."""

    def __init__(self, store_ranges: _ObjectStoreRanges, nbytes: int) -> None:
        self._store_ranges = store_ranges
        super().__init__(store_ranges.fetch, nbytes, state=store_ranges.state)

    def close(self) -> None:
        """Close the file and the handle of the store."""
        super().close()
        self._store_ranges.handle.close()


def _uncached_options(fs: Any) -> dict[str, Any]:
    """Return the options that turn off fsspec's read-ahead, which `read_ahead`
    replaces.
    """
    is_remote = getattr(fs, "async_impl", False)
    return {"cache_type": "none"} if is_remote else {}


class _ObjectStoreRanges:
    """Byte ranges of one file of an object store, whose library retries failed
    requests.
    """

    def __init__(
        self,
        location: RemoteLocation,
        fs: Any,
        path: str,
        handle: Any,
        info: Mapping[str, Any],
    ) -> None:
        from fsspec.spec import AbstractBufferedFile

        self.location, self.fs, self.path, self.handle = location, fs, path, handle
        self.state = _state_from_info(info)
        self._lock = ForkSafeLock()
        self._has_range_requests = isinstance(handle, AbstractBufferedFile)
        # s3fs asks for this very ETag with every range; of others we ask ourselves.
        pinned_etag = getattr(handle, "read_kw", {}).get("IfMatch")
        self._is_version_pinned = bool(pinned_etag) or not self._has_range_requests

    def fetch(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop). Raises RecordingError if the file is shorter or
        has changed.
        """
        with translate_remote_errors(self.location):
            try:
                data = self._read_range(start, stop)
            except Exception:
                self._check_unchanged()  # says more, where that is why
                raise
            if len(data) != stop - start or not self._is_version_pinned:
                self._check_unchanged()
        if len(data) != stop - start:
            raise self.location.error(
                "the server response ends early",
                f"expected {stop - start} bytes at offset {start}, got {len(data)}",
                "the file on the server may be truncated; upload it again",
            )
        return data

    def _read_range(self, start: int, stop: int) -> bytes:
        """Read bytes [start, stop), fewer at the end of the file."""
        if self._has_range_requests:  # a request of its own, by whichever thread
            return self.handle._fetch_range(start, stop)  # type: ignore[no-any-return]
        with self._lock:
            self.handle.seek(start)
            parts = []
            while start < stop and (part := self.handle.read(stop - start)):
                parts.append(part)
                start += len(part)
            return b"".join(parts)

    def _check_unchanged(self) -> None:
        """Raise RecordingError if the file has changed since it was opened."""
        try:
            current_state = _state_from_info(_file_info(self.fs, self.path))
        except FileNotFoundError:
            current_state = "gone"
        except Exception:
            return  # whatever keeps us from asking is not that
        if current_state != self.state:
            raise self.location.error(
                "the file changed while it was being read",
                f"the file state was {self.state or 'unknown'} and is now "
                f"{current_state or 'unknown'}",
                "try again when no process is writing to the file",
            )


def _file_info(fs: Any, path: str) -> Mapping[str, Any]:
    """Return what the file system knows about a file, bypassing its cache."""
    fs.invalidate_cache(path)
    return fs.info(path)  # type: ignore[no-any-return]


def _state_from_info(info: Mapping[str, Any]) -> str:
    """Return the version of a file in words; "" if the file system tells its length
    alone.
    """
    fields = {str(name).lower(): value for name, value in info.items()}
    versions = [f"{name} {fields[name]}" for name in _VERSION_KEYS if fields.get(name)]
    # Times of a listing and of a file may be written differently: only where need be.
    versions = versions or [
        f"{name} {fields[name]}" for name in _TIME_KEYS if fields.get(name)
    ]
    return f"{fields.get('size')} bytes, {', '.join(versions)}" if versions else ""


def expand_pattern(pattern: str, access: StorageAccess) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Errors   those of `open_remote`.
    """
    with translate_remote_errors(RemoteLocation(pattern, access)):
        fs, path = open_file_system(pattern, access)
        fs.invalidate_cache()
        infos = fs.glob(path, detail=True)
    return [
        _url_of_name(pattern, path, name, fs)
        for name, info in sorted(infos.items())
        if info.get("type") != "directory" or name.rstrip("/").endswith(".zarr")
    ]


def list_remote_folder(
    folder: str, access: StorageAccess
) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of a remote folder, sorted: URL, name, and whether it is a
    folder.

    Errors   those of `open_remote`.
    """
    with translate_remote_errors(RemoteLocation(folder, access)):
        fs, path = open_file_system(folder, access)
        fs.invalidate_cache()
        infos = fs.ls(path, detail=True)
    for info in sorted(infos, key=lambda entry: str(entry["name"])):
        full_name = str(info["name"])
        name = full_name.rstrip("/").rpartition("/")[2]
        if full_name.rstrip("/") != path.rstrip("/"):
            is_folder = info.get("type") == "directory"
            yield _url_of_name(folder, path, full_name, fs), name, is_folder


def is_remote_folder(url: str, access: StorageAccess) -> bool:
    """Return whether a URL names a folder and no file.

    Errors   those of `open_remote`.
    """
    with translate_remote_errors(RemoteLocation(url, access)):
        fs, path = open_file_system(url, access)
        return bool(_file_info(fs, path).get("type") == "directory")


def _url_of_name(url: str, path: str, name: str, fs: Any) -> str:
    """Return the URL of a name in the same file system, reached through the same chain.

    path  what the file system made of `url`
    """
    links = url.split("::")
    index = next(position for position, link in enumerate(links) if "://" in link)
    link_url, inner_path = links[index].rstrip("/"), path.strip("/")
    # What stands before the path is its server, which a name is without.
    server = (
        link_url[: len(link_url) - len(inner_path)]
        if link_url.endswith(inner_path)
        else ""
    )
    links[index] = (
        server + name.lstrip("/") if server else str(fs.unstrip_protocol(name))
    )
    return "::".join(links)
