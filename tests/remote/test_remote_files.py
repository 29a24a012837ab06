"""Remote recordings equal local ones: same samples, few requests, no byte fetched
twice.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import RecordingError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.byte_source import ByteSource, open_source
from rlxweb.io.read_ahead import ReadAheadFile
from tests.remote.faulty_web_server import Site
from tests.remote.sample_files import COUNTS, Bucket, npy_bytes, write_recordings

SUFFIXES = (".edf", ".bdf", ".wav", ".npy", ".npz", ".csv")
OPEN_OPTIONS: dict[str, dict[str, Any]] = {".npy": {"fs": 100.0}}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Use blocks of 16 KiB, so that small files have several."""
    monkeypatch.setattr(read_ahead, "MAX_BLOCK_NBYTES", 16 << 10)
    monkeypatch.setattr(read_ahead, "MIN_BLOCK_NBYTES", 1 << 10)
    return 16 << 10


def check_same(url: str, local: Path, **options: Any) -> None:
    """Check that all samples and properties of both recordings are equal."""
    access = {"storage_options": options.pop("storage_options", None)}
    options |= OPEN_OPTIONS.get(local.suffix, {})
    with (
        open_recording(url, **options, **access) as remote,
        open_recording(local, **options) as reference,
    ):
        assert (remote.format, remote.left_out, remote.warnings) == (
            reference.format,
            reference.left_out,
            reference.warnings,
        )
        for group, expected in zip(remote.groups, reference.groups, strict=True):
            assert (group.fs, group.channels) == (expected.fs, expected.channels)
            np.testing.assert_array_equal(group.read(), expected.read())
            for block, expected_block in zip(
                group.stored_blocks(777, 13),
                expected.stored_blocks(777, 13),
                strict=True,
            ):
                np.testing.assert_array_equal(block.data, expected_block.data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_from_a_web_server(
    suffix: str, site: Site, tmp_path: Path, small_blocks: int
) -> None:
    local = write_recordings(tmp_path)[suffix]
    url = site.add_file(f"/night/a{suffix}", local.read_bytes())
    check_same(url, local)


def test_every_format_from_s3(
    bucket: Bucket, tmp_path: Path, small_blocks: int
) -> None:
    for suffix, local in write_recordings(tmp_path).items():
        url = bucket.add_object(f"night/a{suffix}", local.read_bytes())
        check_same(url, local, storage_options=bucket.options)


def test_file_urls_need_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    local = tmp_path / "a night.npy"
    np.save(local, COUNTS)
    with open_recording(local.as_uri(), fs=1.0) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), COUNTS)
        assert recording.path == str(local)


@pytest.mark.parametrize("layout", ["channels-first", "samples-first"])
def test_sequential_read_fetches_every_byte_once(
    layout: Any, site: Site, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequential read fetches every byte once, also when channels are stored one
    after another.
    """
    monkeypatch.setattr(read_ahead, "MAX_CACHED_NBYTES", 256 << 10)
    x = np.tile(COUNTS, 20)
    data = npy_bytes(x if layout == "channels-first" else x.T.copy())
    url = site.add_file("/a.npy", data)
    with open_recording(url, fs=100.0, layout=layout) as recording:
        (group,) = recording.groups
        for block in group.blocks(3000):
            np.testing.assert_array_equal(block.data, x[:, block.start : block.stop])
    blocks = len(data) / small_blocks
    # Of four rows, each may end in a block that is not full; the first block was there.
    assert site.sent_nbytes <= len(data) + small_blocks
    assert len(site.requests) <= blocks + 6
    ranges = sorted((request.start, request.stop) for request in site.requests)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges[1:]))


def test_partial_read_fetches_only_that_part(site: Site, small_blocks: int) -> None:
    data = npy_bytes(np.zeros(1_000_000, np.int16))
    url = site.add_file("/long.npy", data)
    with open_recording(url, fs=100.0) as recording:
        assert len(site.requests) == 1
        recording.groups[0].read(500_000, 501_000)
    assert site.sent_nbytes <= 4 * small_blocks


def test_opening_an_edf_takes_one_request(site: Site, tmp_path: Path) -> None:
    local = write_recordings(tmp_path)[".edf"]
    url = site.add_file("/a.edf", local.read_bytes())
    with open_recording(url):
        assert len(site.requests) == 1


def test_closed_recording_cannot_be_read(site: Site) -> None:
    url = site.add_file("/a.npy", npy_bytes(COUNTS))
    recording = open_recording(url, fs=1.0)
    recording.close()
    with pytest.raises(RecordingError, match="is closed"):
        recording.groups[0].read()


@given(data=st.data(), nbytes=st.integers(1, 5000), places=st.integers(1, 40))
def test_random_reads_equal_those_of_the_local_file(
    data: st.DataObject, nbytes: int, places: int, tmp_path_factory: Any
) -> None:
    content = np.random.default_rng(nbytes).bytes(nbytes)
    local = tmp_path_factory.mktemp("reads") / "a"
    local.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "MAX_BLOCK_NBYTES", 256)
        patch.setattr(read_ahead, "MIN_BLOCK_NBYTES", 16)
        patch.setattr(read_ahead, "MAX_CACHED_NBYTES", 2048)
        remote = ByteSource(
            ReadAheadFile(lambda a, b: content[a:b], nbytes), str(local), nbytes
        )
        begin = data.draw(st.integers(0, nbytes - 1))
        remote.set_access_pattern(places, begin, data.draw(st.integers(1, nbytes)))
        with closing(open_source(local)) as reference:
            for _ in range(data.draw(st.integers(1, 12))):
                offset = data.draw(st.integers(0, nbytes + 3))
                size = data.draw(st.integers(0, 900))
                assert read_or_error(remote, offset, size) == read_or_error(
                    reference, offset, size
                )


def read_or_error(source: ByteSource, offset: int, nbytes: int) -> bytes | str:
    """Return the bytes or the error message."""
    try:
        return source.read(offset, nbytes)
    except RecordingError as error:
        return str(error)
