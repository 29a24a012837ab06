"""Device choice for graphs: RLX's rule, calibrated prices, reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, Session, device_report
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan import Plan
from rlxweb.core.device import RLX_PRIORITY, Device, fastest_among
from rlxweb.core.errors import (
    EnvironmentWarning,
    UnknownDevice,
    Unsupported,
    UsageError,
)
from rlxweb.cost import Candidate, fastest_device_for
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.ir.op import Attr, registry
from rlxweb.runtime.device_benchmark import benchmark_devices, warm_all
from rlxweb.select import graph_job, resolve
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.engine_calibration_lookup import (
    UNMEASURED_REASON,
    engine_calibration,
)
from rlxweb.select.calibration.profitability import ProfitabilityPolicy
from rlxweb.select.choice_by_rlx_constants import seed_pick
from rlxweb.select.chooser import choose_fastest
from rlxweb.select.device_and_adapter import (
    CPU_PLACE,
    DevicePlace,
    available_places,
    distinct_places,
    engine_identity,
    parse_place,
)
from rlxweb.select.graph_job import GraphJob, fusion_gate_at
from rlxweb.select.resolve import devices_for, pick_fastest, supports_graph
from rlxweb.select.resolve import fastest_device_for as pick
from tests.fake_gpu_port import InjectedFailure
from tests.unit.runtime.fake_machine import THREE_DEVICES, FakeMachine, add_graph
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices
from tests.unit.signal.fake_gpu import GPU_PLACE, FakeGpu


def exp_graph(n: int = 4, dtype: str = "f32") -> Graph:
    graph = Graph("exponential")
    graph.set_outputs([graph.exp(graph.input("x", (n,), dtype))])
    return graph


def test_places_are_parsed_and_formatted() -> None:
    assert parse_place("vulkan:SwiftShader") == DevicePlace(
        Device.VULKAN, "SwiftShader"
    )
    assert parse_place(" GL ").label == "opengl"
    assert str(parse_place(Device.CPU)) == "cpu"
    assert parse_place(CPU_PLACE) is CPU_PLACE
    with pytest.raises(UnknownDevice):
        parse_place("abacus:one")


@pytest.mark.requires_wgpu
def test_an_engine_is_listed_once() -> None:
    """Gpu and vulkan open the same adapter here; the CPU comes first."""
    places = available_places()
    assert places[0] == CPU_PLACE
    deduplicated = distinct_places(
        [
            *places,
            DevicePlace(Device.GPU),
            DevicePlace(Device.VULKAN),
            DevicePlace(Device.TPU),
        ]
    )
    assert len(deduplicated) == len(places)
    assert available_places([Device.CPU]) == (CPU_PLACE,)


def test_a_denied_device_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied device is not opened, since opening it may hang."""
    queried = []
    monkeypatch.setattr(resolve, "is_available", lambda d: not queried.append(d))
    policy = DevicePolicy.only("vulkan cpu").with_deny("vulkan")
    assert devices_for(exp_graph(), policy) == (Device.CPU,)
    assert queried == [Device.CPU]


def test_seed_pick() -> None:
    """Two seed models are compared; a single one wins; without any the priority
    decides.
    """
    graph = exp_graph()
    assert seed_pick(graph, [Device.GPU, Device.CPU]) is Device.CPU
    assert seed_pick(graph, [Device.VULKAN, Device.GPU]) is Device.GPU
    assert seed_pick(graph, [Device.OPENGL, Device.VULKAN]) is Device.VULKAN
    assert fastest_among([]) is Device.CPU
    assert fastest_among([Device.CPU, Device.CUDA]) is Device.CUDA
    assert fastest_among(["webgpu", "wgpu", "cpu"]) is Device.GPU
    assert fastest_among(iter(RLX_PRIORITY[::-1])) is RLX_PRIORITY[0]
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


def only_candidate(graph: Graph, place: DevicePlace) -> Candidate:
    (candidate,) = GraphJob(graph).candidates(place)
    return candidate


def test_no_candidate_is_an_error_with_every_reason(gpu: FakeGpu) -> None:
    places = [GPU_PLACE, DevicePlace(Device.CUDA)]
    message = r"^graph 'exponential': no backend .*; fake \(fake\): .*f64.*; cuda: open"
    with pytest.raises(Unsupported, match=message):
        choose_fastest(GraphJob(exp_graph(8, "f64")), places=places)
    with pytest.raises(Unsupported, match=r"no device is allowed$"):
        choose_fastest(GraphJob(exp_graph(8, "f64")), places=[])


@pytest.mark.usefixtures("nowhere_else")
def test_small_graphs_open_no_device() -> None:
    """Other devices are opened for large jobs, or once enough work has accumulated."""
    policy = ProfitabilityPolicy()
    tiny = choose_fastest(GraphJob(exp_graph()), profitability=policy)
    assert tiny.device is Device.CPU
    assert "too small to benefit from another device" in tiny.decision.why
    medium = GraphJob(exp_graph(1 << 17))
    assert (
        "opened only for jobs of 5 ms"
        in choose_fastest(medium, profitability=policy).decision.why
    )
    with pytest.raises(AssertionError, match="were looked for"):
        choose_fastest(medium, profitability=ProfitabilityPolicy(spent_ns=0.5e9))
    with pytest.raises(AssertionError, match="were looked for"):
        choose_fastest(GraphJob(exp_graph(1 << 24)), profitability=policy)


def test_float64_is_blocked_on_shaders(gpu: FakeGpu) -> None:
    job = GraphJob(exp_graph(8, "f64"))
    (candidate,) = job.candidates(GPU_PLACE)
    assert "f64" in candidate.blocker
    assert job.bucket(candidate) is None


@pytest.mark.requires_wgpu
def test_unmeasured_software_device_has_no_price() -> None:
    """A record makes a software device a candidate; without one the reason is
    reported.
    """
    place = DevicePlace(Device.VULKAN, "llvmpipe")
    assert engine_calibration(place, ("submit",)) == UNMEASURED_REASON
    assert only_candidate(exp_graph(), place).blocker == UNMEASURED_REASON
    assert fusion_gate_at(place) is None
    points = (MeasuredPoint("submit", {}, 5e4), MeasuredPoint("dispatch", {}, 1e3))
    calibration_store.save(Calibration("vulkan", *engine_identity(place), points))
    job = GraphJob(exp_graph())
    (candidate,) = job.candidates(place)
    assert candidate.blocker == ""
    assert candidate.source == "calibrated"
    assert candidate.terms is not None
    assert candidate.terms.sync_ns == 5e4
    gate = fusion_gate_at(place)
    assert gate is not None
    assert gate.dispatch_ns == 1e3
    assert (job.bucket(candidate) or ("",))[0] == candidate.engine


def test_environment_chooses_device_of_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    compiled_graph = Session("auto").compile(exp_graph())
    assert compiled_graph.decisions[0].why == "RLX_DEVICE=cpu"
    monkeypatch.delenv("RLX_DEVICE")
    monkeypatch.setenv("RLX_DEVICES", "cpu")
    assert Session("auto").compile(exp_graph(1 << 24)).device is Device.CPU


@pytest.mark.parametrize(("dtype", "message"), [("f64", "f64"), ("f32", "no adapter")])
def test_unusable_rlx_device_warns_with_reason(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, dtype: str, message: str
) -> None:
    """The graph runs elsewhere if RLX_DEVICE names a device that lacks the dtype or is
    missing.
    """
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    gpu.failures = () if dtype == "f64" else [InjectedFailure("open", "no-adapter")]
    message = (
        f"^RLX_DEVICE=tpu cannot run graph 'exponential' and is ignored.*{message}"
    )
    with pytest.warns(EnvironmentWarning, match=message):
        compiled_graph = Session("auto").compile(exp_graph(8, dtype))
    assert compiled_graph.device is Device.CPU


@pytest.mark.parametrize(("n", "engines"), [(4, 1), (1 << 24, 2)])
def test_priced_plan_is_the_plan_that_runs(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch, n: int, engines: int
) -> None:
    """Every candidate engine has one plan, which is priced and run."""
    plans: list[Plan] = []

    def record_plan(*arguments: Any, **options: Any) -> Plan:
        plans.append(compile_graph(*arguments, **options))
        return plans[-1]

    monkeypatch.setattr(graph_job, "compile_graph", record_plan)
    compiled_graph = Session("auto").compile(exp_graph(n))
    assert len(plans) == engines
    assert any(plan is compiled_graph.plan for plan in plans)
    compiled_again = Session("auto").compile(exp_graph(n))
    assert len(plans) == engines, "an equal graph was compiled anew"
    assert compiled_again.plan is compiled_graph.plan
    compiled_graph.close()
    compiled_again.close()


def custom_op_graph(value: Any = 0.0, name: str = "odd") -> Graph:
    """Graph with one node of a test op `odd` that has an attribute."""
    if "odd" not in registry:
        attrs = (Attr("of", "any"),)
        odd = replace(registry.get("relu"), name="odd", aliases=(), attrs=attrs)
        registry.register(odd)
    graph = Graph(name)
    graph.set_outputs([graph.apply("odd", graph.input("x", (4,)), of=value)])
    return graph


def test_graph_key_distinguishes_similar_graphs() -> None:
    """Graph keys differ by name, nodes, sign of zero, options and the registered
    ops.
    """
    first = GraphJob(custom_op_graph()).key
    assert GraphJob(custom_op_graph()).key == first
    others = [custom_op_graph(value) for value in (-0.0, 0.5, 0, False, None)]
    for other in (*others, custom_op_graph(name="other"), exp_graph()):
        assert GraphJob(other).key != first
    assert GraphJob(custom_op_graph(), optimise=False).key != first
    assert GraphJob(custom_op_graph(), cost_mode="seed").key != first
    registry.register(replace(registry.get("odd"), doc="another"), replace=True)
    assert GraphJob(custom_op_graph()).key != first


def test_large_or_unhashable_graph_has_no_key() -> None:
    """A graph that is large, or has an unhashable attribute, has no key."""
    assert GraphJob(custom_op_graph([1])).key is None
    graph = Graph("large")
    cells = graph_job.MAX_CACHED_CONSTANT_BYTES // 4 + 1
    graph.set_outputs([graph.constant(np.zeros(cells, np.float32)) * 2.0])
    assert GraphJob(graph).key is None


def test_later_graph_changes_do_not_affect_compiled_graph() -> None:
    """The job holds a copy; the changed graph runs when it is compiled again."""
    graph = exp_graph()
    first = Session("auto").compile(graph)
    nodes = str(first.graph)
    graph.set_outputs([graph.tensor(0) * 3.0])
    assert str(first.graph) == nodes
    x = np.array([0, 1, 2, 3], np.float32)
    (first_result,), (changed_result,) = (
        compiled_graph.run({"x": x})
        for compiled_graph in (first, Session("auto").compile(graph))
    )
    np.testing.assert_allclose(first_result, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(changed_result, 3 * x)


@pytest.mark.requires_opengl
def test_report_lists_blockers_in_order() -> None:
    """Rows say what blocks a device, in order, and which device is recommended."""
    graph = exp_graph()
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
def test_unsupported_op_is_named() -> None:
    graph = exp_graph(4, "f64")
    rows = {row.label: row for row in device_report(graph)}
    assert rows["vulkan"].blocker.startswith("unsupported op at node 1: exp (")
    assert not rows["vulkan"].supports_graph
    assert not supports_graph("vulkan", graph)
    assert Device.VULKAN not in devices_for(graph)


def test_benchmark_devices_counts_no_first_run(machine: FakeMachine) -> None:
    """First runs are not counted, and a device that failed has a row with the
    reason.
    """
    machine.install_only(Device.CPU, Device.GPU)
    machine.run_durations[Device.CPU] = iter([1000, 7, 5, 6, 1000])
    machine.prepare_errors[Device.GPU] = RuntimeError("no")
    rows = benchmark_devices(
        add_graph(),
        {"x": np.zeros(2, np.float32)},
        3,
        params={"w": np.ones(2, np.float32)},
        devices=[Device.GPU, Device.CPU],
        clock=machine.clock,
    )
    on_cpu, on_gpu = rows
    assert (on_cpu.label, on_cpu.median_exec_ns, on_cpu.error) == ("cpu", 6.0, "")
    assert (on_gpu.label, on_gpu.median_exec_ns) == ("gpu", 0.0)
    assert "Fake gpu: the engine raised RuntimeError: no;" in on_gpu.error
    assert machine.programs_on(Device.CPU)[0].closed


def test_warm_all_compiles_everywhere(machine: FakeMachine) -> None:
    compiled_graphs = warm_all(exp_graph())
    assert set(compiled_graphs) == set(THREE_DEVICES)
    assert [len(machine.programs_on(device)) for device in THREE_DEVICES] == [1, 1, 1]
    assert list(warm_all(exp_graph(), DevicePolicy.only(["cpu"]))) == [Device.CPU]


def test_fastest_respects_policy() -> None:
    assert pick_fastest(exp_graph(), DevicePolicy.only(["cpu"])).device is Device.CPU
    with pytest.raises(Unsupported):
        pick_fastest(exp_graph(), DevicePolicy.only(["tpu"]))
