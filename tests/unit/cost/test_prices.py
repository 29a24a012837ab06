"""Prices at work: measured or assumed, term by term, and when measuring is worth it."""

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
from rlxweb.calibration.corrections import Corrections
from rlxweb.calibration.known import Priced, fitted, priced
from rlxweb.calibration.store import CalibrationStore
from rlxweb.choose.chooser import Asked, Pick, choose, decide
from rlxweb.choose.graphs import GraphJob, gate_of
from rlxweb.cost.graph_work import bytes_of, flops_of, is_free, item_of, work_of_graph
from rlxweb.cost.kinds import assumed_cpu, assumed_gpu
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.work import Item, Work
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, identity_of
from rlxweb.errors import UsageError
from rlxweb.ir.tensor import Tensor

CALL_NS = 1_000.0
ON_CPU = (
    Point("call", {}, CALL_NS),
    Point("copy", {"bytes": 1_000}, 100.0),
    Point("copy", {"bytes": 1_000_000}, 200_000.0),
)
ON_DEVICE = (
    Point("submit", {}, 50_000.0),
    Point("dispatch", {}, 3_000.0),
    Point("upload", {"bytes": 1_000}, 500.0),
    Point("readback", {"bytes": 1_000}, 700.0),
    Point("copy", {"bytes": 1_000_000}, 20_000.0),
    Point("elementwise", {"bytes": 1_000, "flops": 100_125}, 10_020.0),
    Point("matmul", {"m": 64, "k": 64, "n": 64}, 10_000.0),
    Point("matmul", {"m": 512, "k": 512, "n": 512}, 900_000.0),
    Point("fft", {"n": 256, "rows": 10}, 10_240.0),
)
GPU = Place(Device.GPU)
PLACES = [CPU, pytest.param(GPU, marks=pytest.mark.requires_wgpu)]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CalibrationStore:
    """Nothing measured and nothing learned yet."""
    store = CalibrationStore(tmp_path)
    monkeypatch.setattr("rlxweb.calibration.known.store", store)
    learned = Corrections(tmp_path)
    for module in ("graphs", "chooser"):
        monkeypatch.setattr(f"rlxweb.choose.{module}.corrections", learned)
    return store


def measured(place: Place, *points: Point) -> Calibration:
    """A record of the engine that is there, with points made up for it."""
    known = points or (ON_CPU if place == CPU else ON_DEVICE)
    return Calibration(place.device.label, *identity_of(place), known)


def graph_of(output: str = "exp", n: int = 1 << 16, views: int = 0) -> Graph:
    """A function, some views that cancel, and the function again."""
    graph = Graph(output)
    x = graph.apply(output, graph.input("x", (n // 16, 16)))
    for _ in range(views):
        x = graph.transpose(graph.transpose(x, (1, 0)), (1, 0))
        x = graph.reshape(graph.reshape(x, (n,)), (n // 16, 16))
    graph.set_outputs([graph.apply(output, x)])
    return graph


def way(graph: Graph, place: Place) -> Candidate:
    (only,) = GraphJob(graph).offers(place)
    return only


def pick_of(graph: Graph, *places: Place) -> Pick[GraphJob]:
    return decide(GraphJob(graph), places=places or None)


def test_a_record_is_used_when_there_is_one(records: CalibrationStore) -> None:
    """Every place that shows a price says whether it is calibrated or assumed."""
    graph = graph_of()
    assert priced(CPU, ("call",)) == Priced(assumed_cpu(), "assumed")
    before = way(graph, CPU)
    assert before.source == "assumed"
    decision = pick_of(graph, CPU).decision
    assert "(assumed)" in decision.why
    assert decision.numbers["source"] == "assumed"
    record = measured(CPU)
    records.save(record)
    assert priced(CPU, ("call",)) == Priced(record, "calibrated")
    after = way(graph, CPU)
    assert (after.source, after.as_json()["source"]) == ("calibrated", "calibrated")
    assert after.terms is not None
    assert after.terms.dispatch_ns == after.terms.launches * CALL_NS
    assert after.terms != before.terms
    decision = pick_of(graph, CPU).decision
    assert "(calibrated)" in decision.why


@pytest.mark.requires_wgpu
def test_what_lies_there_is_not_priced_as_if_it_came(records: CalibrationStore) -> None:
    """Data that lies there is priced without its upload; the decision says of what."""
    records.save(measured(GPU))
    graph = Graph("product")
    graph.set_outputs([graph.input("x", (64, 64)) @ graph.input("y", (64, 64))])
    ways = {}
    for there in ((), ("x",), ("x", "y")):
        job = GraphJob(graph, there=frozenset(there))
        (ways[there],) = job.offers(GPU)
        assert (job.key == GraphJob(graph).key) is (there == ())
    up = {there: way.terms and way.terms.upload_ns for there, way in ways.items()}
    one = ON_DEVICE[2].ns * 4 * 64 * 64 / 1_000
    assert up == {(): 2 * one, ("x",): one, ("x", "y"): 0.0}
    rest = {
        dataclasses.replace(way.terms, upload_ns=0.0)
        for way in ways.values()
        if way.terms
    }
    assert len(rest) == 1
    for there in (("x",), ("x", "y")):
        job = GraphJob(graph, there=frozenset(there))
        decision = choose(job, Asked(GPU.device, why="it lies there")).decision
        names = ", ".join(f"'{name}'" for name in there)
        assert explain_decision(decision).endswith(
            f"note: what lies there is not priced as uploaded: {names}"
        )
        assert decision.candidates[0].terms == ways[there].terms
    assert choose(GraphJob(graph), Asked(GPU.device)).candidate.terms is None


def test_a_record_without_the_points_asked_for_is_no_record(
    records: CalibrationStore,
) -> None:
    records.save(measured(CPU, Point("run", {}, 1.0)))
    have = priced(CPU, ("call",))
    assert not isinstance(have, str)
    assert have.source == "assumed"
    have = priced(CPU, ("run", "call"))
    assert not isinstance(have, str)
    assert have.source == "calibrated"


@pytest.mark.parametrize("software", [True, False])
def test_only_hardware_is_guessed_at(
    monkeypatch: pytest.MonkeyPatch, software: bool
) -> None:
    engine = SimpleNamespace(software=software)
    opened = SimpleNamespace(backend=lambda d, a: engine)
    monkeypatch.setattr("rlxweb.calibration.known.known_record", lambda d, a="": None)
    monkeypatch.setattr("rlxweb.calibration.known.pool", opened)
    have = priced(GPU, ("submit",))
    if software:
        assert have == (
            "software on the CPU's own cores and not measured; `rlxweb calibrate` "
            "measures it"
        )
    else:
        assert have == Priced(assumed_gpu(), "assumed")


def test_gates_of_engines(records: CalibrationStore) -> None:
    """An engine has no gate until it is measured; RLX's is there by request."""
    assert gate_of(CPU) is None
    records.save(measured(CPU))
    gate = gate_of(CPU)
    assert gate is not None
    assert (gate.dispatch_ns, gate.source) == (CALL_NS, "calibrated")
    seed = gate_of(CPU, "seed")
    assert seed is not None
    assert (seed.dispatch_ns, seed.source) == (50.0, "seed")
    with pytest.raises(UsageError, match=r"'fast'.*'seed' or 'calibrated'"):
        gate_of(CPU, "fast")


def test_prices_stay_with_their_record() -> None:
    """Prices are fitted once; an equal record that was measured anew is fitted anew."""
    one = measured(CPU)
    assert fitted(one, Prices) is fitted(one, Prices)
    for _ in range(200):
        other = dataclasses.replace(one)
        assert fitted(other, Prices).record is other
    assert fitted(one, Prices).record is one


NS = (
    *("dispatch_ns", "sync_ns", "upload_ns", "compute_ns"),
    *("traffic_ns", "readback_ns", "host_ns", "other_ns"),
)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_predicted_terms_sum_to_the_predicted_time(
    records: CalibrationStore, place: Place
) -> None:
    """Terms sum to the predicted time, times what was learned of jobs like it."""
    records.save(measured(place))
    pick = pick_of(graph_of(), place)
    said = pick.candidate.as_json()
    assert set(said["terms"]) == {*NS, "launches", "syncs", "total_ns"}
    assert said["terms"]["total_ns"] == pytest.approx(sum(said["terms"][n] for n in NS))
    assert said["predicted_ns"] == said["terms"]["total_ns"] > 0
    pick.observe(2 * said["predicted_ns"] + 1e6, place.device)
    again = way(graph_of(), place)
    assert again.terms == pick.candidate.terms
    assert again.correction > 1.0
    assert again.predicted_ns == said["predicted_ns"] * again.correction


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_views_are_free(records: CalibrationStore, place: Place) -> None:
    """Views are free however many; what they look at is paid for once."""
    records.save(measured(place))
    few = way(graph_of(views=1), place)
    many = way(graph_of(views=7), place)
    assert few.terms is not None
    assert many.terms == few.terms
    assert few.terms.launches > 0


def test_a_graph_of_views_alone_costs_the_cpu_nothing(
    records: CalibrationStore,
) -> None:
    """A graph of views alone costs the CPU nothing and can still be decided about."""
    graph = Graph("views")
    graph.set_outputs([graph.reshape(graph.input("x", (512, 512)), (4, -1))])
    pick = pick_of(graph)
    assert pick.device is Device.CPU
    assert pick.candidate.predicted_ns == 0.0
    turned = Graph("turned")
    turned.set_outputs([turned.transpose(turned.input("x", (512, 512)), (1, 0))])
    assert pick_of(turned).candidate.predicted_ns > 0.0  # it is handed out dense


SIZES = (16, 64, 256, 1024)


def product(graph: Graph, n: int) -> Tensor:
    return graph.input("a", (n, n)) @ graph.input("b", (n, n))


def transform(graph: Graph, n: int) -> Tensor:
    return graph.apply("fft", graph.input("x", (n, 512)))


def arithmetic(graph: Graph, n: int) -> Tensor:
    return graph.gelu(graph.input("x", (n, 1024)))


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("build", [product, transform, arithmetic])
@pytest.mark.parametrize("source", ["calibrated", "assumed"])
def test_the_compute_term_grows_with_work(
    monkeypatch: pytest.MonkeyPatch,
    records: CalibrationStore,
    place: Place,
    build: Callable[[Graph, int], Tensor],
    source: str,
) -> None:
    """The compute term grows with the ops' own counts of operations."""
    record = measured(place)
    if source == "assumed":
        record = assumed_cpu() if place == CPU else assumed_gpu()
    have = Priced(record, source)
    monkeypatch.setattr("rlxweb.choose.graphs.priced", lambda place, points: have)
    found = []
    for n in SIZES:
        graph = Graph(f"{n}")
        graph.set_outputs([build(graph, n)])
        candidate = way(graph, place)
        assert candidate.source == source
        assert candidate.terms is not None
        found.append(candidate.terms)
    for small, large in pairwise(found):
        assert small.compute_ns + small.traffic_ns > 0
        work = large.compute_ns + large.traffic_ns
        assert work > 2 * (small.compute_ns + small.traffic_ns)
        assert large.upload_ns >= small.upload_ns
        assert large.readback_ns >= small.readback_ns


ITEMS = st.builds(
    lambda kind, launches, flops, nbytes, a, b: Item(
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
WORKS = st.builds(
    Work,
    st.lists(ITEMS, max_size=5).map(tuple),
    st.integers(0, 10**10),
    st.integers(0, 10**10),
    st.integers(0, 3),
)
PRICES = {
    "device": Prices(Calibration("gpu", "a", "b", "c", "d", "e", ON_DEVICE)),
    "host": Prices(Calibration("cpu", "a", "b", "c", "d", "e", ON_CPU)),
    "assumed device": Prices(assumed_gpu()),
    "assumed host": Prices(assumed_cpu()),
    "nothing known": Prices(Calibration("gpu", "a", "b", "c", "d", "e", ())),
}


@given(work=WORKS, name=st.sampled_from(sorted(PRICES)))
def test_terms_of_any_work_are_finite_and_add_up(work: Work, name: str) -> None:
    """Trips are counted by hand; a host makes none; no term is below zero."""
    prices = PRICES[name]
    terms = terms_of(work, prices)
    values = [getattr(terms, n) for n in NS]
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


@given(work=WORKS, item=ITEMS, name=st.sampled_from(sorted(PRICES)))
def test_more_work_never_costs_less(work: Work, item: Item, name: str) -> None:
    more = dataclasses.replace(work, items=(*work.items, item))
    prices = PRICES[name]
    before, after = terms_of(work, prices), terms_of(more, prices)
    assert all(getattr(after, n) >= getattr(before, n) for n in NS)


def test_arithmetic_that_hides_behind_its_traffic_costs_nothing_more() -> None:
    """A measured chain of one operation per 8 bytes says nothing of operations."""
    points = (*ON_DEVICE[:5], Point("elementwise", {"bytes": 800, "flops": 100}, 50.0))
    prices = Prices(Calibration("gpu", "a", "b", "c", "d", "e", points))
    work = Work((Item("elementwise", "it", 1, 1e9, 1_000),), 0, 0)
    assert terms_of(work, prices).compute_ns == 0.0


def test_leaves_and_views_ask_for_nothing() -> None:
    graph = Graph()
    x, w = graph.input("x", (4, 8)), graph.param("w", (8, 2))
    product = graph.transpose(x, (1, 0))
    result = x @ w
    nodes = {node.op: node for node in graph.nodes()}
    free = {op for op, node in nodes.items() if is_free(node)}
    assert free == {"input", "param", "transpose"}
    assert all(flops_of(graph, nodes[op]) == 0.0 for op in free)
    graph.set_outputs([result, product])
    work = work_of_graph(graph)
    assert [i.kind for i in work.items] == ["matmul"]
    assert work.items[0].flops == 2 * 4 * 8 * 2
    assert work.items[0].size == {"batch": 1, "m": 4, "k": 8, "n": 2}
    assert work.items[0].nbytes == 4 * (32 + 16 + 8)
    assert (work.upload_bytes, work.readback_bytes) == (4 * 32, 4 * (8 + 32))


def test_an_operand_that_is_used_twice_is_read_once() -> None:
    graph = Graph()
    x = graph.input("x", (10,))
    both = graph.node((x + x).id)
    assert bytes_of(graph, both) == 4 * (10 + 10)
    item = item_of(graph, both, launches=3)
    assert (item.kind, item.launches, item.flops) == ("add", 3, 10.0)
    assert (item.size, item.nbytes) == ({"cells": 10, "rows": 1}, 80)
