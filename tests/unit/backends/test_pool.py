"""The pool of open backends: opened once, failures told again, closed for good."""

from __future__ import annotations

from typing import Any

import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.pool import Pool
from rlxweb.backends.registry import ROWS, Row, blocker
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import AdapterMissing, Unsupported
from rlxweb.gpu.port import Want
from rlxweb.limits import shrunk
from tests.fake_port import Failure, FakePort


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Device 'vulkan' is a fake; the list notes each opening."""
    names: list[str] = []

    async def open_fake(adapter: str) -> Any:
        names.append(adapter)
        fail = (Failure("open", "no-adapter"),) if adapter == "absent" else ()
        port = FakePort(fail)
        await port.open(Want())
        return WebGpuBackend(port)

    monkeypatch.setitem(ROWS, "vulkan", Row(open_fake))
    return names


def test_a_backend_is_opened_once(opened: list[str]) -> None:
    """A backend is opened once per device and adapter name, whatever its case."""
    pool = Pool()
    first = pool.backend("vulkan", "llvmpipe")
    assert pool.backend("vulkan", "LLVMpipe") is first
    assert pool.backend("vulkan") is not first
    assert opened == ["llvmpipe", ""]


def test_a_failure_is_told_again_without_another_try(opened: list[str]) -> None:
    """A failed opening is not tried again until the pool is closed."""
    pool = Pool()
    for _ in range(2):
        with pytest.raises(AdapterMissing, match="no adapter was found"):
            pool.backend("vulkan", "absent")
    assert opened == ["absent"]
    pool.close_all()
    with pytest.raises(AdapterMissing):
        pool.backend("vulkan", "absent")
    assert opened == ["absent", "absent"]


def test_limits_share_the_port(opened: list[str]) -> None:
    """One backend per limits; NumPy has none to restrict."""
    pool = Pool()
    small = pool.limited("vulkan", "", shrunk())
    assert pool.limited("vulkan", "", shrunk()) is small
    assert small.port is pool.backend("vulkan").port
    assert small.limits == shrunk().lowest(small.facts.limits)
    with pytest.raises(Unsupported, match="wgpu devices only"):
        pool.limited("cpu", "", shrunk())


def test_close_all_closes_every_port(opened: list[str]) -> None:
    """Closing closes all ports, restricted ones too; closing an empty pool is fine."""
    pool = Pool()
    small = pool.limited("vulkan", "", shrunk())
    pool.close_all()
    pool.close_all()
    assert small.closed
    assert not small.port.live


def test_devices_without_a_row_are_missing_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device without a row is missing with a reason, never opened or guessed."""
    monkeypatch.delitem(ROWS, "tpu")
    assert "no backend" in blocker("tpu")
    with pytest.raises(AdapterMissing, match="open device 'tpu'"):
        Pool().backend("tpu")
    assert isinstance(Pool().backend("cpu"), CpuBackend)


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
    said = blocker(label)
    assert words in said
    assert bool(said) == bool(words)
