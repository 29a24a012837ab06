"""Clean state between tests: fake ports that a test left open are closed with their
engines, and reported once.
"""

from __future__ import annotations

from rlxweb.core.limits import tiny_limits
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from tests.clean_state import close_fakes
from tests.gpu_ports import open_fake_port


def test_fake_ports_left_open_are_closed() -> None:
    """Fake ports are closed with the engines opened on them; each is reported once."""
    port, key = open_fake_port(), ("vulkan", "made up")
    pool._engines[key] = engine = WebGpuEngine(port)
    pool._limited_engines[(*key, tiny_limits())] = engine.with_limits(tiny_limits())
    assert close_fakes() == [key]
    assert port.calls[-1] == "close"
    assert key not in pool._engines
    assert (*key, tiny_limits()) not in pool._limited_engines
    assert close_fakes() == []
