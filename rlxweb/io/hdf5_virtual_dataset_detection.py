"""Detect virtual arrays of an HDF5 file by their object headers, without opening them.

A virtual array is a list of pieces of other files. HDF5 decodes that list when it opens
the array, or is asked about it, and a damaged list ends the process or keeps it busy
for ever. None is read here in any case, so that none is opened: its header is looked at
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource

_LAYOUT_MESSAGE, _CONTINUATION_MESSAGE = 0x08, 0x10
_VIRTUAL_CLASS: Final = b"\3"
_MIN_CLASS_VERSION: Final = b"\3"
"""First version of the layout message that has its class in the second byte."""


def is_virtual(source: ByteSource, file: Any, address: int) -> bool:
    """Return whether the object at this address is a virtual array.

    Parameters
    ----------
    source : ByteSource
        The file.
    file : h5py.File
        The same as h5py has opened it.
    address : int
        Where the header of the object begins, as a hard link tells it.

    References
    ----------
    HDF5 File Format Specification 3.0, IV.A: object headers, and IV.A.2.i: layout.
    """
    creation_properties = file.id.get_create_plist()
    base_offset = creation_properties.get_userblock()
    widths = creation_properties.get_sizes()
    for kind, message in _header_messages(source, base_offset, address, widths):
        if kind == _LAYOUT_MESSAGE:
            has_class = message[:1] >= _MIN_CLASS_VERSION
            return has_class and message[1:2] == _VIRTUAL_CLASS
    return False


def _header_messages(
    source: ByteSource, base_offset: int, address: int, widths: tuple[int, int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the data of each message of an object header.

    base_offset  where the addresses of the file count from
    widths  bytes of an address and of a length
    """
    head = source.peek(base_offset + address, 64)
    is_version_2 = head[:4] == b"OHDR"
    if is_version_2:
        flags = head[5]
        start = 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
        width = 1 << (flags & 3)
        nbytes = int.from_bytes(head[start : start + width], "little")
        start, prefix = start + width, 6 if flags & 4 else 4
    else:
        nbytes = int.from_bytes(head[8:12], "little")
        start, prefix = 16, 8
    blocks = [(address + start, nbytes)]
    visited = set()
    while blocks:
        block = blocks.pop(0)
        if block in visited or block[1] > file_limits.CHUNK_NBYTES:
            continue  # a damaged header, which HDF5 refuses
        visited.add(block)
        raw = source.peek(base_offset + block[0], block[1])
        for kind, message in _split_messages(raw, 1 if is_version_2 else 2, prefix):
            if kind == _CONTINUATION_MESSAGE and len(message) >= sum(widths):
                start = int.from_bytes(message[: widths[0]], "little")
                nbytes = int.from_bytes(message[widths[0] : sum(widths)], "little")
                # A block of the newer headers has a mark before it and a sum behind.
                blocks.append(
                    (start + 4, nbytes - 8) if is_version_2 else (start, nbytes)
                )
            else:
                yield kind, message


def _split_messages(
    raw: bytes, kind_nbytes: int, prefix: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the data of each message of a header block."""
    position = 0
    while position + prefix <= len(raw):
        kind = int.from_bytes(raw[position : position + kind_nbytes], "little")
        size = int.from_bytes(raw[position + kind_nbytes :][:2], "little")
        position += prefix + size
        yield kind, raw[position - size : position]
