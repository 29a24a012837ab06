"""Virtual arrays of an HDF5 file, recognised by the headers of objects.

A virtual array is a list of pieces of other files. HDF5 decodes that list when it opens
the array, or is asked about it, and a damaged list ends the process or keeps it busy
for ever. None is read here in any case, so that none is opened: its header is looked at
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rlxweb.io import bounds
from rlxweb.io.source import ByteSource

_LAYOUT, _CONTINUED = 0x08, 0x10
_VIRTUAL: Final = b"\3"
_FIRST_WITH_CLASS: Final = b"\3"
"""Layouts since this version have their class in their second byte."""


def is_virtual(source: ByteSource, file: Any, address: int) -> bool:
    """Return whether the object at an address is a virtual array.

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
    made = file.id.get_create_plist()
    begin, widths = made.get_userblock(), made.get_sizes()
    for kind, message in _messages(source, begin, address, widths):
        if kind == _LAYOUT:
            is_classed = message[:1] >= _FIRST_WITH_CLASS
            return is_classed and message[1:2] == _VIRTUAL
    return False


def _messages(
    source: ByteSource, begin: int, place: int, widths: tuple[int, int]
) -> Iterator[tuple[int, bytes]]:
    """Yield kind and data of each message of the header at a place.

    begin   where the addresses of the file count from
    widths  bytes of an address and of a length
    """
    head = source.peek(begin + place, 64)
    is_new = head[:4] == b"OHDR"
    if is_new:
        flags = head[5]
        start = 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
        width = 1 << (flags & 3)
        nbytes = int.from_bytes(head[start : start + width], "little")
        start, prefix = start + width, 6 if flags & 4 else 4
    else:
        nbytes = int.from_bytes(head[8:12], "little")
        start, prefix = 16, 8
    blocks = [(place + start, nbytes)]
    seen = set()
    while blocks:
        block = blocks.pop(0)
        if block in seen or block[1] > bounds.PIECE_NBYTES:
            continue  # a damaged header, which HDF5 refuses
        seen.add(block)
        raw = source.peek(begin + block[0], block[1])
        for kind, message in _split(raw, 1 if is_new else 2, prefix):
            if kind == _CONTINUED and len(message) >= sum(widths):
                start = int.from_bytes(message[: widths[0]], "little")
                nbytes = int.from_bytes(message[widths[0] : sum(widths)], "little")
                # A block of the newer headers has a mark before it and a sum behind.
                blocks.append((start + 4, nbytes - 8) if is_new else (start, nbytes))
            else:
                yield kind, message


def _split(raw: bytes, kind_nbytes: int, prefix: int) -> Iterator[tuple[int, bytes]]:
    """Yield kind and data of each message of a block; a kind and a length lead it."""
    at = 0
    while at + prefix <= len(raw):
        kind = int.from_bytes(raw[at : at + kind_nbytes], "little")
        size = int.from_bytes(raw[at + kind_nbytes :][:2], "little")
        at += prefix + size
        yield kind, raw[at - size : at]
