"""Zarr stores whose chunks unpack to far more than they may, or that lead elsewhere."""

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

from rlxweb.io import bounds, open_recording
from tests.memory import takes_less_than
from tests.recordings import check_unreadable

N = 4096
LARGE = 64 << 20
MOST_NBYTES = 32 << 20
X = np.random.default_rng(1).normal(size=(1, N)).astype("f4")


def stored(path: Path, form: int = 3, **how: Any) -> Path:
    """A store of one chunk, and where that lies."""
    array = zarr.create_array(path, data=X, chunks=(1, N), zarr_format=form, **how)
    array.attrs["fs"] = 100.0
    return path / ("c/0/0" if form == 3 else "0.0")


def deflated(nbytes: int, wbits: int) -> bytes:
    pack, zeros = zlib.compressobj(1, wbits=wbits), bytes(1 << 20)
    return b"".join(
        [*(pack.compress(zeros) for _ in range(nbytes >> 20)), pack.flush()]
    )


def members(nbytes: int) -> bytes:
    """Many small members of gzip, one behind the other."""
    return gzip.compress(bytes(1 << 20), 9) * (nbytes >> 20)


def streamed_zstd(nbytes: int) -> bytes:
    """A frame without its size: blocks of one byte, repeated 128 Ki times."""
    size = 128 << 10
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    head = b"\x28\xb5\x2f\xfd\x00\x58"
    return head + block * (nbytes // size - 1) + last


def zeros(codec: Any, nbytes: int) -> bytes:
    return bytes(codec.encode(np.zeros(nbytes, np.uint8)))


def behind_others(nbytes: int) -> bytes:
    """A frame that is skipped and a small one, before the one that counts."""
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"none"
    return skipped + zeros(numcodecs.Zstd(), 8) + zeros(numcodecs.Zstd(), nbytes)


RAW: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "preset": 0}]


V2: dict[str, tuple[Any, Callable[[int], bytes]]] = {
    "zlib": (numcodecs.Zlib(), lambda n: deflated(n, 15)),
    "gzip": (numcodecs.GZip(), lambda n: deflated(n, 31)),
    "gzip members": (numcodecs.GZip(), members),
    "bz2": (numcodecs.BZ2(), lambda n: bz2.compress(bytes(n), 1)),
    "lzma": (numcodecs.LZMA(), lambda n: lzma.compress(bytes(n), preset=0)),
    "zstd": (numcodecs.Zstd(), lambda n: zeros(numcodecs.Zstd(), n)),
    "zstd, streamed": (numcodecs.Zstd(), streamed_zstd),
    "zstd, frames": (numcodecs.Zstd(), behind_others),
    "lzma, raw": (
        numcodecs.LZMA(lzma.FORMAT_RAW, filters=RAW),
        lambda n: lzma.compress(bytes(n), lzma.FORMAT_RAW, filters=RAW),
    ),
    "lz4": (numcodecs.LZ4(), lambda n: zeros(numcodecs.LZ4(), n)),
    "blosc": (numcodecs.Blosc(), lambda n: zeros(numcodecs.Blosc(), n)),
}


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("codec", V2)
def test_a_chunk_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, codec: str
) -> None:
    """A chunk that unpacks to too much is refused; one that does not is read."""
    own, bomb = V2[codec]
    chunk = stored(tmp_path / "a.zarr", 2, compressors=own)
    with open_recording(tmp_path / "a.zarr") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    chunk.write_bytes(bomb(LARGE))
    with takes_less_than(MOST_NBYTES), open_recording(tmp_path / "a.zarr") as recording:
        with pytest.raises(OSError, match="unpacks to more than it may"):
            recording.groups[0].read()


def test_a_chunk_may_unpack_to_what_the_manual_says(tmp_path: Path) -> None:
    """A chunk may unpack to 64 MiB; then it is refused for its length alone."""
    chunk = stored(tmp_path / "a.zarr", 2, compressors=numcodecs.Zlib())
    most = bounds.UNPACKED_AT_ONCE_NBYTES
    assert most == 64 << 20
    for nbytes, is_refused in ((most - (1 << 20), False), (most + (1 << 20), True)):
        chunk.write_bytes(deflated(nbytes, 15))
        with open_recording(tmp_path / "a.zarr") as recording:
            with pytest.raises(OSError, match="write it again") as refused:
                recording.groups[0].read()
        assert ("unpacks to more than it may" in str(refused.value)) == is_refused


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("codec", [GzipCodec(), ZstdCodec(), BloscCodec()])
@pytest.mark.parametrize("is_sharded", [True, False])
def test_so_is_one_of_the_third_version_in_shards_or_not(
    tmp_path: Path, codec: Any, is_sharded: bool
) -> None:
    path = tmp_path / "a.zarr"
    shards = {"shards": (1, N)} if is_sharded else {}
    chunks = (1, N // 2) if is_sharded else (1, N)
    array = zarr.create_array(path, data=X, chunks=chunks, compressors=codec, **shards)
    array.attrs["fs"] = 100.0
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    by_name = {"GzipCodec": "gzip", "ZstdCodec": "zstd", "BloscCodec": "blosc"}
    bomb = V2[by_name[type(codec).__name__]][1](LARGE)
    chunk = path / "c/0/0"
    if is_sharded:
        index = np.array([0, len(bomb), (1 << 64) - 1, (1 << 64) - 1], "<u8").tobytes()
        bomb += index + zlib_crc32c(index)
    chunk.write_bytes(bomb)
    for stretch in ((0, N), (10, 20)):
        with takes_less_than(MOST_NBYTES), open_recording(path) as recording:
            with pytest.raises(OSError, match="unpacks to more than it may"):
                recording.groups[0].read(*stretch)


def zlib_crc32c(raw: bytes) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(raw)).to_bytes(4, "little")


def test_a_chunk_that_is_declared_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    stored(path)
    about = json.loads((path / "zarr.json").read_text())
    about["shape"] = [1, 1 << 29]
    about["chunk_grid"]["configuration"]["chunk_shape"] = [1, 1 << 28]
    (path / "zarr.json").write_text(json.dumps(about))
    with takes_less_than(MOST_NBYTES), open_recording(path) as recording:
        with pytest.raises(OSError, match="bytes in a chunk that takes"):
            recording.groups[0].read(0, 100)


def test_a_member_of_a_zip_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zarr.json", b" " * (100 << 20))
    check_unreadable(path, "bytes in its member")


@pytest.fixture
def pipes() -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes by name here")
    return


@pytest.mark.usefixtures("pipes")
def test_a_chunk_that_is_a_pipe_or_a_device_is_not_opened(tmp_path: Path) -> None:
    """A link to a file is followed."""
    chunk = stored(tmp_path / "a.zarr")
    kept = chunk.rename(tmp_path / "kept")
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        put(chunk)
        with open_recording(tmp_path / "a.zarr") as recording:
            with pytest.raises(OSError, match="not a regular file"):
                recording.groups[0].read()
        chunk.unlink()
    chunk.symlink_to(kept)
    with open_recording(tmp_path / "a.zarr") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)


@pytest.mark.usefixtures("pipes")
def test_a_zip_file_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zarr.zip")
    check_unreadable(tmp_path / "a.zarr.zip", "not a regular file")


def test_metadata_lead_to_nothing_outside_the_store(tmp_path: Path) -> None:
    """Names in consolidated metadata lead to nothing outside the store."""
    stored(tmp_path / "outside.zarr")
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("x", data=X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "a.zarr")
    place = tmp_path / "a.zarr" / "zarr.json"
    about = json.loads(place.read_text())
    metadata = about["consolidated_metadata"]["metadata"]
    metadata["../outside.zarr"] = metadata.pop("x")
    place.write_text(json.dumps(about))
    with pytest.raises(OSError, match=r"leads to|no array"):
        with open_recording(tmp_path / "a.zarr", fs=1.0) as recording:
            recording.groups[0].read()


def test_only_the_first_of_several_damaged_members_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Opened at once by zarr, the others would be logged later, with a traceback."""
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=2)
    for name in "abc":
        group.create_array(name, data=X)
        (tmp_path / "a.zarr" / name / ".zarray").write_text('{"x"')
    check_unreadable(tmp_path / "a.zarr", "metadata cannot be read", fs=1.0)
    gc.collect()
    assert not caplog.records
