"""Predicting and picking devices: RLX's rule, calibrated prices, worth, preference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, Session, device_report
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import Worth
from rlxweb.choose import predict
from rlxweb.choose.fastest import fastest, fastest_among, seed_pick
from rlxweb.choose.predict import bucket_of, decide_graph, graph_candidate
from rlxweb.choose.priced import UNMEASURED, gate_of, measure_if_worth_it, priced
from rlxweb.choose.supports import devices_for, supports_graph
from rlxweb.cost import Candidate, Terms, fastest_device_for
from rlxweb.cost.record import Calibration, Point
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, available_places, distinct, parse_place
from rlxweb.errors import CalibrationWarning, DeviceLost, UnknownDevice, Unsupported
from rlxweb.runners.benchmark import benchmark_devices, warm_all
from tests.unit.runners.fakes import FakeMachine, adding


def exponential(n: int = 4, dtype: str = "f32") -> Graph:
    graph = Graph("exponential")
    graph.set_outputs([graph.exp(graph.input("x", (n,), dtype))])
    return graph


# --- places -----------------------------------------------------------------------


def test_places_are_written_and_read() -> None:
    assert parse_place("vulkan:SwiftShader") == Place(Device.VULKAN, "SwiftShader")
    assert parse_place(" GL ").label == "opengl"
    assert str(parse_place(Device.CPU)) == "cpu"
    assert parse_place(CPU) is CPU
    with pytest.raises(UnknownDevice):
        parse_place("abacus:one")


@pytest.mark.requires_wgpu
def test_an_engine_is_listed_once() -> None:
    """Gpu and vulkan open the same adapter here; the CPU comes first."""
    found = available_places()
    assert found[0] == CPU
    again = distinct(
        [*found, Place(Device.GPU), Place(Device.VULKAN), Place(Device.TPU)]
    )
    assert len(again) == len(found)
    assert available_places([Device.CPU]) == (CPU,)


# --- RLX's own rule ---------------------------------------------------------------


def test_seed_pick() -> None:
    """Two models are compared; one wins unseen; none leaves the priority."""
    graph = exponential()
    assert seed_pick(graph, [Device.GPU, Device.CPU]) is Device.CPU
    assert seed_pick(graph, [Device.VULKAN, Device.GPU]) is Device.GPU
    assert seed_pick(graph, [Device.OPENGL, Device.VULKAN]) is Device.VULKAN
    assert fastest_among([]) is Device.CPU
    assert fastest_among([Device.CPU, Device.CUDA]) is Device.CUDA


def test_a_small_product_runs_where_it_may() -> None:
    """The seeds' own test: the pick is available and among the candidates."""
    graph = Graph()
    graph.set_outputs([graph.input("a", (4, 4)) @ graph.input("b", (4, 4))])
    for mode in ("seed", "calibrated"):
        from rlxweb.choose.fastest import fastest_device_for as pick

        device = pick(graph, cost_mode=mode)
        assert device in devices_for(graph)
        assert supports_graph(device, graph)
    assert fastest_device_for(graph) is Device.CPU


# --- calibrated picks -------------------------------------------------------------


def offers(monkeypatch: pytest.MonkeyPatch, **ns: float) -> tuple[Place, ...]:
    """Places whose predictions are given; inf blocks."""
    places = {Device(label): value for label, value in ns.items()}

    def offer(graph: Graph, place: Place) -> tuple[Candidate, None]:
        value = places.get(place.device, math.inf)
        if math.isinf(value):
            return Candidate(place.device, place.label, blocker="shut"), None
        terms = Terms(compute_ns=value)
        return Candidate(place.device, place.label, terms=terms, source="test"), None

    monkeypatch.setattr(predict, "graph_candidate", offer)
    return tuple(Place(d) for d in places)


def test_the_smallest_prediction_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    places = offers(monkeypatch, cpu=5e6, vulkan=3e6, opengl=4e6, gpu=math.inf)
    pick = decide_graph(exponential(), places=places)
    assert pick.device is Device.VULKAN
    assert [c.device.label for c in pick.decision.candidates] == [
        "vulkan",
        "opengl",
        "cpu",
        "gpu",
    ]
    assert "predicted 3.00 ms" in pick.decision.why
    assert "next, opengl, 4.00 ms" in pick.decision.why


def test_a_preferred_device_wins_a_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within ten percent it is taken, beyond it is not; RLX ignores the list."""
    places = offers(monkeypatch, cpu=1.0e6, vulkan=1.09e6, opengl=1.2e6)
    prefer = (Device.OPENGL, Device.VULKAN)
    pick = decide_graph(exponential(), places=places, prefer=prefer)
    assert pick.device is Device.VULKAN
    assert "preferred, being within 10% of the best" in pick.decision.why
    pick = decide_graph(exponential(), places=places, prefer=(Device.OPENGL,))
    assert pick.device is Device.CPU


def test_nothing_left_is_an_error_with_every_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = offers(monkeypatch, cpu=math.inf, vulkan=math.inf)
    with pytest.raises(Unsupported, match="cpu: shut; vulkan: shut"):
        decide_graph(exponential(), places=places)


def test_small_graphs_open_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other devices are asked for large jobs, or once enough work was seen."""

    def never(devices: object = None) -> tuple[Place, ...]:
        raise AssertionError("a device was opened")

    monkeypatch.setattr(predict, "available_places", never)
    quiet = Worth()
    pick = decide_graph(exponential(), worthwhile=quiet)
    assert pick.device is Device.CPU
    assert "too small to pay for a trip" in pick.decision.why
    medium = exponential(1 << 17)
    assert (
        "opened for jobs of 5 ms" in decide_graph(medium, worthwhile=quiet).decision.why
    )
    with pytest.raises(AssertionError, match="was opened"):
        decide_graph(medium, worthwhile=Worth(spent_ns=0.5e9))
    with pytest.raises(AssertionError, match="was opened"):
        decide_graph(exponential(1 << 24), worthwhile=quiet)


def test_work_adds_up() -> None:
    seen = Worth()
    assert not seen.opening(1e6)
    assert seen.opening(5e6)
    assert not seen.measuring(5e6)
    assert seen.measuring(25e6)
    seen.add(0.6e9)
    assert seen.opening(1.0)
    seen.add(1.5e9)
    assert seen.measuring(1.0)


def test_wide_types_are_blocked_on_shaders() -> None:
    candidate, work = graph_candidate(exponential(8, "f64"), Place(Device.TPU))
    assert candidate.blocker
    assert work is None


@pytest.mark.requires_wgpu
def test_software_that_was_not_measured_is_not_guessed_at() -> None:
    """A record makes it a candidate; without one the reason is told."""
    place = Place(Device.VULKAN, "llvmpipe")
    assert priced(place, "submit") == UNMEASURED
    candidate, _ = graph_candidate(exponential(), place)
    assert candidate.blocker == UNMEASURED
    assert gate_of(place) is None
    from rlxweb.calibration.measure import identity_of

    points = (Point("submit", {}, 5e4), Point("dispatch", {}, 1e3))
    store.save(Calibration("vulkan", *identity_of(place), points))
    candidate, work = graph_candidate(exponential(), place)
    assert candidate.blocker == ""
    assert candidate.source == "calibrated"
    assert candidate.terms is not None
    assert candidate.terms.sync_ns == 5e4
    assert work is not None
    gate = gate_of(place)
    assert gate is not None
    assert gate.dispatch_ns == 1e3
    assert bucket_of(candidate, work)[0] == candidate.engine


def test_the_seed_gate_is_rlx_s() -> None:
    gate = gate_of(CPU, "seed")
    assert gate is not None
    assert (gate.dispatch_ns, gate.source) == (50.0, "seed")


def test_measuring_waits_for_need_and_survives_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only large jobs, only where allowed; a device that fails is warned about."""
    asked: list[Place] = []

    def measure(device: Device, adapter: str, jobs: object, what: str) -> None:
        asked.append(Place(device, adapter))
        raise DeviceLost("calibrate", "it went away")

    monkeypatch.setattr("rlxweb.choose.priced.record_for", measure)
    monkeypatch.setattr("rlxweb.choose.priced.known_record", lambda d, a="": None)
    measure_if_worth_it([CPU], lambda p: "call", 1e6, Worth())
    assert asked == []
    measure_if_worth_it([CPU], lambda p: "call", 1e9, Worth())
    assert asked == []  # RLX_CALIBRATION=off in tests
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    with pytest.warns(CalibrationWarning, match="cpu could not be measured.*went away"):
        measure_if_worth_it([CPU], lambda p: "call", 1e9, Worth())
    assert asked == [CPU]


def test_the_environment_chooses_for_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    made = Session("auto").compile(exponential())
    assert made.decisions[0].why == "RLX_DEVICE=cpu"
    monkeypatch.delenv("RLX_DEVICE")
    monkeypatch.setenv("RLX_DEVICES", "cpu")
    assert Session("auto").compile(exponential(1 << 24)).device is Device.CPU


# --- reports ----------------------------------------------------------------------


def test_the_report_tells_blockers_in_order() -> None:
    """Not there, not lowered, denied, not allowed, and who is recommended."""
    graph = exponential()
    policy = DevicePolicy.only(["cpu", "vulkan", "tpu"]).with_deny(["vulkan"])
    rows = {row.label: row for row in device_report(graph, policy)}
    assert rows["cpu"].recommended
    assert rows["cpu"].supports_graph
    assert rows["cpu"].blocker == ""
    assert rows["tpu"].blocker.startswith("not available on this host or in this build")
    assert not rows["tpu"].registered
    if rows["vulkan"].available:
        assert rows["vulkan"].blocker == "denied by DevicePolicy"
        assert rows["opengl"].blocker == "not in DevicePolicy allow-list"
    document = rows["cpu"].as_json()
    assert document["recommended"] is True
    assert document["supports_graph"] is True


@pytest.mark.requires_wgpu
def test_an_op_that_cannot_be_lowered_is_named() -> None:
    graph = exponential(4, "f64")
    rows = {row.label: row for row in device_report(graph)}
    assert rows["vulkan"].blocker.startswith("unsupported op at node 0: input (")
    assert not rows["vulkan"].supports_graph
    assert not supports_graph("vulkan", graph)
    assert Device.VULKAN not in devices_for(graph)


# --- functions over devices -------------------------------------------------------


def test_benchmark_devices_counts_no_first_run() -> None:
    """And says why a device failed."""
    machine, now = FakeMachine(), [0]
    steps = iter([1000, 7, 5, 6, 1000])
    machine.on_run[Device.CPU] = lambda: now.__setitem__(0, now[0] + next(steps))
    machine.refuses[Device.GPU] = RuntimeError("no")
    rows = benchmark_devices(
        adding(),
        {"x": np.zeros(2, np.float32)},
        3,
        params={"w": np.ones(2, np.float32)},
        devices=[Device.GPU, Device.CPU],
        compile_with=machine.compile,
        clock=lambda: now[0],
    )
    assert [(r.label, r.median_exec_ns, r.error) for r in rows] == [
        ("cpu", 6.0, ""),
        ("gpu", 0.0, "no"),
    ]
    assert machine.made[0].closed


def test_warm_all_compiles_everywhere() -> None:
    machine = FakeMachine()
    made = warm_all(
        exponential(), DevicePolicy.only(["cpu"]), compile_with=machine.compile
    )
    assert list(made) == [Device.CPU]


def test_fastest_keeps_to_the_policy() -> None:
    assert fastest(exponential(), DevicePolicy.only(["cpu"])).device is Device.CPU
    with pytest.raises(Unsupported):
        fastest(exponential(), DevicePolicy.only(["tpu"]))
