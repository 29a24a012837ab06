"""Zarr stores: an array in chunks, in a folder, a zip file or behind a URL.

Owns the one door to zarr: which array of a group is the recording, and what its
attributes say about it. Chunks that are not there stand for the array's fill value, as
Zarr has it, and that is told. How samples are read is `zarr_reader`'s business.
"""

from __future__ import annotations

import asyncio
import os
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlxweb.advice import Advice, Blank
from rlxweb.digital import is_digital
from rlxweb.errors import RecordingError, RlxError, UnknownName, did_you_mean, shown
from rlxweb.io import bounds
from rlxweb.io.access import Access
from rlxweb.io.attributes import BESIDE, notes_of
from rlxweb.io.contents import Contents, Found, Layout, Stream, listed
from rlxweb.io.npy import is_sample_dtype, native
from rlxweb.io.remote import awaited_file_system
from rlxweb.io.remote_faults import EXTRA, Named
from rlxweb.io.source import Source, open_source
from rlxweb.io.urls import is_url, is_web, shown_url
from rlxweb.io.zarr_chunks import ChunkCheck
from rlxweb.io.zarr_name import PACKED
from rlxweb.io.zarr_reader import ZarrReader
from rlxweb.named_files import check_named, leads_out
from rlxweb.whole_file import reason

# In what fsspec says of a web server.
_NO_RANGES = "support range requests"
_MOST_WARNINGS = 8
_AT_ONCE = 8
"""Members of a group that are opened at once: behind a URL each is waited for."""
_OF_ZARR = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class ZarrSource(Source):
    """An open store and the node its name leads to.

    missing  keys of chunks that were asked for and are not there
    check    of the chunks of the array that is the recording, once that is known
    loop     in which zarr waits for the store
    """

    __slots__ = ("_named", "check", "is_closed", "is_listed", "loop", "missing", "node")

    def __init__(self, name: str, access: Access) -> None:
        super().__init__(shown_url(name) if is_url(name) else name)
        self._named = Named(name, access) if is_url(name) else None
        self.is_listed = not is_web(name)
        self.is_closed = False
        self.missing: list[str] = []
        self.check: ChunkCheck | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        with self.faults("it cannot be opened as Zarr"), self.warned():
            self.node = _node(self, name, access)
            self.missing.clear()

    @contextmanager
    def faults(self, what: str) -> Iterator[None]:
        """Whatever zarr and its codecs raise is a RecordingError of this store."""
        try:
            yield
        except RlxError:
            raise
        except ImportError as error:
            raise self.error(
                f"a package that reads Zarr is missing ({reason(error)})", hint=EXTRA
            ) from None
        except Exception as error:
            raise self._error_of(what, error) from None

    @contextmanager
    def warned(self) -> Iterator[None]:
        """Turn what zarr warns of into a warning of this store."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(" ".join(str(one.message).split()) for one in said):
            if len(self.warnings) < _MOST_WARNINGS:
                self.warn(f"zarr says: {text[:300]}")

    def _error_of(self, what: str, error: Exception) -> RecordingError:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "UnknownCodecError" in kinds:
            return self.error(
                f"its chunks are packed by a codec that is not here ({reason(error)})",
                hint="install what wrote it, or write it again with another codec",
            )
        if kinds & {"NodeNotFoundError", "FileNotFoundError"}:
            return self.error(
                "there is no array and no group of Zarr",
                "one holds a zarr.json, .zarray or .zgroup",
                "check the name",
            )
        if _NO_RANGES in str(error):
            return self.error(
                "the server knows no ranges, and a store in one file is read by them",
                hint="download the file first",
            )
        if self._named is not None and self._named.knows(error):
            return self._named.told(error)
        said = self._named.said(error) if self._named is not None else reason(error)
        return self.error(f"{what} ({said})", "", "write it again, or copy it anew")

    def close(self) -> None:
        """Nothing is read from now on."""
        self.is_closed = True


def _node(source: ZarrSource, name: str, access: Access) -> Any:
    """The array or group that a name leads to."""
    import zarr
    from zarr.storage import FsspecStore, LocalStore, WrapperStore, ZipStore

    class Watched(WrapperStore[Any]):
        """Looks at chunks before zarr unpacks them, and notes those not there."""

        async def get(
            self, key: str, prototype: Any, byte_range: Any = None, **how: Any
        ) -> Any:
            source.loop = asyncio.get_running_loop()
            _check_key(source, key, folder)
            found = await self._store.get(key, prototype, byte_range, **how)
            if key.endswith(_OF_ZARR):
                return found
            if found is None:
                source.missing.append(key)
            elif source.check is not None:
                source.check.see(found.to_bytes(), is_whole=byte_range is None)
            return found

    packed = name.lower().endswith(PACKED)
    store: Any
    folder = ""
    if is_url(name):
        fs, path = awaited_file_system(name, access, zipped=packed)
        store = FsspecStore(fs, read_only=True, path=path)
    elif packed:
        _check_members(source, name)
        store = ZipStore(name, mode="r")
    else:
        folder = os.path.abspath(name)
        store = LocalStore(folder, read_only=True)
    return zarr.open(Watched(store), mode="r")


def _check_key(source: ZarrSource, key: str, folder: str) -> None:
    """Refuse names in metadata that lead elsewhere, and pipes and devices as chunks."""
    if leads_out(key):
        raise source.error(
            f"it leads to {shown(key)}", "what belongs to a store lies in it"
        )
    if folder:
        check_named(os.path.join(folder, key), "data", source.doing, RecordingError)


def _check_members(source: ZarrSource, name: str) -> None:
    """Refuse a zip file of which a member unpacks to too much, or that is no file."""
    file = open_source(name)
    try:
        with zipfile.ZipFile(file.file) as archive:
            for info in archive.infolist():
                file.unpacks(f"its member {shown(info.filename)}", info.file_size)
    finally:
        file.close()


def read_zarr(source: ZarrSource, array: str | None, layout: Layout) -> Contents:
    """What one array of a Zarr store holds.

    Errors   RecordingError for what is no recording, or where several arrays could be
             meant; UnknownName when `array` is not in it.
    """
    with source.faults("its metadata cannot be read"), source.warned():
        group, name, node = _picked(source, array)
        source.check = ChunkCheck(source, node)
        dtype, shape = node.dtype, tuple(map(int, node.shape))
        attributes = [dict(node.attrs), dict(group.attrs) if group is not None else {}]
    whose = f"its array {name!r}" if name else "its array"
    if not _is_numbers(dtype):
        rule = "samples are int8 to int64 or float16 to float64"
        raise source.error(f"{whose} holds {dtype}", rule, "cast it before saving")
    if len(shape) not in (1, 2):
        raise source.error(
            f"{whose} has {len(shape)} axes, shape {list(shape)}",
            "1 axis (one channel) or 2 (channels, samples)",
            "reshape it, or save each part as an array",
        )
    turned = len(shape) == 2 and layout == "samples-first"
    n_channels, n_samples = (1, *shape) if len(shape) == 1 else shape
    if turned:
        n_channels, n_samples = shape[::-1]
    other: Layout = "channels-first" if turned else "samples-first"
    source.at_most(
        f"channels (shape {list(shape)} is read {layout})",
        n_channels,
        bounds.CHANNELS,
        Advice(f"is it {other}? then say so: {{}}", layout=other),
    )
    notes = notes_of(source, attributes, n_channels, is_digital(dtype))
    own = native(dtype)
    stream = Stream(
        tuple(range(n_channels)),
        notes.fs,
        n_samples,
        np.dtype(np.float64) if notes.is_scaled else own,
        ZarrReader(source, node, turned, own),
        digital=own if is_digital(own) else None,
    )
    found = tuple(
        Found(label, unit, gain=notes.gain, offset=notes.offset)
        for label, unit in zip(notes.channels, notes.units, strict=True)
    )
    return Contents("Zarr", found, (stream,), notes.rate_note)


def _is_numbers(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and is_sample_dtype(dtype)


def _picked(source: ZarrSource, array: str | None) -> tuple[Any, str, Any]:
    """The group of an array, its name, and the array that is the recording."""
    import zarr

    node = source.node
    if isinstance(node, zarr.Array):
        if array is not None:
            raise source.error(
                Advice("{} was given", array=array),
                "it is a single array, without names",
                Advice("leave out {}", array=array),
            )
        return None, "", node
    if array is not None and not source.is_listed:
        return _asked_for(source, node, array)
    members = _members(source, node)
    if array is not None:
        if array not in members:
            raise UnknownName(
                source.doing,
                f"there is no array {array!r}",
                f"arrays: {listed(members)}",
                did_you_mean(array, members),
            )
        return _group_of(node, array), array, members[array]
    able = {name: one for name, one in members.items() if _could_be(name, one)}
    if not able:
        raise source.error(
            "no array in it could be a recording",
            f"arrays: {listed(members)}; wanted: numbers, 1 or 2 axes",
        )
    if len(able) > 1:
        raise source.error(
            f"{len(able)} arrays could be the recording: {listed(able)}",
            "one is read at a time",
            Advice("name it: {}", array=Blank("NAME")),
        )
    ((name, one),) = able.items()
    return _group_of(node, name), name, one


def _asked_for(source: ZarrSource, node: Any, array: str) -> tuple[Any, str, Any]:
    """An array of a group on a server that lists nothing."""
    import zarr

    try:
        found = node[array]
    except KeyError:
        found = None
    if not isinstance(found, zarr.Array):
        raise UnknownName(
            source.doing, f"there is no array {array!r}", "a web server lists no names"
        )
    return node, array, found


def _members(source: ZarrSource, node: Any) -> dict[str, Any]:
    """The arrays of a group and of those in it, by their names with slashes."""
    import zarr

    if not source.is_listed and node.metadata.consolidated_metadata is None:
        raise source.error(
            "it is a group on a web server, which lists no names",
            "consolidated metadata would name its arrays",
            Advice("name one: {}", array=Blank("NAME")),
        )
    found: dict[str, Any] = {}
    groups = [("", node)]
    while groups:
        inside, group = groups.pop()
        for own, member in _children(source, group):
            name = f"{inside}{own}"
            if isinstance(member, zarr.Array):
                found[name] = member
            else:
                groups.append((f"{name}/", member))
            source.at_most("arrays and groups", len(found) + len(groups), bounds.ARRAYS)
    return dict(sorted(found.items()))


def _children(source: ZarrSource, group: Any) -> list[tuple[str, Any]]:
    """Return the arrays and groups that a group itself holds.

    `Group.members` opens all at once and raises the first failure; the others are later
    logged by asyncio as exceptions that nobody retrieved, or warned of as coroutines
    that nobody awaited.
    """
    if group.metadata.consolidated_metadata is not None:
        return [(str(name), member) for name, member in group.members()]

    async def listed_names() -> list[str]:
        return [name async for name in group.store.list_dir(group.path)]

    def opened(name: str) -> Any:
        try:
            return group[name]
        except KeyError:  # a file that is no member
            return None

    assert source.loop is not None
    waited = asyncio.run_coroutine_threadsafe(listed_names(), source.loop)
    names = [name for name in waited.result() if name not in _OF_ZARR]
    source.at_most("members of a group", len(names), bounds.ARRAYS)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        members = [*threads.map(opened, names)]
    both = zip(names, members, strict=True)
    return [(name, member) for name, member in both if member is not None]


def _group_of(node: Any, name: str) -> Any:
    inner = name.rpartition("/")[0]
    return node[inner] if inner else node


def _could_be(name: str, array: Any) -> bool:
    own = name.rpartition("/")[2]
    return own not in BESIDE and _is_numbers(array.dtype) and len(array.shape) in (1, 2)
