"""Pool of open engines: opened once, failures cached, closed for good."""

from __future__ import annotations

from typing import Any

import pytest

from rlxweb.core.errors import AdapterMissing, Unsupported
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.pool import EnginePool
from rlxweb.engines.registry import ROWS, Row, absence_reason
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.fake_gpu_port import FakePort, InjectedFailure


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace device 'vulkan' by a fake, and list each opening."""
    names: list[str] = []

    async def open_fake(adapter: str) -> Any:
        names.append(adapter)
        fail = (InjectedFailure("open", "no-adapter"),) if adapter == "absent" else ()
        port = FakePort(fail)
        await port.open(AdapterRequest())
        return WebGpuEngine(port)

    monkeypatch.setitem(ROWS, "vulkan", Row(open_fake))
    return names


def test_an_engine_is_opened_once(opened: list[str]) -> None:
    """An engine is opened once per device and adapter name, whatever its case."""
    pool = EnginePool()
    first = pool.engine("vulkan", "llvmpipe")
    assert pool.engine("vulkan", "LLVMpipe") is first
    assert pool.engine("vulkan") is not first
    assert opened == ["llvmpipe", ""]


def test_failed_opening_is_cached(opened: list[str]) -> None:
    """A failed opening is not tried again until the pool is closed."""
    pool = EnginePool()
    for _ in range(2):
        with pytest.raises(AdapterMissing, match="no adapter was found"):
            pool.engine("vulkan", "absent")
    assert opened == ["absent"]
    pool.close_all()
    with pytest.raises(AdapterMissing):
        pool.engine("vulkan", "absent")
    assert opened == ["absent", "absent"]


def test_limited_engines_share_the_port(opened: list[str]) -> None:
    """Each set of limits has one engine; NumPy has no limits to restrict."""
    pool = EnginePool()
    small = pool.engine_with_limits("vulkan", "", tiny_limits())
    assert pool.engine_with_limits("vulkan", "", tiny_limits()) is small
    assert small.port is pool.engine("vulkan").port
    assert small.limits == tiny_limits().intersect(small.facts.limits)
    with pytest.raises(Unsupported, match="only wgpu devices"):
        pool.engine_with_limits("cpu", "", tiny_limits())


def test_close_all_closes_every_port(opened: list[str]) -> None:
    """Closing closes all ports, restricted ones too; closing an empty pool is fine."""
    pool = EnginePool()
    small = pool.engine_with_limits("vulkan", "", tiny_limits())
    pool.close_all()
    pool.close_all()
    assert small.is_closed
    assert not small.port.live_handles


def test_devices_without_registry_row_are_missing_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device without a registry row is missing with a reason, and never opened or
    guessed.
    """
    monkeypatch.delitem(ROWS, "tpu")
    assert "no engine" in absence_reason("tpu")
    with pytest.raises(AdapterMissing, match="open device 'tpu'"):
        EnginePool().engine("tpu")
    assert isinstance(EnginePool().engine("cpu"), CpuEngine)


@pytest.mark.parametrize(
    ("platform", "label", "words"),
    [
        ("linux", "metal", "only on macOS"),
        ("linux", "directx", "only on Windows"),
        ("emscripten", "vulkan", "use 'webgpu'"),
        ("darwin", "metal", ""),
        ("emscripten", "cpu", ""),
    ],
)
def test_some_devices_exist_on_some_platforms(
    platform: str, label: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason why a device is not on this platform names the platform."""
    monkeypatch.setattr("sys.platform", platform)
    reason = absence_reason(label)
    assert words in reason
    assert bool(reason) == bool(words)
