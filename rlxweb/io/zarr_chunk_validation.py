"""Validation of stored Zarr chunks before decompression, against decompression bombs
and truncation.

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

from rlxweb.io import file_limits
from rlxweb.io.byte_source import RecordingSource

_SHARDING_CODEC: Final = "sharding_indexed"
_MISSING_CHUNK: Final = (1 << 64) - 1
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # behind a byte of 0x50 to 0x5f
_ZSTD_BLOCK_NBYTES: Final = 128 << 10


class ZarrChunkValidator:
    """Validator that rejects stored chunks which decompress to more than their array
    declares.
    """

    def __init__(self, source: RecordingSource, array: Any) -> None:
        self._source = source
        metadata = array.metadata.to_dict()
        codecs = [*(metadata.get("codecs") or ())]
        shards = [codec for codec in codecs if codec.get("name") == _SHARDING_CODEC]
        self._shard_settings: Any = None
        if shards:
            self._shard_settings = shards[0]["configuration"]
            codecs = [*self._shard_settings["codecs"]]
        named_codecs = [
            (codec.get("name", ""), codec.get("configuration")) for codec in codecs
        ]
        for codec in (
            *(metadata.get("filters") or ()),
            metadata.get("compressor") or {},
        ):
            named_codecs.append((codec.get("id", ""), codec))
        settings_by_name = {
            str(name).removeprefix("numcodecs."): metadata
            for name, metadata in named_codecs
        }
        self._codec_names = [
            str(name).removeprefix("numcodecs.") for name, _ in named_codecs
        ]
        self._declared_nbytes = prod(array.chunks) * array.dtype.itemsize
        self._chunks_per_shard = prod(array.shards or array.chunks) // max(
            1, prod(array.chunks)
        )
        compressors = [name for name in self._codec_names if name in _EXCEEDS_BY_CODEC]
        if len(compressors) > 1 or _SHARDING_CODEC in self._codec_names:
            raise source.error(
                f"the chunks are compressed more than once ({', '.join(compressors)})"
                if len(compressors) > 1
                else "the shards of the array contain shards",
                "at most one compression codec and one level of shards are supported",
                "write the array again with one compression codec and without nested "
                "shards",
            )
        self._exceeds_limit: Callable[[bytes, int], bool] | None = None
        if compressors:
            self._exceeds_limit = _EXCEEDS_BY_CODEC[compressors[0]]
        if compressors == ["lzma"]:
            self._exceeds_limit = _lzma_exceeds(settings_by_name["lzma"] or {})
        self._is_large = self._declared_nbytes > file_limits.UNPACKED_AT_ONCE_NBYTES

    def validate(self, stored: bytes, *, is_whole: bool) -> None:
        """Validate the bytes that were read from the store under the key of a chunk.

        is_whole  a chunk or shard; else a part of a shard: an index, or chunks
        """
        if self._shard_settings is None:
            self._validate_chunk(stored)
        elif is_whole:
            for chunk_start, nbytes in self._chunks_in_shard(stored):
                self._validate_chunk(stored[chunk_start : chunk_start + nbytes])
        elif len(stored) not in (
            16 * self._chunks_per_shard,
            16 * self._chunks_per_shard + 4,
        ):
            self._validate_chunk(stored)

    def _chunks_in_shard(self, shard: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and length of each chunk in a shard, from its index."""
        has_checksum = any(
            codec["name"] == "crc32c" for codec in self._shard_settings["index_codecs"]
        )
        nbytes = 16 * self._chunks_per_shard + 4 * has_checksum
        is_first = self._shard_settings.get("index_location") == "start"
        index = shard[:nbytes] if is_first else shard[-nbytes:]
        if len(index) < nbytes:
            return
        numbers = struct.unpack_from(f"<{2 * self._chunks_per_shard}Q", index)
        for chunk_start, length in zip(numbers[::2], numbers[1::2], strict=True):
            if chunk_start != _MISSING_CHUNK:
                yield chunk_start, length

    def _validate_chunk(self, stored: bytes) -> None:
        """Raise RecordingError for a chunk that decompresses to too much or is
        truncated.
        """
        if self._is_large:
            self._source.check_limit(
                f"bytes in a chunk of {len(stored)} compressed bytes",
                self._declared_nbytes,
                file_limits.max_unpacked_nbytes(len(stored)),
                "write the array in smaller chunks",
            )
        # A filter may have made each number one of 8 bytes.
        limit = max(file_limits.UNPACKED_AT_ONCE_NBYTES, 8 * self._declared_nbytes)
        is_too_large = self._exceeds_limit is not None and self._exceeds_limit(
            stored, limit
        )
        if is_too_large or (
            "blosc" in self._codec_names and _is_blosc_truncated(stored)
        ):
            reason = (
                "decompresses to too many bytes" if is_too_large else "is truncated"
            )
            raise self._source.error(
                f"a chunk is damaged: it {reason}",
                f"expected {self._declared_nbytes} bytes per chunk",
                "write the file again",
            )


def _deflate_exceeds(wbits: int) -> Callable[[bytes, int], bool]:
    """Return the function that tells whether deflated bytes decompress to more than a
    limit.
    """

    def exceeds(raw: bytes, limit: int) -> bool:
        return len(raw) * file_limits.DEFLATE_RATIO > limit and decompresses_beyond(
            lambda: zlib.decompressobj(wbits), raw, limit
        )

    return exceeds


def decompresses_beyond(
    make_decompressor: Callable[[], Any], raw: bytes, limit: int
) -> bool:
    """Return whether compressed bytes, one stream or several, decompress to more than
    `limit` bytes.
    """
    nbytes = 0
    try:
        while raw:
            decompressor = make_decompressor()
            while not decompressor.eof:
                if isinstance(
                    decompressor, bz2.BZ2Decompressor | lzma.LZMADecompressor
                ):
                    part = decompressor.decompress(raw, file_limits.CHUNK_NBYTES)
                    raw = b""
                    if not part and decompressor.needs_input:
                        return False
                else:
                    part = decompressor.decompress(raw, file_limits.CHUNK_NBYTES)
                    raw = decompressor.unconsumed_tail
                    if not part and not raw and not decompressor.eof:
                        return False
                nbytes += len(part)
                if nbytes > limit:
                    return True
            raw = decompressor.unused_data.lstrip(b"\0")
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        pass  # whoever unpacks it in earnest says so
    return False


def _lzma_exceeds(settings: Mapping[str, Any]) -> Callable[[bytes, int], bool]:
    """Return the check for LZMA with the settings of a codec, which raw streams need
    for their filters.
    """

    def make_decompressor() -> Any:
        is_raw = settings.get("format") == lzma.FORMAT_RAW
        lzma_format = lzma.FORMAT_RAW if is_raw else lzma.FORMAT_AUTO
        return lzma.LZMADecompressor(
            lzma_format, filters=settings.get("filters") if is_raw else None
        )

    return lambda raw, limit: decompresses_beyond(make_decompressor, raw, limit)


def _blosc_exceeds(raw: bytes, limit: int) -> bool:
    """Return whether the header of a Blosc chunk claims more bytes than the limit;
    Blosc never exceeds its header.
    """
    return len(raw) >= 16 and int.from_bytes(raw[4:8], "little") > limit


def _is_blosc_truncated(raw: bytes) -> bool:
    """Return whether a Blosc chunk is shorter than its header claims; Blosc would read
    beyond its end.
    """
    return len(raw) < 16 or int.from_bytes(raw[12:16], "little") > len(raw)


def _lz4_exceeds(raw: bytes, limit: int) -> bool:
    """Return whether the header of an LZ4 chunk claims more bytes than the limit."""
    return len(raw) >= 4 and int.from_bytes(raw[:4], "little") > limit


def _zstd_exceeds(raw: bytes, limit: int) -> bool:
    """Return whether the Zstandard frames exceed the limit, by the sizes in their
    headers or in their blocks.

    Frames that are skipped may stand between them.

    References
    ----------
    RFC 8878, 3.1.
    """
    nbytes, position = 0, 0
    while nbytes <= limit and len(raw) >= position + 8:
        if (
            raw[position + 1 : position + 4] == _ZSTD_SKIPPABLE_MAGIC
            and raw[position] >> 4 == 5
        ):
            position += 8 + int.from_bytes(raw[position + 4 : position + 8], "little")
            continue
        if raw[position : position + 4] != _ZSTD_MAGIC:
            break  # whoever unpacks it in earnest says so
        flags = raw[position + 4]
        is_single_segment = bool(flags & 0x20)
        size_nbytes = (1 if is_single_segment else 0, 2, 4, 8)[flags >> 6]
        position += 5 + (not is_single_segment) + (0, 1, 2, 4)[flags & 3]
        claimed = int.from_bytes(raw[position : position + size_nbytes], "little")
        position, blocks_nbytes = _measure_zstd_blocks(raw, position + size_nbytes)
        position += 4 * bool(flags & 4)  # a checksum
        nbytes += claimed if size_nbytes else blocks_nbytes
    return nbytes > limit


def _measure_zstd_blocks(raw: bytes, position: int) -> tuple[int, int]:
    """Return where the blocks that start at a position end, and their maximum
    decompressed size.
    """
    nbytes, is_last = 0, False
    while not is_last and len(raw) >= position + 3:
        head = int.from_bytes(raw[position : position + 3], "little")
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        position += 3 + (1 if kind == 1 else size)
        nbytes += size if kind < 2 else _ZSTD_BLOCK_NBYTES
    return position, nbytes


_EXCEEDS_BY_CODEC: Final[dict[str, Callable[[bytes, int], bool]]] = {
    "gzip": _deflate_exceeds(31),
    "zlib": _deflate_exceeds(15),
    "bz2": lambda raw, limit: decompresses_beyond(bz2.BZ2Decompressor, raw, limit),
    "lzma": _lzma_exceeds({}),
    "zstd": _zstd_exceeds,
    "blosc": _blosc_exceeds,
    "lz4": _lz4_exceeds,
}
