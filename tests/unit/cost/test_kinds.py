"""The table of kinds: what every record must say, and that one record is enough."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rlxweb import Graph
from rlxweb.calibration.kernels import TELLING, kernel_jobs
from rlxweb.calibration.measure import Calibrator
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.cli.calibrate_command import rate
from rlxweb.cost.graph_work import item_of, work_of_graph
from rlxweb.cost.kinds import KINDS, WorkKind, assumed_cpu, assumed_gpu, by_rate
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.probes import Probe
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.record_json import from_json
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import InputError
from rlxweb.ir.graph import Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Drawn
from tests.agreement import one_op

MEASURED = [kind for kind in KINDS.values() if kind.probes is not None]


def nodes_of(op: Op) -> Iterator[tuple[Graph, Node]]:
    """Each sample of an op as the node of a graph."""
    for sample in op.samples:
        graph = one_op(op, sample, sample.draw())
        yield from ((graph, n) for n in graph.nodes() if n.op == op.name)


def through_json(record: Calibration) -> Calibration:
    return from_json(json.loads(json.dumps(record.as_json())))


@pytest.mark.parametrize("name", [op.name for op in registry if op.work is not None])
def test_the_kind_an_op_names_is_in_the_table(name: str) -> None:
    """An op's kind is in the table with all its sizes, or is measured by itself."""
    found = list(nodes_of(registry.get(name)))
    assert found
    for graph, node in found:
        item = item_of(graph, node)
        if item.kind in KINDS:
            assert KINDS[item.kind].price is not None
            assert set(KINDS[item.kind].fields) <= set(item.size)
        else:  # it is measured by itself
            assert item.kind == name
            assert registry.get(name).telling
            assert set(item.size) == {"cells", "bytes"}


def test_every_other_kind_of_item_is_in_the_table() -> None:
    """Kinds that plans give by themselves, and no op says, are in the table."""
    assert {"elementwise", "copy"} <= set(KINDS)


@pytest.mark.parametrize("is_cpu", [True, False])
@pytest.mark.parametrize("kind", MEASURED, ids=lambda kind: kind.name)
def test_a_probe_is_as_much_work_as_its_size_says(kind: WorkKind, is_cpu: bool) -> None:
    """A probe's work is what its size says, by the counts that price a graph."""
    assert kind.probes is not None
    probes = list(kind.probes(is_cpu))
    assert [probe.turn == 0 for probe in probes] == [True] + [False] * len(probes[1:])
    for probe in probes:
        assert set(probe.size) == set(kind.fields)
        graph = Graph()
        params = []
        for name, one in probe.shapes.items():
            drawn = one if isinstance(one, Drawn) else Drawn(one)
            params.append(graph.param(name, drawn.shape, drawn.dtype))
        graph.set_outputs([probe.build(graph, *params)])
        items = work_of_graph(graph).items
        if kind.flops is not None:
            assert sum(i.flops for i in items) == kind.flops(probe.size)
        if kind.price is not None:
            (item,) = items
            assert item.kind == kind.name
            assert probe.size.items() <= item.size.items()


@pytest.mark.parametrize("place", [CPU, Place(Device.GPU)], ids=str)
def test_the_telling_jobs_are_one_of_each_kind(place: Place) -> None:
    names = [name.split()[0] for name, _ in kernel_jobs(place)]
    assert sorted(names[:TELLING]) == sorted(kind.name for kind in MEASURED)


@pytest.mark.parametrize("in_a_tab", [True, False])
def test_what_is_assumed_could_have_been_measured(in_a_tab: bool) -> None:
    """The assumed figures survive JSON and are enough to price every kernel."""
    for record in (assumed_cpu(in_a_tab), assumed_gpu()):
        assert through_json(record) == record
        assert {kind.name for kind in MEASURED} <= {p.what for p in record.points}


@pytest.mark.parametrize("what", KINDS)
def test_a_size_below_the_least_is_refused(what: str) -> None:
    """A size that is below the least or lacks a field is refused."""
    fields = KINDS[what].fields
    record = Calibration("cpu", "a", "b", "c", "d", "e", (Point(what, fields, 1.0),))
    assert through_json(record) == record
    for name, least in fields.items():
        others = {n: v for n, v in fields.items() if n != name}
        for size in (others, others | {name: least - 1}):
            spoiled = replace(record, points=(Point(what, size, 1.0),))
            with pytest.raises(InputError, match="not one of ours"):
                through_json(spoiled)


SCAN = WorkKind(
    "scan",
    {"rows": 1, "n": 1},
    flops=lambda size: float(size["rows"] * size["n"]),
    over=lambda size: float(size["n"]),
    probes=lambda is_cpu: [
        Probe(
            f"scan {n}",
            {"rows": 8, "n": n},
            {"x": (8, n)},
            lambda g, x: g.cumsum(x),
            turn=3,
        )
        for n in (16, 4096)
    ],
    price=by_rate,
    assumed={"cpu": {(8, 1024): 9_000.0}},
)


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkKind]:
    """A kind that is one record in the table, and an op that says it is of it."""
    monkeypatch.setitem(KINDS, "scan", SCAN)
    cumsum = registry.get("cumsum")
    registry.register(
        replace(
            cumsum,
            work=lambda inputs, out, attrs: (
                "scan",
                {"rows": out.shape[0], "n": out.shape[1]},
            ),
        ),
        replace=True,
    )
    assumed_cpu.cache_clear()
    yield SCAN
    registry.register(cumsum, replace=True)
    assumed_cpu.cache_clear()


def scanned(rows: int, n: int) -> Graph:
    graph = Graph()
    graph.set_outputs([graph.cumsum(graph.input("x", (rows, n)))])
    return graph


def test_a_new_kind_is_measured_and_shown_with_its_rate(scan: WorkKind) -> None:
    """A new kind is measured by its own graphs, in its order, and survives JSON."""
    names = [name for name, _ in kernel_jobs(CPU)]
    assert [n for n in names if "scan" in n or "cumsum" in n] == [
        "scan 16",
        "scan 4096",
    ]
    work = Calibrator(Stopwatch(sample_ns=1, samples=1, least=1), math.inf)
    for name, make in kernel_jobs(CPU):
        if name.startswith("scan"):
            work.measure(name, make)
    assert [(p.what, p.size) for p in work.points] == [
        ("scan", {"rows": 8, "n": 16}),
        ("scan", {"rows": 8, "n": 4096}),
    ]
    record = replace(assumed_cpu(), points=tuple(work.points))
    assert through_json(record) == record
    assert rate(Point("scan", {"rows": 8, "n": 50}, 200.0)) == "2 GFLOP/s"
    short = replace(record, points=(Point("scan", {"rows": 8}, 1.0),))
    with pytest.raises(InputError, match="not one of ours"):
        through_json(short)


def test_a_new_kind_is_priced(scan: WorkKind) -> None:
    """A new kind is priced by its points, else by what is assumed of a CPU."""
    points = (
        Point("scan", {"rows": 1, "n": 10}, 10.0),
        Point("scan", {"rows": 1, "n": 1000}, 100.0),
    )
    work = work_of_graph(scanned(4, 100))
    (item,) = work.items
    assert (item.kind, item.size) == ("scan", {"rows": 4, "n": 100})
    # 1 flop/ns at 10, 10 at 1000: their geometric mean half way
    measured = terms_of(work, Prices(replace(assumed_cpu(), points=points)))
    assert measured.compute_ns == pytest.approx(item.flops / math.sqrt(10.0))
    assert measured.traffic_ns == 0.0
    unmeasured = terms_of(work, Prices(replace(assumed_cpu(), points=())))
    assert unmeasured.compute_ns == pytest.approx(item.flops * 9_000 / (8 * 1024))
