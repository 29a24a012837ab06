"""Trips to a device: told apart, left out by name, freed; on a clock of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rlxweb.backends.protocol import Trip
from rlxweb.calibration.measure import calibrate
from rlxweb.cost.record import Calibration
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceLost
from tests.unit.calibration.lab import Clock, Lab

GPU = Place(Device.GPU)


class FakeTrips:
    """A submit takes 100 ns, a dispatch 2 more, a transfer 1 or 3 ns per KiB."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed = False
        self.error: DeviceLost | None = None

    async def wait(self) -> None:
        await self.dispatches(0)

    async def dispatches(self, count: int) -> None:
        if self.error is not None and not count:
            raise self.error
        self.clock.now += 100 + 2 * count

    def upload(self, nbytes: int, per_kib: int = 1) -> Trip:
        async def trip() -> None:
            self.clock.now += 100 + per_kib * nbytes // 1024

        return trip

    def readback(self, nbytes: int) -> Trip:
        return self.upload(nbytes, 3)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakePool:
    """One adapter that takes 5 µs to open."""

    made: FakeTrips | None
    adapter: str = "a card"
    api: str = "vulkan"
    driver: str = "7"
    compiler: str = "naga 1"
    lost: str = ""

    def opening_ns(self, label: str, adapter: str) -> int:
        return 5_000

    def backend(self, label: str, adapter: str) -> FakePool:
        return self

    async def trips(self) -> FakeTrips | None:
        return self.made


@pytest.fixture
def device(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> FakePool:
    made = FakePool(FakeTrips(lab.clock))
    monkeypatch.setattr("rlxweb.calibration.measure.pool", made)
    monkeypatch.setattr("rlxweb.devices.place.pool", made)
    return made


def measured(lab: Lab, **more: Any) -> Calibration:
    return calibrate(GPU, jobs=lambda place: (), watch=lab.watch, **more)


def test_trips_are_told_apart(lab: Lab, device: FakePool) -> None:
    """A dispatch is the slope from 1 to 64; transfers are without the wait.

    A cold start is what the pool took to open it, whenever that was, and the first run.
    """
    got = measured(lab)
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
    assert device.made.closed


def test_an_engine_without_trips_is_measured_like_the_cpu(
    lab: Lab, device: FakePool
) -> None:
    """A call stands for what a submit would be, and opening it is no cold start."""
    device.made = None
    lab.kernels.append(lambda: lab.job("copy", 50))
    got = measured(lab)
    assert [p.what for p in got.points] == ["run", "call", "copy"]
    assert got.device == "gpu"


def test_a_dispatch_needs_both_of_its_figures(lab: Lab, device: FakePool) -> None:
    """Half of a slope is no point, and what is missing is named for people."""
    begun_one = 102 + 5 * 100 + 1
    got = measured(lab, budget_s=begun_one / 1e9)
    assert [p.what for p in got.points] == ["cold_start", "submit"]
    assert "dispatch" in got.left_out[0]
    assert "the time was over" in got.left_out[0]
    assert any(text.startswith("upload 65,536: ") for text in got.left_out)


@pytest.mark.parametrize("lost", ["", "unplugged"])
def test_trips_are_freed_unless_the_device_is_gone(
    lab: Lab, device: FakePool, lost: str
) -> None:
    device.lost = lost
    device.made.error = DeviceLost("read", "it went away")
    with pytest.raises(DeviceLost, match="it went away"):
        measured(lab)
    assert device.made.closed is not bool(lost)
