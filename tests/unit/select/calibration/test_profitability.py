"""Tests of when opening other devices and measuring engines is profitable."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlxweb.core.device import Device
from rlxweb.core.errors import CalibrationWarning, DeviceLost
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.select.calibration.calibration_store import CalibrationStore
from rlxweb.select.calibration.engine_calibration_lookup import (
    PointKinds,
    measure_if_profitable,
)
from rlxweb.select.calibration.measure_engine import BUDGET_S
from rlxweb.select.calibration.profitability import (
    NS_PER_MS,
    NS_PER_S,
    ProfitabilityPolicy,
)
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, engine_identity
from tests.run_in_threads import run_concurrently


@pytest.mark.parametrize(
    ("cpu_ns", "spent_ns", "is_trivial", "should_open", "should_measure"),
    [
        (0.0999 * NS_PER_MS, 0.0, True, False, False),
        (0.1 * NS_PER_MS, 0.0, False, False, False),
        (4.999 * NS_PER_MS, 0.499 * NS_PER_S, False, False, False),
        (5 * NS_PER_MS, 0.0, False, True, False),
        (1.0, 0.5 * NS_PER_S, True, True, False),
        (24.9 * NS_PER_MS, 1.999 * NS_PER_S, False, True, False),
        (25 * NS_PER_MS, 0.0, False, True, True),
        (1.0, 2 * NS_PER_S, True, True, True),
    ],
)
def test_limits_of_profitability(
    cpu_ns: float,
    spent_ns: float,
    is_trivial: bool,
    should_open: bool,
    should_measure: bool,
) -> None:
    """Opening and measuring pay for one large job, or many small ones that add up."""
    policy = ProfitabilityPolicy()
    policy.add_job(spent_ns)
    assert policy.is_trivial(cpu_ns) is is_trivial
    assert policy.should_open(cpu_ns) is should_open
    assert policy.should_measure(cpu_ns) is should_measure
    assert policy.rule == (
        "other devices are opened only for jobs of 5 ms or more, or after 0.5 s of "
        "work in total"
    )


def test_work_of_threads_adds_up() -> None:
    policy = ProfitabilityPolicy()
    run_concurrently([lambda: [policy.add_job(1.0) for _ in range(5_000)]] * 4)
    assert policy.spent_ns == 20_000.0


@dataclass
class FakeRecordFor:
    """Stand-in for `record_for` that notes which places are measured; some engines
    fail.
    """

    store: CalibrationStore
    broken: tuple[DevicePlace, ...] = ()
    measured_places: list[DevicePlace] = field(default_factory=list)

    def __call__(
        self, device: Device, adapter: str, points: PointKinds, budget_s: float
    ) -> None:
        assert budget_s < BUDGET_S, "nobody asked for it"
        place = DevicePlace(device, adapter)
        self.measured_places.append(place)
        if place in self.broken:
            raise DeviceLost("read", "it went away")
        points = (MeasuredPoint("call", {}, 1.0),)
        self.store.save(Calibration("cpu", *engine_identity(CPU_PLACE), points))


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRecordFor:
    store = CalibrationStore(tmp_path)
    fake = FakeRecordFor(store)
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.calibration_store", store
    )
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.record_for", fake
    )
    return fake


@pytest.fixture
def rival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every place count as able to replace the CPU."""
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup._can_replace_cpu",
        lambda place, kinds: True,
    )


@pytest.mark.usefixtures("rival")
def test_engine_is_measured_when_profitable(measurer: FakeRecordFor) -> None:
    """An engine is measured from 25 ms of work on, and again for points it lacks."""

    def measurement_count(cpu_ns: float, *points: str) -> int:
        measure_if_profitable(
            [CPU_PLACE], lambda place: points, cpu_ns, ProfitabilityPolicy()
        )
        return len(measurer.measured_places)

    assert measurement_count(24.9 * NS_PER_MS, "call") == 0
    assert measurement_count(25 * NS_PER_MS, "call") == 1
    assert measurement_count(99 * NS_PER_MS, "submit", "call") == 1
    assert measurement_count(99 * NS_PER_MS, "welch_host") == 2


@pytest.mark.usefixtures("rival")
def test_nothing_is_measured_when_disabled(
    measurer: FakeRecordFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    measure_if_profitable(
        [CPU_PLACE],
        lambda place: ("call",),
        1 * NS_PER_S,
        ProfitabilityPolicy(spent_ns=9 * NS_PER_S),
    )
    assert measurer.measured_places == []


def test_failing_engine_does_not_stop_others(
    measurer: FakeRecordFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that fails causes a warning with its name and the reason."""
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.known_record",
        lambda d, a="": None,
    )
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup._is_software",
        lambda place: False,
    )
    other = DevicePlace(Device.VULKAN, "llvmpipe")
    measurer.broken = (other,)
    with pytest.warns(CalibrationWarning) as caught:
        measure_if_profitable(
            [other, CPU_PLACE],
            lambda place: ("call",),
            1 * NS_PER_S,
            ProfitabilityPolicy(),
        )
    assert [str(w.message) for w in caught] == [
        "vulkan:llvmpipe could not be measured: read: it went away"
    ]
    assert measurer.measured_places == [other, CPU_PLACE]


@pytest.mark.usefixtures("rival")
def test_failing_engine_is_attempted_once(
    measurer: FakeRecordFor,
) -> None:
    """An engine that cannot be measured is tried once per kinds of points."""
    measurer.broken = (CPU_PLACE,)
    policy = ProfitabilityPolicy()
    for kinds, tries in ((("call",), 1), (("call",), 1), (("sort",), 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            measure_if_profitable(
                [CPU_PLACE], lambda place, k=kinds: k, 1 * NS_PER_S, policy
            )
        assert len(measurer.measured_places) == tries


@pytest.mark.requires_wgpu
def test_software_driver_is_not_measured_automatically(measurer: FakeRecordFor) -> None:
    """Software drivers are not measured unless requested, however large the work.

    Nor is the CPU, which has no other rival; one that was measured on request is a
    rival.
    """
    lavapipe = DevicePlace(Device.VULKAN, "llvmpipe")

    def measure(*places: DevicePlace) -> list[DevicePlace]:
        policy = ProfitabilityPolicy(spent_ns=100 * NS_PER_S)
        measure_if_profitable(places, lambda place: ("sort",), 100 * NS_PER_S, policy)
        return measurer.measured_places

    assert measure(CPU_PLACE) == measure(lavapipe, CPU_PLACE) == []
    points = (MeasuredPoint("sort", {}, 1.0),)
    measurer.store.save(Calibration("vulkan", *engine_identity(lavapipe), points))
    assert measure(lavapipe, CPU_PLACE) == [CPU_PLACE]
