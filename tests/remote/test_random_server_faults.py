"""Random faults of a server give the right samples or an rlxweb error, never wrong
samples.
"""

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

from rlxweb.core.errors import RecordingError, RecordingWarning, RlxError
from rlxweb.io import open_recording, read_ahead
from tests.remote.faulty_web_server import HttpReply, HttpRequest, Site, run_site
from tests.remote.sample_files import COUNTS, npy_bytes

DATA = npy_bytes(COUNTS)
FAULT_KINDS = (
    "fine",
    "cut",
    "500",
    "403",
    "416",
    "200",
    "moved",
    "short",
    "etag",
    "empty",
)


def apply_fault(kind: str, request: HttpRequest, reply: HttpReply) -> None:
    """Make a reply wrong in one way."""
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
def shared_site() -> Iterator[Site]:
    """Run one server for all examples."""
    with run_site() as site:
        yield site


@given(
    kinds=st.lists(st.sampled_from(FAULT_KINDS), max_size=8), block=st.integers(9, 15)
)
@settings(max_examples=40)
def test_faulty_replies_in_any_order(
    kinds: list[str], block: int, shared_site: Site
) -> None:
    site = shared_site
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlxweb.io.http_ranges.RETRY_DELAYS_S", (0.0, 0.0))
        patch.setattr(read_ahead, "MAX_BLOCK_NBYTES", 1 << block)
        patch.setattr(read_ahead, "MIN_BLOCK_NBYTES", 1 << 9)
        patch.setattr(read_ahead, "MAX_CACHED_NBYTES", 1 << 15)
        url, pending = site.add_file("/a.npy", DATA), list(kinds)

        def fault(request: HttpRequest, reply: HttpReply) -> None:
            if pending:
                apply_fault(pending.pop(0), request, reply)

        site.fault = fault
        message = ""
        try:
            with open_recording(url, fs=1.0) as recording:
                for part in recording.groups[0].blocks(1100):
                    wanted = COUNTS[:, part.start : part.stop]
                    np.testing.assert_array_equal(part.data, wanted)
        except RecordingError as error:
            message = str(error)
    assert not message or url in message
    assert not message or set(kinds) - {"fine"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: Any) -> list[Path]:
    """Write one array in both Zarr versions, and one in shards."""
    folder = tmp_path_factory.mktemp("stores")
    paths = []
    for name, options in (
        ("v2", {"zarr_format": 2}),
        ("v3", {}),
        ("shards", {"shards": (4, 2000)}),
    ):
        array = zarr.create_array(
            folder / name, shape=COUNTS.shape, chunks=(2, 500), dtype="i2", **options
        )
        array[...] = COUNTS
        array.attrs["fs"] = 100.0
        paths.append(folder / name)
    return paths


@given(data=st.data())
@settings(max_examples=60)
def test_store_with_a_damaged_file(data: st.DataObject, stores: list[Path]) -> None:
    """A changed byte, a cut file or a missing one gives samples or an rlxweb error."""
    store = data.draw(st.sampled_from(stores))
    files = sorted(path for path in store.rglob("*") if path.is_file())
    metadata_files = [path for path in files if path.name.startswith((".z", "zarr"))]
    path = data.draw(st.sampled_from(metadata_files) | st.sampled_from(files))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    new_byte = data.draw(st.integers(0, 255))
    broken = data.draw(
        st.sampled_from(
            [content[:at], content[:at] + bytes([new_byte]) + content[at + 1 :], None]
        )
    )
    message = ""
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
        message = str(error)
    finally:
        path.write_bytes(content)
    assert not message or str(store) in message
