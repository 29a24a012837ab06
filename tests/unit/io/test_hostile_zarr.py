"""Zarr stores whose chunks unpack to far more than allowed, or that lead outside the
store.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import json
import lzma
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from rlxweb.io import file_limits, open_recording
from tests.edf_bdf_recordings import check_unreadable
from tests.memory_growth_limit import limit_memory_growth

N = 4096
LARGE = 64 << 20
MAX_NBYTES = 32 << 20
X = np.random.default_rng(1).normal(size=(1, N)).astype("f4")


def write_store(path: Path, zarr_format: int = 3, **options: Any) -> Path:
    """Write a store of one chunk and return the path of that chunk."""
    array = zarr.create_array(
        path, data=X, chunks=(1, N), zarr_format=zarr_format, **options
    )
    array.attrs["fs"] = 100.0
    return path / ("c/0/0" if zarr_format == 3 else "0.0")


def deflate_zeros(nbytes: int, wbits: int) -> bytes:
    compressor, zeros = zlib.compressobj(1, wbits=wbits), bytes(1 << 20)
    return b"".join(
        [*(compressor.compress(zeros) for _ in range(nbytes >> 20)), compressor.flush()]
    )


def gzip_members(nbytes: int) -> bytes:
    """Return many small gzip members in a row."""
    return gzip.compress(bytes(1 << 20), 9) * (nbytes >> 20)


def zstd_frame_without_size(nbytes: int) -> bytes:
    """Return a Zstandard frame without its size: blocks of one byte, repeated 128 Ki
    times.
    """
    size = 128 << 10
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    head = b"\x28\xb5\x2f\xfd\x00\x58"
    return head + block * (nbytes // size - 1) + last


def encode_zeros(codec: Any, nbytes: int) -> bytes:
    return bytes(codec.encode(np.zeros(nbytes, np.uint8)))


def zstd_frames(nbytes: int) -> bytes:
    """Return a skipped frame and a small one, followed by the large one."""
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"none"
    return (
        skipped
        + encode_zeros(numcodecs.Zstd(), 8)
        + encode_zeros(numcodecs.Zstd(), nbytes)
    )


RAW_LZMA_FILTERS: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "preset": 0}]


V2_CODECS: dict[str, tuple[Any, Callable[[int], bytes]]] = {
    "zlib": (numcodecs.Zlib(), lambda n: deflate_zeros(n, 15)),
    "gzip": (numcodecs.GZip(), lambda n: deflate_zeros(n, 31)),
    "gzip members": (numcodecs.GZip(), gzip_members),
    "bz2": (numcodecs.BZ2(), lambda n: bz2.compress(bytes(n), 1)),
    "lzma": (numcodecs.LZMA(), lambda n: lzma.compress(bytes(n), preset=0)),
    "zstd": (numcodecs.Zstd(), lambda n: encode_zeros(numcodecs.Zstd(), n)),
    "zstd, streamed": (numcodecs.Zstd(), zstd_frame_without_size),
    "zstd, frames": (numcodecs.Zstd(), zstd_frames),
    "lzma, raw": (
        numcodecs.LZMA(lzma.FORMAT_RAW, filters=RAW_LZMA_FILTERS),
        lambda n: lzma.compress(bytes(n), lzma.FORMAT_RAW, filters=RAW_LZMA_FILTERS),
    ),
    "lz4": (numcodecs.LZ4(), lambda n: encode_zeros(numcodecs.LZ4(), n)),
    "blosc": (numcodecs.Blosc(), lambda n: encode_zeros(numcodecs.Blosc(), n)),
}


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("codec", V2_CODECS)
def test_an_oversized_chunk_is_refused(tmp_path: Path, codec: str) -> None:
    """A chunk that unpacks to too much is refused; one that does not is read."""
    compressor, bomb = V2_CODECS[codec]
    chunk = write_store(tmp_path / "a.zarr", 2, compressors=compressor)
    with open_recording(tmp_path / "a.zarr") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    chunk.write_bytes(bomb(LARGE))
    with (
        limit_memory_growth(MAX_NBYTES),
        open_recording(tmp_path / "a.zarr") as recording,
    ):
        with pytest.raises(OSError, match="decompresses to too many bytes"):
            recording.groups[0].read()


def test_a_chunk_may_unpack_to_the_documented_limit(tmp_path: Path) -> None:
    """A chunk may unpack to 64 MiB; then it is refused for its length alone."""
    chunk = write_store(tmp_path / "a.zarr", 2, compressors=numcodecs.Zlib())
    limit = file_limits.UNPACKED_AT_ONCE_NBYTES
    assert limit == 64 << 20
    for nbytes, is_refused in ((limit - (1 << 20), False), (limit + (1 << 20), True)):
        chunk.write_bytes(deflate_zeros(nbytes, 15))
        with open_recording(tmp_path / "a.zarr") as recording:
            with pytest.raises(
                OSError, match=r"write (the file|or copy the store) again"
            ) as refused:
                recording.groups[0].read()
        assert ("decompresses to too many bytes" in str(refused.value)) == is_refused


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("codec", [GzipCodec(), ZstdCodec(), BloscCodec()])
@pytest.mark.parametrize("is_sharded", [True, False])
def test_an_oversized_v3_chunk_is_refused_sharded_or_not(
    tmp_path: Path, codec: Any, is_sharded: bool
) -> None:
    path = tmp_path / "a.zarr"
    shards = {"shards": (1, N)} if is_sharded else {}
    chunks = (1, N // 2) if is_sharded else (1, N)
    array = zarr.create_array(path, data=X, chunks=chunks, compressors=codec, **shards)
    array.attrs["fs"] = 100.0
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    codec_names = {"GzipCodec": "gzip", "ZstdCodec": "zstd", "BloscCodec": "blosc"}
    bomb = V2_CODECS[codec_names[type(codec).__name__]][1](LARGE)
    chunk = path / "c/0/0"
    if is_sharded:
        index = np.array([0, len(bomb), (1 << 64) - 1, (1 << 64) - 1], "<u8").tobytes()
        bomb += index + crc32c_bytes(index)
    chunk.write_bytes(bomb)
    for span in ((0, N), (10, 20)):
        with limit_memory_growth(MAX_NBYTES), open_recording(path) as recording:
            with pytest.raises(OSError, match="decompresses to too many bytes"):
                recording.groups[0].read(*span)


def crc32c_bytes(raw: bytes) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(raw)).to_bytes(4, "little")


def test_a_chunk_declared_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    write_store(path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["shape"] = [1, 1 << 29]
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [1, 1 << 28]
    (path / "zarr.json").write_text(json.dumps(metadata))
    with limit_memory_growth(MAX_NBYTES), open_recording(path) as recording:
        with pytest.raises(OSError, match=r"bytes in a chunk of \d+ compressed bytes"):
            recording.groups[0].read(0, 100)


def test_an_oversized_zip_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zarr.json", b" " * (100 << 20))
    check_unreadable(path, "bytes in member")


@pytest.fixture
def pipes() -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes by name here")
    return


@pytest.mark.usefixtures("pipes")
def test_a_chunk_that_is_a_pipe_or_device_is_not_opened(tmp_path: Path) -> None:
    """A pipe or a device in place of a chunk is refused; a link to a file is
    followed.
    """
    chunk = write_store(tmp_path / "a.zarr")
    original = chunk.rename(tmp_path / "kept")
    for create in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        create(chunk)
        with open_recording(tmp_path / "a.zarr") as recording:
            with pytest.raises(OSError, match="not a regular file"):
                recording.groups[0].read()
        chunk.unlink()
    chunk.symlink_to(original)
    with open_recording(tmp_path / "a.zarr") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)


@pytest.mark.usefixtures("pipes")
def test_a_zip_file_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zarr.zip")
    check_unreadable(tmp_path / "a.zarr.zip", "not a regular file")


def test_metadata_cannot_lead_outside_the_store(tmp_path: Path) -> None:
    """Names in consolidated metadata lead to nothing outside the store."""
    write_store(tmp_path / "outside.zarr")
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("x", data=X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "a.zarr")
    metadata_path = tmp_path / "a.zarr" / "zarr.json"
    document = json.loads(metadata_path.read_text())
    metadata = document["consolidated_metadata"]["metadata"]
    metadata["../outside.zarr"] = metadata.pop("x")
    metadata_path.write_text(json.dumps(document))
    with pytest.raises(OSError, match=r"refers to|no Zarr array"):
        with open_recording(tmp_path / "a.zarr", fs=1.0) as recording:
            recording.groups[0].read()


def test_only_the_first_of_several_damaged_arrays_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the first error is reported; zarr, opening all arrays at once, would log the
    others later with a traceback.
    """
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=2)
    for name in "abc":
        group.create_array(name, data=X)
        (tmp_path / "a.zarr" / name / ".zarray").write_text('{"x"')
    check_unreadable(tmp_path / "a.zarr", "metadata cannot be read", fs=1.0)
    gc.collect()
    assert not caplog.records
