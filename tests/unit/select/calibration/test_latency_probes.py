"""Latency probes of a device on a fake clock: separated, left out by name, released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost
from rlxweb.cost.calibration_record import Calibration
from rlxweb.engines.capabilities import LatencyProbe, Measures
from rlxweb.engines.protocol import EngineIdentity
from rlxweb.select.calibration.measure_engine import calibrate
from rlxweb.select.device_and_adapter import DevicePlace
from tests.unit.select.calibration.fake_clock_calibration import (
    CalibrationLab,
    FakeClock,
)

GPU = DevicePlace(Device.GPU)


class FakeLatencyProbes:
    """Latency probes on a fake clock: a submit takes 100 ns, a dispatch 2 ns more, a
    transfer 1 or 3 ns per KiB.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.closed = False
        self.error: DeviceLost | None = None

    async def submit_and_wait(self) -> None:
        await self.dispatch_and_wait(0)

    async def dispatch_and_wait(self, count: int) -> None:
        if self.error is not None and not count:
            raise self.error
        self.clock.now += 100 + 2 * count

    def upload_probe(self, nbytes: int, per_kib: int = 1) -> LatencyProbe:
        async def probe() -> None:
            self.clock.now += 100 + per_kib * nbytes // 1024

        return probe

    def readback_probe(self, nbytes: int) -> LatencyProbe:
        return self.upload_probe(nbytes, 3)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeEnginePool:
    """Engine pool with one adapter that takes 5 µs to open."""

    probes: FakeLatencyProbes | None
    lost: str = ""
    identity = EngineIdentity(
        "a card (vulkan)", "a card", "vulkan", driver="7", compiler="naga 1"
    )

    def opening_ns(self, label: str, adapter: str) -> int:
        return 5_000

    def engine(self, label: str, adapter: str) -> FakeEnginePool:
        return self

    async def latency_probes(self) -> FakeLatencyProbes | None:
        return self.probes


Measures.register(FakeEnginePool)


@pytest.fixture
def fake_pool(lab: CalibrationLab, monkeypatch: pytest.MonkeyPatch) -> FakeEnginePool:
    pool = FakeEnginePool(FakeLatencyProbes(lab.clock))
    monkeypatch.setattr("rlxweb.select.calibration.measure_engine.pool", pool)
    monkeypatch.setattr("rlxweb.select.device_and_adapter.pool", pool)
    return pool


def calibrate_gpu(lab: CalibrationLab, **more: Any) -> Calibration:
    return calibrate(GPU, jobs=lambda place: (), watch=lab.stopwatch, **more)


def test_latency_points_are_separated(
    lab: CalibrationLab, fake_pool: FakeEnginePool
) -> None:
    """A dispatch is the slope from 1 to 64; transfers exclude the wait.

    A cold start is what the pool took to open it, whenever that was, and the first run.
    """
    got = calibrate_gpu(lab)
    points = [(p.what, *p.size.values(), p.ns) for p in got.points]
    assert points == [
        ("cold_start", 5_102.0),
        ("submit", 100.0),
        ("dispatch", 2.0),
        ("upload", 64 << 10, 64.0),
        ("readback", 64 << 10, 192.0),
        ("upload", 1 << 20, 1024.0),
        ("readback", 1 << 20, 3 * 1024.0),
        ("upload", 16 << 20, 16 * 1024.0),
        ("readback", 16 << 20, 48 * 1024.0),
        ("run", 10.0),
        ("compile", 70.0),
    ]
    assert got.left_out == ()
    assert got.identity[:3] == ("a card", "vulkan", "7, naga 1")
    assert fake_pool.probes.closed


def test_engine_without_latency_probes_is_measured_like_cpu(
    lab: CalibrationLab, fake_pool: FakeEnginePool
) -> None:
    """A call takes the place of a submit, and opening the engine is no cold start."""
    fake_pool.probes = None
    lab.kernel_makers.append(lambda: lab.make_job("copy", 50))
    got = calibrate_gpu(lab)
    assert [p.what for p in got.points] == ["run", "call", "copy"]
    assert got.device == "gpu"


def test_dispatch_needs_both_measurements(
    lab: CalibrationLab, fake_pool: FakeEnginePool
) -> None:
    """Half of a slope is no point, and the missing point is named for people."""
    budget_ns = 102 + 5 * 100 + 1
    got = calibrate_gpu(lab, budget_s=budget_ns / 1e9)
    assert [p.what for p in got.points] == ["cold_start", "submit"]
    assert "dispatch" in got.left_out[0]
    assert "the time limit was reached" in got.left_out[0]
    assert any(text.startswith("upload 65,536: ") for text in got.left_out)


@pytest.mark.parametrize("lost", ["", "unplugged"])
def test_latency_probes_are_closed_unless_device_is_lost(
    lab: CalibrationLab, fake_pool: FakeEnginePool, lost: str
) -> None:
    fake_pool.lost = lost
    fake_pool.probes.error = DeviceLost("read", "it went away")
    with pytest.raises(DeviceLost, match="it went away"):
        calibrate_gpu(lab)
    assert fake_pool.probes.closed is not bool(lost)
