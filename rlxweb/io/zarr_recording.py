"""Zarr stores as recordings: a chunked array in a folder, in a zip file or behind a
URL.

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

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import (
    RecordingError,
    RlxError,
    UnknownName,
    did_you_mean,
    shown,
)
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.safe_file_opening import check_referenced_file, is_outside_folder
from rlxweb.io import file_limits
from rlxweb.io.byte_source import RecordingSource, open_source
from rlxweb.io.format_reader_interface import (
    ArrayLayout,
    ChannelStream,
    FileChannel,
    FileContents,
    format_names,
)
from rlxweb.io.npy_reader import is_sample_dtype, native_dtype
from rlxweb.io.remote import open_async_file_system
from rlxweb.io.remote_error_translation import INSTALL_HINT, RemoteLocation
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import has_http_link, is_url, redact_url
from rlxweb.io.zarr_chunk_validation import ZarrChunkValidator
from rlxweb.io.zarr_detection import ZARR_ZIP_SUFFIX
from rlxweb.io.zarr_hdf5_attributes import METADATA_NAMES, read_recording_attributes
from rlxweb.io.zarr_reader import ZarrReader

# In what fsspec says of a web server.
_NO_RANGES_MESSAGE = "support range requests"
_MAX_WARNINGS = 8
_MAX_OPEN_THREADS = 8
"""Number of members of a group that are opened in parallel, because each one behind a
URL takes a round trip.
"""
_METADATA_FILES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class ZarrSource(RecordingSource):
    """Open Zarr store and the array or group that its name leads to.

    missing_chunks  keys of chunks that were asked for and are not there
    chunk_validator  of the chunks of the array that is the recording, once that is
                     known
    event_loop  in which zarr waits for the store
    """

    __slots__ = (
        "_location",
        "can_list",
        "chunk_validator",
        "event_loop",
        "is_closed",
        "missing_chunks",
        "node",
    )

    def __init__(self, name: str, access: StorageAccess) -> None:
        super().__init__(redact_url(name) if is_url(name) else name)
        self._location = RemoteLocation(name, access) if is_url(name) else None
        self.can_list = not has_http_link(name)
        self.is_closed = False
        self.missing_chunks: list[str] = []
        self.chunk_validator: ZarrChunkValidator | None = None
        self.event_loop: asyncio.AbstractEventLoop | None = None
        with (
            self.translate_errors("the store cannot be opened as Zarr"),
            self.collect_warnings(),
        ):
            self.node = _open_node(self, name, access)
            self.missing_chunks.clear()

    @contextmanager
    def translate_errors(self, problem: str) -> Iterator[None]:
        """Translate errors of zarr and its codecs into RecordingError about this
        store.
        """
        try:
            yield
        except RlxError:
            raise
        except ImportError as error:
            raise self.error(
                f"a package for Zarr is not installed ({error_reason(error)})",
                hint=INSTALL_HINT,
            ) from None
        except Exception as error:
            raise self._translate_error(problem, error) from None

    @contextmanager
    def collect_warnings(self) -> Iterator[None]:
        """Record the warnings of zarr as warnings of this store."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(
            " ".join(str(warning.message).split()) for warning in caught
        ):
            if len(self.warnings) < _MAX_WARNINGS:
                self.warn(f"zarr warning: {text[:300]}")

    def _translate_error(self, problem: str, error: Exception) -> RecordingError:
        """Return the RecordingError for an exception of zarr, its codecs or its
        store.
        """
        class_names = {error_class.__name__ for error_class in type(error).__mro__}
        if "UnknownCodecError" in class_names:
            return self.error(
                f"the chunk codec is not installed ({error_reason(error)})",
                hint="install the codec, or write the array again with another codec",
            )
        if class_names & {"NodeNotFoundError", "FileNotFoundError"}:
            return self.error(
                "no Zarr array or group found",
                "expected a file zarr.json, .zarray or .zgroup",
                "check the path",
            )
        if _NO_RANGES_MESSAGE in str(error):
            return self.error(
                "a store in one file needs range requests, which the server does "
                "not support",
                hint="download the file first",
            )
        if self._location is not None and self._location.is_remote_error(error):
            return self._location.translate_error(error)
        message = (
            self._location.redact_error(error)
            if self._location is not None
            else error_reason(error)
        )
        return self.error(f"{problem} ({message})", "", "write or copy the store again")

    def close(self) -> None:
        """Close the store; nothing can be read afterwards."""
        self.is_closed = True


def _open_node(source: ZarrSource, name: str, access: StorageAccess) -> Any:
    """Open the array or group that a name leads to."""
    import zarr
    from zarr.storage import FsspecStore, LocalStore, WrapperStore, ZipStore

    class ValidatingStore(WrapperStore[Any]):
        """Store that validates chunks before zarr decompresses them, and records
        missing ones.
        """

        async def get(
            self, key: str, prototype: Any, byte_range: Any = None, **options: Any
        ) -> Any:
            source.event_loop = asyncio.get_running_loop()
            _check_key(source, key, folder)
            stored = await self._store.get(key, prototype, byte_range, **options)
            if key.endswith(_METADATA_FILES):
                return stored
            if stored is None:
                source.missing_chunks.append(key)
            elif source.chunk_validator is not None:
                source.chunk_validator.validate(
                    stored.to_bytes(), is_whole=byte_range is None
                )
            return stored

    is_zip = name.lower().endswith(ZARR_ZIP_SUFFIX)
    store: Any
    folder = ""
    if is_url(name):
        fs, path = open_async_file_system(name, access, is_zip=is_zip)
        store = FsspecStore(fs, read_only=True, path=path)
    elif is_zip:
        _check_zip_members(source, name)
        store = ZipStore(name, mode="r")
    else:
        folder = os.path.abspath(name)
        store = LocalStore(folder, read_only=True)
    return zarr.open(ValidatingStore(store), mode="r")


def _check_key(source: ZarrSource, key: str, folder: str) -> None:
    """Raise RecordingError for a key that leads out of the store, and for pipes and
    devices as chunks.
    """
    if is_outside_folder(key):
        raise source.error(
            f"the store refers to {shown(key)}",
            "all parts of a store must be inside the store",
        )
    if folder:
        check_referenced_file(
            os.path.join(folder, key), "data", source.context, RecordingError
        )


def _check_zip_members(source: ZarrSource, name: str) -> None:
    """Raise RecordingError for a zip file with a member that decompresses to too much,
    and for what is no file.
    """
    file = open_source(name)
    try:
        with zipfile.ZipFile(file.file) as archive:
            for info in archive.infolist():
                file.check_unpacked_size(
                    f"member {shown(info.filename)}", info.file_size
                )
    finally:
        file.close()


def read_zarr(
    source: ZarrSource, array: str | None, layout: ArrayLayout
) -> FileContents:
    """Read the contents of one array of a Zarr store.

    Errors   RecordingError for what is no recording, or where several arrays could be
             meant; UnknownName when `array` is not in it.
    """
    with (
        source.translate_errors("the metadata cannot be read"),
        source.collect_warnings(),
    ):
        group, name, node = _select_array(source, array)
        source.chunk_validator = ZarrChunkValidator(source, node)
        dtype, shape = node.dtype, tuple(map(int, node.shape))
        attributes = [dict(node.attrs), dict(group.attrs) if group is not None else {}]
    label = f"array {name!r}" if name else "the array"
    if not _is_numeric(dtype):
        rule = "samples must be int8 to int64 or float16 to float64"
        raise source.error(
            f"{label} has dtype {dtype}", rule, "cast the array before saving"
        )
    if len(shape) not in (1, 2):
        raise source.error(
            f"{label} has {len(shape)} axes, shape {list(shape)}",
            "expected 1 axis (one channel) or 2 (channels, samples)",
            "reshape the array, or save each part as a separate array",
        )
    is_samples_first = len(shape) == 2 and layout == "samples-first"
    n_channels, n_samples = (1, *shape) if len(shape) == 1 else shape
    if is_samples_first:
        n_channels, n_samples = shape[::-1]
    other_layout: ArrayLayout = (
        "channels-first" if is_samples_first else "samples-first"
    )
    source.check_limit(
        f"channels (shape {list(shape)} is read as {layout})",
        n_channels,
        file_limits.CHANNELS,
        Advice(f"if the array is {other_layout}, pass {{}}", layout=other_layout),
    )
    recording_attributes = read_recording_attributes(
        source, attributes, n_channels, is_digital_dtype(dtype)
    )
    sample_dtype = native_dtype(dtype)
    stream = ChannelStream(
        tuple(range(n_channels)),
        recording_attributes.fs,
        n_samples,
        np.dtype(np.float64) if recording_attributes.is_scaled else sample_dtype,
        ZarrReader(source, node, is_samples_first, sample_dtype),
        digital=sample_dtype if is_digital_dtype(sample_dtype) else None,
    )
    channels = tuple(
        FileChannel(
            channel_label,
            unit,
            gain=recording_attributes.gain,
            offset=recording_attributes.offset,
        )
        for channel_label, unit in zip(
            recording_attributes.channels, recording_attributes.units, strict=True
        )
    )
    return FileContents("Zarr", channels, (stream,), recording_attributes.rate_note)


def _is_numeric(dtype: Any) -> bool:
    """Return whether a dtype is one that samples can have."""
    return isinstance(dtype, np.dtype) and is_sample_dtype(dtype)


def _select_array(source: ZarrSource, array: str | None) -> tuple[Any, str, Any]:
    """Return the array that is the recording, after its group and its name."""
    import zarr

    node = source.node
    if isinstance(node, zarr.Array):
        if array is not None:
            raise source.error(
                Advice("{} is not supported for this store", array=array),
                "the store is a single array without a name",
                Advice("omit {}", array=array),
            )
        return None, "", node
    if array is not None and not source.can_list:
        return _open_named_array(source, node, array)
    members = _list_arrays(source, node)
    if array is not None:
        if array not in members:
            raise UnknownName(
                source.context,
                f"no array is named {array!r}",
                f"available arrays: {format_names(members)}",
                did_you_mean(array, members),
            )
        return _parent_group(node, array), array, members[array]
    candidates = {
        name: member
        for name, member in members.items()
        if _can_be_recording(name, member)
    }
    if not candidates:
        raise source.error(
            "the store contains no array suitable as a recording",
            "expected an array of numbers with 1 or 2 axes (arrays in the store: "
            f"{format_names(members)})",
        )
    if len(candidates) > 1:
        raise source.error(
            f"{len(candidates)} arrays are possible recordings: "
            f"{format_names(candidates)}",
            "only one array can be read at a time",
            Advice("pass {}", array=Blank("NAME")),
        )
    ((name, member),) = candidates.items()
    return _parent_group(node, name), name, member


def _open_named_array(
    source: ZarrSource, node: Any, array: str
) -> tuple[Any, str, Any]:
    """Open an array by its name on a server that lists nothing."""
    import zarr

    try:
        member = node[array]
    except KeyError:
        member = None
    if not isinstance(member, zarr.Array):
        raise UnknownName(
            source.context,
            f"no array is named {array!r}",
            "the store is on a web server, which does not list names",
        )
    return node, array, member


def _list_arrays(source: ZarrSource, node: Any) -> dict[str, Any]:
    """Return the arrays of a group and of its subgroups, by their names with
    slashes.
    """
    import zarr

    if not source.can_list and node.metadata.consolidated_metadata is None:
        raise source.error(
            "the store is a group on a web server, which does not list names",
            "without consolidated metadata, the array names are unknown",
            Advice("pass {}", array=Blank("NAME")),
        )
    arrays: dict[str, Any] = {}
    groups = [("", node)]
    while groups:
        prefix, group = groups.pop()
        for member_name, member in _list_children(source, group):
            name = f"{prefix}{member_name}"
            if isinstance(member, zarr.Array):
                arrays[name] = member
            else:
                groups.append((f"{name}/", member))
            source.check_limit(
                "arrays and groups", len(arrays) + len(groups), file_limits.ARRAYS
            )
    return dict(sorted(arrays.items()))


def _list_children(source: ZarrSource, group: Any) -> list[tuple[str, Any]]:
    """Return the arrays and groups that a group holds directly.

    `Group.members` opens all at once and raises the first failure; the others are later
    logged by asyncio as exceptions that nobody retrieved, or warned of as coroutines
    that nobody awaited.
    """
    if group.metadata.consolidated_metadata is not None:
        return [(str(name), member) for name, member in group.members()]

    async def list_names() -> list[str]:
        return [name async for name in group.store.list_dir(group.path)]

    def open_member(name: str) -> Any:
        try:
            return group[name]
        except KeyError:  # a file that is no member
            return None

    assert source.event_loop is not None
    listing = asyncio.run_coroutine_threadsafe(list_names(), source.event_loop)
    names = [name for name in listing.result() if name not in _METADATA_FILES]
    source.check_limit("members of a group", len(names), file_limits.ARRAYS)
    with ThreadPoolExecutor(_MAX_OPEN_THREADS) as threads:
        members = [*threads.map(open_member, names)]
    named_members = zip(names, members, strict=True)
    return [(name, member) for name, member in named_members if member is not None]


def _parent_group(node: Any, name: str) -> Any:
    """Return the group that holds the array of this name."""
    group_name = name.rpartition("/")[0]
    return node[group_name] if group_name else node


def _can_be_recording(name: str, array: Any) -> bool:
    """Return whether an array could be the recording, by its name, dtype and number of
    axes.
    """
    array_name = name.rpartition("/")[2]
    return (
        array_name not in METADATA_NAMES
        and _is_numeric(array.dtype)
        and len(array.shape) in (1, 2)
    )
