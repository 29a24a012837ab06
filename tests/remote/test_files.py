"""A remote recording is the local one: same samples, few requests, no byte twice."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.errors import RecordingError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.read_ahead import BlockFile
from rlxweb.io.source import ByteSource, open_source
from tests.remote.made import COUNTS, Bucket, npy, recordings
from tests.remote.site import Site

SUFFIXES = (".edf", ".bdf", ".wav", ".npy", ".npz", ".csv")
HOW: dict[str, dict[str, Any]] = {".npy": {"fs": 100.0}}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of 16 KiB, so that small files have many."""
    monkeypatch.setattr(read_ahead, "LARGEST", 16 << 10)
    monkeypatch.setattr(read_ahead, "SMALLEST", 1 << 10)
    return 16 << 10


def check_same(url: str, local: Path, **how: Any) -> None:
    """All samples and all facts of both are equal."""
    options = {"storage_options": how.pop("storage_options", None)}
    how |= HOW.get(local.suffix, {})
    with (
        open_recording(url, **how, **options) as far,
        open_recording(local, **how) as n,
    ):
        assert (far.format, far.left_out, far.warnings) == (
            n.format,
            n.left_out,
            n.warnings,
        )
        for one, other in zip(far.groups, n.groups, strict=True):
            assert (one.fs, one.channels) == (other.fs, other.channels)
            np.testing.assert_array_equal(one.read(), other.read())
            for mine, theirs in zip(
                one.stored_blocks(777, 13), other.stored_blocks(777, 13), strict=True
            ):
                np.testing.assert_array_equal(mine.data, theirs.data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_from_a_web_server(
    suffix: str, site: Site, tmp_path: Path, small_blocks: int
) -> None:
    local = recordings(tmp_path)[suffix]
    url = site.put(f"/night/a{suffix}", local.read_bytes())
    check_same(url, local)


def test_every_format_from_s3(
    bucket: Bucket, tmp_path: Path, small_blocks: int
) -> None:
    for suffix, local in recordings(tmp_path).items():
        url = bucket.put(f"night/a{suffix}", local.read_bytes())
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
def test_a_walk_fetches_every_byte_once(
    layout: Any, site: Site, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels may lie one behind the other: that is four places at once."""
    monkeypatch.setattr(read_ahead, "BUDGET", 256 << 10)
    x = np.tile(COUNTS, 20)
    data = npy(x if layout == "channels-first" else x.T.copy())
    url = site.put("/a.npy", data)
    with open_recording(url, fs=100.0, layout=layout) as recording:
        (group,) = recording.groups
        for block in group.blocks(3000):
            np.testing.assert_array_equal(block.data, x[:, block.start : block.stop])
    blocks = len(data) / small_blocks
    # Of four rows, each may end in a block that is not full; the first block was there.
    assert site.sent <= len(data) + small_blocks
    assert len(site.asked) <= blocks + 6
    ranges = sorted((one.start, one.stop) for one in site.asked)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges[1:]))


def test_part_of_a_long_file_costs_that_part(site: Site, small_blocks: int) -> None:
    data = npy(np.zeros(1_000_000, np.int16))
    url = site.put("/long.npy", data)
    with open_recording(url, fs=100.0) as recording:
        assert len(site.asked) == 1
        recording.groups[0].read(500_000, 501_000)
    assert site.sent <= 4 * small_blocks


def test_opening_an_edf_costs_a_request(site: Site, tmp_path: Path) -> None:
    local = recordings(tmp_path)[".edf"]
    url = site.put("/a.edf", local.read_bytes())
    with open_recording(url):
        assert len(site.asked) == 1


def test_a_closed_recording_reads_nothing(site: Site) -> None:
    url = site.put("/a.npy", npy(COUNTS))
    recording = open_recording(url, fs=1.0)
    recording.close()
    with pytest.raises(RecordingError, match="is closed"):
        recording.groups[0].read()


@given(data=st.data(), nbytes=st.integers(1, 5000), places=st.integers(1, 40))
def test_any_reads_equal_those_of_the_local_file(
    data: st.DataObject, nbytes: int, places: int, tmp_path_factory: Any
) -> None:
    content = np.random.default_rng(nbytes).bytes(nbytes)
    local = tmp_path_factory.mktemp("reads") / "a"
    local.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "LARGEST", 256)
        patch.setattr(read_ahead, "SMALLEST", 16)
        patch.setattr(read_ahead, "BUDGET", 2048)
        far = ByteSource(
            BlockFile(lambda a, b: content[a:b], nbytes), str(local), nbytes
        )
        begin = data.draw(st.integers(0, nbytes - 1))
        far.expect(places, begin, data.draw(st.integers(1, nbytes)))
        with closing(open_source(local)) as near:
            for _ in range(data.draw(st.integers(1, 12))):
                offset = data.draw(st.integers(0, nbytes + 3))
                size = data.draw(st.integers(0, 900))
                assert told(far, offset, size) == told(near, offset, size)


def told(source: ByteSource, offset: int, nbytes: int) -> bytes | str:
    """The bytes, or what the error says."""
    try:
        return source.read(offset, nbytes)
    except RecordingError as error:
        return str(error)
