"""Checked access to the arrays and attributes of an HDF5 file.

An HDF5 file may refer to other files by external links, external storage and virtual
arrays, and a file of kilobytes may claim gigabytes: by the shape of an array that was
never written, by a chunk that unpacks to far more than it says, by many texts that are
one and the same long text. So nothing of an array is read but through
`read_small_array` or after `check_array` and `ChunkChecker.check`. h5py itself is
loaded by `hdf5`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import RecordingError, shown
from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.hdf5_virtual_dataset_detection import is_virtual

# Filters of the HDF5 library, by their numbers.
_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _NBIT, _SCALE_OFFSET = 1, 2, 3, 4, 5, 6
_HARD_LINK, _SOFT_LINK = 0, 1  # types of links; beyond are links to other files
_MAX_LINK_HOPS: Final = 16
_MAX_DEPTH, _NODE_NBYTES = 60, 1024
_TRANSIENT_NBYTES: Final = 64 << 20
_REFERENCES_PREFIX: Final = "#"  # where MATLAB keeps what others refer to
_OWN_FILE_RULE = "only data in the file itself is read"
_ONE_FILE_HINT = "copy everything into one file (h5py copy with expand_external=True)"


def get_child(source: ByteSource, group: Any, name: str, hops: int = 0) -> Any:
    """Return the member of a group with this name; None if it is absent or a dangling
    link.

    hops    links that were followed before

    Raises
    ------
    RecordingError
        For a link to another file, and for a virtual array.
    """
    link = _link_info(group, name)
    if link is None:
        return None
    if link.type == _HARD_LINK:
        _check_not_virtual(source, group, name, link)
        return group[name]
    if link.type != _SOFT_LINK:
        raise source.error(
            f"{shown(name)} is a link to another file",
            _OWN_FILE_RULE,
            _ONE_FILE_HINT,
        )
    if hops == _MAX_LINK_HOPS:
        return None
    # HDF5 itself would follow the path through links to other files.
    path = group.id.links.get_val(_encode_name(name))
    node = group.file if path.startswith(b"/") else group
    for part in path.decode("utf-8", "surrogateescape").split("/"):
        if part not in ("", "."):
            is_group = hasattr(node, "keys")
            node = get_child(source, node, part, hops + 1) if is_group else None
    return node


def list_arrays(source: ByteSource, file: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of a file by name, and the names of its virtual arrays.

    Names have slashes. Links are not followed, and what MATLAB's references lead to is
    left out.
    """
    arrays: dict[str, Any] = {}
    virtual: list[str] = []
    groups, visited = [("", file)], set()
    while groups:
        prefix, group = groups.pop()
        for child_name in group:
            name, link = f"{prefix}{child_name}", _link_info(group, child_name)
            is_hard_link = link is not None and link.type == _HARD_LINK
            if (
                name.startswith(_REFERENCES_PREFIX)
                or not is_hard_link
                or link.u in visited
            ):
                continue
            visited.add(link.u)
            if is_virtual(source, file, link.u):
                virtual.append(name)
                continue
            node = group[child_name]
            if hasattr(node, "keys"):
                groups.append((f"{name}/", node))
            elif is_array(node):
                arrays[name] = node
            source.check_limit("arrays", len(arrays) + len(virtual), file_limits.ARRAYS)
    return dict(sorted(arrays.items())), sorted(virtual)


def external_data_error(source: ByteSource, name: str) -> RecordingError:
    """Return the error for an array whose numbers are stored in other files."""
    return source.error(
        f"the data of array {shown(name)} is stored in other files",
        _OWN_FILE_RULE,
        _ONE_FILE_HINT,
    )


def has_child(group: Any, name: str) -> bool:
    """Return whether a group has a member of this name, even a dangling link."""
    return _link_info(group, name) is not None


def _link_info(group: Any, name: str) -> Any:
    """Return h5py's LinkInfo: the type, and of a hard link the address in `u`."""
    links = group.id.links
    return (
        links.get_info(_encode_name(name)) if links.exists(_encode_name(name)) else None
    )


def _check_not_virtual(source: ByteSource, group: Any, name: str, link: Any) -> None:
    """Raise an error for a virtual array."""
    if is_virtual(source, group.file, link.u):
        raise external_data_error(source, name)


def _encode_name(name: str) -> bytes:
    """Encode a name as the bytes that HDF5 stores."""
    return name.encode("utf-8", "surrogateescape")


def is_array(node: Any) -> bool:
    """Return whether a node is an array, neither a group nor a named type."""
    return hasattr(node, "dtype") and hasattr(node, "shape")


def check_array(source: ByteSource, data: Any) -> None:
    """Refuse an array that is stored in other files, or whose chunks claim too much.

    Raises
    ------
    RecordingError
        See above; before anything of the array is read.
    """
    if data.external or data.is_virtual:
        raise external_data_error(source, data.name)
    label = f"array {shown(data.name)}"
    if data.chunks is None:
        return
    declared = prod(data.chunks) * data.dtype.itemsize
    source.check_unpacked_size(f"a chunk of {label}", declared)
    filters = _chunk_filters(data)
    codes = [code for code, _ in filters]
    if _DEFLATE in codes and {*codes[codes.index(_DEFLATE) + 1 :]} - {_FLETCHER32}:
        raise source.error(
            f"{label} has a filter after deflate compression",
            "only a checksum may follow deflate",
            "write the file again without this filter",
        )
    for code, values in filters:
        # The number of elements that the filter makes room for.
        if code in (_NBIT, _SCALE_OFFSET) and len(values) > 2:
            if values[2] * data.dtype.itemsize > declared:
                raise source.error(
                    f"the compression header of {label} is damaged",
                    f"the header declares {values[2]} elements per chunk, a chunk has "
                    f"{prod(data.chunks)}",
                )


class ChunkChecker:
    """Checker of an array's stored chunks, none of which may unpack to more than
    declared.

    HDF5 unpacks a chunk to its end, however much that is. Deflate makes at most 1,032
    bytes of one, so that small chunks pass unseen; a larger one is unpacked here before
    it is first read, a piece at a time.
    """

    def __init__(self, source: ByteSource, data: Any) -> None:
        self._source, self._data = source, data
        filters = [] if data.chunks is None else _chunk_filters(data)
        codes = [code for code, _ in filters]
        self._is_packed = bool(codes)
        self._is_deflated, self._is_szip = _DEFLATE in codes, _SZIP in codes
        # The bit of a chunk's mask that says it was not deflated.
        self._not_deflated_bit = 1 << codes.index(_DEFLATE) if self._is_deflated else 0
        self._suspect_chunks: dict[tuple[int, ...], int] | None = None

    def check(self, spans: Sequence[slice]) -> None:
        """Check the chunks that hold one slice of each axis."""
        if not self._is_packed:
            return
        if self._suspect_chunks is None:
            self._suspect_chunks = self._find_large()
        if not self._suspect_chunks:
            return
        chunks = self._data.chunks
        axes = [
            range(span.start // chunk * chunk, span.stop, chunk)
            for span, chunk in zip(spans, chunks, strict=True)
        ]
        for offset in product(*axes):
            if offset in self._suspect_chunks:
                self._check_chunk(offset, self._suspect_chunks[offset])
                self._suspect_chunks.pop(offset, None)

    def _find_large(self) -> dict[tuple[int, ...], int]:
        """Return the filter mask of each chunk that may unpack to more than is
        allowed.
        """
        data, masks = self._data, {}
        declared = prod(data.chunks) * data.dtype.itemsize
        allowed = file_limits.max_unpacked_nbytes(self._source.nbytes)

        def record_chunk(chunk: Any) -> None:
            stored = int(chunk.size)
            if stored > declared + declared // 8 + 4096:
                raise _oversized_chunk_error(
                    self._source, data, f"{stored} bytes are stored"
                )
            is_large = stored * file_limits.DEFLATE_RATIO > allowed
            if self._is_szip or (self._is_deflated and is_large):
                masks[tuple(map(int, chunk.chunk_offset))] = int(chunk.filter_mask)

        if hasattr(data.id, "chunk_iter"):
            data.id.chunk_iter(record_chunk)
        else:
            for index in range(data.id.get_num_chunks()):
                record_chunk(data.id.get_chunk_info(index))
        return masks

    def _check_chunk(self, offset: tuple[int, ...], mask: int) -> None:
        declared = prod(self._data.chunks) * self._data.dtype.itemsize
        raw = self._data.id.read_direct_chunk(offset)[1]
        if self._is_szip and int.from_bytes(raw[:4], "little") > declared:
            raise _oversized_chunk_error(
                self._source, self._data, "the compressed data declares too many bytes"
            )
        is_deflated = self._is_deflated and not mask & self._not_deflated_bit
        if is_deflated and inflates_beyond(raw, declared):
            raise _oversized_chunk_error(
                self._source, self._data, "it decompresses to too many bytes"
            )


def inflates_beyond(raw: bytes, max_nbytes: int) -> bool:
    """Return whether deflated bytes unpack to more than a limit, in bounded memory."""
    decompressor, nbytes = zlib.decompressobj(), 0
    try:
        while raw and not decompressor.eof:
            nbytes += len(decompressor.decompress(raw, file_limits.CHUNK_NBYTES))
            if nbytes > max_nbytes:
                return True
            raw = decompressor.unconsumed_tail
    except zlib.error:  # whoever unpacks it in earnest says so
        pass
    return False


def _oversized_chunk_error(source: ByteSource, data: Any, detail: str) -> Exception:
    """Return the error for a chunk that claims too much."""
    return source.error(
        f"a chunk of array {shown(data.name)} is damaged ({detail})",
        f"expected {prod(data.chunks) * data.dtype.itemsize} bytes per chunk",
        "write the file again",
    )


def _chunk_filters(data: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Return the number and the parameters of each filter of an array."""
    creation_properties = data.id.get_create_plist()
    filters = [
        creation_properties.get_filter(index)
        for index in range(creation_properties.get_nfilters())
    ]
    return [(int(code), tuple(values)) for code, _, values, _ in filters]


def read_small_array(
    source: ByteSource, data: Any, max_nbytes: int = file_limits.HDF5_METADATA_NBYTES
) -> Any:
    """Read all of a small array beside the samples: numbers or texts.

    Returns
    -------
    numpy.ndarray
        As h5py gives it; texts as objects.

    Raises
    ------
    RecordingError
        For an array in other files, one of more than `max_nbytes` bytes, and types that
        are neither numbers nor texts.
    """
    check_array(source, data)
    label = f"array {shown(data.name)}"
    if data.shape is None:
        return np.empty(0)
    source.check_limit(f"bytes in {label}", data.size * data.dtype.itemsize, max_nbytes)
    ChunkChecker(source, data).check([slice(0, extent) for extent in data.shape])
    if not data.dtype.hasobject:
        return np.asarray(data[()])
    if data.dtype.metadata and "ref" in data.dtype.metadata:
        return np.asarray(data[()])
    if not data.dtype.metadata or data.dtype.metadata.get("vlen") not in (str, bytes):
        raise source.error(
            f"{label} contains objects of dtype kind {data.dtype.kind!r}",
            "only numbers and text are supported",
            "write the array again as numbers or text",
        )
    return _read_texts(source, data, label, max_nbytes)


def _read_texts(
    source: ByteSource, data: Any, label: str, max_nbytes: int
) -> npt.NDArray[np.object_]:
    """Read texts of any length, few at a time, because all may refer to one long
    text.
    """
    longest = max_text_nbytes(source) or source.nbytes
    _check_text_lengths(source, data, label)
    if data.ndim == 0:
        return np.array(data[()], object)
    texts = np.empty(data.shape, object)
    texts_per_row = prod(data.shape[1:])
    step = max(1, _TRANSIENT_NBYTES // max(1, longest * texts_per_row))
    nbytes = 0
    for start in range(0, data.shape[0], step):
        chunk = data[start : start + step]
        texts[start : start + step] = chunk
        nbytes += sum(map(len, chunk.ravel()))
        source.check_limit(f"bytes of text in {label}", nbytes, max_nbytes)
    return texts


def _check_text_lengths(source: ByteSource, data: Any, label: str) -> None:
    """Refuse texts that claim to be longer than the file; HDF5 would allocate each
    first.

    A text is stored as its length, in 4 bytes, and where it lies, in 12.
    """
    blocks: list[tuple[int, int]] = []
    if data.chunks is None:
        offset = data.id.get_offset()
        blocks += [] if offset is None else [(int(offset), 16 * int(data.size))]
    elif hasattr(data.id, "chunk_iter"):
        data.id.chunk_iter(lambda chunk: blocks.append((chunk.byte_offset, chunk.size)))
    is_deflated = any(code == _DEFLATE for code, _ in _chunk_filters(data))
    for offset, nbytes in blocks:
        raw = source.peek(offset, nbytes)
        if is_deflated:
            try:
                raw = zlib.decompressobj().decompress(raw, 16 * prod(data.chunks))
            except zlib.error:
                continue  # HDF5 says so
        lengths = np.frombuffer(raw[: len(raw) // 16 * 16], "<u4")[::4]
        longest = int(lengths.max(initial=0))
        source.check_limit(f"bytes in a text of {label}", longest, source.nbytes)


def read_attribute(
    source: ByteSource, node: Any, name: str, default: Any = None
) -> Any:
    """Read an attribute: a number, a text or an array of them.

    Raises
    ------
    RecordingError
        For one that claims more than notes may have.
    """
    if name not in node.attrs:
        return default
    attribute_id = node.attrs.get_id(name)
    count = prod(attribute_id.shape or ())
    label = f"bytes in attribute {shown(name)}"
    source.check_limit(
        label, count * attribute_id.dtype.itemsize, file_limits.HDF5_METADATA_NBYTES
    )
    if attribute_id.dtype.hasobject:
        # Each may be the longest text of the file, and they are read at once.
        max_nbytes = file_limits.max_unpacked_nbytes(source.nbytes)
        source.check_limit(
            label, count * min(source.nbytes, max_text_nbytes(source)), max_nbytes
        )
    return node.attrs[name]


def max_text_nbytes(source: ByteSource) -> int:
    """Return an upper bound of the text lengths of a file, from the global heaps that
    hold them.

    Files too large to be searched give 0.

    Raises
    ------
    RecordingError
        For a heap that claims more than the file has.
    """
    if source.nbytes > file_limits.HDF5_SEARCH_NBYTES:
        return 0
    longest = _max_text_nbytes.get(source)
    if longest is None:
        longest = _max_text_nbytes[source] = _scan_heaps(source)
    return longest


# A search reads the whole file, and each attribute with a text asks for its result.
_max_text_nbytes: WeakKeyDictionary[ByteSource, int] = WeakKeyDictionary()


def _scan_heaps(source: ByteSource) -> int:
    """Check all global heaps and return the size of the largest."""
    longest, overlap = 0, b""
    for offset in range(0, source.nbytes, file_limits.CHUNK_NBYTES):
        chunk = overlap + source.peek(offset, file_limits.CHUNK_NBYTES)
        position = chunk.find(b"GCOL")
        while position >= 0:
            size = int.from_bytes(chunk[position + 8 : position + 16], "little")
            if chunk[position + 4 : position + 5] == b"\1":
                if size > source.nbytes:  # room would be made for all of it
                    raise source.error(
                        "a text heap in the file is damaged",
                        f"the heap declares {size} bytes, the file has {source.nbytes}",
                        "copy the file again from its source",
                    )
                _check_heap(source, source.peek(offset - len(overlap) + position, size))
                longest = max(longest, size)
            position = chunk.find(b"GCOL", position + 1)
        overlap = chunk[-16:]
    return longest


def _check_heap(source: ByteSource, heap: bytes) -> None:
    """Refuse a heap whose texts do not fit into it; HDF5 would loop forever.

    References
    ----------
    HDF5 File Format Specification 3.0, III.E: global heap.
    """
    position = 16
    while position + 16 <= len(heap):
        number = int.from_bytes(heap[position : position + 2], "little")
        nbytes = int.from_bytes(heap[position + 8 : position + 16], "little")
        # Of free space, which has the number 0, the size counts its own header.
        step = -(-nbytes // 8) * 8 + (16 if number else 0)
        position += step
        if step < 16 or position > len(heap):
            raise source.error(
                "a text heap in the file is damaged",
                f"got a text of {nbytes} bytes in a heap of {len(heap)} bytes",
                "copy the file again from its source",
            )


def check_matlab_tree(
    source: ByteSource, file: Any, object_address: Callable[[Any], int]
) -> None:
    """Refuse a MATLAB file that claims too much or leads to other files.

    For a library that opens the file itself and reads all of it, an array once for
    each reference to it. `object_address` tells where in the file an array or group
    lies.
    """
    _MatlabTreeChecker(source, object_address).visit(file, 0)


class _MatlabTreeChecker:
    """Counter of the bytes that reading all of a MATLAB file would hold.

    An array or group is looked at once, and counted as often as a name or a reference
    leads to it, because it is read as often.
    """

    def __init__(
        self, source: ByteSource, object_address: Callable[[Any], int]
    ) -> None:
        self._source = source
        self._object_address = object_address
        self._nbytes = 0
        self._visited: dict[int, tuple[int, int]] = {}
        """Address of an object → bytes of all in it, and how deep that lies."""

    def visit(self, node: Any, depth: int) -> int:
        """Count an array, or all of a group, and return its number of nested levels."""
        self._source.check_limit("levels of nested arrays", depth, _MAX_DEPTH)
        address = self._object_address(node)
        if address in self._visited:
            nbytes, levels = self._visited[address]
            self._source.check_limit(
                "levels of nested arrays", depth + levels, _MAX_DEPTH
            )
            self._add_nbytes(nbytes)
            return levels
        before = self._nbytes
        self._add_nbytes(_NODE_NBYTES)
        for name in ("MATLAB_class", "MATLAB_empty", "MATLAB_sparse"):
            read_attribute(self._source, node, name)
        visit_children = self._visit_array if is_array(node) else self._visit_group
        levels = visit_children(node, depth)
        self._visited[address] = self._nbytes - before, levels
        return levels

    def _visit_group(self, group: Any, depth: int) -> int:
        levels = 0
        for name in group:
            link = _link_info(group, name)
            if link is None or link.type != _HARD_LINK:
                raise self._source.error(
                    f"{shown(name)} is a link",
                    "MATLAB writes no links, and MNE would follow a link to any file",
                    _ONE_FILE_HINT,
                )
            if depth == 0 and name.startswith(_REFERENCES_PREFIX):
                self._check_referenced(group, name)
            else:
                node = get_child(self._source, group, name)
                levels = max(levels, 1 + self.visit(node, depth + 1))
        return levels

    def _check_referenced(self, file: Any, name: str) -> None:
        """Refuse virtual arrays among the targets of references, before one is
        opened.
        """
        group = get_child(self._source, file, name)
        for child_name in group if hasattr(group, "keys") else ():
            link = _link_info(group, child_name)
            if link is not None and link.type == _HARD_LINK:
                _check_not_virtual(self._source, group, child_name, link)

    def _add_nbytes(self, nbytes: int) -> None:
        self._nbytes += nbytes
        allowed = file_limits.max_unpacked_nbytes(self._source.nbytes)
        self._source.check_limit("bytes in all arrays", self._nbytes, allowed)

    def _visit_array(self, data: Any, depth: int) -> int:
        source = self._source
        check_array(source, data)
        is_reference = bool(data.dtype.metadata and "ref" in data.dtype.metadata)
        if data.dtype.hasobject and not is_reference:
            raise source.error(
                f"array {shown(data.name)} contains objects of dtype kind "
                f"{data.dtype.kind!r}",
                "MATLAB files contain only numbers and references",
            )
        levels = 0
        if data.shape is None:
            return levels
        # MNE makes numbers of at least 4 bytes of all, and Python's texts of letters.
        is_text = read_attribute(source, data, "MATLAB_class") in (b"char", "char")
        width = 16 if is_text else max(4, data.dtype.itemsize)
        self._add_nbytes(int(data.size) * width)
        ChunkChecker(source, data).check([slice(0, extent) for extent in data.shape])
        if is_reference:
            for reference in np.ravel(data[()]):
                if reference:
                    levels = max(
                        levels, 1 + self.visit(data.file[reference], depth + 1)
                    )
        return levels
