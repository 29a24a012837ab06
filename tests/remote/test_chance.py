"""The right samples or an error of ours, and never others, whatever a server does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.errors import RecordingError, RecordingWarning, RlxError
from rlxweb.io import open_recording, read_ahead
from tests.remote.made import COUNTS, npy
from tests.remote.site import Asked, Reply, Site, served

DATA = npy(COUNTS)
KINDS = ("fine", "cut", "500", "403", "416", "200", "moved", "short", "etag", "empty")


def spoil(kind: str, asked: Asked, reply: Reply) -> None:
    """One way for an answer to be wrong."""
    if kind == "cut":
        reply.cut = len(reply.body) // 3
    elif kind.isdigit():
        reply.status = int(kind)
        reply.body = DATA if kind == "200" else b""
        if kind == "200":
            reply.headers.pop("Content-Range", None)
    elif kind == "moved":
        reply.headers["Content-Range"] = f"bytes 3-9/{len(DATA)}"
    elif kind == "short":
        reply.body = reply.body[:100]
    elif kind == "empty":
        reply.body = b""
    elif kind == "etag":
        reply.headers["ETag"] = '"other"'


@pytest.fixture(scope="module")
def one_site() -> Iterator[Site]:
    """One server for all examples."""
    with served() as site:
        yield site


@given(kinds=st.lists(st.sampled_from(KINDS), max_size=8), block=st.integers(9, 15))
@settings(max_examples=40)
def test_answers_that_go_wrong_in_any_order(
    kinds: list[str], block: int, one_site: Site
) -> None:
    site = one_site
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlxweb.io.http_ranges.PAUSES_S", (0.0, 0.0))
        patch.setattr(read_ahead, "LARGEST", 1 << block)
        patch.setattr(read_ahead, "SMALLEST", 1 << 9)
        patch.setattr(read_ahead, "BUDGET", 1 << 15)
        url, left = site.put("/a.npy", DATA), list(kinds)

        def fault(asked: Asked, reply: Reply) -> None:
            if left:
                spoil(left.pop(0), asked, reply)

        site.fault = fault
        said = ""
        try:
            with open_recording(url, fs=1.0) as recording:
                for part in recording.groups[0].blocks(1100):
                    wanted = COUNTS[:, part.start : part.stop]
                    np.testing.assert_array_equal(part.data, wanted)
        except RecordingError as error:
            said = str(error)
    assert not said or url in said
    assert not said or set(kinds) - {"fine"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: Any) -> list[Path]:
    """One array in both versions, and one in shards."""
    folder = tmp_path_factory.mktemp("stores")
    made = []
    for name, how in (
        ("v2", {"zarr_format": 2}),
        ("v3", {}),
        ("shards", {"shards": (4, 2000)}),
    ):
        array = zarr.create_array(
            folder / name, shape=COUNTS.shape, chunks=(2, 500), dtype="i2", **how
        )
        array[...] = COUNTS
        array.attrs["fs"] = 100.0
        made.append(folder / name)
    return made


@given(data=st.data())
@settings(max_examples=60)
def test_stores_with_a_damaged_file(data: st.DataObject, stores: list[Path]) -> None:
    """A byte changed, a file cut or gone: samples, or one of our errors."""
    store = data.draw(st.sampled_from(stores))
    files = sorted(path for path in store.rglob("*") if path.is_file())
    marks = [path for path in files if path.name.startswith((".z", "zarr"))]
    path = data.draw(st.sampled_from(marks) | st.sampled_from(files))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    letter = data.draw(st.integers(0, 255))
    broken = data.draw(
        st.sampled_from(
            [whole[:at], whole[:at] + bytes([letter]) + whole[at + 1 :], None]
        )
    )
    said = ""
    try:
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", RecordingWarning)
            with open_recording(store, fs=100.0) as recording:
                recording.groups[0].read()
    except RlxError as error:
        said = str(error)
    finally:
        path.write_bytes(whole)
    assert not said or str(store) in said
