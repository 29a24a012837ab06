"""Picking devices for graphs: RLX's rule, calibrated prices, reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, Session, device_report
from rlxweb.calibration.known import UNMEASURED, priced
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import Worth
from rlxweb.choose import graphs, resolve
from rlxweb.choose.chooser import decide
from rlxweb.choose.graphs import GraphJob, gate_of
from rlxweb.choose.resolve import devices_for, fastest, supports_graph
from rlxweb.choose.resolve import fastest_device_for as pick
from rlxweb.choose.seed import seed_pick
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan import Plan
from rlxweb.cost import Candidate, fastest_device_for
from rlxweb.cost.record import Calibration, Point
from rlxweb.device import PRIORITY, Device, fastest_among
from rlxweb.devices.place import (
    CPU,
    Place,
    available_places,
    distinct,
    identity_of,
    parse_place,
)
from rlxweb.errors import EnvironmentWarning, UnknownDevice, Unsupported, UsageError
from rlxweb.ir.op import Attr, registry
from rlxweb.runtime.device_benchmark import benchmark_devices, warm_all
from tests.fake_port import Failure
from tests.unit.runtime.fake_machine import THREE, FakeMachine, adding
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices
from tests.unit.signal.pretend_gpu import PLACE, PretendGpu


def exponential(n: int = 4, dtype: str = "f32") -> Graph:
    graph = Graph("exponential")
    graph.set_outputs([graph.exp(graph.input("x", (n,), dtype))])
    return graph


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


def test_a_denied_device_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied device is not opened, since opening it may hang."""
    asked = []
    monkeypatch.setattr(resolve, "is_available", lambda d: not asked.append(d))
    policy = DevicePolicy.only("vulkan cpu").with_deny("vulkan")
    assert devices_for(exponential(), policy) == (Device.CPU,)
    assert asked == [Device.CPU]


def test_seed_pick() -> None:
    """Two models are compared; one wins unseen; none leaves the priority."""
    graph = exponential()
    assert seed_pick(graph, [Device.GPU, Device.CPU]) is Device.CPU
    assert seed_pick(graph, [Device.VULKAN, Device.GPU]) is Device.GPU
    assert seed_pick(graph, [Device.OPENGL, Device.VULKAN]) is Device.VULKAN
    assert fastest_among([]) is Device.CPU
    assert fastest_among([Device.CPU, Device.CUDA]) is Device.CUDA
    assert fastest_among(["webgpu", "wgpu", "cpu"]) is Device.GPU
    assert fastest_among(iter(PRIORITY[::-1])) is PRIORITY[0]
    with pytest.raises(UnknownDevice):
        fastest_among(["abacus"])


def test_a_small_product_runs_where_it_may() -> None:
    """The seeds' own test: the pick is available and among the candidates."""
    graph = Graph()
    graph.set_outputs([graph.input("a", (4, 4)) @ graph.input("b", (4, 4))])
    for mode in ("seed", "calibrated"):
        device = pick(graph, cost_mode=mode)
        assert device in devices_for(graph)
        assert supports_graph(device, graph)
    assert fastest_device_for(graph) is Device.CPU
    assert fastest_device_for(graph, cost_mode="seed") is pick(graph, cost_mode="seed")
    with pytest.raises(UsageError, match="'seed' or 'calibrated'"):
        fastest_device_for(graph, cost_mode="guess")


def way(graph: Graph, place: Place) -> Candidate:
    (only,) = GraphJob(graph).offers(place)
    return only


def test_nothing_left_is_an_error_with_every_reason(gpu: PretendGpu) -> None:
    places = [PLACE, Place(Device.CUDA)]
    said = r"^graph 'exponential': no backend .*; fake \(fake\): .*f64.*; cuda: open"
    with pytest.raises(Unsupported, match=said):
        decide(GraphJob(exponential(8, "f64")), places=places)
    with pytest.raises(Unsupported, match=r"no device is allowed$"):
        decide(GraphJob(exponential(8, "f64")), places=[])


@pytest.mark.usefixtures("nowhere_else")
def test_small_graphs_open_nothing() -> None:
    """Other devices are asked for large jobs, or once enough work was seen."""
    quiet = Worth()
    tiny = decide(GraphJob(exponential()), worthwhile=quiet)
    assert tiny.device is Device.CPU
    assert "too small to pay for a trip" in tiny.decision.why
    medium = GraphJob(exponential(1 << 17))
    assert "opened for jobs of 5 ms" in decide(medium, worthwhile=quiet).decision.why
    with pytest.raises(AssertionError, match="were looked for"):
        decide(medium, worthwhile=Worth(spent_ns=0.5e9))
    with pytest.raises(AssertionError, match="were looked for"):
        decide(GraphJob(exponential(1 << 24)), worthwhile=quiet)


def test_wide_types_are_blocked_on_shaders(gpu: PretendGpu) -> None:
    job = GraphJob(exponential(8, "f64"))
    (candidate,) = job.offers(PLACE)
    assert "f64" in candidate.blocker
    assert job.bucket(candidate) is None


@pytest.mark.requires_wgpu
def test_software_that_was_not_measured_is_not_guessed_at() -> None:
    """A record makes it a candidate; without one the reason is told."""
    place = Place(Device.VULKAN, "llvmpipe")
    assert priced(place, ("submit",)) == UNMEASURED
    assert way(exponential(), place).blocker == UNMEASURED
    assert gate_of(place) is None
    points = (Point("submit", {}, 5e4), Point("dispatch", {}, 1e3))
    store.save(Calibration("vulkan", *identity_of(place), points))
    job = GraphJob(exponential())
    (candidate,) = job.offers(place)
    assert candidate.blocker == ""
    assert candidate.source == "calibrated"
    assert candidate.terms is not None
    assert candidate.terms.sync_ns == 5e4
    gate = gate_of(place)
    assert gate is not None
    assert gate.dispatch_ns == 1e3
    assert (job.bucket(candidate) or ("",))[0] == candidate.engine


def test_the_environment_chooses_for_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    made = Session("auto").compile(exponential())
    assert made.decisions[0].why == "RLX_DEVICE=cpu"
    monkeypatch.delenv("RLX_DEVICE")
    monkeypatch.setenv("RLX_DEVICES", "cpu")
    assert Session("auto").compile(exponential(1 << 24)).device is Device.CPU


@pytest.mark.parametrize(("dtype", "said"), [("f64", "f64"), ("f32", "no adapter")])
def test_what_the_environment_names_and_cannot_is_told_with_the_reason(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch, dtype: str, said: str
) -> None:
    """A type it has not, a device that is not there: the graph runs elsewhere."""
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    gpu.fail = () if dtype == "f64" else [Failure("open", "no-adapter")]
    said = f"^RLX_DEVICE=tpu cannot run graph 'exponential' and is not fol.*{said}"
    with pytest.warns(EnvironmentWarning, match=said):
        made = Session("auto").compile(exponential(8, dtype))
    assert made.device is Device.CPU


@pytest.mark.parametrize(("n", "engines"), [(4, 1), (1 << 24, 2)])
def test_the_plan_that_is_priced_is_the_one_that_runs(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch, n: int, engines: int
) -> None:
    """Every engine that was asked has one plan, which is priced and run."""
    plans: list[Plan] = []

    def compiled(*arguments: Any, **options: Any) -> Plan:
        plans.append(compile_graph(*arguments, **options))
        return plans[-1]

    monkeypatch.setattr(graphs, "compile_graph", compiled)
    made = Session("auto").compile(exponential(n))
    assert len(plans) == engines
    assert any(plan is made.plan for plan in plans)
    again = Session("auto").compile(exponential(n))
    assert len(plans) == engines, "an equal graph was compiled anew"
    assert again.plan is made.plan
    made.close()
    again.close()


def like_relu(of: Any = 0.0, name: str = "odd") -> Graph:
    """One node of a made-up op with an attribute."""
    if "odd" not in registry:
        attrs = (Attr("of", "any"),)
        odd = replace(registry.get("relu"), name="odd", aliases=(), attrs=attrs)
        registry.register(odd)
    graph = Graph(name)
    graph.set_outputs([graph.apply("odd", graph.input("x", (4,)), of=of)])
    return graph


def test_a_remembered_graph_is_told_from_those_like_it() -> None:
    """Graphs differ by name, nodes, sign of zero, options and the ops of today."""
    first = GraphJob(like_relu()).key
    assert GraphJob(like_relu()).key == first
    others = [like_relu(of) for of in (-0.0, 0.5, 0, False, None)]
    for other in (*others, like_relu(name="other"), exponential()):
        assert GraphJob(other).key != first
    assert GraphJob(like_relu(), optimise=False).key != first
    assert GraphJob(like_relu(), cost_mode="seed").key != first
    registry.register(replace(registry.get("odd"), doc="another"), replace=True)
    assert GraphJob(like_relu()).key != first


def test_a_graph_that_holds_much_is_not_remembered() -> None:
    """A graph that is large, or has an unhashable attribute, has no key."""
    assert GraphJob(like_relu([1])).key is None
    graph = Graph("large")
    cells = graphs.KEPT_BYTES // 4 + 1
    graph.set_outputs([graph.constant(np.zeros(cells, np.float32)) * 2.0])
    assert GraphJob(graph).key is None


def test_what_is_added_to_a_graph_later_is_not_in_what_was_compiled() -> None:
    """The job has a copy; compiled again, the graph as it is now runs."""
    graph = exponential()
    first = Session("auto").compile(graph)
    nodes = str(first.graph)
    graph.set_outputs([graph.tensor(0) * 3.0])
    assert str(first.graph) == nodes
    x = np.array([0, 1, 2, 3], np.float32)
    (was,), (now,) = (c.run({"x": x}) for c in (first, Session("auto").compile(graph)))
    np.testing.assert_allclose(was, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(now, 3 * x)


@pytest.mark.requires_opengl
def test_the_report_tells_blockers_in_order() -> None:
    """Rows tell what blocks a device, in order, and which one is recommended."""
    graph = exponential()
    policy = DevicePolicy.only(["cpu", "vulkan", "tpu"]).with_deny(["vulkan"])
    rows = {row.label: row for row in device_report(graph, policy)}
    assert rows["cpu"].recommended
    assert rows["cpu"].supports_graph
    assert rows["cpu"].blocker == ""
    assert rows["tpu"].blocker.startswith("not available on this host or in this build")
    assert rows["tpu"].registered
    if rows["vulkan"].available:
        assert rows["vulkan"].blocker.startswith("denied by DevicePolicy")
        assert rows["opengl"].blocker.startswith("not in DevicePolicy allow-list")
    document = rows["cpu"].as_json()
    assert document["recommended"] is True
    assert document["supports_graph"] is True


@pytest.mark.requires_wgpu
def test_an_op_that_cannot_be_lowered_is_named() -> None:
    graph = exponential(4, "f64")
    rows = {row.label: row for row in device_report(graph)}
    assert rows["vulkan"].blocker.startswith("unsupported op at node 1: exp (")
    assert not rows["vulkan"].supports_graph
    assert not supports_graph("vulkan", graph)
    assert Device.VULKAN not in devices_for(graph)


def test_benchmark_devices_counts_no_first_run(machine: FakeMachine) -> None:
    """A device that failed has a row with the reason."""
    machine.only(Device.CPU, Device.GPU)
    machine.takes[Device.CPU] = iter([1000, 7, 5, 6, 1000])
    machine.refuses[Device.GPU] = RuntimeError("no")
    rows = benchmark_devices(
        adding(),
        {"x": np.zeros(2, np.float32)},
        3,
        params={"w": np.ones(2, np.float32)},
        devices=[Device.GPU, Device.CPU],
        clock=machine.clock,
    )
    assert [(r.label, r.median_exec_ns, r.error) for r in rows] == [
        ("cpu", 6.0, ""),
        ("gpu", 0.0, "no"),
    ]
    assert machine.of(Device.CPU)[0].closed


def test_warm_all_compiles_everywhere(machine: FakeMachine) -> None:
    made = warm_all(exponential())
    assert set(made) == set(THREE)
    assert [len(machine.of(device)) for device in THREE] == [1, 1, 1]
    assert list(warm_all(exponential(), DevicePolicy.only(["cpu"]))) == [Device.CPU]


def test_fastest_keeps_to_the_policy() -> None:
    assert fastest(exponential(), DevicePolicy.only(["cpu"])).device is Device.CPU
    with pytest.raises(Unsupported):
        fastest(exponential(), DevicePolicy.only(["tpu"]))
