"""Remote files through fsspec: S3, Google Storage, the web and whatever else it knows.

Owns the one door to fsspec: opening a URL for reading by blocks, listing what a pattern
or a folder stands for, and what tells one state of a file from another. What is wrong
is a RecordingError that names the URL without its secrets.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlxweb.forked import ForkLock
from rlxweb.io import read_ahead
from rlxweb.io.access import Access
from rlxweb.io.http_ranges import HttpRanges
from rlxweb.io.read_ahead import BlockFile
from rlxweb.io.remote_faults import Named, told_of
from rlxweb.io.urls import is_chain, is_http, scheme_of

# What a file system tells of a file that is another once the file is.
_STATE = (
    "etag",
    "md5",
    "md5hash",
    "content_md5",
    "checksum",
    "generation",
    "versionid",
)
_TIMES = ("lastmodified", "last_modified", "mtime", "modified", "updated", "created")


# s3fs else asks for the size of what it fetches whole, such as a chunk of Zarr, to get
# what is over 50 MB by several requests: twice the requests for all that is smaller.
_S3, _OF_S3 = ("s3", "s3a"), {"max_concurrency": 1}


def open_remote(url: str, access: Access) -> BlockFile:
    """A remote file that is read by blocks, with its first block there already.

    Errors   RecordingError for what is no file that can be read, and for an empty one.
    """
    file = Named(url, access)
    with told_of(file):
        fs, path = file_system(url, access)
        if is_http(url):
            return _from_the_web(file, fs)
        return _from_a_store(file, fs, path)


def state_of(url: str, access: Access) -> str:
    """What a remote file would not be without once it is another; "" where unknown.

    Errors   those of `open_remote`.
    """
    file = Named(url, access)
    with told_of(file):
        fs, path = file_system(url, access)
        if is_http(url):
            web = HttpRanges(file, fs, _sync())
            web.first(1)
            return web.state.as_text if web.state else ""
        return _state_in(_info(fs, path))


def states_below(url: str, access: Access) -> list[tuple[str, str]]:
    """Every file below a URL and its state, in order; empty where nothing is listed.

    Errors   those of `open_remote`.
    """
    with told_of(Named(url, access)):
        fs, path = file_system(url, access)
        fs.invalidate_cache()
        found = fs.find(path, detail=True)
        return sorted((name, _state_in(info)) for name, info in found.items())


def file_system(url: str, access: Access, *, zipped: bool = False) -> tuple[Any, str]:
    """The file system of a URL, by fsspec, and the path in it.

    zipped   it is that of what lies in the zip file there

    Errors   RecordingError for an unknown scheme; those of fsspec and its packages.
    """
    import fsspec

    try:
        options = access.options_of(url, fsspec.available_protocols())
        if scheme_of(url) in _S3:
            options = {**_OF_S3, **options}
        if zipped:
            # A link of a chain has the options under the name of its scheme.
            options = options if is_chain(url) else {scheme_of(url): options}
            url = f"zip://::{url}"
        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        known = iter(fsspec.available_protocols())
        raise Named(url, access).unknown(known) from None


def awaited_file_system(
    url: str, access: Access, *, zipped: bool = False
) -> tuple[Any, str]:
    """The same for whoever awaits, on a loop of their own: zarr.

    The same sessions are used, and closed, as everywhere else.
    """
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    fs, path = file_system(url, access, zipped=zipped)
    return AsyncFileSystemWrapper(fs, asynchronous=True), path


def _from_the_web(file: Named, fs: Any) -> BlockFile:
    web = HttpRanges(file, fs, _sync())
    head = web.first(read_ahead.LARGEST)
    if web.state is None:
        raise file.error("the server does not say how long the file is")
    state = web.state
    return BlockFile(web.fetch, state.nbytes, web.whole or head, state.as_text)


def _sync() -> Callable[..., Any]:
    import fsspec.asyn

    return fsspec.asyn.sync  # type: ignore[no-any-return]


def _from_a_store(file: Named, fs: Any, path: str) -> BlockFile:
    fs.invalidate_cache(path)
    handle = fs.open(path, "rb", **_without_cache(fs))
    info = getattr(handle, "details", None) or fs.info(path)
    if info.get("type") == "directory":
        raise file.error("it is a folder", hint="name a file inside it")
    nbytes = info.get("size")
    if nbytes is None:
        nbytes = handle.seek(0, io.SEEK_END)
    if nbytes == 0:
        handle.close()
        raise file.error("the file is empty", "0 bytes", "record or copy it again")
    stored = _Stored(file, fs, path, handle, info)
    return _StoreFile(stored, int(nbytes))


class _StoreFile(BlockFile):
    """A file of a store, whose handle is closed with it."""

    def __init__(self, stored: _Stored, nbytes: int) -> None:
        self._stored = stored
        super().__init__(stored.fetch, nbytes, state=stored.state)

    def close(self) -> None:
        super().close()
        self._stored.handle.close()


def _without_cache(fs: Any) -> dict[str, Any]:
    """No read-ahead of fsspec: blocks are ours."""
    remote = getattr(fs, "async_impl", False)
    return {"cache_type": "none"} if remote else {}


class _Stored:
    """Ranges of one file of a store; its library asks again what fails in between."""

    def __init__(
        self, file: Named, fs: Any, path: str, handle: Any, info: Mapping[str, Any]
    ) -> None:
        from fsspec.spec import AbstractBufferedFile

        self.file, self.fs, self.path, self.handle = file, fs, path, handle
        self.state = _state_in(info)
        self._lock = ForkLock()
        self._by_range = isinstance(handle, AbstractBufferedFile)
        # s3fs asks for this very ETag with every range; of others we ask ourselves.
        pinned = getattr(handle, "read_kw", {}).get("IfMatch")
        self._is_pinned = bool(pinned) or not self._by_range

    def fetch(self, start: int, stop: int) -> bytes:
        with told_of(self.file):
            try:
                data = self._read(start, stop)
            except Exception:
                self._check_same()  # says more, where that is why
                raise
            if len(data) != stop - start or not self._is_pinned:
                self._check_same()
        if len(data) != stop - start:
            raise self.file.error(
                "the server stops before the end",
                f"{stop - start} bytes wanted at offset {start}, {len(data)} came",
                "the file on the server may be cut; copy it there again",
            )
        return data

    def _read(self, start: int, stop: int) -> bytes:
        if self._by_range:  # a request of its own, by whichever thread
            return self.handle._fetch_range(start, stop)  # type: ignore[no-any-return]
        with self._lock:
            self.handle.seek(start)
            pieces = []
            while start < stop and (piece := self.handle.read(stop - start)):
                pieces.append(piece)
                start += len(piece)
            return b"".join(pieces)

    def _check_same(self) -> None:
        try:
            now = _state_in(_info(self.fs, self.path))
        except FileNotFoundError:
            now = "gone"
        except Exception:
            return  # whatever keeps us from asking is not that
        if now != self.state:
            raise self.file.error(
                "the file changed while it was read",
                f"it was {self.state or 'of unknown state'}, is {now or 'of another'}",
                "do it again once nobody writes to it",
            )


def _info(fs: Any, path: str) -> Mapping[str, Any]:
    fs.invalidate_cache(path)
    return fs.info(path)  # type: ignore[no-any-return]


def _state_in(info: Mapping[str, Any]) -> str:
    """What a file system tells that would differ; "" where it is the length alone."""
    told = {str(name).lower(): value for name, value in info.items()}
    said = [f"{name} {told[name]}" for name in _STATE if told.get(name)]
    # Times of a listing and of a file may be written differently: only where need be.
    said = said or [f"{name} {told[name]}" for name in _TIMES if told.get(name)]
    return f"{told.get('size')} bytes, {', '.join(said)}" if said else ""


def matches_of(pattern: str, access: Access) -> list[str]:
    """The URLs a pattern stands for, in order.

    Errors   those of `open_remote`.
    """
    with told_of(Named(pattern, access)):
        fs, path = file_system(pattern, access)
        fs.invalidate_cache()
        found = fs.glob(path, detail=True)
    return [
        _url_like(pattern, path, name, fs)
        for name, info in sorted(found.items())
        if info.get("type") != "directory" or name.rstrip("/").endswith(".zarr")
    ]


def entries_of(folder: str, access: Access) -> Iterator[tuple[str, str, bool]]:
    """What lies in a remote folder: URL, name, and whether it is a folder; in order.

    Errors   those of `open_remote`.
    """
    with told_of(Named(folder, access)):
        fs, path = file_system(folder, access)
        fs.invalidate_cache()
        found = fs.ls(path, detail=True)
    for info in sorted(found, key=lambda one: str(one["name"])):
        full = str(info["name"])
        name = full.rstrip("/").rpartition("/")[2]
        if full.rstrip("/") != path.rstrip("/"):
            is_folder = info.get("type") == "directory"
            yield _url_like(folder, path, full, fs), name, is_folder


def is_folder(url: str, access: Access) -> bool:
    """True where a URL names a folder and not a file as well.

    Errors   those of `open_remote`.
    """
    with told_of(Named(url, access)):
        fs, path = file_system(url, access)
        return bool(_info(fs, path).get("type") == "directory")


def _url_like(given: str, path: str, name: str, fs: Any) -> str:
    """The URL of a name of the same file system, reached by the same chain.

    path  what the file system made of `given`
    """
    links = given.split("::")
    at = next(n for n, link in enumerate(links) if "://" in link)
    own, tail = links[at].rstrip("/"), path.strip("/")
    # What stands before the path is its server, which a name is without.
    head = own[: len(own) - len(tail)] if own.endswith(tail) else ""
    links[at] = head + name.lstrip("/") if head else str(fs.unstrip_protocol(name))
    return "::".join(links)
