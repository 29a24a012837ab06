"""Check devices lost while a stream's running average is on them: no loss goes
unreported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DeviceLost, OutOfMemory, RlxError
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.fake_gpu_port import InjectedFailure
from tests.faults.test_session_faults import FakeVulkan
from tests.faults.test_session_faults import fake_vulkan as fake_vulkan
from tests.unit.signal.device_comparison import adapter_arguments, assert_close

FS = 100.0
RNG = np.random.default_rng(31)
X = (RNG.standard_normal((3, 1000)) + 2.0).astype(np.float32)


@pytest.fixture
def running_stream(
    fake_vulkan: Callable[..., FakeVulkan],
) -> tuple[FakeVulkan, rlx.WelchStream]:
    """Stream whose average is on a device that is about to fail."""
    vulkan = fake_vulkan()
    stream = rlx.WelchStream(FS, 64, n_channels=3, device="vulkan")
    stream.push(X[:, :200])
    assert stream.lies_on
    return vulkan, stream


def test_lost_device_fails_every_call_and_saved_state_continues(
    running_stream: tuple[FakeVulkan, rlx.WelchStream], tmp_path: Path
) -> None:
    """A lost device is an error of every call, which says how much is lost.

    A saved state goes on.
    """
    vulkan, stream = running_stream
    stream.save(tmp_path / "s.npz")
    stream.push(X[:, 200:400])
    (unread,) = stream.push(X[:, 400:430])
    vulkan.ports[-1]._pending.append(InjectedFailure("submit", "lost"))
    expected = (
        r"lost with its device.* segments, 7 of them not yet copied "
        r".*WelchStream\.load"
    )
    with pytest.raises(DeviceLost, match=expected):
        stream.push(X[:, 430:600])
    for call in (
        lambda: stream.push(X[:, 600:700]),
        lambda: stream.power,
        lambda: stream.peaks,
        lambda: stream.state(),
        lambda: stream.save(tmp_path / "t.npz"),
    ):
        with pytest.raises(DeviceLost, match=expected):
            call()
    with pytest.raises(
        DeviceLost, match=r"power of the frame was lost .* before it was read"
    ):
        _ = unread.power
    stream.reset()
    stream.push(X[:, :200])
    assert (stream.seconds, stream.n_segments) == (2.0, 5)
    assert rlx.WelchStream.load(tmp_path / "s.npz").n_segments == 5


@pytest.fixture
def next_errors(monkeypatch: pytest.MonkeyPatch) -> list[RlxError]:
    """Errors that the next run on a real device raises, each once."""
    next_errors_due: list[RlxError] = []
    run = WebGpuEngine.run

    async def raise_or_run(self: WebGpuEngine, *args: Any) -> Any:
        if next_errors_due:
            raise next_errors_due.pop()
        return await run(self, *args)

    monkeypatch.setattr(WebGpuEngine, "run", raise_or_run)
    return next_errors_due


def test_saved_state_continues_after_a_real_loss(
    adapter: AdapterRequest, next_errors: list[RlxError], tmp_path: Path
) -> None:
    stream = rlx.WelchStream(FS, 64, n_channels=3, **adapter_arguments(adapter))
    stream.push(X[:, :200])
    stream.save(tmp_path / "s.npz")
    next_errors.append(DeviceLost("run", "the driver was reset"))
    with pytest.raises(DeviceLost, match="the driver was reset"):
        stream.push(X[:, 200:400])
    loaded = rlx.WelchStream.load(tmp_path / "s.npz", **adapter_arguments(adapter))
    loaded.push(X[:, 200:])
    assert loaded.lies_on
    assert_close(loaded.power, rlx.welch(X.astype(float), FS, nperseg=64)[1], 5e-6)


@pytest.mark.parametrize("average", ["all", "last", "none"])
def test_samples_of_a_failed_push_are_kept(
    adapter: AdapterRequest, next_errors: list[RlxError], average: Any
) -> None:
    """Samples of a failed push become segments once, with the next push."""
    options: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "average": average}
    options |= {"last": 4} if average == "last" else {}
    stream = rlx.WelchStream(FS, **options, **adapter_arguments(adapter))
    stream.push(X[:, :200])
    next_errors.append(OutOfMemory("run", "no memory"))
    with pytest.raises(OutOfMemory):
        stream.push(X[:, 200:400])
    assert (stream.seconds, stream.n_segments) == (4.0, 5)
    stream.push(X[:, 400:400])
    assert stream.n_segments == 1 + (400 - 64) // 32
    want = rlx.WelchStream(FS, **options)
    want.push(X[:, :400].astype(float))
    assert_close(stream.power, want.power, 5e-6)
