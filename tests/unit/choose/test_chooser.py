"""Who runs a job: the five cases, for a job that is no graph and no Welch estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rlxweb.calibration.corrections import Bucket
from rlxweb.calibration.known import UNMEASURED
from rlxweb.calibration.worth import Worth, worth
from rlxweb.choose import chooser
from rlxweb.choose.chooser import (
    Asked,
    Pick,
    Reach,
    choose,
    choose_async,
    decide,
    predicted,
)
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import (
    DeviceLost,
    EnvironmentWarning,
    GraphError,
    RlxError,
    UnknownDevice,
    UsageError,
)
from rlxweb.gpu.drive import drive
from tests.unit.signal.pretend_gpu import SLOW

MS = 1e6
VULKAN, OPENGL = Place(Device.VULKAN), Place(Device.OPENGL)
EVERYWHERE = (CPU, VULKAN, OPENGL)


@dataclass
class Errand:
    """A job that takes so many ms by device; a word instead is what blocks it there.

    looked  the places it was asked about
    """

    costs: dict[str, float | str]
    key: str | None = None
    reach: Reach = "anywhere"
    refuses: dict[str, Exception] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    title: str = "the errand"

    def cpu_ns(self) -> float:
        cost = self.costs.get("cpu", math.inf)
        return math.inf if isinstance(cost, str) else cost * MS

    def offers(self, place: Place) -> Iterator[Candidate]:
        self.looked.append(place.label)
        label = place.device.label
        cost = self.costs.get(label, "shut")
        known = isinstance(cost, float)
        yield Candidate(
            place.device,
            label,
            terms=Terms(compute_ns=cost * MS) if known else None,
            source="test" if known else "",
            blocker="" if known else str(cost),
            adapter=place.adapter,
        )

    def asked(self, place: Place) -> Sequence[Candidate]:
        if place.device.label in self.refuses:
            raise self.refuses[place.device.label]
        return list(self.offers(place))

    def points(self, place: Place) -> tuple[str, ...]:
        return (f"errand on {place}",)

    def bucket(self, candidate: Candidate) -> Bucket | None:
        return None

    def numbers(self, candidate: Candidate) -> dict[str, Any]:
        return {"miles": 7}

    def nobody(self, reasons: str, places: Sequence[Place]) -> RlxError:
        return GraphError(self.title, "nobody runs it", reasons)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A machine of three engines; the list notes what was looked for there."""
    asked: list[tuple[Any, ...]] = []

    def places(devices: Any = None, adapters: Any = None) -> tuple[Place, ...]:
        asked.append((devices, adapters))
        found = EVERYWHERE if devices is None else [Place(d) for d in devices]
        return tuple(Place(p.device, (adapters or {}).get(p.device, "")) for p in found)

    monkeypatch.setattr(chooser, "available_places", places)
    return asked


def labels(pick: Pick[Errand]) -> list[str]:
    return [c.engine for c in pick.decision.candidates]


@pytest.mark.parametrize(
    ("asked", "place", "why"),
    [
        (Asked("vulkan"), "vulkan", "it was asked for; predicted 9.00 ms (test)"),
        (Asked(Device.VULKAN, "arc"), "vulkan:arc", "it was asked for; predicted 9.00"),
        (Asked(None, "arc"), "gpu:arc", "its adapter was asked for by name; predicted"),
        (Asked("auto", "arc"), "gpu:arc", "its adapter was asked for by name; "),
    ],
)
def test_a_place_that_is_named_is_taken(
    three: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    asked: Asked,
    place: str,
    why: str,
) -> None:
    """A named place is taken though others are faster or the environment differs."""
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    monkeypatch.setenv("RLX_DENY_DEVICES", "vulkan,gpu")
    job = Errand({"cpu": 1.0, "vulkan": 9.0, "gpu": 9.0})
    pick = choose(job, asked)
    assert Place(pick.device, pick.candidate.adapter).label == place
    assert pick.decision.why.startswith(why)
    assert pick.decision.numbers == {"miles": 7, "predicted_ms": 9.0, "source": "test"}
    assert (job.looked, three, pick.job) == ([place], [], job)


def test_a_named_place_is_never_swapped(three: list[Any]) -> None:
    """What refuses it there goes to the caller, as does the lack of any way."""
    lost = DeviceLost("open", "it went away")
    job = Errand({"cpu": 1.0}, refuses={"vulkan": lost})
    with pytest.raises(DeviceLost) as found:
        choose(job, Asked("vulkan"))
    assert found.value is lost
    with pytest.raises(GraphError, match="nobody runs it; opengl: shut"):
        choose(job, Asked("opengl"))
    with pytest.raises(UnknownDevice):
        choose(job, Asked("abacus"))
    assert job.looked == ["opengl"]


def test_a_named_place_that_nobody_measured_is_open(three: list[Any]) -> None:
    pick = choose(Errand({"vulkan": UNMEASURED}), Asked("vulkan"))
    assert pick.device is Device.VULKAN
    assert pick.decision.why == "it was asked for"
    assert pick.decision.candidates == (pick.candidate,)
    assert pick.candidate.blocker == ""


def test_rlx_device_is_followed(
    three: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE is followed, on the adapter that is known for it."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    job = Errand({"cpu": 1.0, "vulkan": 9.0})
    pick = choose(job, Asked(adapters={Device.VULKAN: "arc"}))
    assert (pick.device, pick.candidate.adapter) == (Device.VULKAN, "arc")
    assert pick.decision.why.startswith("RLX_DEVICE=vulkan; predicted 9.00 ms")
    assert three == []


def test_a_forced_device_is_the_fastest_by_order(
    three: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_FORCE_DEVICE comes after RLX_DEVICE and before any policy and kept pick.

    It counts also where RLX_DEVICE is passed over; what it cannot run is an error.
    """
    lost = DeviceLost("open", "gone")
    job = Errand({"cpu": 1.0, "vulkan": 9.0}, key="again", refuses={"mlx": lost})
    only_cpu = DevicePolicy.only(["cpu"])
    assert choose(job).device is Device.CPU
    monkeypatch.setenv("RLX_FORCE_DEVICE", "vulkan")
    for pick in (choose(job), predicted(job, only_cpu), choose(job, Asked(None))):
        assert pick.device is Device.VULKAN
        assert pick.decision.why.startswith("RLX_FORCE_DEVICE=vulkan")
    assert choose(job, Asked("cpu")).device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert choose(job).device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "mlx")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=mlx"):
        assert choose(job).device is Device.VULKAN
    monkeypatch.delenv("RLX_DEVICE")
    with pytest.raises(DeviceLost, match="gone"):
        choose(Errand({"cpu": 1.0}, refuses={"vulkan": lost}))


@pytest.mark.parametrize(
    ("costs", "refusal", "policy", "said"),
    [
        ({}, UsageError("it", "is too heavy"), None, "it: is too heavy"),
        ({}, DeviceLost("open", "gone"), None, "open: gone"),
        ({"vulkan": 1.0}, None, DevicePolicy.only(["cpu"]), "the policy allows cpu"),
    ],
)
def test_rlx_device_that_cannot_is_warned_about(
    three: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    costs: dict[str, Any],
    refusal: Exception | None,
    policy: DevicePolicy | None,
    said: str,
) -> None:
    """RLX_DEVICE that cannot run a job is warned about; the prediction decides."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    job = Errand({"cpu": 1.0} | costs, refuses={"vulkan": refusal} if refusal else {})
    with pytest.warns(EnvironmentWarning) as seen:
        assert choose(job, Asked(policy=policy)).device is Device.CPU
    assert [str(w.message) for w in seen] == [
        f"RLX_DEVICE=vulkan cannot run the errand and is not followed: {said}"
    ]


def test_the_environments_own_policy_is_named(
    three: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    monkeypatch.setenv("RLX_DENY_DEVICES", "vulkan")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICES or RLX_DENY_DEVICES ex"):
        choose(Errand({"cpu": 1.0, "vulkan": 0.5}))


def test_a_mistake_of_the_job_is_no_refusal(
    three: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    broken = Errand({"cpu": 1.0}, refuses={"vulkan": ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        choose(broken)


def test_a_job_that_comes_again_is_not_asked_again(three: list[Any]) -> None:
    """A job's pick is kept for its policy and adapters until something is measured.

    One without a key is asked each time.
    """
    costs: dict[str, float | str] = {"cpu": 1.0, "vulkan": 0.5}
    first = choose(Errand(costs, "a"))
    again = Errand(costs, "a")
    assert choose(again) is first
    assert again.looked == []
    others = [
        Asked(policy=DevicePolicy.only(["cpu"])),
        Asked(adapters={Device.VULKAN: "arc"}),
        Asked(adapters={Device.VULKAN: "xe"}),
        Asked("vulkan"),
        Asked("vulkan", "arc"),
    ]
    picks = [choose(Errand(costs, "a"), asked) for asked in others]
    assert len({id(pick) for pick in (first, *picks)}) == 6
    assert [choose(Errand(costs, "a"), asked) for asked in others] == picks
    assert choose(Errand(costs, "b")) is not first
    SLOW.give_to(CPU)  # what was measured since counts
    assert choose(Errand(costs, "a")) is not first
    assert choose(Errand(costs)) is not choose(Errand(costs))


@pytest.mark.parametrize(
    ("ms", "note"),
    [(0.05, "too small to pay for a trip to any device"), (4.9, Worth().rule)],
)
@pytest.mark.usefixtures("nowhere_else")
def test_small_jobs_open_nothing(ms: float, note: str) -> None:
    """The decision says so; work that adds up opens devices in the end."""
    job = Errand({"cpu": ms, "vulkan": 0.01})
    pick = choose(job)
    assert (pick.device, pick.cpu_ns, worth.spent_ns) == (Device.CPU, ms * MS, ms * MS)
    assert pick.decision.why == f"predicted {pick.decision.why.split()[1]} " + (
        f"{'us' if ms < 1 else 'ms'} (test); {note}"
    )
    worth.add(1e9)
    if ms < 1:
        assert choose(job).device is Device.CPU  # no trip is ever as short
    else:
        with pytest.raises(AssertionError, match="were looked for"):
            choose(job)


def test_reach_says_who_is_asked_at_all(three: list[Any]) -> None:
    """A job's reach asks the CPU alone, however large, or devices, however small."""
    here = Errand({"cpu": 1e6, "vulkan": 1.0}, reach="cpu")
    assert choose(here).device is Device.CPU
    assert three == []
    assert choose(Errand({"cpu": 0.01, "vulkan": 0.001}, reach="devices")).device is (
        Device.VULKAN
    )
    assert three == [(None, None)]


def test_what_the_cpu_cannot_run_is_worth_opening_devices_for(three: list[Any]) -> None:
    pick = choose(Errand({"vulkan": 0.001}))
    assert (pick.device, pick.cpu_ns) == (Device.VULKAN, 0.0)
    assert worth.spent_ns == 0.0


def test_the_fastest_prediction_wins(three: list[Any]) -> None:
    """The decision names every way: fastest first, blocked ones last, with why."""
    pick = choose(Errand({"cpu": 50.0, "opengl": 30.0}))
    assert (pick.device, pick.decision.what) == (Device.OPENGL, "device opengl")
    assert labels(pick) == ["opengl", "cpu", "vulkan"]
    assert [c.blocker for c in pick.decision.candidates] == ["", "", "shut"]
    assert pick.decision.why == "predicted 30.0 ms (test); next, cpu, 50.0 ms"


def test_a_policy_says_where_to_look(three: list[Any]) -> None:
    """A policy that names places is followed for the smallest job too."""
    policy = DevicePolicy.only(["opengl", "cpu"]).with_prefer(["opengl"])
    job = Errand({"cpu": 0.01, "opengl": 0.0109, "vulkan": 0.0001})
    pick = choose(job, Asked(policy=policy, adapters={Device.OPENGL: "arc"}))
    assert three == [((Device.OPENGL, Device.CPU), {Device.OPENGL: "arc"})]
    assert (pick.device, pick.candidate.adapter) == (Device.OPENGL, "arc")


@pytest.mark.parametrize(
    ("prefer", "taken"),
    [
        ((Device.OPENGL, Device.VULKAN), "vulkan"),
        ((Device.OPENGL,), "cpu"),
        ((Device.MLX, Device.CPU), "cpu"),
        ((), "cpu"),
    ],
)
def test_a_preferred_device_wins_a_near_tie(
    prefer: tuple[Device, ...], taken: str
) -> None:
    """A preferred device is taken within ten percent of the fastest, not beyond."""
    job = Errand({"cpu": 1.0, "vulkan": 1.09, "opengl": 1.2})
    pick = decide(job, places=EVERYWHERE, prefer=prefer)
    assert pick.device.label == taken
    said = "preferred, being within 10% of the best"
    assert (said in pick.decision.why) == (taken == "vulkan")


def test_nobody_is_an_error_with_every_reason() -> None:
    job = Errand({"cpu": "too wet"})
    with pytest.raises(GraphError, match="the errand: nobody runs it; cpu: too wet; v"):
        decide(job, places=EVERYWHERE)
    with pytest.raises(GraphError, match=r"nobody runs it$"):
        decide(job, places=())


def test_an_unmeasured_engine_is_better_than_none() -> None:
    """An unmeasured engine is taken where no other has a price."""
    job = Errand({"cpu": "too wet", "vulkan": UNMEASURED})
    pick = decide(job, places=EVERYWHERE)
    assert pick.device is Device.VULKAN
    assert "nothing is known of its speed" in pick.decision.why
    assert "predicted_ms" not in pick.decision.numbers
    job.costs["opengl"] = 1e9
    assert decide(job, places=EVERYWHERE).device is Device.OPENGL


def test_engines_are_measured_for_what_the_job_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engines are measured where there is a choice, given what the CPU would take."""
    seen: list[Any] = []

    def measure(places: Any, points: Any, cpu_ns: float, worthwhile: Worth) -> None:
        seen.append(([(str(p), points(p)) for p in places], cpu_ns, worthwhile))

    monkeypatch.setattr(chooser, "measure_if_worth_it", measure)
    job, mine = Errand({"cpu": 40.0}), Worth()
    decide(job, places=[CPU], worthwhile=mine)
    assert seen == []
    decide(job, places=[CPU, VULKAN], worthwhile=mine)
    points = [("cpu", ("errand on cpu",)), ("vulkan", ("errand on vulkan",))]
    assert seen == [(points, 40.0 * MS, mine)]
    assert mine.spent_ns == 80.0 * MS


def test_it_can_be_awaited(three: list[Any]) -> None:
    job = Errand({"cpu": 50.0, "vulkan": 1.0})
    assert drive(choose_async(job)).device is Device.VULKAN


def test_a_job_without_a_bucket_learns_nothing(three: list[Any]) -> None:
    """A job without a bucket learns nothing, and does not warn."""
    choose(Errand({"cpu": 50.0})).observe(1e9)
