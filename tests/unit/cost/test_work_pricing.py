"""Prices in use: measured or assumed, term by term, and when measuring is
profitable.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.decision import Candidate, explain_decision
from rlxweb.cost.graph_work import (
    graph_workload,
    is_free,
    node_bytes,
    node_flops,
    node_item,
)
from rlxweb.cost.work_kinds import assumed_cpu, assumed_gpu
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.cost.workload import WorkItem, Workload
from rlxweb.ir.tensor import Tensor
from rlxweb.select.calibration.calibration_store import CalibrationStore
from rlxweb.select.calibration.engine_calibration_lookup import (
    EngineCalibration,
    engine_calibration,
    fit_cached,
)
from rlxweb.select.calibration.observed_run_corrections import CorrectionStore
from rlxweb.select.chooser import DevicePick, PlaceRequest, choose_fastest, choose_place
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, engine_identity
from rlxweb.select.graph_job import GraphJob, fusion_gate_at

CALL_NS = 1_000.0
CPU_POINTS = (
    MeasuredPoint("call", {}, CALL_NS),
    MeasuredPoint("copy", {"bytes": 1_000}, 100.0),
    MeasuredPoint("copy", {"bytes": 1_000_000}, 200_000.0),
)
DEVICE_POINTS = (
    MeasuredPoint("submit", {}, 50_000.0),
    MeasuredPoint("dispatch", {}, 3_000.0),
    MeasuredPoint("upload", {"bytes": 1_000}, 500.0),
    MeasuredPoint("readback", {"bytes": 1_000}, 700.0),
    MeasuredPoint("copy", {"bytes": 1_000_000}, 20_000.0),
    MeasuredPoint("elementwise", {"bytes": 1_000, "flops": 100_125}, 10_020.0),
    MeasuredPoint("matmul", {"m": 64, "k": 64, "n": 64}, 10_000.0),
    MeasuredPoint("matmul", {"m": 512, "k": 512, "n": 512}, 900_000.0),
    MeasuredPoint("fft", {"n": 256, "rows": 10}, 10_240.0),
)
GPU = DevicePlace(Device.GPU)
PLACES = [CPU_PLACE, pytest.param(GPU, marks=pytest.mark.requires_wgpu)]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CalibrationStore:
    """An empty calibration store and no learned corrections."""
    store = CalibrationStore(tmp_path)
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.calibration_store", store
    )
    empty_corrections = CorrectionStore(tmp_path)
    for module in ("graph_job", "chooser"):
        monkeypatch.setattr(f"rlxweb.select.{module}.corrections", empty_corrections)
    return store


def measured_record(place: DevicePlace, *points: MeasuredPoint) -> Calibration:
    """Return a record of the engine of this machine, with synthetic points."""
    record_points = points or (CPU_POINTS if place == CPU_PLACE else DEVICE_POINTS)
    return Calibration(place.device.label, *engine_identity(place), record_points)


def unary_graph(output: str = "exp", n: int = 1 << 16, views: int = 0) -> Graph:
    """Return a graph of a function, some views that cancel, and the function again."""
    graph = Graph(output)
    x = graph.apply(output, graph.input("x", (n // 16, 16)))
    for _ in range(views):
        x = graph.transpose(graph.transpose(x, (1, 0)), (1, 0))
        x = graph.reshape(graph.reshape(x, (n,)), (n // 16, 16))
    graph.set_outputs([graph.apply(output, x)])
    return graph


def candidate_at(graph: Graph, place: DevicePlace) -> Candidate:
    (candidate,) = GraphJob(graph).candidates(place)
    return candidate


def pick_for(graph: Graph, *places: DevicePlace) -> DevicePick[GraphJob]:
    return choose_fastest(GraphJob(graph), places=places or None)


def test_a_record_is_used_when_there_is_one(records: CalibrationStore) -> None:
    """Every place that shows a price says whether it is calibrated or assumed."""
    graph = unary_graph()
    assert engine_calibration(CPU_PLACE, ("call",)) == EngineCalibration(
        assumed_cpu(), "assumed"
    )
    assumed_candidate = candidate_at(graph, CPU_PLACE)
    assert assumed_candidate.source == "assumed"
    decision = pick_for(graph, CPU_PLACE).decision
    assert "(assumed)" in decision.why
    assert decision.numbers["source"] == "assumed"
    record = measured_record(CPU_PLACE)
    records.save(record)
    assert engine_calibration(CPU_PLACE, ("call",)) == EngineCalibration(
        record, "calibrated"
    )
    calibrated_candidate = candidate_at(graph, CPU_PLACE)
    assert (calibrated_candidate.source, calibrated_candidate.as_json()["source"]) == (
        "calibrated",
        "calibrated",
    )
    assert calibrated_candidate.terms is not None
    assert (
        calibrated_candidate.terms.dispatch_ns
        == calibrated_candidate.terms.launches * CALL_NS
    )
    assert calibrated_candidate.terms != assumed_candidate.terms
    decision = pick_for(graph, CPU_PLACE).decision
    assert "(calibrated)" in decision.why


@pytest.mark.requires_wgpu
def test_data_on_the_device_has_no_upload_price(records: CalibrationStore) -> None:
    """Data on the device is priced without its upload; the decision lists it."""
    records.save(measured_record(GPU))
    graph = Graph("product")
    graph.set_outputs([graph.input("x", (64, 64)) @ graph.input("y", (64, 64))])
    candidates = {}
    for on_device in ((), ("x",), ("x", "y")):
        job = GraphJob(graph, on_device=frozenset(on_device))
        (candidates[on_device],) = job.candidates(GPU)
        assert (job.key == GraphJob(graph).key) is (on_device == ())
    upload_times = {
        on_device: candidate.terms and candidate.terms.upload_ns
        for on_device, candidate in candidates.items()
    }
    upload_ns = DEVICE_POINTS[2].ns * 4 * 64 * 64 / 1_000
    assert upload_times == {(): 2 * upload_ns, ("x",): upload_ns, ("x", "y"): 0.0}
    other_terms = {
        dataclasses.replace(candidate.terms, upload_ns=0.0)
        for candidate in candidates.values()
        if candidate.terms
    }
    assert len(other_terms) == 1
    for on_device in (("x",), ("x", "y")):
        job = GraphJob(graph, on_device=frozenset(on_device))
        decision = choose_place(
            job, PlaceRequest(GPU.device, why="it is there")
        ).decision
        names = ", ".join(f"'{name}'" for name in on_device)
        assert explain_decision(decision).endswith(
            f"note: inputs already on the device have no upload cost: {names}"
        )
        assert decision.candidates[0].terms == candidates[on_device].terms
    assert (
        choose_place(GraphJob(graph), PlaceRequest(GPU.device)).candidate.terms is None
    )


def test_record_without_the_requested_points_is_not_used(
    records: CalibrationStore,
) -> None:
    records.save(measured_record(CPU_PLACE, MeasuredPoint("run", {}, 1.0)))
    calibration = engine_calibration(CPU_PLACE, ("call",))
    assert not isinstance(calibration, str)
    assert calibration.source == "assumed"
    calibration = engine_calibration(CPU_PLACE, ("run", "call"))
    assert not isinstance(calibration, str)
    assert calibration.source == "calibrated"


@pytest.mark.parametrize("software", [True, False])
def test_only_hardware_is_guessed_at(
    monkeypatch: pytest.MonkeyPatch, software: bool
) -> None:
    engine = SimpleNamespace(identity=SimpleNamespace(software=software))
    stub_pool = SimpleNamespace(engine=lambda d, a: engine)
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.known_record",
        lambda d, a="": None,
    )
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.pool", stub_pool
    )
    calibration = engine_calibration(GPU, ("submit",))
    if software:
        assert calibration == (
            "this software driver runs on the CPU cores and was not measured yet; run "
            "`rlxweb calibrate` to measure it"
        )
    else:
        assert calibration == EngineCalibration(assumed_gpu(), "assumed")


def test_fusion_gates_of_engines(records: CalibrationStore) -> None:
    """An engine has no gate until it is measured; RLX's gate is used on request."""
    assert fusion_gate_at(CPU_PLACE) is None
    records.save(measured_record(CPU_PLACE))
    gate = fusion_gate_at(CPU_PLACE)
    assert gate is not None
    assert (gate.dispatch_ns, gate.source) == (CALL_NS, "calibrated")
    seed = fusion_gate_at(CPU_PLACE, "seed")
    assert seed is not None
    assert (seed.dispatch_ns, seed.source) == (50.0, "seed")
    with pytest.raises(UsageError, match=r"'fast'.*'seed' or 'calibrated'"):
        fusion_gate_at(CPU_PLACE, "fast")


def test_fitted_prices_are_cached_by_record() -> None:
    """Prices are fitted once per record; an equal but newer record is fitted again."""
    record = measured_record(CPU_PLACE)
    assert fit_cached(record, FittedPrices) is fit_cached(record, FittedPrices)
    for _ in range(200):
        equal_record = dataclasses.replace(record)
        assert fit_cached(equal_record, FittedPrices).record is equal_record
    assert fit_cached(record, FittedPrices).record is record


TERM_NAMES = (
    *("dispatch_ns", "sync_ns", "upload_ns", "compute_ns"),
    *("traffic_ns", "readback_ns", "host_ns", "other_ns"),
)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_predicted_terms_sum_to_the_predicted_time(
    records: CalibrationStore, place: DevicePlace
) -> None:
    """Terms sum to the predicted time, multiplied by the correction learned from
    similar jobs.
    """
    records.save(measured_record(place))
    pick = pick_for(unary_graph(), place)
    document = pick.candidate.as_json()
    assert set(document["terms"]) == {*TERM_NAMES, "launches", "syncs", "total_ns"}
    assert document["terms"]["total_ns"] == pytest.approx(
        sum(document["terms"][n] for n in TERM_NAMES)
    )
    assert document["predicted_ns"] == document["terms"]["total_ns"] > 0
    pick.observe(2 * document["predicted_ns"] + 1e6, place.device)
    corrected = candidate_at(unary_graph(), place)
    assert corrected.terms == pick.candidate.terms
    assert corrected.correction > 1.0
    assert corrected.predicted_ns == document["predicted_ns"] * corrected.correction


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_views_are_free(records: CalibrationStore, place: DevicePlace) -> None:
    """Any number of views is free; the data they look at is paid for once."""
    records.save(measured_record(place))
    few_views = candidate_at(unary_graph(views=1), place)
    many_views = candidate_at(unary_graph(views=7), place)
    assert few_views.terms is not None
    assert many_views.terms == few_views.terms
    assert few_views.terms.launches > 0


def test_graph_of_views_only_is_free_on_the_cpu(
    records: CalibrationStore,
) -> None:
    """A graph of views only costs the CPU nothing, and a device can still be chosen."""
    graph = Graph("views")
    graph.set_outputs([graph.reshape(graph.input("x", (512, 512)), (4, -1))])
    pick = pick_for(graph)
    assert pick.device is Device.CPU
    assert pick.candidate.predicted_ns == 0.0
    transposed = Graph("turned")
    transposed.set_outputs(
        [transposed.transpose(transposed.input("x", (512, 512)), (1, 0))]
    )
    assert pick_for(transposed).candidate.predicted_ns > 0.0  # it is handed out dense


SIZES = (16, 64, 256, 1024)


def add_matmul(graph: Graph, n: int) -> Tensor:
    return graph.input("a", (n, n)) @ graph.input("b", (n, n))


def add_fft(graph: Graph, n: int) -> Tensor:
    return graph.apply("fft", graph.input("x", (n, 512)))


def add_gelu(graph: Graph, n: int) -> Tensor:
    return graph.gelu(graph.input("x", (n, 1024)))


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("build", [add_matmul, add_fft, add_gelu])
@pytest.mark.parametrize("source", ["calibrated", "assumed"])
def test_the_compute_term_grows_with_work(
    monkeypatch: pytest.MonkeyPatch,
    records: CalibrationStore,
    place: DevicePlace,
    build: Callable[[Graph, int], Tensor],
    source: str,
) -> None:
    """The compute term grows with the ops' own counts of operations."""
    record = measured_record(place)
    if source == "assumed":
        record = assumed_cpu() if place == CPU_PLACE else assumed_gpu()
    calibration = EngineCalibration(record, source)
    monkeypatch.setattr(
        "rlxweb.select.graph_job.engine_calibration", lambda place, points: calibration
    )
    terms = []
    for n in SIZES:
        graph = Graph(f"{n}")
        graph.set_outputs([build(graph, n)])
        candidate = candidate_at(graph, place)
        assert candidate.source == source
        assert candidate.terms is not None
        terms.append(candidate.terms)
    for small, large in pairwise(terms):
        assert small.compute_ns + small.traffic_ns > 0
        work = large.compute_ns + large.traffic_ns
        assert work > 2 * (small.compute_ns + small.traffic_ns)
        assert large.upload_ns >= small.upload_ns
        assert large.readback_ns >= small.readback_ns


WORK_ITEMS = st.builds(
    lambda kind, launches, flops, nbytes, a, b: WorkItem(
        kind,
        "it",
        launches,
        float(flops),
        nbytes,
        {"m": a, "k": b, "n": a, "rows": b, "batch": 1},
    ),
    st.sampled_from(["matmul", "fft", "elementwise", "copy", "other"]),
    st.integers(0, 5),
    st.integers(0, 10**12),
    st.integers(0, 10**10),
    st.integers(0, 4096),
    st.integers(0, 4096),
)
WORKLOADS = st.builds(
    Workload,
    st.lists(WORK_ITEMS, max_size=5).map(tuple),
    st.integers(0, 10**10),
    st.integers(0, 10**10),
    st.integers(0, 3),
)
PRICES = {
    "device": FittedPrices(Calibration("gpu", "a", "b", "c", "d", "e", DEVICE_POINTS)),
    "host": FittedPrices(Calibration("cpu", "a", "b", "c", "d", "e", CPU_POINTS)),
    "assumed device": FittedPrices(assumed_gpu()),
    "assumed host": FittedPrices(assumed_cpu()),
    "nothing known": FittedPrices(Calibration("gpu", "a", "b", "c", "d", "e", ())),
}


@given(work=WORKLOADS, name=st.sampled_from(sorted(PRICES)))
def test_terms_of_any_work_are_finite_and_add_up(work: Workload, name: str) -> None:
    """Launches and waits are counted by hand; a host has no transfers; no term is
    negative.
    """
    prices = PRICES[name]
    terms = workload_terms(work, prices)
    values = [getattr(terms, n) for n in TERM_NAMES]
    assert all(0 <= v < math.inf for v in values)
    assert terms.total_ns == pytest.approx(sum(values))
    assert terms.launches == sum(i.launches for i in work.items)
    if name == "device":
        assert terms.dispatch_ns == 3_000.0 * terms.launches
        assert terms.sync_ns == 50_000.0 * (1 + work.syncs)
        assert terms.upload_ns >= (500.0 if work.upload_bytes else 0.0)
    if "host" in name:
        assert terms.sync_ns == terms.upload_ns == terms.readback_ns == 0.0
        assert terms.syncs == 0


@given(work=WORKLOADS, item=WORK_ITEMS, name=st.sampled_from(sorted(PRICES)))
def test_more_work_never_costs_less(work: Workload, item: WorkItem, name: str) -> None:
    larger_work = dataclasses.replace(work, items=(*work.items, item))
    prices = PRICES[name]
    before, after = workload_terms(work, prices), workload_terms(larger_work, prices)
    assert all(getattr(after, n) >= getattr(before, n) for n in TERM_NAMES)


def test_arithmetic_hidden_by_memory_traffic_is_free() -> None:
    """A measured chain of one operation per 8 bytes says nothing about arithmetic."""
    points = (
        *DEVICE_POINTS[:5],
        MeasuredPoint("elementwise", {"bytes": 800, "flops": 100}, 50.0),
    )
    prices = FittedPrices(Calibration("gpu", "a", "b", "c", "d", "e", points))
    work = Workload((WorkItem("elementwise", "it", 1, 1e9, 1_000),), 0, 0)
    assert workload_terms(work, prices).compute_ns == 0.0


def test_leaves_and_views_have_no_work() -> None:
    graph = Graph()
    x, w = graph.input("x", (4, 8)), graph.param("w", (8, 2))
    product = graph.transpose(x, (1, 0))
    result = x @ w
    nodes = {node.op: node for node in graph.nodes()}
    free = {op for op, node in nodes.items() if is_free(node)}
    assert free == {"input", "param", "transpose"}
    assert all(node_flops(graph, nodes[op]) == 0.0 for op in free)
    graph.set_outputs([result, product])
    work = graph_workload(graph)
    assert [i.kind for i in work.items] == ["matmul"]
    assert work.items[0].flops == 2 * 4 * 8 * 2
    assert work.items[0].size == {"batch": 1, "m": 4, "k": 8, "n": 2}
    assert work.items[0].nbytes == 4 * (32 + 16 + 8)
    assert (work.upload_bytes, work.readback_bytes) == (4 * 32, 4 * (8 + 32))


def test_an_operand_that_is_used_twice_is_read_once() -> None:
    graph = Graph()
    x = graph.input("x", (10,))
    sum_node = graph.node((x + x).id)
    assert node_bytes(graph, sum_node) == 4 * (10 + 10)
    item = node_item(graph, sum_node, launches=3)
    assert (item.kind, item.launches, item.flops) == ("add", 3, 10.0)
    assert (item.size, item.nbytes) == ({"cells": 10, "rows": 1}, 80)
