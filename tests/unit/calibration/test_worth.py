"""When opening other devices and measuring engines is worth it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlxweb.calibration.known import Points, measure_if_worth_it
from rlxweb.calibration.measure import BUDGET_S
from rlxweb.calibration.store import CalibrationStore
from rlxweb.calibration.worth import MS, S, Worth
from rlxweb.cost.record import Calibration, Point
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, identity_of
from rlxweb.errors import CalibrationWarning, DeviceLost
from tests.threads import at_once


@pytest.mark.parametrize(
    ("cpu_ns", "seen_ns", "trivial", "opening", "measuring"),
    [
        (0.0999 * MS, 0.0, True, False, False),
        (0.1 * MS, 0.0, False, False, False),
        (4.999 * MS, 0.499 * S, False, False, False),
        (5 * MS, 0.0, False, True, False),
        (1.0, 0.5 * S, True, True, False),
        (24.9 * MS, 1.999 * S, False, True, False),
        (25 * MS, 0.0, False, True, True),
        (1.0, 2 * S, True, True, True),
    ],
)
def test_limits_of_worth(
    cpu_ns: float, seen_ns: float, trivial: bool, opening: bool, measuring: bool
) -> None:
    """Opening and measuring pay for one large job, or many small ones that add up."""
    seen = Worth()
    seen.add(seen_ns)
    assert seen.is_trivial(cpu_ns) is trivial
    assert seen.opening(cpu_ns) is opening
    assert seen.measuring(cpu_ns) is measuring
    assert seen.rule == (
        "other devices are opened for jobs of 5 ms and more, or once 0.5 s of work "
        "was seen"
    )


def test_threads_add_up() -> None:
    seen = Worth()
    at_once([lambda: [seen.add(1.0) for _ in range(5_000)]] * 4)
    assert seen.spent_ns == 20_000.0


@dataclass
class Measurer:
    """Stands for `record_for`: notes who was measured; some engines break."""

    store: CalibrationStore
    broken: tuple[Place, ...] = ()
    asked: list[Place] = field(default_factory=list)

    def __call__(
        self, device: Device, adapter: str, points: Points, budget_s: float
    ) -> None:
        assert budget_s < BUDGET_S, "nobody asked for it"
        place = Place(device, adapter)
        self.asked.append(place)
        if place in self.broken:
            raise DeviceLost("read", "it went away")
        points = (Point("call", {}, 1.0),)
        self.store.save(Calibration("cpu", *identity_of(CPU), points))


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measurer:
    store = CalibrationStore(tmp_path)
    made = Measurer(store)
    monkeypatch.setattr("rlxweb.calibration.known.store", store)
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    monkeypatch.setattr("rlxweb.calibration.known.record_for", made)
    return made


@pytest.fixture
def rival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that could win against the CPU."""
    monkeypatch.setattr("rlxweb.calibration.known._is_rival", lambda place, kinds: True)


@pytest.mark.usefixtures("rival")
def test_an_engine_is_measured_when_it_is_worth_it(measurer: Measurer) -> None:
    """An engine is measured from 25 ms of work on, and again for points it lacks."""

    def ask(cpu_ns: float, *points: str) -> int:
        measure_if_worth_it([CPU], lambda place: points, cpu_ns, Worth())
        return len(measurer.asked)

    assert ask(24.9 * MS, "call") == 0
    assert ask(25 * MS, "call") == 1
    assert ask(99 * MS, "submit", "call") == 1
    assert ask(99 * MS, "welch_host") == 2


@pytest.mark.usefixtures("rival")
def test_nothing_is_measured_where_it_is_forbidden(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    measure_if_worth_it([CPU], lambda place: ("call",), 1 * S, Worth(spent_ns=9 * S))
    assert measurer.asked == []


def test_an_engine_that_breaks_does_not_stop_the_others(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that breaks is warned about by name and reason."""
    monkeypatch.setattr("rlxweb.calibration.known.known_record", lambda d, a="": None)
    monkeypatch.setattr("rlxweb.calibration.known._is_software", lambda place: False)
    other = Place(Device.VULKAN, "llvmpipe")
    measurer.broken = (other,)
    with pytest.warns(CalibrationWarning) as found:
        measure_if_worth_it([other, CPU], lambda place: ("call",), 1 * S, Worth())
    assert [str(w.message) for w in found] == [
        "vulkan:llvmpipe could not be measured: read: it went away"
    ]
    assert measurer.asked == [other, CPU]


@pytest.mark.usefixtures("rival")
def test_an_engine_that_cannot_be_measured_is_tried_once(
    measurer: Measurer,
) -> None:
    """An engine that cannot be measured is tried once per kinds of points."""
    measurer.broken = (CPU,)
    seen = Worth()
    for kinds, tries in ((("call",), 1), (("call",), 1), (("sort",), 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            measure_if_worth_it([CPU], lambda place, k=kinds: k, 1 * S, seen)
        assert len(measurer.asked) == tries


@pytest.mark.requires_wgpu
def test_nobody_waits_for_a_software_driver_to_be_measured(measurer: Measurer) -> None:
    """Software drivers are not measured unasked, however large the work.

    Nor is the CPU, which has no other rival; one that was measured on request is a
    rival.
    """
    lavapipe = Place(Device.VULKAN, "llvmpipe")

    def ask(*places: Place) -> list[Place]:
        lack = Worth(spent_ns=100 * S)
        measure_if_worth_it(places, lambda place: ("sort",), 100 * S, lack)
        return measurer.asked

    assert ask(CPU) == ask(lavapipe, CPU) == []
    points = (Point("sort", {}, 1.0),)
    measurer.store.save(Calibration("vulkan", *identity_of(lavapipe), points))
    assert ask(lavapipe, CPU) == [CPU]
