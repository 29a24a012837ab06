"""Trips to a device: told apart, left out by name, freed; on a clock of our own."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rlxweb.calibration.kernels import Job
from rlxweb.calibration.measure import calibrate
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceLost
from tests.unit.calibration.lab import Clock, Lab, lab_on

MODULE = "rlxweb.calibration.measure"
GPU = Place(Device.GPU)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return lab_on(monkeypatch)


class FakeTrips:
    """A submit takes 100 ns, a dispatch 2 more, a transfer 1 ns per KiB."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed = False
        self.wait = clock.work(100)

    def dispatches(self, count: int) -> None:
        self.clock.now += 100 + 2 * count

    def upload(self, nbytes: int) -> Job:
        work = self.clock.work(100 + nbytes // 1024)
        return Job("upload", {"bytes": nbytes}, work, "submit")

    def readback(self, nbytes: int) -> Job:
        work = self.clock.work(100 + 3 * nbytes // 1024)
        return Job("readback", {"bytes": nbytes}, work, "submit")

    def close(self) -> None:
        self.closed = True


@dataclass
class FakePool:
    """One adapter that takes 5 µs to open."""

    clock: Clock
    lost: str = ""

    def opening_ns(self, label: str, adapter: str) -> int:
        return 5_000

    def backend(self, label: str, adapter: str) -> Any:
        facts = SimpleNamespace(name="a card", backend="vulkan", driver="7")
        return SimpleNamespace(facts=facts, lost=self.lost)


@pytest.fixture
def device(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(trips=FakeTrips(lab.clock), pool=FakePool(lab.clock))
    monkeypatch.setattr(f"{MODULE}.Trips", lambda backend: made.trips)
    monkeypatch.setattr(f"{MODULE}.pool", made.pool)
    return made


def test_trips_are_told_apart(lab: Lab, device: SimpleNamespace) -> None:
    """A dispatch is the slope from 1 to 64; transfers are without the wait."""
    got = calibrate(GPU, watch=lab.watch)
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
    assert got.identity[:3] == ("a card", "vulkan", "7")
    assert device.trips.closed


def test_a_device_that_was_open_keeps_its_cold_start(
    lab: Lab, device: SimpleNamespace
) -> None:
    """The pool knows how long opening took, whoever asked for it first."""
    device.pool.backend("gpu", "")
    assert calibrate(GPU, watch=lab.watch).of("cold_start")[0].ns == 5_102.0


def test_a_dispatch_needs_both_of_its_figures(
    lab: Lab, device: SimpleNamespace
) -> None:
    """Half of a slope is no point, and what is missing is named for people."""
    begun_one = 102 + 5 * 100 + 1
    got = calibrate(GPU, watch=lab.watch, budget_s=begun_one / 1e9)
    assert [p.what for p in got.points] == ["cold_start", "submit"]
    assert "dispatch" in got.left_out[0]
    assert "the time was over" in got.left_out[0]
    assert any(text.startswith("upload 65,536: ") for text in got.left_out)


@pytest.mark.parametrize("lost", ["", "unplugged"])
def test_trips_are_freed_unless_the_device_is_gone(
    lab: Lab, device: SimpleNamespace, lost: str
) -> None:
    device.pool.lost = lost
    device.trips.wait = lab.failing("wait", DeviceLost("read", "it went away")).run
    with pytest.raises(DeviceLost, match="it went away"):
        calibrate(GPU, watch=lab.watch)
    assert device.trips.closed is not bool(lost)
