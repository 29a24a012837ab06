"""Chunks of a Zarr array before they are unpacked: how much each would become.

A chunk has as many bytes as its array says. Codecs unpack to the end of what is stored,
however much that is, so each chunk is held against that number first: by what its
header claims, or by unpacking it a piece at a time.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, Final

from rlxweb.io import bounds
from rlxweb.io.source import Source

_SHARDED: Final = "sharding_indexed"
_NO_CHUNK: Final = (1 << 64) - 1
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED: Final = b"\x2a\x4d\x18"  # behind a byte of 0x50 to 0x5f
_ZSTD_BLOCK_NBYTES: Final = 128 << 10


class ChunkCheck:
    """Refuses stored chunks that unpack to more than their array declares."""

    def __init__(self, source: Source, array: Any) -> None:
        self._source = source
        about = array.metadata.to_dict()
        codecs = [*(about.get("codecs") or ())]
        shards = [one for one in codecs if one.get("name") == _SHARDED]
        self._shard: Any = None
        if shards:
            self._shard = shards[0]["configuration"]
            codecs = [*self._shard["codecs"]]
        found = [(one.get("name", ""), one.get("configuration")) for one in codecs]
        for one in (*(about.get("filters") or ()), about.get("compressor") or {}):
            found.append((one.get("id", ""), one))
        how = {str(name).removeprefix("numcodecs."): about for name, about in found}
        self._names = [str(name).removeprefix("numcodecs.") for name, _ in found]
        self._declared = prod(array.chunks) * array.dtype.itemsize
        self._inner = prod(array.shards or array.chunks) // max(1, prod(array.chunks))
        packing = [name for name in self._names if name in _BEYOND]
        if len(packing) > 1 or _SHARDED in self._names:
            raise source.error(
                f"its chunks are packed more than once ({', '.join(packing)})",
                "chunks are packed once, in shards or not",
                "write it again with one codec",
            )
        self._beyond: Callable[[bytes, int], bool] | None = None
        if packing:
            self._beyond = _BEYOND[packing[0]]
        if packing == ["lzma"]:
            self._beyond = _by_lzma(how["lzma"] or {})
        self._is_large = self._declared > bounds.UNPACKED_AT_ONCE_NBYTES

    def see(self, stored: bytes, *, is_whole: bool) -> None:
        """Check what was read of the store under the key of a chunk.

        is_whole  a chunk or shard; else a part of a shard: an index, or chunks
        """
        if self._shard is None:
            self._check(stored)
        elif is_whole:
            for begin, nbytes in self._chunks_of(stored):
                self._check(stored[begin : begin + nbytes])
        elif len(stored) not in (16 * self._inner, 16 * self._inner + 4):
            self._check(stored)

    def _chunks_of(self, shard: bytes) -> Iterator[tuple[int, int]]:
        """Yield begin and length of each chunk in a shard, by its index."""
        has_sum = any(one["name"] == "crc32c" for one in self._shard["index_codecs"])
        nbytes = 16 * self._inner + 4 * has_sum
        is_first = self._shard.get("index_location") == "start"
        index = shard[:nbytes] if is_first else shard[-nbytes:]
        if len(index) < nbytes:
            return
        numbers = struct.unpack_from(f"<{2 * self._inner}Q", index)
        for begin, length in zip(numbers[::2], numbers[1::2], strict=True):
            if begin != _NO_CHUNK:
                yield begin, length

    def _check(self, stored: bytes) -> None:
        if self._is_large:
            self._source.at_most(
                f"bytes in a chunk that takes {len(stored)} packed",
                self._declared,
                bounds.unpacked_at_once(len(stored)),
                "write it in smaller chunks",
            )
        # A filter may have made each number one of 8 bytes.
        most = max(bounds.UNPACKED_AT_ONCE_NBYTES, 8 * self._declared)
        is_beyond = self._beyond is not None and self._beyond(stored, most)
        if is_beyond or ("blosc" in self._names and _is_cut(stored)):
            why = "unpacks to more than it may" if is_beyond else "is cut short"
            raise self._source.error(
                f"a chunk of it is damaged: it {why}",
                f"a chunk has {self._declared} bytes",
                "write it again",
            )


def _inflated(wbits: int) -> Callable[[bytes, int], bool]:
    def beyond(raw: bytes, most: int) -> bool:
        return len(raw) * bounds.DEFLATE_RATIO > most and unpacks_beyond(
            lambda: zlib.decompressobj(wbits), raw, most
        )

    return beyond


def unpacks_beyond(unpacker: Callable[[], Any], raw: bytes, most: int) -> bool:
    """Return whether packed bytes, one stream or several, become more than `most`."""
    nbytes = 0
    try:
        while raw:
            unpack = unpacker()
            while not unpack.eof:
                if isinstance(unpack, bz2.BZ2Decompressor | lzma.LZMADecompressor):
                    piece = unpack.decompress(raw, bounds.PIECE_NBYTES)
                    raw = b""
                    if not piece and unpack.needs_input:
                        return False
                else:
                    piece = unpack.decompress(raw, bounds.PIECE_NBYTES)
                    raw = unpack.unconsumed_tail
                    if not piece and not raw and not unpack.eof:
                        return False
                nbytes += len(piece)
                if nbytes > most:
                    return True
            raw = unpack.unused_data.lstrip(b"\0")
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        pass  # whoever unpacks it in earnest says so
    return False


def _by_lzma(about: Mapping[str, Any]) -> Callable[[bytes, int], bool]:
    """Unpack as the settings of a codec say: raw streams do not tell their filters."""

    def unpacker() -> Any:
        is_raw = about.get("format") == lzma.FORMAT_RAW
        kind = lzma.FORMAT_RAW if is_raw else lzma.FORMAT_AUTO
        return lzma.LZMADecompressor(
            kind, filters=about.get("filters") if is_raw else None
        )

    return lambda raw, most: unpacks_beyond(unpacker, raw, most)


def _blosc(raw: bytes, most: int) -> bool:
    """Compare what the header says; more than that Blosc does not make."""
    return len(raw) >= 16 and int.from_bytes(raw[4:8], "little") > most


def _is_cut(raw: bytes) -> bool:
    """Return whether a chunk of Blosc is shorter than it says: it is read beyond."""
    return len(raw) < 16 or int.from_bytes(raw[12:16], "little") > len(raw)


def _lz4(raw: bytes, most: int) -> bool:
    return len(raw) >= 4 and int.from_bytes(raw[:4], "little") > most


def _zstd(raw: bytes, most: int) -> bool:
    """Add up what the frames claim by their headers, or by their blocks.

    Frames that are skipped may stand between them.

    References
    ----------
    RFC 8878, 3.1.
    """
    nbytes, at = 0, 0
    while nbytes <= most and len(raw) >= at + 8:
        if raw[at + 1 : at + 4] == _ZSTD_SKIPPED and raw[at] >> 4 == 5:
            at += 8 + int.from_bytes(raw[at + 4 : at + 8], "little")
            continue
        if raw[at : at + 4] != _ZSTD:
            break  # whoever unpacks it in earnest says so
        flags = raw[at + 4]
        is_single = bool(flags & 0x20)
        size_nbytes = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
        at += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
        claimed = int.from_bytes(raw[at : at + size_nbytes], "little")
        at, made = _zstd_blocks(raw, at + size_nbytes)
        at += 4 * bool(flags & 4)  # a checksum
        nbytes += claimed if size_nbytes else made
    return nbytes > most


def _zstd_blocks(raw: bytes, at: int) -> tuple[int, int]:
    """Return where the blocks from a place on end, and what they become at most."""
    nbytes, is_last = 0, False
    while not is_last and len(raw) >= at + 3:
        head = int.from_bytes(raw[at : at + 3], "little")
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else size)
        nbytes += size if kind < 2 else _ZSTD_BLOCK_NBYTES
    return at, nbytes


_BEYOND: Final[dict[str, Callable[[bytes, int], bool]]] = {
    "gzip": _inflated(31),
    "zlib": _inflated(15),
    "bz2": lambda raw, most: unpacks_beyond(bz2.BZ2Decompressor, raw, most),
    "lzma": _by_lzma({}),
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
}
