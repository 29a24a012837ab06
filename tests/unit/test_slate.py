"""A test that leaves something behind fails, and none of those after it."""

from __future__ import annotations

from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.limits import shrunk
from tests.ports import fake
from tests.slate import close_fakes


def test_fakes_that_are_left_open_are_closed() -> None:
    """With what was opened on them under stricter limits; each is told once."""
    port, key = fake(), ("vulkan", "made up")
    pool._open[key] = backend = WebGpuBackend(port)
    pool._limited[(*key, shrunk())] = backend.limited(shrunk())
    assert close_fakes() == [key]
    assert port.calls[-1] == "close"
    assert key not in pool._open
    assert (*key, shrunk()) not in pool._limited
    assert close_fakes() == []
