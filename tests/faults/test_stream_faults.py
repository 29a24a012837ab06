"""A device goes while a stream's average lies on it: nothing goes silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import DeviceLost, OutOfMemory, RlxError
from rlxweb.gpu.port import Want
from tests.fake_port import Failure
from tests.faults.test_session_faults import Workplace
from tests.faults.test_session_faults import workplace as workplace
from tests.unit.signal.near import by_name, close

FS = 100.0
RNG = np.random.default_rng(31)
X = (RNG.standard_normal((3, 1000)) + 2.0).astype(np.float32)


@pytest.fixture
def at_work(
    workplace: Callable[..., Workplace],
) -> tuple[Workplace, rlx.WelchStream]:
    """A stream whose average lies on a device that is about to fail."""
    place = workplace()
    stream = rlx.WelchStream(FS, 64, n_channels=3, device="vulkan")
    stream.push(X[:, :200])
    assert stream.lies_on
    return place, stream


def test_a_lost_device_is_an_error_and_what_was_saved_goes_on(
    at_work: tuple[Workplace, rlx.WelchStream], tmp_path: Path
) -> None:
    """A lost device is an error of every call, which says how much is gone.

    A saved state goes on.
    """
    place, stream = at_work
    stream.save(tmp_path / "s.npz")
    stream.push(X[:, 200:400])
    (late,) = stream.push(X[:, 400:430])
    place.ports[-1]._pending.append(Failure("submit", "lost"))
    said = r"lost with the device.* segments were in it, 7 since .*WelchStream\.load"
    with pytest.raises(DeviceLost, match=said):
        stream.push(X[:, 430:600])
    for call in (
        lambda: stream.push(X[:, 600:700]),
        lambda: stream.power,
        lambda: stream.peaks,
        lambda: stream.state(),
        lambda: stream.save(tmp_path / "t.npz"),
    ):
        with pytest.raises(DeviceLost, match=said):
            call()
    with pytest.raises(DeviceLost, match="lost unread"):
        _ = late.power
    stream.reset()
    stream.push(X[:, :200])
    assert (stream.seconds, stream.n_segments) == (2.0, 5)
    assert rlx.WelchStream.load(tmp_path / "s.npz").n_segments == 5


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[RlxError]:
    """What the next run whose results stay on a real device raises, once."""
    due: list[RlxError] = []
    run = WebGpuBackend.run_resident

    async def run_resident(self: WebGpuBackend, *args: Any) -> Any:
        if due:
            raise due.pop()
        return await run(self, *args)

    monkeypatch.setattr(WebGpuBackend, "run_resident", run_resident)
    return due


def test_what_was_saved_goes_on_after_a_loss(
    adapter: Want, failing: list[RlxError], tmp_path: Path
) -> None:
    stream = rlx.WelchStream(FS, 64, n_channels=3, **by_name(adapter))
    stream.push(X[:, :200])
    stream.save(tmp_path / "s.npz")
    failing.append(DeviceLost("run", "the driver was reset"))
    with pytest.raises(DeviceLost, match="the driver was reset"):
        stream.push(X[:, 200:400])
    again = rlx.WelchStream.load(tmp_path / "s.npz", **by_name(adapter))
    again.push(X[:, 200:])
    assert again.lies_on
    close(again.power, rlx.welch(X.astype(float), FS, nperseg=64)[1], 5e-6)


@pytest.mark.parametrize("average", ["all", "last", "none"])
def test_samples_that_a_device_failed_at_are_still_there(
    adapter: Want, failing: list[RlxError], average: Any
) -> None:
    """Samples that a device failed at become segments once with the next push."""
    named: dict[str, Any] = {"nperseg": 64, "n_channels": 3, "average": average}
    named |= {"last": 4} if average == "last" else {}
    stream = rlx.WelchStream(FS, **named, **by_name(adapter))
    stream.push(X[:, :200])
    failing.append(OutOfMemory("run", "no memory"))
    with pytest.raises(OutOfMemory):
        stream.push(X[:, 200:400])
    assert (stream.seconds, stream.n_segments) == (4.0, 5)
    stream.push(X[:, 400:400])
    assert stream.n_segments == 1 + (400 - 64) // 32
    want = rlx.WelchStream(FS, **named)
    want.push(X[:, :400].astype(float))
    close(stream.power, want.power, 5e-6)
