"""Checked access to the arrays and attributes of an HDF5 file.

An HDF5 file may refer to other files by external links, external storage and virtual
arrays, and a file of kilobytes may claim gigabytes: by the shape of an array that was
never written, by a chunk that unpacks to far more than it says, by many texts that are
one and the same long text. So nothing of an array is read but through `whole` or after
`check_array` and `Chunks.check`. h5py itself is loaded by `hdf5`.
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

from rlxweb.errors import RecordingError, shown
from rlxweb.io import bounds
from rlxweb.io.hdf5_headers import is_virtual
from rlxweb.io.source import ByteSource

# Filters of the HDF5 library, by their numbers.
_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _NBIT, _SCALE = 1, 2, 3, 4, 5, 6
_HARD, _SOFT = 0, 1  # types of links; beyond are links to other files
_MOST_HOPS: Final = 16
_DEEPEST, _NODE_NBYTES = 60, 1024
_TRANSIENT_NBYTES: Final = 64 << 20
_HIDDEN: Final = "#"  # where MATLAB keeps what others refer to
_OWN = "only what is in the file itself is read"
_ONE_FILE = "copy all of it into one file (h5py's copy with expand_external=True)"


def child(source: ByteSource, group: Any, name: str, hops: int = 0) -> Any:
    """Return what a group holds under a name; None for nothing, or a link to nothing.

    hops    links that were followed before

    Raises
    ------
    RecordingError
        For a link to another file, and for a virtual array.
    """
    link = _link(group, name)
    if link is None:
        return None
    if link.type == _HARD:
        _check_not_virtual(source, group, name, link)
        return group[name]
    if link.type != _SOFT:
        raise source.error(
            f"its {shown(name)} is a link to another file", _OWN, _ONE_FILE
        )
    if hops == _MOST_HOPS:
        return None
    # HDF5 itself would follow the path through links to other files.
    path = group.id.links.get_val(_raw(name))
    node = group.file if path.startswith(b"/") else group
    for part in path.decode("utf-8", "surrogateescape").split("/"):
        if part not in ("", "."):
            is_group = hasattr(node, "keys")
            node = child(source, node, part, hops + 1) if is_group else None
    return node


def all_arrays(source: ByteSource, file: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of a file, and the names of its virtual arrays.

    Names have slashes. Links are not followed, and what MATLAB's references lead to is
    left out.
    """
    found: dict[str, Any] = {}
    virtual: list[str] = []
    groups, seen = [("", file)], set()
    while groups:
        inside, group = groups.pop()
        for own in group:
            name, link = f"{inside}{own}", _link(group, own)
            is_own = link is not None and link.type == _HARD
            if name.startswith(_HIDDEN) or not is_own or link.u in seen:
                continue
            seen.add(link.u)
            if is_virtual(source, file, link.u):
                virtual.append(name)
                continue
            node = group[own]
            if hasattr(node, "keys"):
                groups.append((f"{name}/", node))
            elif is_array(node):
                found[name] = node
            source.at_most("arrays", len(found) + len(virtual), bounds.ARRAYS)
    return dict(sorted(found.items())), sorted(virtual)


def lies_elsewhere(source: ByteSource, name: str) -> RecordingError:
    """Return the refusal of an array whose numbers lie in other files."""
    return source.error(
        f"the numbers of its array {shown(name)} lie in other files", _OWN, _ONE_FILE
    )


def has_child(group: Any, name: str) -> bool:
    """Return whether a group holds anything under a name, be it a link to nothing."""
    return _link(group, name) is not None


def _link(group: Any, name: str) -> Any:
    """Return h5py's LinkInfo: the type, and of a hard link the address in `u`."""
    links = group.id.links
    return links.get_info(_raw(name)) if links.exists(_raw(name)) else None


def _check_not_virtual(source: ByteSource, group: Any, name: str, link: Any) -> None:
    if is_virtual(source, group.file, link.u):
        raise lies_elsewhere(source, name)


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def is_array(node: Any) -> bool:
    """Return whether a node is an array, neither a group nor a named type."""
    return hasattr(node, "dtype") and hasattr(node, "shape")


def check_array(source: ByteSource, data: Any) -> None:
    """Refuse an array that lies in other files, or whose chunks claim too much.

    Raises
    ------
    RecordingError
        See above; before anything of the array is read.
    """
    if data.external or data.is_virtual:
        raise lies_elsewhere(source, data.name)
    whose = f"its array {shown(data.name)}"
    if data.chunks is None:
        return
    declared = prod(data.chunks) * data.dtype.itemsize
    source.unpacks(f"a chunk of {whose}", declared)
    filters = _filters(data)
    codes = [code for code, _ in filters]
    if _DEFLATE in codes and {*codes[codes.index(_DEFLATE) + 1 :]} - {_FLETCHER32}:
        raise source.error(
            f"{whose} is packed, and what is packed is changed again",
            "deflate comes last, but for a checksum",
            "write it again",
        )
    for code, values in filters:
        # The number of elements that the filter makes room for.
        if code in (_NBIT, _SCALE) and len(values) > 2:
            if values[2] * data.dtype.itemsize > declared:
                raise source.error(
                    f"the packing of {whose} is damaged",
                    f"{values[2]} elements in a chunk of {prod(data.chunks)}",
                )


class Chunks:
    """The stored chunks of an array, of which none may unpack to more than declared.

    HDF5 unpacks a chunk to its end, however much that is. Deflate makes at most 1,032
    bytes of one, so that small chunks pass unseen; a larger one is unpacked here before
    it is first read, a piece at a time.
    """

    def __init__(self, source: ByteSource, data: Any) -> None:
        self._source, self._data = source, data
        filters = [] if data.chunks is None else _filters(data)
        codes = [code for code, _ in filters]
        self._is_packed = bool(codes)
        self._is_deflated, self._is_szip = _DEFLATE in codes, _SZIP in codes
        # The bit of a chunk's mask that says it was not deflated.
        self._skipped = 1 << codes.index(_DEFLATE) if self._is_deflated else 0
        self._large: dict[tuple[int, ...], int] | None = None

    def check(self, spans: Sequence[slice]) -> None:
        """Refuse what is damaged among the chunks that hold a slice of each axis."""
        if not self._is_packed:
            return
        if self._large is None:
            self._large = self._find_large()
        if not self._large:
            return
        chunks = self._data.chunks
        axes = [
            range(span.start // chunk * chunk, span.stop, chunk)
            for span, chunk in zip(spans, chunks, strict=True)
        ]
        for place in product(*axes):
            if place in self._large:
                self._check(place, self._large[place])
                self._large.pop(place, None)

    def _find_large(self) -> dict[tuple[int, ...], int]:
        """Return the filter mask of each chunk that may unpack to too much."""
        data, found = self._data, {}
        declared = prod(data.chunks) * data.dtype.itemsize
        allowed = bounds.unpacked_at_once(self._source.nbytes)

        def see(one: Any) -> None:
            stored = int(one.size)
            if stored > declared + declared // 8 + 4096:
                raise _too_much(self._source, data, f"{stored} bytes are stored")
            is_large = stored * bounds.DEFLATE_RATIO > allowed
            if self._is_szip or (self._is_deflated and is_large):
                found[tuple(map(int, one.chunk_offset))] = int(one.filter_mask)

        if hasattr(data.id, "chunk_iter"):
            data.id.chunk_iter(see)
        else:
            for at in range(data.id.get_num_chunks()):
                see(data.id.get_chunk_info(at))
        return found

    def _check(self, place: tuple[int, ...], mask: int) -> None:
        declared = prod(self._data.chunks) * self._data.dtype.itemsize
        raw = self._data.id.read_direct_chunk(place)[1]
        if self._is_szip and int.from_bytes(raw[:4], "little") > declared:
            raise _too_much(self._source, self._data, "its packing claims more")
        is_deflated = self._is_deflated and not mask & self._skipped
        if is_deflated and inflates_beyond(raw, declared):
            raise _too_much(self._source, self._data, "it unpacks to more")


def inflates_beyond(raw: bytes, most: int) -> bool:
    """Return whether deflated bytes unpack to more than `most`, in bounded memory."""
    unpack, nbytes = zlib.decompressobj(), 0
    try:
        while raw and not unpack.eof:
            nbytes += len(unpack.decompress(raw, bounds.PIECE_NBYTES))
            if nbytes > most:
                return True
            raw = unpack.unconsumed_tail
    except zlib.error:  # whoever unpacks it in earnest says so
        pass
    return False


def _too_much(source: ByteSource, data: Any, why: str) -> Exception:
    return source.error(
        f"a chunk of its array {shown(data.name)} is damaged ({why})",
        f"a chunk has {prod(data.chunks) * data.dtype.itemsize} bytes",
        "write it again",
    )


def _filters(data: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Return number and values of each filter that packs an array."""
    how = data.id.get_create_plist()
    found = [how.get_filter(at) for at in range(how.get_nfilters())]
    return [(int(code), tuple(values)) for code, _, values, _ in found]


def whole(source: ByteSource, data: Any, most: int = bounds.BESIDE_NBYTES) -> Any:
    """Read an array that stands beside the samples: numbers, or texts.

    Returns
    -------
    numpy.ndarray
        As h5py gives it; texts as objects.

    Raises
    ------
    RecordingError
        For an array in other files, one of more than `most` bytes, and types that are
        neither numbers nor texts.
    """
    check_array(source, data)
    whose = f"its array {shown(data.name)}"
    if data.shape is None:
        return np.empty(0)
    source.at_most(f"bytes of {whose}", data.size * data.dtype.itemsize, most)
    Chunks(source, data).check([slice(0, extent) for extent in data.shape])
    if not data.dtype.hasobject:
        return np.asarray(data[()])
    if data.dtype.metadata and "ref" in data.dtype.metadata:
        return np.asarray(data[()])
    if not data.dtype.metadata or data.dtype.metadata.get("vlen") not in (str, bytes):
        raise source.error(
            f"{whose} holds {data.dtype.kind!r} objects",
            "numbers and texts are read",
            "write it again as one of them",
        )
    return _texts(source, data, whose, most)


def _texts(
    source: ByteSource, data: Any, whose: str, most: int
) -> npt.NDArray[np.object_]:
    """Read texts of any length, few at a time: all may be one long text of the file."""
    longest = longest_text(source) or source.nbytes
    _check_lengths(source, data, whose)
    if data.ndim == 0:
        return np.array(data[()], object)
    found = np.empty(data.shape, object)
    rest = prod(data.shape[1:])
    step = max(1, _TRANSIENT_NBYTES // max(1, longest * rest))
    nbytes = 0
    for at in range(0, data.shape[0], step):
        piece = data[at : at + step]
        found[at : at + step] = piece
        nbytes += sum(map(len, piece.ravel()))
        source.at_most(f"bytes of text in {whose}", nbytes, most)
    return found


def _check_lengths(source: ByteSource, data: Any, whose: str) -> None:
    """Refuse texts that claim more than the file has: HDF5 makes room for each first.

    A text is stored as its length, in 4 bytes, and where it lies, in 12.
    """
    pieces: list[tuple[int, int]] = []
    if data.chunks is None:
        place = data.id.get_offset()
        pieces += [] if place is None else [(int(place), 16 * int(data.size))]
    elif hasattr(data.id, "chunk_iter"):
        data.id.chunk_iter(lambda one: pieces.append((one.byte_offset, one.size)))
    is_deflated = any(code == _DEFLATE for code, _ in _filters(data))
    for place, nbytes in pieces:
        raw = source.peek(place, nbytes)
        if is_deflated:
            try:
                raw = zlib.decompressobj().decompress(raw, 16 * prod(data.chunks))
            except zlib.error:
                continue  # HDF5 says so
        lengths = np.frombuffer(raw[: len(raw) // 16 * 16], "<u4")[::4]
        longest = int(lengths.max(initial=0))
        source.at_most(f"bytes in a text of {whose}", longest, source.nbytes)


def attribute(source: ByteSource, node: Any, name: str, default: Any = None) -> Any:
    """Read an attribute: a number, a text or an array of them.

    Raises
    ------
    RecordingError
        For one that claims more than notes may have.
    """
    if name not in node.attrs:
        return default
    stored = node.attrs.get_id(name)
    many = prod(stored.shape or ())
    what = f"bytes in its attribute {shown(name)}"
    source.at_most(what, many * stored.dtype.itemsize, bounds.BESIDE_NBYTES)
    if stored.dtype.hasobject:
        # Each may be the longest text of the file, and they are read at once.
        most = bounds.unpacked_at_once(source.nbytes)
        source.at_most(what, many * min(source.nbytes, longest_text(source)), most)
    return node.attrs[name]


def longest_text(source: ByteSource) -> int:
    """Return a bound of the texts of a file, by the heaps that hold them.

    Files too large to be searched give 0.

    Raises
    ------
    RecordingError
        For a heap that claims more than the file has.
    """
    if source.nbytes > bounds.SEARCHED_NBYTES:
        return 0
    longest = _longest_texts.get(source)
    if longest is None:
        longest = _longest_texts[source] = _search_heaps(source)
    return longest


# A search reads the whole file, and each attribute with a text asks for its result.
_longest_texts: WeakKeyDictionary[ByteSource, int] = WeakKeyDictionary()


def _search_heaps(source: ByteSource) -> int:
    """Check all heaps of texts; return the size of the largest."""
    longest, overlap = 0, b""
    for place in range(0, source.nbytes, bounds.PIECE_NBYTES):
        piece = overlap + source.peek(place, bounds.PIECE_NBYTES)
        at = piece.find(b"GCOL")
        while at >= 0:
            size = int.from_bytes(piece[at + 8 : at + 16], "little")
            if piece[at + 4 : at + 5] == b"\1":
                if size > source.nbytes:  # room would be made for all of it
                    raise source.error(
                        "a heap of texts in it is damaged",
                        f"it claims {size} bytes, the file has {source.nbytes}",
                        "copy it again from where it came",
                    )
                _check_heap(source, source.peek(place - len(overlap) + at, size))
                longest = max(longest, size)
            at = piece.find(b"GCOL", at + 1)
        overlap = piece[-16:]
    return longest


def _check_heap(source: ByteSource, heap: bytes) -> None:
    """Refuse a heap whose texts do not fit into it: HDF5 would walk it for ever.

    References
    ----------
    HDF5 File Format Specification 3.0, III.E: global heap.
    """
    at = 16
    while at + 16 <= len(heap):
        number = int.from_bytes(heap[at : at + 2], "little")
        nbytes = int.from_bytes(heap[at + 8 : at + 16], "little")
        # Of free space, which has the number 0, the size counts its own header.
        step = -(-nbytes // 8) * 8 + (16 if number else 0)
        at += step
        if step < 16 or at > len(heap):
            raise source.error(
                "a heap of texts in it is damaged",
                f"a text of {nbytes} bytes in a heap of {len(heap)}",
                "copy it again from where it came",
            )


def check_tree(source: ByteSource, file: Any, address: Callable[[Any], int]) -> None:
    """Refuse a file of MATLAB that claims too much, or leads to other files.

    For a library that opens the file itself and reads all of it, an array once for
    each reference to it. `address` tells where in the file an array or group lies.
    """
    _Tree(source, address).see(file, 0)


class _Tree:
    """Count of the bytes that reading all of a MATLAB file would hold.

    An array or group is looked at once, and counted as often as a name or a reference
    leads to it, because it is read as often.
    """

    def __init__(self, source: ByteSource, address: Callable[[Any], int]) -> None:
        self._source = source
        self._address = address
        self._nbytes = 0
        self._known: dict[int, tuple[int, int]] = {}
        """Address of an object → bytes of all in it, and how deep that lies."""

    def see(self, node: Any, depth: int) -> int:
        """Count an array, or all of a group; return how many levels lie in it."""
        self._source.at_most("arrays in one another", depth, _DEEPEST)
        address = self._address(node)
        if address in self._known:
            nbytes, levels = self._known[address]
            self._source.at_most("arrays in one another", depth + levels, _DEEPEST)
            self._add(nbytes)
            return levels
        before = self._nbytes
        self._add(_NODE_NBYTES)
        for name in ("MATLAB_class", "MATLAB_empty", "MATLAB_sparse"):
            attribute(self._source, node, name)
        inside = self._see_array if is_array(node) else self._see_group
        levels = inside(node, depth)
        self._known[address] = self._nbytes - before, levels
        return levels

    def _see_group(self, group: Any, depth: int) -> int:
        levels = 0
        for name in group:
            link = _link(group, name)
            if link is None or link.type != _HARD:
                raise self._source.error(
                    f"its {shown(name)} is a link",
                    "MATLAB writes none, and MNE would follow it anywhere",
                    _ONE_FILE,
                )
            if depth == 0 and name.startswith(_HIDDEN):
                self._check_hidden(group, name)
            else:
                node = child(self._source, group, name)
                levels = max(levels, 1 + self.see(node, depth + 1))
        return levels

    def _check_hidden(self, file: Any, name: str) -> None:
        """Refuse virtual arrays among what references lead to, before one is opened."""
        group = child(self._source, file, name)
        for own in group if hasattr(group, "keys") else ():
            link = _link(group, own)
            if link is not None and link.type == _HARD:
                _check_not_virtual(self._source, group, own, link)

    def _add(self, nbytes: int) -> None:
        self._nbytes += nbytes
        allowed = bounds.unpacked_at_once(self._source.nbytes)
        self._source.at_most("bytes in all its arrays", self._nbytes, allowed)

    def _see_array(self, data: Any, depth: int) -> int:
        source = self._source
        check_array(source, data)
        is_reference = bool(data.dtype.metadata and "ref" in data.dtype.metadata)
        if data.dtype.hasobject and not is_reference:
            raise source.error(
                f"its array {shown(data.name)} holds {data.dtype.kind!r} objects",
                "MATLAB writes numbers and references",
            )
        levels = 0
        if data.shape is None:
            return levels
        # MNE makes numbers of at least 4 bytes of all, and Python's texts of letters.
        is_text = attribute(source, data, "MATLAB_class") in (b"char", "char")
        width = 16 if is_text else max(4, data.dtype.itemsize)
        self._add(int(data.size) * width)
        Chunks(source, data).check([slice(0, extent) for extent in data.shape])
        if is_reference:
            for one in np.ravel(data[()]):
                if one:
                    levels = max(levels, 1 + self.see(data.file[one], depth + 1))
        return levels
