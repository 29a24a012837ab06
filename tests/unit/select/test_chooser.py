"""Device choice in its five cases, for a job that is neither a graph nor a Welch
estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rlxweb.core.device import Device
from rlxweb.core.errors import (
    DeviceLost,
    EnvironmentWarning,
    GraphError,
    RlxError,
    UnknownDevice,
    UsageError,
)
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.select import chooser
from rlxweb.select.calibration.engine_calibration_lookup import UNMEASURED_REASON
from rlxweb.select.calibration.observed_run_corrections import Bucket
from rlxweb.select.calibration.profitability import (
    ProfitabilityPolicy,
    profitability_policy,
)
from rlxweb.select.chooser import (
    AllowedDevices,
    DevicePick,
    PlaceRequest,
    choose_by_prediction,
    choose_fastest,
    choose_place,
    choose_place_async,
)
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.select.policy import DevicePolicy
from tests.unit.signal.fake_gpu import CPU_SPEED

MS = 1e6
VULKAN, OPENGL = DevicePlace(Device.VULKAN), DevicePlace(Device.OPENGL)
ALL_PLACES = (CPU_PLACE, VULKAN, OPENGL)


@dataclass
class FakeJob:
    """Job with a duration in ms per device, or with a text that blocks it there.

    queried_places  the places it was asked about
    """

    costs: dict[str, float | str]
    key: str | None = None
    allowed_devices: AllowedDevices = "anywhere"
    errors: dict[str, Exception] = field(default_factory=dict)
    queried_places: list[str] = field(default_factory=list)
    title: str = "the errand"

    def cpu_ns(self) -> float:
        cost = self.costs.get("cpu", math.inf)
        return math.inf if isinstance(cost, str) else cost * MS

    def candidates(self, place: DevicePlace) -> Iterator[Candidate]:
        self.queried_places.append(place.label)
        label = place.device.label
        cost = self.costs.get(label, "shut")
        is_known = isinstance(cost, float)
        yield Candidate(
            place.device,
            label,
            terms=Terms(compute_ns=cost * MS) if is_known else None,
            source="test" if is_known else "",
            blocker="" if is_known else str(cost),
            adapter=place.adapter,
        )

    def requested_candidates(self, place: DevicePlace) -> Sequence[Candidate]:
        if place.device.label in self.errors:
            raise self.errors[place.device.label]
        return list(self.candidates(place))

    def point_kinds(self, place: DevicePlace) -> tuple[str, ...]:
        return (f"errand on {place}",)

    def bucket(self, candidate: Candidate) -> Bucket | None:
        return None

    def decision_numbers(self, candidate: Candidate) -> dict[str, Any]:
        return {"miles": 7}

    def no_device_error(self, reasons: str, places: Sequence[DevicePlace]) -> RlxError:
        return GraphError(self.title, "nobody runs it", reasons)


@pytest.fixture
def three_engines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Simulate a machine of three engines; the list holds the arguments of each device
    search.
    """
    searches: list[tuple[Any, ...]] = []

    def places(devices: Any = None, adapters: Any = None) -> tuple[DevicePlace, ...]:
        searches.append((devices, adapters))
        matching = ALL_PLACES if devices is None else [DevicePlace(d) for d in devices]
        return tuple(
            DevicePlace(p.device, (adapters or {}).get(p.device, "")) for p in matching
        )

    monkeypatch.setattr(chooser, "available_places", places)
    return searches


def candidate_engines(pick: DevicePick[FakeJob]) -> list[str]:
    return [c.engine for c in pick.decision.candidates]


@pytest.mark.parametrize(
    ("place_request", "place", "why"),
    [
        (
            PlaceRequest("vulkan"),
            "vulkan",
            "it was requested; predicted 9.00 ms (test)",
        ),
        (
            PlaceRequest(Device.VULKAN, "arc"),
            "vulkan:arc",
            "it was requested; predicted 9.00",
        ),
        (
            PlaceRequest(None, "arc"),
            "gpu:arc",
            "its adapter was requested by name; predicted",
        ),
        (PlaceRequest("auto", "arc"), "gpu:arc", "its adapter was requested by name; "),
    ],
)
def test_named_place_is_used(
    three_engines: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    place_request: PlaceRequest,
    place: str,
    why: str,
) -> None:
    """A named place is used even if others are faster or the environment names
    another.
    """
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    monkeypatch.setenv("RLX_DENY_DEVICES", "vulkan,gpu")
    job = FakeJob({"cpu": 1.0, "vulkan": 9.0, "gpu": 9.0})
    pick = choose_place(job, place_request)
    assert DevicePlace(pick.device, pick.candidate.adapter).label == place
    assert pick.decision.why.startswith(why)
    assert pick.decision.numbers == {"miles": 7, "predicted_ms": 9.0, "source": "test"}
    assert (job.queried_places, three_engines, pick.job) == ([place], [], job)


def test_named_place_is_never_replaced(three_engines: list[Any]) -> None:
    """The caller gets the error of the named place, and an error if no candidate runs
    there.
    """
    lost = DeviceLost("open", "it went away")
    job = FakeJob({"cpu": 1.0}, errors={"vulkan": lost})
    with pytest.raises(DeviceLost) as excinfo:
        choose_place(job, PlaceRequest("vulkan"))
    assert excinfo.value is lost
    with pytest.raises(GraphError, match="nobody runs it; opengl: shut"):
        choose_place(job, PlaceRequest("opengl"))
    with pytest.raises(UnknownDevice):
        choose_place(job, PlaceRequest("abacus"))
    assert job.queried_places == ["opengl"]


def test_unmeasured_named_place_is_used(three_engines: list[Any]) -> None:
    pick = choose_place(FakeJob({"vulkan": UNMEASURED_REASON}), PlaceRequest("vulkan"))
    assert pick.device is Device.VULKAN
    assert pick.decision.why == "it was requested"
    assert pick.decision.candidates == (pick.candidate,)
    assert pick.candidate.blocker == ""


def test_rlx_device_is_respected(
    three_engines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE is respected, on the adapter that is known for it."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    job = FakeJob({"cpu": 1.0, "vulkan": 9.0})
    pick = choose_place(job, PlaceRequest(adapters={Device.VULKAN: "arc"}))
    assert (pick.device, pick.candidate.adapter) == (Device.VULKAN, "arc")
    assert pick.decision.why.startswith("RLX_DEVICE=vulkan; predicted 9.00 ms")
    assert three_engines == []


def test_forced_device_overrides_prediction(
    three_engines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_FORCE_DEVICE comes after RLX_DEVICE and before any policy and cached pick.

    It counts also where RLX_DEVICE is passed over; what it cannot run is an error.
    """
    lost = DeviceLost("open", "gone")
    job = FakeJob({"cpu": 1.0, "vulkan": 9.0}, key="again", errors={"mlx": lost})
    only_cpu = DevicePolicy.only(["cpu"])
    assert choose_place(job).device is Device.CPU
    monkeypatch.setenv("RLX_FORCE_DEVICE", "vulkan")
    for pick in (
        choose_place(job),
        choose_by_prediction(job, only_cpu),
        choose_place(job, PlaceRequest(None)),
    ):
        assert pick.device is Device.VULKAN
        assert pick.decision.why.startswith("RLX_FORCE_DEVICE=vulkan")
    assert choose_place(job, PlaceRequest("cpu")).device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert choose_place(job).device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "mlx")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=mlx"):
        assert choose_place(job).device is Device.VULKAN
    monkeypatch.delenv("RLX_DEVICE")
    with pytest.raises(DeviceLost, match="gone"):
        choose_place(FakeJob({"cpu": 1.0}, errors={"vulkan": lost}))


@pytest.mark.parametrize(
    ("costs", "refusal", "policy", "message"),
    [
        ({}, UsageError("it", "is too heavy"), None, "it: is too heavy"),
        ({}, DeviceLost("open", "gone"), None, "open: gone"),
        ({"vulkan": 1.0}, None, DevicePolicy.only(["cpu"]), "the policy allows cpu"),
    ],
)
def test_rlx_device_that_cannot_run_job_warns(
    three_engines: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    costs: dict[str, Any],
    refusal: Exception | None,
    policy: DevicePolicy | None,
    message: str,
) -> None:
    """RLX_DEVICE that cannot run a job is warned about; the prediction decides."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    job = FakeJob({"cpu": 1.0} | costs, errors={"vulkan": refusal} if refusal else {})
    with pytest.warns(EnvironmentWarning) as caught:
        assert choose_place(job, PlaceRequest(policy=policy)).device is Device.CPU
    assert [str(w.message) for w in caught] == [
        f"RLX_DEVICE=vulkan cannot run the errand and is ignored: {message}"
    ]


def test_environment_policy_is_named_in_warning(
    three_engines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    monkeypatch.setenv("RLX_DENY_DEVICES", "vulkan")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICES or RLX_DENY_DEVICES ex"):
        choose_place(FakeJob({"cpu": 1.0, "vulkan": 0.5}))


def test_bug_in_job_is_raised(
    three_engines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    broken = FakeJob({"cpu": 1.0}, errors={"vulkan": ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        choose_place(broken)


def test_repeated_job_uses_cached_pick(three_engines: list[Any]) -> None:
    """A job's pick is cached for its policy and adapters until something is measured.

    One without a key is asked each time.
    """
    costs: dict[str, float | str] = {"cpu": 1.0, "vulkan": 0.5}
    first = choose_place(FakeJob(costs, "a"))
    repeated = FakeJob(costs, "a")
    assert choose_place(repeated) is first
    assert repeated.queried_places == []
    requests = [
        PlaceRequest(policy=DevicePolicy.only(["cpu"])),
        PlaceRequest(adapters={Device.VULKAN: "arc"}),
        PlaceRequest(adapters={Device.VULKAN: "xe"}),
        PlaceRequest("vulkan"),
        PlaceRequest("vulkan", "arc"),
    ]
    picks = [choose_place(FakeJob(costs, "a"), request) for request in requests]
    assert len({id(pick) for pick in (first, *picks)}) == 6
    assert [choose_place(FakeJob(costs, "a"), request) for request in requests] == picks
    assert choose_place(FakeJob(costs, "b")) is not first
    CPU_SPEED.save_calibration(CPU_PLACE)  # what was measured since counts
    assert choose_place(FakeJob(costs, "a")) is not first
    assert choose_place(FakeJob(costs)) is not choose_place(FakeJob(costs))


@pytest.mark.parametrize(
    ("ms", "note"),
    [
        (0.05, "the job is too small to benefit from another device"),
        (4.9, ProfitabilityPolicy().rule),
    ],
)
@pytest.mark.usefixtures("nowhere_else")
def test_small_jobs_open_no_device(ms: float, note: str) -> None:
    """The decision gives the reason; accumulated work opens devices in the end."""
    job = FakeJob({"cpu": ms, "vulkan": 0.01})
    pick = choose_place(job)
    assert (pick.device, pick.cpu_ns, profitability_policy.spent_ns) == (
        Device.CPU,
        ms * MS,
        ms * MS,
    )
    assert pick.decision.why == f"predicted {pick.decision.why.split()[1]} " + (
        f"{'us' if ms < 1 else 'ms'} (test); {note}"
    )
    profitability_policy.add_job(1e9)
    if ms < 1:
        assert choose_place(job).device is Device.CPU  # no trip is ever as short
    else:
        with pytest.raises(AssertionError, match="were looked for"):
            choose_place(job)


def test_allowed_devices_limit_the_search(three_engines: list[Any]) -> None:
    """A job may be limited to the CPU, however large, or to other devices, however
    small.
    """
    cpu_job = FakeJob({"cpu": 1e6, "vulkan": 1.0}, allowed_devices="cpu")
    assert choose_place(cpu_job).device is Device.CPU
    assert three_engines == []
    assert choose_place(
        FakeJob({"cpu": 0.01, "vulkan": 0.001}, allowed_devices="devices")
    ).device is (Device.VULKAN)
    assert three_engines == [(None, None)]


def test_job_that_cpu_cannot_run_opens_devices(three_engines: list[Any]) -> None:
    pick = choose_place(FakeJob({"vulkan": 0.001}))
    assert (pick.device, pick.cpu_ns) == (Device.VULKAN, 0.0)
    assert profitability_policy.spent_ns == 0.0


def test_the_fastest_prediction_wins(three_engines: list[Any]) -> None:
    """The decision names every candidate: fastest first, blocked ones last with the
    reason.
    """
    pick = choose_place(FakeJob({"cpu": 50.0, "opengl": 30.0}))
    assert (pick.device, pick.decision.what) == (Device.OPENGL, "device opengl")
    assert candidate_engines(pick) == ["opengl", "cpu", "vulkan"]
    assert [c.blocker for c in pick.decision.candidates] == ["", "", "shut"]
    assert pick.decision.why == "predicted 30.0 ms (test); next best: cpu, 50.0 ms"


def test_policy_limits_the_search(three_engines: list[Any]) -> None:
    """A policy that names places is followed for the smallest job too."""
    policy = DevicePolicy.only(["opengl", "cpu"]).with_prefer(["opengl"])
    job = FakeJob({"cpu": 0.01, "opengl": 0.0109, "vulkan": 0.0001})
    pick = choose_place(
        job, PlaceRequest(policy=policy, adapters={Device.OPENGL: "arc"})
    )
    assert three_engines == [((Device.OPENGL, Device.CPU), {Device.OPENGL: "arc"})]
    assert (pick.device, pick.candidate.adapter) == (Device.OPENGL, "arc")


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        ((Device.OPENGL, Device.VULKAN), "vulkan"),
        ((Device.OPENGL,), "cpu"),
        ((Device.MLX, Device.CPU), "cpu"),
        ((), "cpu"),
    ],
)
def test_a_preferred_device_wins_a_near_tie(
    prefer: tuple[Device, ...], expected: str
) -> None:
    """A preferred device is taken within ten percent of the fastest, not beyond."""
    job = FakeJob({"cpu": 1.0, "vulkan": 1.09, "opengl": 1.2})
    pick = choose_fastest(job, places=ALL_PLACES, prefer=prefer)
    assert pick.device.label == expected
    preference_note = "preferred because its time is within 10% of the best"
    assert (preference_note in pick.decision.why) == (expected == "vulkan")


def test_no_device_is_an_error_with_every_reason() -> None:
    job = FakeJob({"cpu": "too wet"})
    with pytest.raises(GraphError, match="the errand: nobody runs it; cpu: too wet; v"):
        choose_fastest(job, places=ALL_PLACES)
    with pytest.raises(GraphError, match=r"nobody runs it$"):
        choose_fastest(job, places=())


def test_unmeasured_engine_is_used_as_last_resort() -> None:
    """An unmeasured engine is used if no other has a price."""
    job = FakeJob({"cpu": "too wet", "vulkan": UNMEASURED_REASON})
    pick = choose_fastest(job, places=ALL_PLACES)
    assert pick.device is Device.VULKAN
    assert "its speed is unknown" in pick.decision.why
    assert "predicted_ms" not in pick.decision.numbers
    job.costs["opengl"] = 1e9
    assert choose_fastest(job, places=ALL_PLACES).device is Device.OPENGL


def test_engines_are_measured_for_points_of_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engines are measured if there is a choice, given the predicted CPU time."""
    calls: list[Any] = []

    def measure(
        places: Any, points: Any, cpu_ns: float, worthwhile: ProfitabilityPolicy
    ) -> None:
        calls.append(([(str(p), points(p)) for p in places], cpu_ns, worthwhile))

    monkeypatch.setattr(chooser, "measure_if_profitable", measure)
    job, policy = FakeJob({"cpu": 40.0}), ProfitabilityPolicy()
    choose_fastest(job, places=[CPU_PLACE], profitability=policy)
    assert calls == []
    choose_fastest(job, places=[CPU_PLACE, VULKAN], profitability=policy)
    points = [("cpu", ("errand on cpu",)), ("vulkan", ("errand on vulkan",))]
    assert calls == [(points, 40.0 * MS, policy)]
    assert policy.spent_ns == 80.0 * MS


def test_choice_can_be_awaited(three_engines: list[Any]) -> None:
    job = FakeJob({"cpu": 50.0, "vulkan": 1.0})
    assert run_blocking(choose_place_async(job)).device is Device.VULKAN


def test_job_without_bucket_records_no_correction(three_engines: list[Any]) -> None:
    """A job without a bucket records no correction and does not warn."""
    choose_place(FakeJob({"cpu": 50.0})).observe(1e9)
